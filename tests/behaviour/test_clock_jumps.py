"""A cluster whose wall clock is put forward or back by an hour, on virtual time."""

import pytest
from world import simulate
from world.workloads import completed, deployment

from motley.api.views.core import Node
from motley.controllers.workload import Deployment

HOUR_S = 3600.0


def on(world, node):
    return {pod.metadata.name for pod in world.living() if pod.spec.node_name == node}


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S])
def test_a_jump_condemns_no_node_and_moves_no_pod(jump_s):
    @simulate(nodes=3)
    async def story(world):
        await world.create(Deployment, deployment(replicas=6))
        await completed(world)
        before = {pod.metadata.uid for pod in world.living()}
        world.clock.ahead_s += jump_s
        await world.sleep(180)
        assert all(node.is_ready and not node.spec.taints for node in await world.list(Node))
        assert {pod.metadata.uid for pod in world.living()} == before
        # And what is asked for afterwards is done as ever.
        await world.patch(Deployment, "web", {"spec": {"replicas": 8}})
        await world.sleep(30)
        assert len(world.living()) == 8

    story()


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S])
def test_pods_of_a_lost_node_leave_when_they_would_have_without_the_jump(jump_s):
    """Five minutes after the taint: not at once because an hour passed, not an hour later."""

    @simulate(nodes=3)
    async def story(world):
        await world.create(Deployment, deployment(replicas=6))
        await completed(world)
        world.kubelets.down("node-1")
        await world.sleep(100)
        assert any(t.effect == "NoExecute" for t in (await world.get(Node, "node-1")).spec.taints)
        there = on(world, "node-1")
        assert there
        world.clock.ahead_s += jump_s
        await world.sleep(150)
        assert on(world, "node-1") == there
        await world.sleep(150)
        assert not on(world, "node-1")

    story()


@simulate(nodes=3)
async def test_a_controller_that_starts_after_the_clock_was_put_back_evicts_in_time(world):
    await world.create(Deployment, deployment(replicas=6))
    await completed(world)
    world.kubelets.down("node-1")
    await world.sleep(100)
    assert on(world, "node-1")
    world.clock.ahead_s -= HOUR_S
    await world.kill_manager()
    world.start_manager()
    await world.sleep(400)
    assert not on(world, "node-1")
