"""The scheduler as a process, against the real API server."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from motley.api import status
from motley.api.views.core import Event, Node
from motley.api.views.pod import Pod
from motley.client import kubeconfig
from motley.client.rest import Client
from motley.lib.clock import SYSTEM
from motley.ops.freeports import free_port

START_S = 30.0
SOON_S = 60.0


@contextlib.asynccontextmanager
async def process(log: Path, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A `motley` command, ended by its own pid whatever happens."""
    with log.open("ab") as output:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "motley.cli.main", *arguments, stdout=output, stderr=output
        )
    try:
        yield child
    finally:
        if child.returncode is None:
            child.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(10):
                    await child.wait()
            except TimeoutError:
                child.kill()
                await child.wait()
                raise


async def until(probe: Callable[[], Any], what: str, timeout_s: float = SOON_S) -> Any:
    """The first true answer of an async probe."""
    deadline = SYSTEM.monotonic() + timeout_s
    while True:
        answer = await probe()
        if answer:
            return answer
        assert SYSTEM.monotonic() < deadline, f"{what} did not happen within {timeout_s} s"
        await SYSTEM.sleep(0.05)


class World:
    """An API server, a client of it, and shortcuts."""

    def __init__(self, client: Client, config: Path, directory: Path) -> None:
        self.client = client
        self.config = config
        self.directory = directory

    def scheduler(self, *options: str) -> contextlib.AbstractAsyncContextManager[Any]:
        return process(
            self.directory / "scheduler.log",
            *("scheduler", "--kubeconfig", str(self.config), "--health-port", "0", *options),
        )

    async def node(self, name: str, *, cpu: str = "2", **spec: Any) -> None:
        resources = {"cpu": cpu, "memory": "4Gi", "pods": "20"}
        labels = {"kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64"}
        body = {"metadata": {"name": name, "labels": labels}, "spec": spec}
        await self.client.create(Node, body)
        conditions = [{"type": "Ready", "status": "True", "reason": "Test", "message": ""}]
        reported = {"capacity": resources, "allocatable": resources, "conditions": conditions}
        await self.client.patch(Node, name, "", {"status": reported}, subresource="status")
        # New nodes are tainted until a controller finds them ready; here there is none.
        await self.client.patch(Node, name, "", {"spec": {"taints": spec.get("taints")}})

    async def pod(self, name: str, *, cpu: str = "", image: str = "app:1", **spec: Any) -> None:
        container: dict[str, Any] = {"name": "c", "image": image}
        if cpu:
            container["resources"] = {"requests": {"cpu": cpu}}
        body = {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}
        await self.client.create(Pod, body, "default")

    async def placed(self, name: str) -> str:
        async def probe() -> str:
            return (await self.client.get(Pod, name, "default")).spec.node_name

        return str(await until(probe, f"placing {name}"))

    async def refusal(self, name: str) -> str:
        async def probe() -> str:
            pod = await self.client.get(Pod, name, "default")
            condition = pod.status.condition("PodScheduled")
            unscheduled = condition is not None and condition.status == "False"
            return condition.message if condition is not None and unscheduled else ""

        return str(await until(probe, f"refusing {name}"))

    async def events(self, name: str, reason: str) -> list[Event]:
        async def probe() -> list[Event]:
            listing = await self.client.list(Event, namespace="default")
            return [
                event
                for event in listing.items
                if event.involved_object.name == name and event.reason == reason
            ]

        found: list[Event] = await until(probe, f"event {reason} of {name}")
        return found


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    data, port = tmp_path / "apiserver", free_port()
    options = ("--data-dir", str(data), "--bind", "127.0.0.1", "--port", str(port))
    async with process(tmp_path / "apiserver.log", "apiserver", *options, "--store", "memory"):
        config = data / "admin.kubeconfig"

        async def written() -> bool:
            return config.exists()

        await until(written, "writing the kubeconfig", START_S)
        async with Client(kubeconfig.load(config)) as client:

            async def answers() -> bool:
                try:
                    return bool((await client.list(Node)).resource_version)
                except status.ApiError:
                    return False

            await until(answers, "the API server's start", START_S)
            yield World(client, config, tmp_path)


