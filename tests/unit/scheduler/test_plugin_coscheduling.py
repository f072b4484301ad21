"""Coscheduling: the book of gangs, the order of the queue, and who waits for whom."""

import asyncio
from typing import Any

import pytest

from motley.api.views.pod import Pod
from motley.api.views.scheduling import POD_GROUP_LABEL, PodGroup
from motley.lib.clock import SYSTEM
from motley.ops import components
from motley.scheduler import profiles
from motley.scheduler.contract import ALLOW, Handle, Reject, Wait
from motley.scheduler.events import PodsActivated
from motley.scheduler.plugins.coscheduling import Coscheduling, CoschedulingArgs
from motley.scheduler.plugins.priority_sort import PrioritySort
from motley.scheduler.podinfo import PodInfo
from motley.scheduler.queue import Place, Queue
from motley.scheduler.waiting import PermitRefused

CONFIGURATION = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - plugins:
      multiPoint: {enabled: [{name: Coscheduling}]}
      queueSort: {enabled: [{name: Coscheduling}], disabled: [{name: "*"}]}
"""


def group(name: str, needed: int = 3, made: str = "2026-01-01T00:00:00Z", **spec: Any) -> PodGroup:
    meta = {"name": name, "namespace": "default", "creationTimestamp": made}
    return PodGroup.of({"metadata": meta, "spec": {"minMember": needed, **spec}})


class World:
    """The plugin, with a cluster and a clock, and members as informers and scheduler move them."""

    def __init__(self, cluster: Any, pod: Any, clock: Any, **args: Any) -> None:
        self.cluster = cluster
        self.handle = Handle(cluster.nodes, clock, cluster.handle.images)
        self.plugin = Coscheduling(CoschedulingArgs(**args), self.handle)
        self.gangs = self.handle.gangs
        self.woken: list[frozenset[str]] = []
        self.gangs.activate = self.woken.append
        self._pod = pod
        self._pods: dict[str, Pod] = {}

    def put(self, name: str, gang: str = "g", **spec: Any) -> PodInfo:
        labels = {POD_GROUP_LABEL: gang} if gang else {}
        made = self._pod(name, labels=labels, **spec)
        return self.change(made)

    def change(self, made: Pod) -> PodInfo:
        name = made.metadata.name
        self.gangs.set_pod(self._pods.get(name), made)
        self._pods[name] = made
        info: PodInfo = self.cluster.info(made)
        return info

    def delete(self, name: str) -> None:
        self.gangs.set_pod(self._pods.pop(name), None)

    def group(self, made: PodGroup) -> None:
        self.gangs.set_group(made.key, made)

    def assume(self, info: PodInfo, node: str = "a") -> Any:
        """What the scheduler does with a pod that fits."""
        assert self.plugin.pre_filter(info, self.cluster.nodes) is None
        self.cluster.nodes.add_pod(info, node, assumed=True)
        self.plugin.reserve(info, node)
        answer = self.plugin.permit(info, node)
        if isinstance(answer, Wait):
            self.handle.waiting.hold(info.uid)
        return answer

    def fail(self, info: PodInfo) -> Reject | None:
        """A pod that fits nowhere."""
        return self.plugin.post_filter(info, self.cluster.nodes, {}, None)

    async def verdict(self, info: PodInfo) -> str:
        """Why a held pod was refused; empty: it was not."""
        return await self.handle.waiting.verdict(info.uid, 1.0)


@pytest.fixture
def world(cluster, node, pod, clock):
    return lambda **args: World(cluster(node("a", cpu="4"), node("b", cpu="4")), pod, clock, **args)


# -- the queue ------------------------------------------------------------------------------


def test_members_stand_together_by_the_age_of_their_group(world):
    w = world()
    w.group(group("g", made="2026-01-01T00:00:10Z"))
    w.group(group("h", made="2026-01-01T00:00:10Z"))
    w.group(group("old", made="2026-01-01T00:00:00Z"))
    pods = [
        w.put("h-0", "h"),
        w.put("g-0"),
        w.put("h-1", "h"),
        w.put("urgent", "", priority=5),
        w.put("g-1"),
        w.put("old-0", "old"),
        w.put("single", ""),
        w.put("stray", "nobody"),
    ]
    queued_at = {info.uid: info.created + 5 + i for i, info in enumerate(pods)}
    order = sorted(pods, key=lambda info: w.plugin.sort_key(info, queued_at[info.uid]))
    assert [info.key.name for info in order] == [
        *("urgent", "old-0", "g-0", "g-1", "h-0", "h-1", "single", "stray"),
    ]


def test_without_groups_the_queue_is_that_of_priority_sort(world):
    w = world()
    plain = PrioritySort(PrioritySort.Args(), w.handle)
    pods = [w.put(f"p{i}", "", priority=i % 3) for i in range(20)]
    ages = {info.uid: float(i * 7 % 5) for i, info in enumerate(pods)}

    def order(plugin):
        return [p.uid for p in sorted(pods, key=lambda p: plugin.sort_key(p, ages[p.uid]))]

    assert order(w.plugin) == order(plain)


def test_a_group_that_failed_goes_behind_younger_ones(world, clock):
    w = world()
    w.group(group("g", 1))
    info = w.put("g-0")
    before = w.plugin.sort_key(info, 0.0)
    w.fail(info)
    assert w.plugin.sort_key(info, 0.0)[1] == clock.now()
    w.gangs.completed(w.gangs.of(info.pod))
    assert w.plugin.sort_key(info, 0.0) == before


def test_pods_that_are_activated_leave_their_back_off_and_others_stay(cluster, node, pod, clock):
    w = cluster(node("a"))
    queue = Queue({"default-scheduler": w.profile}, clock=clock)
    for name in ("rests", "waits", "other"):
        queue.add(w.info(pod(name)))
    for _ in range(3):
        queued = queue.pop()
        if queued.info.uid == "rests":
            queue.retry(queued)
        else:
            queue.reject(queued, frozenset({"Coscheduling"}))
    assert queue.pop() is None
    assert queue.event(PodsActivated(frozenset({"rests", "waits", "unknown"}))) == 2
    assert {queue.pop().info.uid, queue.pop().info.uid} == {"rests", "waits"}
    assert queue.get("other").place is Place.UNSCHEDULABLE
    assert queue.pop() is None
    clock.time += 3
    queue.flush()  # the entry that was left behind wakes nobody twice
    assert queue.pop() is None


# -- before filters -------------------------------------------------------------------------


def test_a_pod_without_a_group_is_none_of_its_business(world):
    w = world()
    info = w.put("p", "")
    assert w.plugin.pre_filter(info, w.cluster.nodes) is None
    assert w.plugin.permit(info, "a") is ALLOW
    assert w.fail(info) is None
    w.plugin.reserve(info, "a")
    w.plugin.unreserve(info, "a")
    assert len(w.gangs) == 0


@pytest.mark.parametrize(
    ("members", "gated", "needed", "why"),
    [
        (3, 0, 3, ""),
        (4, 0, 3, ""),
        (2, 0, 3, "needs 3 members and has fewer"),
        (2, 1, 3, "too many are held back by scheduling gates"),
        (3, 1, 3, ""),
    ],
)
def test_a_group_is_tried_when_enough_members_are_there(world, members, gated, needed, why):
    w = world()
    w.group(group("g", needed))
    infos = [w.put(f"g-{i}") for i in range(members)]
    for i in range(gated):
        w.put(f"gated-{i}", schedulingGates=[{"name": "x/y"}])
    refusal = w.plugin.pre_filter(infos[0], w.cluster.nodes)
    assert refusal is None if not why else why in refusal.reason


def test_members_of_an_unknown_group_are_refused_until_it_is_there(world):
    w = world()
    info = w.put("g-0")
    refusal = w.plugin.pre_filter(info, w.cluster.nodes)
    assert refusal == Reject("PodGroup default/g not found")
    assert w.plugin.permit(info, "a") == refusal
    w.group(group("g", 1))
    assert w.woken == [frozenset({"g-0"})]
    assert w.assume(info) is ALLOW


def test_the_last_member_to_come_wakes_those_that_wait(world):
    w = world()
    w.group(group("g", 3))
    w.woken.clear()
    w.put("g-0")
    w.put("g-1")
    assert w.woken == []
    w.put("g-2")
    assert w.woken == [frozenset({"g-0", "g-1", "g-2"})]


def test_members_that_failed_or_are_being_deleted_do_not_count_and_those_done_do(world, pod):
    w = world()
    w.group(group("g", 3))
    infos = [w.put(f"g-{i}", node="a") for i in range(3)]
    gang = w.gangs.of(infos[0].pod)
    assert gang.is_complete
    infos[0].pod.status.phase = "Succeeded"
    w.change(infos[0].pod)
    assert gang.placed == 3
    infos[1].pod.status.phase = "Failed"
    w.change(infos[1].pod)
    assert gang.placed == 2
    infos[2].pod.metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
    w.change(infos[2].pod)
    assert gang.placed == 1


@pytest.mark.parametrize(
    ("resources", "short"),
    [
        ({"cpu": "7"}, ""),
        ({"cpu": "7500m"}, "cpu (7000m of 7500m)"),
        ({"cpu": 1, "example.com/gpu": 1}, "example.com/gpu (0 of 1)"),
        ({"memory": "17Gi"}, f"memory ({16 * 2**30} of {17 * 2**30})"),
    ],
)
async def test_what_a_group_needs_in_all_must_be_free(world, pod, resources, short):
    w = world()
    w.cluster.place(pod("stranger", requests={"cpu": "1"}), "a")
    w.group(group("g", 2, minResources=resources))
    infos = [w.put(f"g-{i}", requests={"cpu": "3"}) for i in range(2)]
    refusal = w.plugin.pre_filter(infos[0], w.cluster.nodes)
    assert w.plugin.may_help(infos[1], None) is bool(short)
    if short:
        assert refusal.reason.endswith(f"needs more than the cluster has left: {short}")
    else:
        assert isinstance(w.assume(infos[0]), Wait)
        # Its own members do not stand in its way.
        assert w.plugin.pre_filter(infos[1], w.cluster.nodes) is None


# -- all or nothing -------------------------------------------------------------------------


async def test_all_wait_and_the_last_lets_them_go(world):
    w = world()
    w.group(group("g", 3))
    infos = [w.put(f"g-{i}") for i in range(4)]
    assert [w.assume(info) for info in infos[:2]] == [Wait(60.0), Wait(60.0)]
    assert w.assume(infos[2]) is ALLOW
    assert [await w.verdict(info) for info in infos[:2]] == ["", ""]
    assert w.assume(infos[3]) is ALLOW  # one more than needed


async def test_a_group_may_have_its_own_patience(world):
    w = world(permit_waiting_time_seconds=30)
    w.group(group("g", 2, scheduleTimeoutSeconds=5))
    w.group(group("h", 2))
    w.group(group("zero", 2, scheduleTimeoutSeconds=0))
    infos = {gang: [w.put(f"{gang}-{i}", gang) for i in range(2)] for gang in ("g", "h", "zero")}
    waits = {gang: w.assume(pair[0]) for gang, pair in infos.items()}
    assert waits == {"g": Wait(5.0), "h": Wait(30.0), "zero": Wait(30.0)}


async def test_bound_members_count(world):
    w = world()
    w.group(group("g", 3))
    w.put("g-0", node="a")
    w.put("g-1", node="b")
    assert w.assume(w.put("g-2")) is ALLOW


async def test_the_first_member_with_a_place_calls_the_others(world):
    w = world()
    w.group(group("g", 3))
    infos = [w.put(f"g-{i}") for i in range(3)]
    w.woken.clear()
    w.assume(infos[1])
    assert w.woken == [frozenset({"g-0", "g-2"})]
    w.assume(infos[0])
    assert len(w.woken) == 1


async def test_a_member_that_fits_nowhere_releases_the_others_and_the_group_rests(world, clock):
    w = world()
    w.group(group("g", 3))
    infos = [w.put(f"g-{i}") for i in range(3)]
    for info in infos[:2]:
        w.assume(info)
    why = "PodGroup default/g was released: only 2 of the 3 members it needs found a place"
    assert w.fail(infos[2]) == Reject(f"{why}.")
    assert [await w.verdict(info) for info in infos[:2]] == [why, why]
    for info in infos[:2]:
        w.plugin.unreserve(info, "a")
    gang = w.gangs.of(infos[0].pod)
    assert (gang.placed, w.gangs.releasing) == (0, set())
    assert w.plugin.pre_filter(infos[0], w.cluster.nodes) == Reject(why)
    clock.time = gang.rests_until
    assert w.plugin.pre_filter(infos[0], w.cluster.nodes) is None


async def test_rests_grow_and_the_configured_one_is_the_least(world, clock):
    w = world(pod_group_backoff_seconds=30)
    w.group(group("g", 1))
    info = w.put("g-0")
    gang = w.gangs.of(info.pod)
    w.fail(info)
    assert 30 <= gang.rests_until - clock.monotonic() <= 37.5
    plain = world()
    plain.group(group("g", 1))
    info = plain.put("g-0")
    gang = plain.gangs.of(info.pod)
    rests = []
    for _ in range(8):
        plain.fail(info)
        rests.append(gang.rests_until - clock.monotonic())
        clock.time = gang.rests_until
    assert 0.5 <= rests[0] <= 1
    assert all(5 <= rest <= 10 for rest in rests[4:])


async def test_more_room_ends_a_rest_but_not_the_configured_one(world, clock):
    for least, rests in ((0, False), (30, True)):
        w = world(pod_group_backoff_seconds=least)
        w.group(group("g", 1))
        info = w.put("g-0")
        for _ in range(5):
            w.fail(info)
            clock.time = w.gangs.of(info.pod).rests_until
        w.fail(info)
        w.gangs.room_grew(clock)
        refusal = w.plugin.pre_filter(info, w.cluster.nodes)
        assert isinstance(refusal, Reject) is rests


async def test_others_than_those_that_fit_nowhere_may_fill_the_group(world):
    w = world()
    w.group(group("g", 3))
    infos = [w.put(f"g-{i}") for i in range(4)]
    w.assume(infos[0])
    assert w.fail(infos[1]) is None
    w.assume(infos[2])
    assert w.assume(infos[3]) is ALLOW


async def test_a_group_that_lacks_few_members_keeps_its_places_for_a_while(world):
    w = world(pod_group_reject_percentage=34)
    w.group(group("g", 3))
    infos = [w.put(f"g-{i}") for i in range(3)]
    w.assume(infos[0])
    w.assume(infos[1])
    assert w.fail(infos[2]) is None
    assert w.handle.waiting.holds("g-0")


async def test_a_group_does_not_give_up_while_another_gives_back(world):
    w = world()
    for gang in ("g", "h"):
        w.group(group(gang, 3))
    g, h = ([w.put(f"{gang}-{i}", gang) for i in range(3)] for gang in ("g", "h"))
    for info in (*g[:2], *h[:2]):
        w.assume(info)
    assert w.fail(g[2]) is not None
    assert w.fail(h[2]) is None  # what g holds is about to be free
    for info in g[:2]:
        w.plugin.unreserve(info, "a")
    assert w.fail(h[2]) is not None


async def test_one_that_is_taken_back_takes_the_others_with_it(world):
    w = world()
    w.group(group("g", 3))
    infos = [w.put(f"g-{i}") for i in range(3)]
    for info in infos[:2]:
        w.assume(info)
    w.plugin.unreserve(infos[0], "a")  # its time was over, say
    why = await w.verdict(infos[1])
    assert why.endswith("only 2 of the 3 members it needs found a place")


async def test_a_binding_that_fails_later_does_not_undo_those_that_did_not(world, clock):
    w = world()
    w.group(group("g", 2))
    infos = [w.put(f"g-{i}") for i in range(2)]
    for info in infos:
        w.assume(info)
    bound = w.put("g-0", node="a")
    w.plugin.unreserve(infos[1], "a")
    assert w.gangs.of(bound.pod).rests_until <= clock.monotonic()
    assert w.assume(infos[1]) is ALLOW


async def test_a_member_that_is_deleted_leaves_nothing_behind(world):
    w = world()
    w.group(group("g", 2))
    infos = [w.put(f"g-{i}") for i in range(2)]
    w.assume(infos[0])
    w.delete("g-0")
    w.plugin.unreserve(infos[0], "a")
    assert w.gangs.of(infos[1].pod).placed == 0
    w.delete("g-1")
    w.gangs.set_group(group("g").key, None)
    assert len(w.gangs) == 0


@pytest.mark.looptime
async def test_a_rest_ends_with_all_members_woken_together(world):
    class LoopClock:
        def now(self) -> float:
            return self.monotonic()

        def monotonic(self) -> float:
            return asyncio.get_running_loop().time()

        async def sleep(self, seconds: float) -> None:
            await SYSTEM.sleep(seconds)

    w = world()
    w.group(group("g", 2))
    infos = [w.put(f"g-{i}") for i in range(2)]
    w.woken.clear()
    gang = w.gangs.of(infos[0].pod)
    w.gangs.fail(gang, LoopClock(), 5)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(4.9):
            await w.gangs.wake_rested(LoopClock())
    assert not w.woken
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(10):
            await w.gangs.wake_rested(LoopClock())
    assert w.woken == [frozenset({"g-0", "g-1"})]


# -- waiting, and what is configured --------------------------------------------------------


async def test_who_is_allowed_before_its_binding_begins_goes_on(world):
    waiting = world().handle.waiting
    waiting.hold("p")
    waiting.allow("p")
    assert not waiting.holds("p")
    waiting.reject("p", "too late")
    assert await waiting.verdict("p", 1.0) == ""
    with pytest.raises(PermitRefused, match=r"not allowed within 0\.01 s"):
        await waiting.verdict("p", 0.01)


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ("permitWaitingTimeSeconds: 0", "permitWaitingTimeSeconds is not positive"),
        ("podGroupBackoffSeconds: -1", "podGroupBackoffSeconds is negative"),
        ("podGroupRejectPercentage: 101", "podGroupRejectPercentage is not between 0 and 100"),
        ("permitWaitingTime: 3", "unknown field `permitWaitingTime`"),
    ],
)
def test_arguments_are_checked(world, args, problem):
    text = CONFIGURATION + f"    pluginConfig: [{{name: Coscheduling, args: {{{args}}}}}]\n"
    with pytest.raises(profiles.ConfigError, match=problem):
        profiles.build(profiles.parse(text), world().handle)


def test_the_configuration_of_scheduler_plugins_loads_as_it_is(world):
    handle = world().handle
    (profile,) = profiles.build(profiles.parse(CONFIGURATION), handle).values()
    assert [plugin.name for plugin in profile.queue_sort] == ["Coscheduling"]
    assert [plugin.name for plugin in profile.permit] == ["Coscheduling"]
    assert [plugin.name for plugin in profile.post_filter] == ["DefaultPreemption", "Coscheduling"]
    alone = CONFIGURATION.replace('disabled: [{name: "*"}]', "disabled: []")
    with pytest.raises(profiles.ConfigError, match="exactly one queueSort"):
        profiles.build(profiles.parse(alone), handle)


def test_it_is_not_part_of_the_default_profile(world):
    (profile,) = profiles.default(world().handle).values()
    assert "Coscheduling" not in profile.plugins
    assert "CapacityScheduling" not in profile.plugins


def test_the_cluster_of_motley_up_has_gangs_and_else_the_default_profile(world):
    handle = world().handle
    (usual,) = profiles.default(handle).values()
    built = profiles.build(profiles.parse(components.SCHEDULER.read_text()), handle)
    ours = built["default-scheduler"]
    assert built.keys() == {"default-scheduler", "kubehice-scheduler"}
    assert ours.plugins.keys() - usual.plugins.keys() == {"Coscheduling"}
    assert usual.plugins.keys() - ours.plugins.keys() == {"PrioritySort"}
    for point in ("filter", "pre_score", "bind"):
        assert [p.name for p in getattr(ours, point)] == [p.name for p in getattr(usual, point)]
    assert [(p.name, weight) for p, weight in ours.score] == [
        (p.name, weight) for p, weight in usual.score
    ]
    assert "Hicev2" in built["kubehice-scheduler"].plugins
