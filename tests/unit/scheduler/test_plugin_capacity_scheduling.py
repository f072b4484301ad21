"""CapacityScheduling: what namespaces may use, borrow and take back."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motley.api.views.base import Condition, Key
from motley.api.views.pod import Pod
from motley.api.views.policy import PodDisruptionBudget
from motley.api.views.scheduling import ElasticQuota
from motley.lib.clock import SYSTEM
from motley.scheduler import images, profiles
from motley.scheduler.contract import Handle, Ineligible, Nomination, Reject
from motley.scheduler.cycle import Cycle
from motley.scheduler.elastic import ElasticQuotas
from motley.scheduler.podinfo import PodInfo

CONFIGURATION = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - plugins:
      multiPoint: {enabled: [{name: CapacityScheduling}]}
      postFilter: {enabled: [{name: CapacityScheduling}], disabled: [{name: "*"}]}
"""


def quota(
    namespace: str, low: Any = None, high: Any = None, name: str = "q", made: str = ""
) -> Any:
    meta = {"namespace": namespace, "name": name, "creationTimestamp": made or None}
    return ElasticQuota.of({"metadata": meta, "spec": {"min": low or {}, "max": high or {}}})


class World:
    """The plugin in a profile over a cluster; pods come as an informer brings them."""

    def __init__(self, cluster: Any, pod: Any) -> None:
        self.cluster = cluster
        self.handle = Handle(cluster.nodes, SYSTEM, images.ImageTable())
        (self.profile,) = profiles.build(profiles.parse(CONFIGURATION), self.handle).values()
        self.plugin = self.profile.plugins["CapacityScheduling"]
        self.quotas = self.handle.quotas
        self.cycle = Cycle(self.profile, cluster.nodes, nominations=self.handle.nominations)
        self._pod = pod

    def quota(self, *args: Any, **kwargs: Any) -> None:
        made = quota(*args, **kwargs)
        self.quotas.set_quota(made.key, made)

    def pod(self, name: str, namespace: str, cpu: Any = 1, node: str = "", **spec: Any) -> PodInfo:
        made: Pod = self._pod(name, requests={"cpu": str(cpu)}, node=node, **spec)
        made.metadata.namespace = namespace
        info: PodInfo = self.cluster.info(made)
        if node:
            self.quotas.set_pod(None, made)
            self.cluster.nodes.add_pod(info, node)
        return info

    def snapshot(self) -> Any:
        used = {ns: dict(self.quotas.used(ns)) for ns in "abc"}
        return used, self.cluster.nodes.requested.tolist(), sorted(self.cluster.nodes.placed)

    def decide(self, info: PodInfo) -> Any:
        """A decision, which must leave everything as it was."""
        before = self.snapshot()
        decision = self.cycle.schedule(info)
        assert self.snapshot() == before
        return decision

    def victims(self, info: PodInfo) -> list[str]:
        nomination = self.decide(info).post_filter
        assert isinstance(nomination, Nomination), nomination
        return sorted(victim.key.name for victim in nomination.victims)


@pytest.fixture
def world(cluster, node, pod):
    def make(*sizes: int) -> World:
        nodes = [node(f"n{i}", cpu=str(size)) for i, size in enumerate(sizes or (8,))]
        return World(cluster(*nodes), pod)

    return make


# -- limits and loans -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "others", "wants", "why"),
    [
        (0, 0, 4, ""),
        (3, 4, 1, ""),  # within its min, whatever others do
        (4, 0, 2, ""),  # borrows
        (5, 0, 1, ""),
        (5, 0, 2, "ElasticQuota a/q would be above its max: cpu (7000m of 6000m)"),
        (4, 3, 1, ""),
        (4, 4, 1, "all ElasticQuotas would use more than their min: cpu (9000m of 8000m)"),
        (3, 5, 1, "all ElasticQuotas would use more than their min: cpu (9000m of 8000m)"),
    ],
)
def test_use_is_bounded_by_the_max_and_by_what_all_are_guaranteed(world, own, others, wants, why):
    w = world(32)
    w.quota("a", {"cpu": 4}, {"cpu": 6})
    w.quota("b", {"cpu": "4"}, {"cpu": "8000m"})
    for i in range(own):
        w.pod(f"own-{i}", "a", node="n0")
    for i in range(others):
        w.pod(f"other-{i}", "b", node="n0")
    refusal = w.plugin.pre_filter(w.pod("p", "a", wants), w.cluster.nodes)
    assert refusal == (Reject(why) if why else None)


