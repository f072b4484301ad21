"""The virtual world itself: time passes at once, runs repeat, faults do what they say."""

import asyncio

import pytest
from world import After, Before, Behaviour, VirtualClock, World, run, simulate
from world.loop import Stuck
from world.workloads import completed, deployment, set_image

from motley.api import status
from motley.api.views.core import ConfigMap, Event
from motley.api.views.pod import Pod
from motley.controllers.workload import Deployment
from motley.lib.clock import SYSTEM


@simulate(nodes=3)
async def test_ten_minutes_of_a_rollout_take_seconds(world):
    began = SYSTEM.monotonic()
    world.kubelets.script = lambda _: Behaviour(start_s=20, ready_s=40)
    await world.create(Deployment, deployment(replicas=10))
    await completed(world)
    await set_image(world, "two")
    await completed(world)
    assert world.time >= 180
    await world.sleep(600 - world.time)
    assert SYSTEM.monotonic() - began < 20  # about one on an idle machine


def test_two_runs_are_the_same_to_the_last_request():
    async def main():
        async with World.open(nodes=2, seed=7, latency_s=0.003) as world:
            await world.create(Deployment, deployment(replicas=4))
            await world.sleep(3)
            await world.kill_manager()
            world.start_manager()
            await completed(world)
            world.kubelets.down("node-1")
            await world.sleep(60)
            return [(a.asked.at, a.asked.who, a.asked.path, a.code) for a in world.wire.log]

    assert run(main()) == run(main())


def test_time_moves_only_when_all_wait():
    async def main():
        clock = VirtualClock()
        order = []

        async def nap(name, seconds):
            await clock.sleep(seconds)
            order.append((name, round(clock.monotonic(), 6)))

        async with asyncio.TaskGroup() as group:
            for name, seconds in (("late", 5), ("soon", 0.5), ("then", 2)):
                group.create_task(nap(name, seconds))
        return order

    assert run(main()) == [("soon", 0.5), ("then", 2.0), ("late", 5.0)]


def test_waiting_for_nothing_is_said():
    async def main():
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Stuck, match="no timer"):
        run(main())


@simulate(nodes=0, manager=False, scheduler=False)
async def test_a_fault_before_leaves_nothing_and_one_after_leaves_the_object(world):
    for fault, error, kept in (
        (Before(status.InternalError("no")), status.InternalError, False),
        (After(), status.GatewayTimeout, True),
    ):
        world.wire.fault = lambda asked, fault=fault: fault if asked.method == "POST" else None
        with pytest.raises(error):
            await world.create(ConfigMap, {"metadata": {"name": "c"}})
        world.wire.fault = None
        assert await world.exists(ConfigMap, "c") is kept


@simulate(nodes=1)
async def test_watches_resume_after_a_cut_and_a_restart_of_the_server(world):
    await world.create(Deployment, deployment(replicas=1))
    await completed(world)
    assert world.wire.cut_watches() > 5
    await world.stop_server()
    with pytest.raises(status.ServiceUnavailable):
        await world.get(Deployment, "web")
    await world.start_server()
    await world.patch(Deployment, "web", {"spec": {"replicas": 2}})
    await completed(world)
    assert len(world.living(app="web")) == 2


@pytest.mark.parametrize(
    ("policy", "code", "phase", "restarts"),
    [("Never", 0, "Succeeded", 0), ("Never", 3, "Failed", 0), ("OnFailure", 3, "Running", 1)],
)
@simulate(nodes=1)
async def test_a_pod_ends_by_script(world, policy, code, phase, restarts):
    world.kubelets.script = lambda _: Behaviour(run_s=30, exit_code=code)
    spec = {"restartPolicy": policy, "containers": [{"name": "c", "image": "i"}]}
    await world.create(Pod, {"metadata": {"name": "p"}, "spec": spec})
    await world.sleep(45)
    pod = await world.get(Pod, "p")
    assert pod.status.phase == phase
    assert pod.status.container_statuses[0].restart_count == restarts
    assert await world.list(Event)
