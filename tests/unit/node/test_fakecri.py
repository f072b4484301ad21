"""The fake runtime: stages as data, and its socket, asked by the agent's own client."""

import asyncio

import grpc.aio
import pytest
from click.testing import CliRunner

from motley.cli.main import main
from motley.lib.clock import SYSTEM
from motley.node.cri import containerd
from motley.node.cri import cri_pb2 as cri
from motley.node.cri.errors import RuntimeFailure, RuntimeNotFound
from motley.node.cri.runtime import Runtime
from motley.node.fakecri import stages
from motley.node.fakecri.engine import Engine
from motley.node.fakecri.services import NAME, Services
from motley.node.fakecri.serving import serve
from motley.node.model import POD_UID, State

SAID = """
- match: {container: brief}
  runs: [{for: 50ms, exitCode: 7}, {}]
  log: [hello]
  exec: [{command: "cat *", exitCode: 3, output: nothing}]
- match: {container: hungry}
  runs: [{for: 10ms, exitCode: 137, reason: OOMKilled}]
- match: {container: stubborn}
  stop: 1h
- match: {container: broken}
  runs: [{error: no such command}]
- match: {image: "example/rare:*"}
  pullErrors: [not found]
"""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("- {pull: soon}", "entry 0: 'soon' is no duration"),
        ("- {}\n- {runs: [{for: 5}]}", "Expected `str`, got `int`"),
        ("- {run: []}", "unknown field `run`"),
        ("- {runs: []}", "runs is empty"),
        ("{", "expected"),
    ],
)
def test_a_wrong_stage_is_named(text, why):
    with pytest.raises(stages.StagesError, match=why):
        stages.parse(text)


def test_the_command_refuses_wrong_stages(tmp_path):
    path = tmp_path / "stages.yaml"
    path.write_text("- {pull: soon}")
    command = ["fake-runtime", "--socket", str(tmp_path / "s"), "--stages", str(path)]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 1
    assert "'soon' is no duration" in done.output


def test_the_first_entry_that_fits_counts_and_the_last_run_repeats():
    found = stages.parse(SAID)
    assert found.of(container="brief").run(0).exit_code == 7
    assert found.of(container="brief").run(5).seconds is None
    assert found.of(container="other").run(0).seconds is None
    assert found.of(image="example/rare:1").pull_errors == ["not found"]


@pytest.fixture
async def runtime(tmp_path):
    """The agent's client of a fake runtime behind a real socket."""
    socket = tmp_path / "cri.sock"
    services = Services(Engine(stages.parse(SAID), SYSTEM), str(tmp_path))
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(serve(services, socket))
        while not socket.exists():
            await SYSTEM.sleep(0.01)
        client = Runtime(f"unix://{socket}")
        yield client
        await client.close()
        serving.cancel()
    assert not socket.exists()


async def test_what_is_not_simulated_is_not_implemented_so_that_kubelets_do_without(
    runtime, tmp_path
):
    async with grpc.aio.insecure_channel(f"unix://{tmp_path / 'cri.sock'}") as channel:
        call = channel.unary_unary("/runtime.v1.RuntimeService/RuntimeConfig")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call(b"", timeout=30)
        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
        images = channel.unary_unary("/runtime.v1.ImageService/ImageFsInfo")
        said = cri.ImageFsInfoResponse.FromString(await images(b"", timeout=30))
    for one in (*said.image_filesystems, *said.container_filesystems):
        assert one.HasField("used_bytes")
        assert one.HasField("inodes_used")


def sandbox(tmp_path):
    meta = cri.PodSandboxMetadata(name="p", uid="u1", namespace="default")
    return cri.PodSandboxConfig(
        metadata=meta, labels={POD_UID: "u1"}, log_directory=str(tmp_path / "logs")
    )


async def started(runtime, tmp_path, name, attempt=0):
    config = sandbox(tmp_path)
    found = await runtime.list_sandboxes("u1")
    place = found[0].id if found else await runtime.run_sandbox(config)
    wanted = cri.ContainerConfig(
        metadata=cri.ContainerMetadata(name=name, attempt=attempt),
        labels={POD_UID: "u1"},
        log_path=f"{name}/{attempt}.log",
    )
    made = await runtime.create_container(place, wanted, config)
    await runtime.start_container(made)
    return made