@pytest.mark.parametrize(
    ("low", "high", "wants", "is_refused"),
    [
        ({"cpu": 1}, {}, {"memory": "64Gi"}, False),  # nobody shares out memory
        ({"cpu": 1}, {"memory": "1Gi"}, {"memory": "2Gi"}, True),
        ({}, {}, {"cpu": "9"}, True),  # cpu is shared out by the other, and all is b's
        ({"cpu": 1}, {"pods": 1}, {}, False),
        ({"cpu": 1}, {"pods": 0}, {}, True),
        ({"example.com/gpu": 1}, {}, {"example.com/gpu": "1"}, False),
        ({"example.com/gpu": 1}, {}, {"example.com/gpu": "2"}, True),
    ],
)
def test_only_resources_that_quotas_name_are_limited(world, pod, low, high, wants, is_refused):
    w = world(32)
    w.quota("default", low, high)
    w.quota("b", {"cpu": 8})
    info = w.cluster.info(pod("p", requests=wants))
    assert isinstance(w.plugin.pre_filter(info, w.cluster.nodes), Reject) is is_refused


def test_a_namespace_without_a_quota_is_not_limited(world):
    w = world(32)
    w.quota("a", {"cpu": 1}, {"cpu": 1})
    assert w.decide(w.pod("p", "other", 30)).node == "n0"


def test_of_two_quotas_in_a_namespace_the_older_counts(world):
    w = world(32)
    w.quota("a", {"cpu": 8}, {"cpu": 8}, name="z", made="2026-01-01T00:00:00Z")
    w.quota("a", {"cpu": 1}, {"cpu": 1}, name="b", made="2026-02-01T00:00:00Z")
    assert w.decide(w.pod("p", "a", 8)).node == "n0"
    assert w.quotas.set_quota(Key("a", "z"), None)
    assert w.decide(w.pod("p", "a", 8)).node is None


def test_a_change_of_status_only_is_no_change():
    quotas = ElasticQuotas()
    one = quota("a", {"cpu": 1})
    assert quotas.set_quota(one.key, one)
    one.status.used = {"cpu": "1"}
    assert not quotas.set_quota(one.key, one)
    assert quotas.set_quota(one.key, quota("a", {"cpu": 2}))
    assert quotas.set_quota(one.key, None)
    assert not quotas.set_quota(one.key, None)


# -- the books ------------------------------------------------------------------------------


