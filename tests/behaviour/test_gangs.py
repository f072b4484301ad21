"""Gangs and elastic quotas from end to end, on virtual time."""

from typing import Any

from world import Behaviour, World, simulate

from motley.api import quantity
from motley.api.views.core import Namespace
from motley.api.views.pod import Pod
from motley.api.views.scheduling import POD_GROUP_LABEL, ElasticQuota, PodGroup
from motley.controllers.fakenodes import Shape
from motley.scheduler import profiles

NODE_CPU_MILLI = quantity.cpu_milli(Shape().cpu)
PROFILE = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - schedulerName: default-scheduler
"""
GANGS = """
    plugins:
      multiPoint: {enabled: [{name: Coscheduling}]}
      queueSort: {enabled: [{name: Coscheduling}], disabled: [{name: "*"}]}
"""
QUOTAS = """
    plugins:
      multiPoint: {enabled: [{name: CapacityScheduling}]}
      postFilter: {enabled: [{name: CapacityScheduling}], disabled: [{name: "*"}]}
"""


def gang_scheduler(world: World, **args: Any) -> Any:
    text = PROFILE + GANGS
    if args:
        text += f"    pluginConfig: [{{name: Coscheduling, args: {args}}}]\n"
    world.kubelets.script = lambda _: Behaviour(start_s=1, ready_s=1)
    return world.start_scheduler(profiles.parse(text))


async def group(world: World, name: str, needed: int, **spec: Any) -> None:
    spec = {"minMember": needed, **spec}
    await world.create(PodGroup, {"metadata": {"name": name}, "spec": spec})
    await world.sleep(1.5)  # ages are whole seconds


async def pod(world: World, name: str, labels: dict[str, str], per_node: float, **spec: Any) -> Any:
    requests = {"cpu": f"{int(NODE_CPU_MILLI / per_node)}m"}
    container = {"name": "c", "image": "app:1", "resources": {"requests": requests}}
    body = {
        "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [container], **spec},
    }
    return await world.create(Pod, body)


async def member(world: World, gang: str, number: int, per_node: float = 4, **spec: Any) -> None:
    labels = {POD_GROUP_LABEL: gang, "gang": gang}
    await pod(world, f"{gang}-{number}", labels, per_node, **spec)


def bound(world: World, gang: str) -> list[Any]:
    return [pod for pod in world.pods(gang=gang) if pod.spec.node_name]


def said(world: World, name: str) -> str:
    condition = world.cached(Pod, name).status.condition("PodScheduled")
    return str(condition.message) if condition is not None else ""


async def phase(world: World, name: str) -> tuple[str, int, int]:
    status = (await world.get(PodGroup, name)).status
    return status.phase, status.scheduled, status.running


@simulate(nodes=2, scheduler=False)
async def test_a_gang_is_bound_as_a_whole_once_there_is_room_for_all(world):
    gang_scheduler(world)
    await group(world, "ten", 10)
    for number in range(10):
        await member(world, "ten", number)
    for _ in range(60):
        await world.sleep(0.5)
        assert not bound(world, "ten")
    why = "PodGroup default/ten was released: only 8 of the 10 members it needs found a place"
    assert why in said(world, "ten-0")
    assert why in said(world, "ten-9")
    assert await phase(world, "ten") == ("PreScheduling", 0, 0)
    # What it gave back is there for others.
    await pod(world, "single", {}, 1000)
    await world.sleep(2)
    assert world.cached(Pod, "single").spec.node_name

    await world.add_node("node-2")
    await world.until(lambda: bound(world, "ten"), within_s=3)
    await world.sleep(0.25)
    assert len(bound(world, "ten")) == 10
    await world.sleep(5)
    assert await phase(world, "ten") == ("Running", 10, 10)


@simulate(nodes=2, scheduler=False, latency_s=0.02)
async def test_two_gangs_that_fit_only_one_after_the_other_do_not_block_each_other(world):
    gang_scheduler(world)
    await group(world, "a", 6)
    await group(world, "b", 6)
    for number in range(6):  # as two workloads come that start at the same time
        await member(world, "a", number)
        await member(world, "b", number)
    await world.until(lambda: len(bound(world, "a")) + len(bound(world, "b")) == 6, within_s=30)
    first, second = ("a", "b") if bound(world, "a") else ("b", "a")
    assert not bound(world, second)
    await world.sleep(30)
    assert not bound(world, second)
    for one in world.pods(gang=first):
        await world.delete(Pod, one.metadata.name)
    await world.until(lambda: len(bound(world, second)) == 6, within_s=60)


@simulate(nodes=4, scheduler=False)
async def test_gangs_that_hold_on_to_their_places_part_when_their_time_is_over(world):
    """Both lack too little to be released at once: the time limit and the unequal rests decide."""
    gang_scheduler(world, permitWaitingTimeSeconds=20, podGroupRejectPercentage=50)
    await group(world, "a", 10)
    await group(world, "b", 10)
    for number in range(10):
        await member(world, "a", number)
        await member(world, "b", number)
    await world.until(lambda: len(bound(world, "a")) + len(bound(world, "b")) == 10, within_s=60)
    assert not bound(world, "a") or not bound(world, "b")


@simulate(nodes=1, scheduler=False)
async def test_members_wait_for_their_group_and_for_each_other(world):
    scheduler = gang_scheduler(world, permitWaitingTimeSeconds=15)
    await member(world, "late", 0)
    await world.sleep(3)
    assert "PodGroup default/late not found" in said(world, "late-0")
    await group(world, "late", 3)
    await member(world, "late", 1)
    await world.sleep(3)
    lacks = "PodGroup default/late needs 3 members and has fewer"
    assert lacks in said(world, "late-0")
    assert lacks in said(world, "late-1")
    assert await phase(world, "late") == ("Pending", 0, 0)
    await member(world, "late", 2, schedulingGates=[{"name": "wait.example.com"}])
    await world.sleep(3)
    assert not bound(world, "late")
    assert not scheduler.nodes.placed
    assert "held back by scheduling gates" in said(world, "late-1")
    await world.patch(Pod, "late-2", {"spec": {"schedulingGates": []}}, type="merge")
    await world.until(lambda: len(bound(world, "late")) == 3, within_s=15)
    # A fourth needs nobody any more.
    await member(world, "late", 3)
    await world.until(lambda: len(bound(world, "late")) == 4, within_s=5)


@simulate(nodes=1, scheduler=False)
async def test_a_member_deleted_while_it_waits_takes_the_others_with_it(world):
    scheduler = gang_scheduler(world, podGroupRejectPercentage=60)
    await group(world, "five", 5)
    for number in range(5):  # three of them find a place
        await member(world, "five", number, per_node=3)
    await world.until(lambda: len(scheduler.nodes.placed) == 3, within_s=5)
    held = next(iter(scheduler.nodes.placed.values())).info.key.name
    await world.delete(Pod, held, grace_period_s=0)
    await world.sleep(1)
    assert not scheduler.nodes.placed
    assert not bound(world, "five")
    # Those that are left are four, whatever the room.
    await world.add_node("node-1")
    await world.sleep(20)
    assert not bound(world, "five")
    await member(world, "five", 7, per_node=3)
    await world.until(lambda: len(bound(world, "five")) == 5, within_s=20)


@simulate(nodes=20, scheduler=False)
async def test_a_gang_with_more_members_than_bindings_in_flight_is_bound(world):
    gang_scheduler(world)
    await group(world, "big", 100)
    for number in range(100):
        await member(world, "big", number, per_node=5)
    await world.until(lambda: len(bound(world, "big")) == 100, within_s=10)


@simulate(nodes=2, scheduler=False)
async def test_after_a_restart_the_members_that_are_bound_count(world):
    await group(world, "half", 8)
    for number in range(8):
        await member(world, "half", number)
    for number in range(4):  # as a scheduler left it that was killed while binding
        name = f"half-{number}"
        body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": "node-0"}}
        await world.client.create_subresource(Pod, name, "default", "binding", body)
    await world.sleep(1)
    gang_scheduler(world)
    await world.until(lambda: len(bound(world, "half")) == 8, within_s=10)


@simulate(nodes=2, scheduler=False)
async def test_a_gang_that_says_what_it_needs_is_not_tried_before_that_is_free(world):
    scheduler = gang_scheduler(world)
    cpu = f"{NODE_CPU_MILLI * 2.5:.0f}m"
    await group(world, "heavy", 2, minResources={"cpu": cpu})
    for number in range(2):
        await member(world, "heavy", number)
    await world.sleep(5)
    assert "needs more than the cluster has left: cpu (8000m of 10000m)" in said(world, "heavy-0")
    assert not scheduler.nodes.placed
    await world.add_node("node-2")
    await world.until(lambda: len(bound(world, "heavy")) == 2, within_s=15)


# -- quotas ---------------------------------------------------------------------------------


async def quota(world: World, namespace: str, low: int, high: int) -> None:
    """Guarantee and limit in quarters of a node."""
    await world.create(Namespace, {"metadata": {"name": namespace}})
    spec = {
        name: {"cpu": f"{NODE_CPU_MILLI // 4 * n}m"} for name, n in (("min", low), ("max", high))
    }
    await world.create(ElasticQuota, {"metadata": {"name": "share"}, "spec": spec}, namespace)


async def fill(world: World, namespace: str, count: int, first: int = 0) -> None:
    world.namespace = namespace
    for number in range(first, first + count):
        await pod(world, f"p-{number}", {}, 4)
    await world.sleep(2)


def running(world: World, namespace: str) -> int:
    world.namespace = namespace
    return sum(bool(pod.spec.node_name) for pod in world.living())


async def in_use(world: World, namespace: str) -> Any:
    world.namespace = namespace
    return quantity.cpu_milli((await world.get(ElasticQuota, "share")).status.used["cpu"])


@simulate(nodes=2, scheduler=False)
async def test_a_namespace_borrows_what_another_leaves_and_gives_it_back(world):
    world.kubelets.script = lambda _: Behaviour(start_s=1, ready_s=1, stop_s=5)
    world.start_scheduler(profiles.parse(PROFILE + QUOTAS))
    await quota(world, "team-a", 4, 6)
    await quota(world, "team-b", 3, 6)
    await fill(world, "team-a", 8)
    await world.sleep(5)
    assert running(world, "team-a") == 6  # above its min of 4, and at its max
    blamed = [said(world, p.metadata.name) for p in world.living() if not p.spec.node_name]
    quarter = NODE_CPU_MILLI // 4
    words = f"ElasticQuota team-a/share would be above its max: cpu ({7 * quarter}m of"
    assert all(words in text for text in blamed)
    await world.sleep(2)
    assert await in_use(world, "team-a") == 6 * quarter

    # One is left of what all are guaranteed together, two more are lent and must come back.
    await fill(world, "team-b", 3)
    await world.until(lambda: running(world, "team-b") == 3, within_s=60)
    assert running(world, "team-a") == 4
    await world.sleep(10)
    assert (await in_use(world, "team-a"), await in_use(world, "team-b")) == (
        4 * quarter,
        3 * quarter,
    )
    # There is room on the nodes, but it is nobody's: team-b is at its min and team-a uses its own.
    await fill(world, "team-b", 1, first=3)
    await world.sleep(10)
    assert running(world, "team-b") == 3
    assert "all ElasticQuotas would use more than their min" in said(world, "p-3")
    # A namespace without a quota is not asked.
    await world.create(Namespace, {"metadata": {"name": "others"}})
    await fill(world, "others", 1)
    assert running(world, "others") == 1
