"""The real node agent against the fake runtime, in virtual time: a pod's life as text.

A story (tests/data/node/stories) is data: what the containers do, the pod, when it is deleted.
`UPDATE_GOLDEN=1` rewrites what happens; read the diff.
"""

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest
import yaml
from world import Trace, simulate

from motley.api.views.core import Node
from motley.api.views.pod import Pod
from motley.node.agent import Agent
from motley.node.context import Settings
from motley.node.fakecri import stages
from motley.node.fakecri.engine import Engine
from motley.node.fakecri.inprocess import FakeRuntime, NoCgroups
from motley.node.fakecri.services import Services

STORIES = Path(__file__).parents[1] / "data" / "node" / "stories"
NAMES = sorted(path.stem for path in STORIES.glob("*.yaml"))


class Inline(ThreadPoolExecutor):
    """Threads' work, done at once: virtual time does not wait for a thread."""

    def submit(self, fn, /, *args, **kwargs):
        done = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:
            done.set_exception(error)
        return done


async def _nothing(pod_cidr):
    """There is no network to set up."""


def agent(world, root, name, engine):
    settings = Settings(name=name, node_ip="10.0.0.9", root=root / name)
    return Agent(
        settings,
        world._client(name, "admin"),
        FakeRuntime(Services(engine, str(root))),
        setup_network=_nothing,
        groups=NoCgroups(),
        clock=world.clock,
        rng=Random(1),
    )


@asynccontextmanager
async def running(world, made):
    """Run an agent; leaving is its death, at once and without a word."""
    asyncio.get_running_loop().set_default_executor(Inline())
    async with asyncio.TaskGroup() as group:
        task = group.create_task(made.run())
        try:
            yield made
        finally:
            task.cancel()


def engine_of(world, said):
    return Engine(stages.parse(yaml.safe_dump(said)), world.clock)


async def is_ready(world, name):
    await world.until(lambda: (n := world.cached(Node, name)) and n.is_ready, f"{name} is Ready")


def lives(trace):
    """Every pod: its phase and what its containers do."""
    said = []
    for pod in trace.world.pods():
        status = pod.status
        parts = [status.phase]
        for container in (*status.init_container_statuses, *status.container_statuses):
            state = container.state
            what = "-"
            if state.running:
                what = "ready" if container.ready else "running"
            elif state.terminated:
                what = f"ended {state.terminated.exit_code} {state.terminated.reason}"
            elif state.waiting:
                what = state.waiting.reason
            count = f" x{container.restart_count}" if container.restart_count else ""
            parts.append(f"{container.name}={what}{count}")
        said.append(f"{pod.metadata.name} " + ", ".join(parts))
    return "; ".join(said) or "no pod"


def pod(name, spec):
    whole = {"automountServiceAccountToken": False, **spec}
    return {"metadata": {"name": name}, "spec": whole}


@pytest.mark.parametrize("name", NAMES)
@simulate(nodes=0)
async def test_a_pods_life_on_the_fake_runtime(world, golden, name, tmp_path):
    story = yaml.safe_load((STORIES / f"{name}.yaml").read_text())
    engine = engine_of(world, story["stages"])
    async with running(world, agent(world, tmp_path, "node-1", engine)):
        await is_ready(world, "node-1")
        trace = await Trace.begin(world, lives)
        begun = world.time
        await world.create(Pod, pod("p", story["pod"]))
        if "delete" in story:
            await world.sleep(begun + story["delete"] - world.time)
            trace.say("delete")
            await world.delete(Pod, "p")
        await world.sleep(begun + story["until"] - world.time)
        golden(f"agent_{name}", trace)
        if "delete" in story:
            assert not engine.sandboxes, "nothing is left in the runtime"
            assert not engine.containers
            assert not list((tmp_path / "node-1" / "logs" / "pods").iterdir())


@simulate(nodes=0)
async def test_the_next_agent_takes_over_what_the_last_one_left(world, tmp_path):
    engine = engine_of(world, [{"runs": [{"for": "50s", "exitCode": 3}, {}]}])
    containers = [{"name": "main", "image": "example/app:1"}]
    async with running(world, agent(world, tmp_path, "node-1", engine)):
        await is_ready(world, "node-1")
        await world.create(Pod, pod("kept", {"containers": containers}))
        await world.create(Pod, pod("gone", {"containers": containers}))
        await world.until(lambda: len([p for p in world.pods() if p.is_ready]) == 2)
        before = {c.id for c in engine.containers.values()}
    await world.delete(Pod, "gone", grace_period_s=0)
    await world.sleep(20)
    async with running(world, agent(world, tmp_path, "node-1", engine)):
        await world.until(lambda: len(engine.sandboxes) == 1, "the orphan is gone", within_s=20)
        assert {c.id for c in engine.containers.values()} < before, "the other one is the same"
        await world.until(
            lambda: world.cached(Pod, "kept").status.container_statuses[0].restart_count
        )
        (status,) = world.cached(Pod, "kept").status.container_statuses
        assert status.restart_count == 1
        assert status.last_state.terminated.exit_code == 3


@simulate(nodes=0)
async def test_many_agents_in_one_process_run_many_pods(world, tmp_path):
    """What a run with a thousand nodes is made of; twenty show it."""
    engines = {f"node-{i}": engine_of(world, [{"sandbox": "100ms"}]) for i in range(20)}
    asyncio.get_running_loop().set_default_executor(Inline())
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(agent(world, tmp_path, name, engine).run())
            for name, engine in engines.items()
        ]
        for name in engines:
            await is_ready(world, name)
        spec = {"containers": [{"name": "main", "image": "example/app:1"}]}
        for number in range(60):
            await world.create(Pod, pod(f"p-{number}", spec))
        await world.until(lambda: sum(p.is_ready for p in world.pods()) == 60, within_s=60)
        assert sum(len(e.sandboxes) for e in engines.values()) == 60
        assert len([e for e in engines.values() if e.sandboxes]) == 20, "every node has its part"
        for task in tasks:
            task.cancel()