def test_a_pod_counts_from_its_reservation_until_its_end(world):
    w = world()
    w.quota("a", {"cpu": 4}, {"cpu": 4})
    info = w.pod("p", "a", 3)
    w.plugin.reserve(info, "n0")
    w.plugin.reserve(info, "n0")
    assert w.quotas.used("a") == {"cpu": 3000, "pods": 1}
    w.plugin.unreserve(info, "n0")
    w.plugin.unreserve(info, "n0")
    assert w.quotas.used("a") == {"cpu": 0, "pods": 0}
    w.plugin.reserve(info, "n0")
    w.quotas.set_pod(None, info.pod)  # an update that does not show the node yet
    bound = w.pod("p", "a", 3, node="n0")
    w.plugin.unreserve(info, "n0")  # the answer to the binding was lost
    assert w.quotas.used("a") == {"cpu": 3000, "pods": 1}
    bound.pod.status.phase = "Succeeded"
    w.quotas.set_pod(info.pod, bound.pod)
    assert w.quotas.used("a") == {"cpu": 0, "pods": 0}
    w.quotas.set_pod(bound.pod, None)
    assert w.quotas.used("a") == {"cpu": 0, "pods": 0}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["reserve", "unreserve", "bind", "end", "delete", "quota"]),
            st.integers(0, 5),
        ),
        max_size=40,
    )
)
@settings(max_examples=60, deadline=None)
def test_the_books_equal_a_count_of_the_pods(steps):
    from motley.scheduler.podinfo import PodInfos

    infos, quotas = PodInfos(), ElasticQuotas()
    seen: dict[int, Pod] = {}
    reserved: set[int] = set()

    def make(i: int, **changes: str) -> Pod:
        return Pod.of(
            {
                "metadata": {"name": f"p{i}", "namespace": "ab"[i % 2], "uid": f"p{i}"},
                "spec": {
                    "containers": [{"name": "c", "resources": {"requests": {"cpu": i + 1}}}],
                    "nodeName": changes.get("node", ""),
                },
                "status": {"phase": changes.get("phase", "")},
            }
        )

    for step, i in steps:
        match step:
            case "reserve" if i not in seen:
                quotas.reserve(infos.of(make(i)))
                reserved.add(i)
            case "unreserve":
                quotas.unreserve(infos.of(make(i)))
                reserved.discard(i)
            case "bind" | "end":
                phase = "Failed" if step == "end" else ""
                new = make(i, node="n", phase=phase)
                quotas.set_pod(seen.get(i), new)
                seen[i] = new
                reserved.discard(i)
            case "delete" if i in seen:
                quotas.set_pod(seen.pop(i), None)
            case "quota":
                made = quota("ab"[i % 2], {"cpu": i})
                quotas.set_quota(made.key, made if i % 3 else None)
    counted = reserved | {i for i, pod in seen.items() if not pod.is_terminal}
    for parity, namespace in enumerate("ab"):
        used = quotas.used(namespace)
        mine = [i for i in counted if i % 2 == parity]
        assert used.get("pods", 0) == len(mine)
        assert used.get("cpu", 0) == sum(1000 * (i + 1) for i in mine)
    with_quota = [ns for ns in "ab" if quotas.of(ns)]
    everything = sum(quotas.used(ns).get("cpu", 0) for ns in with_quota)
    low = sum(quotas.of(ns).min.get("cpu", 0) for ns in with_quota)
    wanted = bool(with_quota) and everything + 1 > low
    assert bool(quotas.above_guaranteed({"cpu": 1})) is wanted


# -- taking back ----------------------------------------------------------------------------


def test_a_namespace_takes_back_what_another_borrows_the_least_important_first(world):
    w = world(8)
    w.quota("a", {"cpu": 4}, {"cpu": 8})
    w.quota("b", {"cpu": 4}, {"cpu": 8})
    for i in range(6):
        w.pod(f"a-{i}", "a", node="n0", priority=100 + i)
    w.pod("b-0", "b", node="n0")
    w.pod("b-1", "b", node="n0")
    # Priorities of other namespaces do not count: it is b's by right.
    assert w.victims(w.pod("b-2", "b", 2, priority=0)) == ["a-0", "a-1"]


def test_a_namespace_is_not_pushed_below_its_min(world):
    w = world(4, 4)
    w.quota("a", {"cpu": 4}, {"cpu": 8})
    w.quota("b", {"cpu": 4}, {"cpu": 8})
    for i in range(4):
        w.pod(f"a-{i}", "a", node="n0")
    w.pod("a-4", "a", node="n1")
    for i in range(3):
        w.pod(f"stranger-{i}", "c", node="n1")
    # Only one of a's pods is borrowed, so there is no room for two on any node.
    decision = w.decide(w.pod("b-0", "b", 2))
    assert isinstance(decision.post_filter, Reject)
    assert w.victims(w.pod("b-0", "b", 1)) in (["a-4"], ["a-0"], ["a-1"], ["a-2"], ["a-3"])


def test_a_pod_above_its_min_ends_only_less_important_pods_of_its_namespace(world):
    w = world(8)
    w.quota("a", {"cpu": 2}, {"cpu": 4})
    w.quota("b", {"cpu": 6}, {"cpu": 8})
    w.pod("b-0", "b", node="n0", priority=-5)
    for i in range(4):
        w.pod(f"a-{i}", "a", node="n0", priority=i)
    decision = w.decide(w.pod("a-4", "a", 1, priority=0))
    assert "no pods that may end" in decision.message
    assert decision.rejected_by == {"CapacityScheduling"}
    assert w.victims(w.pod("a-4", "a", 1, priority=2)) == ["a-0"]