async def test_a_container_lives_and_ends_as_its_stages_say(runtime, tmp_path):
    assert (await runtime.version()).name == NAME
    assert not (await runtime.readiness()).network
    told = asyncio.Queue()

    async def listen():
        async for event in containerd.events(runtime):
            told.put_nowait(event)

    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        listening = group.create_task(listen())
        await SYSTEM.sleep(0.1)
        first = await started(runtime, tmp_path, "brief")
        assert await told.get() == ("/tasks/start", first)
        assert await told.get() == ("/tasks/exit", first), "its end comes without being asked for"
        listening.cancel()
    pod = await runtime.pod("u1")
    assert pod.sandbox.ips
    (ended,) = pod.containers
    assert (ended.state, ended.exit_code, ended.reason) == (State.EXITED, 7, "Error")
    assert 0.04 < ended.finished_at - ended.started_at < 0.2
    assert (tmp_path / "logs" / "brief" / "0.log").read_text().endswith(" stdout F hello\n")
    second = await started(runtime, tmp_path, "brief", 1)
    assert (await runtime.exec_sync(second, ["cat", "x"], 1)).exit_code == 3
    assert (await runtime.exec_sync(second, ["true"], 1)).exit_code == 0
    with pytest.raises(RuntimeFailure, match="is running"):
        await runtime.remove_container(second)
    await runtime.stop_container(second, 0)
    await runtime.remove_sandbox(pod.sandbox.id)
    assert (await runtime.pod("u1")).is_empty


async def test_hungry_stubborn_and_broken_containers(runtime, tmp_path):
    await started(runtime, tmp_path, "hungry")
    stubborn = await started(runtime, tmp_path, "stubborn")
    await runtime.stop_container(stubborn, 0)
    with pytest.raises(RuntimeFailure, match="no such command"):
        await started(runtime, tmp_path, "broken")
    async with asyncio.timeout(20):
        while (pod := await runtime.pod("u1")).latest("hungry").is_running:
            await SYSTEM.sleep(0.01)
    assert pod.latest("hungry").reason == "OOMKilled"
    assert pod.latest("stubborn").exit_code == 137
    assert pod.latest("broken").state is State.CREATED


async def test_images_are_pulled_or_not_and_what_is_not_there_is_not_found(runtime):
    assert await runtime.image("example/rare:1") is None
    with pytest.raises(RuntimeFailure, match="not found"):
        await runtime.pull("example/rare:1")
    pulled = await runtime.pull("example/rare:1")
    assert (await runtime.image("example/rare:1")).id == pulled
    assert (await runtime.image(pulled)).tags == ("example/rare:1",)
    await runtime.remove_image(pulled)
    assert await runtime.list_images() == []
    with pytest.raises(RuntimeNotFound):
        await runtime.sandbox("none")
    with pytest.raises(RuntimeFailure, match="not simulated"):
        await runtime.exec_url("none", ["sh"], stdin=False, tty=False)


async def test_addresses_of_a_ready_sandbox_are_asked_for_once(runtime, tmp_path, monkeypatch):
    asked = []
    real = runtime.sandbox

    async def counted(sandbox_id):
        asked.append(sandbox_id)
        return await real(sandbox_id)

    monkeypatch.setattr(runtime, "sandbox", counted)
    first = await runtime.run_sandbox(sandbox(tmp_path))
    seen = [(await runtime.pod("u1")).sandboxes[0] for _ in range(3)]
    assert asked == [first]
    assert seen[0].ips
    assert seen[1:] == seen[:1] * 2

    await runtime.stop_sandbox(first)
    assert not (await runtime.pod("u1")).sandboxes[0].is_ready
    await runtime.remove_sandbox(first)
    second = await runtime.run_sandbox(sandbox(tmp_path))
    assert (await runtime.pod("u1")).sandboxes[0].id == second
    assert asked == [first, second]
    await runtime.list_sandboxes()
    assert list(runtime._addressed) == [second], "what is gone is forgotten"