async def test_pods_land_on_the_nodes_that_suit_them(world):
    await world.node("a")
    await world.node("b")
    await world.node("c", taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}])
    async with world.scheduler():
        for i in range(4):
            await world.pod(f"p{i}", cpu="900m")
        placed = [await world.placed(f"p{i}") for i in range(4)]
        assert sorted(placed) == ["a", "a", "b", "b"]
        scheduled = await world.events("p0", "Scheduled")
        assert scheduled[0].message == f"Successfully assigned default/p0 to {placed[0]}"

        await world.pod("full", cpu="900m")
        message = (
            "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu. "
            "preemption: 0/3 nodes are available: 1 Preemption is not helpful for scheduling, "
            "2 No preemption victims found for incoming pod."
        )
        assert await world.refusal("full") == message
        failed = await world.events("full", "FailedScheduling")
        assert failed[0].message == message

        await world.client.delete(Pod, "p0", "default", grace_period_s=0)
        assert await world.placed("full") == placed[0]


async def test_a_changed_label_or_taint_wakes_the_pods_it_helps(world):
    await world.node("a", taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}])
    async with world.scheduler():
        await world.pod("tainted")
        await world.pod("picky", nodeSelector={"disk": "ssd"}, tolerations=[{"operator": "Exists"}])
        assert "untolerated taint" in await world.refusal("tainted")
        assert "node affinity/selector" in await world.refusal("picky")
        await world.client.patch(Node, "a", "", {"metadata": {"labels": {"disk": "ssd"}}})
        assert await world.placed("picky") == "a"
        assert not (await world.client.get(Pod, "tainted", "default")).spec.node_name
        await world.client.patch(Node, "a", "", {"spec": {"taints": None}})
        assert await world.placed("tainted") == "a"


async def test_a_restarted_scheduler_counts_what_is_placed_and_leaves_others_pods_alone(world):
    await world.node("a", cpu="1")
    async with world.scheduler():
        await world.pod("first", cpu="600m")
        assert await world.placed("first") == "a"
        await world.pod("foreign", schedulerName="someone-else")
    async with world.scheduler():
        await world.pod("second", cpu="600m")
        assert await world.refusal("second") == (
            "0/1 nodes are available: 1 Insufficient cpu. preemption: "
            "0/1 nodes are available: 1 No preemption victims found for incoming pod."
        )
    assert not (await world.client.get(Pod, "foreign", "default")).spec.node_name


async def test_profiles_of_a_file_take_their_own_pods_and_obey_the_image_table(world, tmp_path):
    await world.node("x86")
    await world.node("arm")
    await world.client.patch(
        Node, "arm", "", {"metadata": {"labels": {"kubernetes.io/arch": "arm64"}}}
    )
    table = tmp_path / "images.yaml"
    table.write_text(
        "list:\n- name: reg:5000/web:latest\n  images:\n"
        "  - {name: 'reg:5000/web:latest-arm64', arch: arm64, os: linux}\n"
    )
    config = tmp_path / "config.yaml"
    config.write_text(f"""
apiVersion: kubescheduler.config.k8s.io/v1beta1
kind: KubeSchedulerConfiguration
clientConnection: {{kubeconfig: {world.config}}}
leaderElection: {{leaderElect: false}}
profiles:
  - schedulerName: mixed-scheduler
    plugins:
      preFilter: {{enabled: [{{name: Hicev1}}]}}
      filter: {{enabled: [{{name: Hicev1}}]}}
      bind: {{enabled: [{{name: Hicev1}}], disabled: [{{name: DefaultBinder}}]}}
    pluginConfig:
      - {{name: Hicev1, args: {{imagesFile: {table}}}}}
""")
    async with world.scheduler("--config", str(config)):
        await world.pod("mine", image="reg:5000/web:latest", schedulerName="mixed-scheduler")
        await world.pod("default-ones")
        assert await world.placed("mine") == "arm"
        mine = await world.client.get(Pod, "mine", "default")
        assert mine.spec.containers[0].image == "reg:5000/web:latest-arm64"
        assert not (await world.client.get(Pod, "default-ones", "default")).spec.node_name


async def test_of_two_schedulers_one_works_and_the_other_takes_over(world):
    await world.node("a")
    async with world.scheduler() as first:
        await world.pod("before")
        assert await world.placed("before") == "a"
        async with world.scheduler():
            await world.pod("between")
            assert await world.placed("between") == "a"
            first.send_signal(signal.SIGTERM)
            async with asyncio.timeout(SOON_S):
                assert await first.wait() == 0
            await world.pod("after")
            assert await world.placed("after") == "a"


async def test_a_wrong_configuration_ends_with_one_line_that_names_the_fault(world, tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles: [{plugins: {filter: {enabled: [{name: Nonsense}]}}}]\n"
    )
    async with world.scheduler("--config", str(config)) as child:
        async with asyncio.timeout(START_S):
            assert await child.wait() == 1
    assert (tmp_path / "scheduler.log").read_text().splitlines() == [
        f"Error: {config}: profile 'default-scheduler': unknown plugin 'Nonsense' at 'filter'"
    ]