def test_pods_without_a_quota_leave_those_with_one_alone(world):
    w = world(2, 2)
    w.quota("a", {"cpu": 2}, {"cpu": 4})
    for i in range(2):
        w.pod(f"a-{i}", "a", node="n0", priority=-5)
        w.pod(f"c-{i}", "c", node="n1", priority=1)
    assert w.victims(w.pod("p", "c", 1, priority=10)) in (["c-0"], ["c-1"])
    assert isinstance(w.decide(w.pod("p", "c", 1, priority=1)).post_filter, Reject)


def test_without_any_quota_preemption_is_the_ordinary_one(world):
    w = world(2)
    w.pod("low", "c", 2, node="n0", priority=1)
    assert w.victims(w.pod("p", "a", 1, priority=2)) == ["low"]


def test_budgets_are_respected_where_there_is_a_choice(world):
    w = world(4)
    w.quota("a", {"cpu": 1}, {"cpu": 8})
    w.quota("b", {"cpu": 3}, {"cpu": 8})
    for i in range(4):
        w.pod(f"a-{i}", "a", node="n0", labels={"app": "kept" if i < 2 else "free"})
    budget = PodDisruptionBudget.of(
        {
            "metadata": {"name": "kept", "namespace": "a"},
            "spec": {"selector": {"matchLabels": {"app": "kept"}}},
            "status": {"disruptionsAllowed": 0},
        }
    )
    w.handle.budgets.set(budget.key, budget)
    assert w.victims(w.pod("b-0", "b", 2)) == ["a-2", "a-3"]


def test_a_pod_waits_for_the_victims_it_has(world):
    w = world(4)
    w.quota("a", {"cpu": 2}, {"cpu": 4})
    w.quota("b", {"cpu": 2}, {"cpu": 4})
    for i in range(4):
        w.pod(f"a-{i}", "a", node="n0")
    info = w.pod("b-0", "b", 1)
    nomination = w.decide(info).post_filter
    (victim,) = nomination.victims
    w.handle.nominations.set(info, nomination.node)
    victim.pod.metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
    victim.pod.status.conditions = [
        Condition(type="DisruptionTarget", status="True", reason="PreemptionByScheduler")
    ]
    assert isinstance(w.decide(info).post_filter, Ineligible)
    never = w.pod("b-1", "b", 1, preemptionPolicy="Never")
    assert isinstance(w.decide(never).post_filter, Ineligible)


def test_nobody_ends_twice_for_the_same_and_no_lender_falls_below_its_min(world):
    w = world(2, 2, 2)
    w.quota("a", {"cpu": 2}, {"cpu": 4})
    w.quota("b", {"cpu": 2}, {"cpu": 4})
    for i in range(4):
        w.pod(f"a-{i}", "a", node=f"n{i // 2}")
    ended = []
    for i in range(2):  # decided before the first victim is even told
        info = w.pod(f"b-{i}", "b", 1)
        nomination = w.decide(info).post_filter
        ended += [victim.key.name for victim in nomination.victims]
        w.handle.nominations.set(info, nomination.node)
    assert len(ended) == len(set(ended)) == 2
    # All that is lent is on its way back.
    assert isinstance(w.decide(w.pod("b-1", "b", 1)).post_filter, Ineligible)


def test_what_is_being_taken_back_is_not_lent_again(world):
    w = world(8)
    w.quota("a", {"cpu": 2}, {"cpu": 4})
    w.quota("b", {"cpu": 2}, {"cpu": 4})
    for i in range(2):
        w.pod(f"a-{i}", "a", node="n0")
    w.pod("b-0", "b", node="n0")
    borrower = w.pod("a-2", "a", 1)
    assert w.decide(borrower).node == "n0"
    w.handle.nominations.set(w.pod("b-1", "b", 1), "n0")
    assert w.decide(borrower).node is None
    # A namespace that borrows itself keeps nothing back for its nominees.
    w.pod("b-2", "b", 2, node="n0")
    refusal = w.plugin.pre_filter(borrower, w.cluster.nodes)
    assert "cpu (6000m of 4000m)" in refusal.reason
