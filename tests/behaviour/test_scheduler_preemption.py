"""Preemption from end to end, on virtual time: scheduler, API server, controllers, node agents."""

from typing import ClassVar

from world import Asked, Before, Behaviour, World, simulate

from motley.api import quantity, status
from motley.api.views.base import Object
from motley.api.views.core import Event
from motley.api.views.pod import Pod
from motley.api.views.policy import PodDisruptionBudget
from motley.controllers.fakenodes import Shape


class PriorityClass(Object):
    """How important pods are, by name."""

    API_VERSION: ClassVar[str] = "scheduling.k8s.io/v1"
    KIND: ClassVar[str] = "PriorityClass"
    PLURAL: ClassVar[str] = "priorityclasses"
    NAMESPACED: ClassVar[bool] = False


NODE_CPU_MILLI = quantity.cpu_milli(Shape().cpu)
STOP_S = 20.0


async def _classes(world: World) -> None:
    for name, value in (("low", 1), ("middle", 50), ("high", 100)):
        body = {"metadata": {"name": name}, "value": value}
        await world.create(PriorityClass, body)
    body = {"metadata": {"name": "polite"}, "value": 1000, "preemptionPolicy": "Never"}
    await world.create(PriorityClass, body)
    world.kubelets.script = lambda _: Behaviour(start_s=1, ready_s=1, stop_s=STOP_S)


async def _pod(world: World, name: str, priority: str, share: float) -> None:
    """A pod that wants this share of a node's CPU."""
    requests = {"cpu": f"{int(NODE_CPU_MILLI * share)}m"}
    container = {"name": "c", "image": "app:1", "resources": {"requests": requests}}
    body = {
        "metadata": {"name": name, "labels": {"app": name.partition("-")[0]}},
        "spec": {"containers": [container], "priorityClassName": priority},
    }
    await world.create(Pod, body)
    await world.until(lambda: world.cached(Pod, name) is not None, within_s=5)


def _nominated(world: World, name: str) -> str:
    node: str = world.cached(Pod, name).status.nominated_node_name
    return node


def _running(world: World, *names: str) -> bool:
    pods = [world.cached(Pod, name) for name in names]
    return all(pod is not None and pod.status.phase == "Running" for pod in pods)


async def _events(world: World, name: str, reason: str) -> list[str]:
    events = await world.list(Event)
    return [e.message for e in events if e.involved_object.name == name and e.reason == reason]


@simulate(nodes=1)
async def test_a_more_important_pod_ends_the_least_important_and_gets_their_place(world):
    await _classes(world)
    await _pod(world, "low-0", "low", 0.4)
    await _pod(world, "middle-0", "middle", 0.4)
    await world.until(lambda: _running(world, "low-0", "middle-0"), within_s=30)
    await _pod(world, "high-0", "high", 0.5)

    await world.until(lambda: world.cached(Pod, "low-0").metadata.deletion_timestamp, within_s=10)
    # The condition and the nomination are there while the victim still ends.
    await world.until(lambda: _nominated(world, "high-0") == "node-0", within_s=5)
    condition = world.cached(Pod, "low-0").status.condition("DisruptionTarget")
    assert (condition.status, condition.reason) == ("True", "PreemptionByScheduler")
    assert condition.message == (
        "default-scheduler: preempting to accommodate a higher priority pod"
    )
    # What the victim leaves is kept: nobody of lower priority slips in.
    await _pod(world, "middle-1", "middle", 0.3)

    await world.until(lambda: _running(world, "high-0"), within_s=STOP_S + 20)
    assert not await world.exists(Pod, "low-0")
    assert world.cached(Pod, "middle-0").metadata.deletion_timestamp is None
    assert not world.cached(Pod, "middle-1").spec.node_name
    uid = world.cached(Pod, "high-0").metadata.uid
    assert await _events(world, "low-0", "Preempted") == [f"Preempted by pod {uid} on node node-0"]


@simulate(nodes=2)
async def test_pods_that_no_budget_protects_go_first(world):
    await _classes(world)
    await _pod(world, "kept-0", "low", 0.6)
    await world.until(lambda: _running(world, "kept-0"), within_s=30)
    await _pod(world, "free-0", "middle", 0.6)
    await world.until(lambda: _running(world, "free-0"), within_s=30)
    budget = {
        "metadata": {"name": "kept"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}},
    }
    await world.create(PodDisruptionBudget, budget)
    await world.sleep(5)
    await _pod(world, "high-0", "high", 0.6)
    await world.until(lambda: _running(world, "high-0"), within_s=STOP_S + 30)
    # Without the budget it would have been the less important one.
    assert not await world.exists(Pod, "free-0")
    assert world.cached(Pod, "kept-0").metadata.deletion_timestamp is None


@simulate(nodes=1)
async def test_a_pod_that_never_preempts_waits_until_there_is_room(world):
    await _classes(world)
    await _pod(world, "low-0", "low", 0.8)
    await world.until(lambda: _running(world, "low-0"), within_s=30)
    await _pod(world, "polite-0", "polite", 0.5)
    await world.sleep(60)
    assert world.cached(Pod, "low-0").metadata.deletion_timestamp is None
    assert (await _events(world, "polite-0", "FailedScheduling"))[0] == (
        "0/1 nodes are available: 1 Insufficient cpu. "
        "preemption: not eligible due to preemptionPolicy=Never."
    )
    await world.delete(Pod, "low-0")
    await world.until(lambda: _running(world, "polite-0"), within_s=STOP_S + 30)


@simulate(nodes=1)
async def test_a_still_more_important_pod_takes_the_place_and_the_nomination_ends(world):
    await _classes(world)
    await _pod(world, "low-0", "low", 0.8)
    await world.until(lambda: _running(world, "low-0"), within_s=30)
    await _pod(world, "middle-0", "middle", 0.8)
    await world.until(lambda: _nominated(world, "middle-0") == "node-0", within_s=10)
    await _pod(world, "high-0", "high", 0.8)
    await world.until(lambda: _running(world, "high-0"), within_s=STOP_S + 30)
    assert not world.cached(Pod, "middle-0").spec.node_name
    assert _nominated(world, "middle-0") == ""


@simulate(nodes=4)
async def test_each_of_many_pods_makes_its_own_room(world):
    await _classes(world)
    for i in range(8):
        await _pod(world, f"low-{i}", "low", 0.4)
    await world.until(lambda: _running(world, *(f"low-{i}" for i in range(8))), within_s=60)
    for i in range(4):
        await _pod(world, f"high-{i}", "high", 0.5)
    await world.until(lambda: _running(world, *(f"high-{i}" for i in range(4))), within_s=120)
    nodes = {world.cached(Pod, f"high-{i}").spec.node_name for i in range(4)}
    assert len(nodes) == 4
    assert len(world.living(app="low")) == 4  # no more than had to


@simulate(nodes=1)
async def test_a_victim_that_cannot_be_deleted_at_first_is_deleted_later(world):
    await _classes(world)
    await _pod(world, "low-0", "low", 0.8)
    await world.until(lambda: _running(world, "low-0"), within_s=30)
    refused = []

    def fault(asked: Asked) -> Before | None:
        deletes = asked.method == "DELETE" or b'"DELETE"' in (asked.body or b"")
        if asked.who == "scheduler" and deletes and len(refused) < 3:
            refused.append(asked.path)
            return Before(status.InternalError("not now"))
        return None

    world.wire.fault = fault
    await _pod(world, "high-0", "high", 0.8)
    await world.until(lambda: _running(world, "high-0"), within_s=STOP_S + 60)
    assert len(refused) == 3
