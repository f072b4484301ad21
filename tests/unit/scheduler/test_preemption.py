"""Preemption: who must go, where, and what is kept for whom."""

from typing import Any
from unittest.mock import Mock

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from motley.api.views.base import Condition
from motley.api.views.policy import PodDisruptionBudget
from motley.client.informer import Change
from motley.lib.clock import SYSTEM
from motley.scheduler import conditions, preemption
from motley.scheduler.budgets import Budgets
from motley.scheduler.candidates import Candidate, KnownByTemplate, by_importance
from motley.scheduler.columns import PODS_ROW, Columns
from motley.scheduler.contract import Ineligible, Nomination, Reject
from motley.scheduler.intake import Intake
from motley.scheduler.plugins.default_preemption import DefaultPreemption, DefaultPreemptionArgs
from motley.scheduler.preempting import Preempting
from motley.scheduler.queue import Place, Queue
from motley.scheduler.trial import Trial

FIXTURES = [HealthCheck.function_scoped_fixture]  # they only hand out functions
DAY = "2026-01-{:02d}T00:00:00Z"


def started(pod: Any, day: int) -> Any:
    pod.status.start_time = DAY.format(day)
    return pod


def budget(name: str, labels: dict[str, str] | None, allowed: int, **status: Any) -> Any:
    selector = None if labels is None else {"matchLabels": labels}
    return PodDisruptionBudget.of(
        {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"selector": selector},
            "status": {"disruptionsAllowed": allowed, **status},
        }
    )


def preempt(world: Any, info: Any) -> Nomination | Reject:
    answer = world.cycle.schedule(info).post_filter
    assert answer is not None
    return answer


def names(nomination: Nomination | Reject) -> list[str]:
    assert isinstance(nomination, Nomination), nomination
    return sorted(victim.key.name for victim in nomination.victims)


def snapshot(nodes: Columns) -> Any:
    live = sorted(nodes.rows.values())
    return (
        nodes.requested[:, live].tolist(),
        sorted((uid, p.node, p.assumed) for uid, p in nodes.placed.items()),
        nodes.ranks.pods_below(1 << 31, nodes.size).tolist(),
    )


# -- which pods -----------------------------------------------------------------------------


def test_the_least_important_go_and_no_more_than_must(cluster, node, pod):
    world = cluster(node("a", cpu="4"))
    for priority in (1, 2, 3, 9):
        world.place(pod(f"p{priority}", requests={"cpu": "1"}, priority=priority), "a")
    before = snapshot(world.nodes)
    hi = world.info(pod("hi", requests={"cpu": "2"}, priority=9))
    assert names(preempt(world, hi)) == ["p1", "p2"]
    assert snapshot(world.nodes) == before


def test_of_equal_priority_the_youngest_goes(cluster, node, pod):
    world = cluster(node("a", cpu="2"))
    world.place(started(pod("old", requests={"cpu": "1"}), 1), "a")
    world.place(started(pod("young", requests={"cpu": "1"}), 2), "a")
    hi = world.info(pod("hi", requests={"cpu": "1"}, priority=1))
    assert names(preempt(world, hi)) == ["young"]
    world.place(pod("unstarted", requests={"cpu": "1"}), "a")
    world.nodes.remove_pod("young")
    assert names(preempt(world, hi)) == ["unstarted"]


def test_pods_of_the_same_or_a_higher_priority_stay(cluster, node, pod):
    world = cluster(node("a", cpu="1"), node("b", cpu="1"))
    world.place(pod("same", requests={"cpu": "1"}, priority=5), "a")
    world.place(pod("higher", requests={"cpu": "1"}, priority=6), "b")
    answer = preempt(world, world.info(pod("hi", requests={"cpu": "1"}, priority=5)))
    assert answer == Reject(
        "preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod."
    )


def test_a_held_port_is_freed_whatever_the_room(cluster, node, pod):
    world = cluster(node("a"), node("b", unschedulable=True))
    world.place(pod("holder", host_port=80, priority=1), "a")
    world.place(pod("bystander", priority=0), "a")
    answer = preempt(world, world.info(pod("hi", host_port=80, priority=2)))
    assert names(answer) == ["holder"]
    assert isinstance(answer, Nomination)
    assert answer.message == (
        "preemption: found a potential placement for pod on node a, preempting 1 victims"
    )


def test_repelling_pods_are_ended_and_counted_back(cluster, node, pod):
    repels = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchLabels": {"app": "hi"}},
                }
            ]
        }
    }
    world = cluster(node("a"), node("b"))
    world.place(pod("loner-a", priority=3, affinity=repels), "a")
    world.place(pod("loner-b", priority=2, affinity=repels), "b")
    hi = world.info(pod("hi", labels={"app": "hi"}, priority=9))
    answer = preempt(world, hi)
    assert names(answer) == ["loner-b"]
    assert names(preempt(world, hi)) == ["loner-b"]


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (((5, 1), (5, 1)), ((6, 1),)),  # the highest priority counts before the number
        (((5, 1), (4, 1)), ((5, 1), (5, 1))),  # then the sum
        (((5, 1),), ((5, 1), (-9, 1))),  # where a negative priority is no advantage
        (((5, 2),), ((5, 1),)),  # then who has run for less time
        (((5, 2), (4, 1)), ((5, 1), (4, 2))),  # among the most important of them
    ],
)
def test_nodes_are_compared_in_kubernetes_order(cluster, node, pod, better, worse):
    world = cluster(node("a"))

    def candidate(victims: Any, violations: int) -> Candidate:
        placed = [
            preemption.PlacedPod(world.info(started(pod("p", priority=p), day)), "a", False)
            for p, day in victims
        ]
        return Candidate("a", tuple(placed), violations)

    assert candidate(better, 0).rank < candidate(worse, 0).rank
    assert candidate(better, 1).rank > candidate(worse, 0).rank


# -- budgets --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "violated"),
    [
        (budget("b", {"app": "x"}, 1), [False, True]),
        (budget("b", {"app": "x"}, 0), [True, True]),
        (budget("b", {"app": "y"}, 0), [False, False]),
        (budget("b", {}, 0), [False, False]),
        (budget("b", None, 0), [False, False]),
        (budget("b", {"app": "x"}, 0, disruptedPods={"p0": DAY.format(1)}), [False, True]),
    ],
)
def test_a_budget_is_spent_pod_by_pod(pod, made, violated):
    budgets = Budgets()
    budgets.set(made.key, made)
    pods = [pod(f"p{i}", labels={"app": "x"}) for i in range(2)]
    assert budgets.violated_by(pods) == violated
    budgets.set(made.key, None)
    assert budgets.violated_by(pods) == [False, False]


def test_a_protected_pod_is_spared_where_another_can_go(cluster, node, pod):
    world = cluster(node("a", cpu="2"))
    world.place(pod("kept", requests={"cpu": "1"}, priority=0, labels={"app": "x"}), "a")
    world.place(pod("other", requests={"cpu": "1"}, priority=5), "a")
    hi = world.info(pod("hi", requests={"cpu": "1"}, priority=9))
    assert names(preempt(world, hi)) == ["kept"]
    made = budget("b", {"app": "x"}, 0)
    world.handle.budgets.set(made.key, made)
    assert names(preempt(world, hi)) == ["other"]
    both = world.info(pod("both", requests={"cpu": "2"}, priority=9))
    assert names(preempt(world, both)) == ["kept", "other"]  # budgets are no veto


# -- who may --------------------------------------------------------------------------------


def test_a_polite_pod_keeps_its_hands_off(cluster, node, pod):
    world = cluster(node("a", cpu="1"))
    world.place(pod("low", requests={"cpu": "1"}), "a")
    hi = pod("hi", requests={"cpu": "1"}, priority=9, preemptionPolicy="Never")
    answer = preempt(world, world.info(hi))
    assert answer == Ineligible("preemption: not eligible due to preemptionPolicy=Never.")


def test_while_a_victim_ends_nobody_else_is_ended(cluster, node, pod):
    world = cluster(node("a", cpu="1"), node("b", cpu="1"))
    leaving = pod("leaving", requests={"cpu": "1"})
    leaving.metadata.deletion_timestamp = DAY.format(3)
    world.place(leaving, "a")
    world.place(pod("low", requests={"cpu": "1"}, priority=1), "b")
    hi = world.info(pod("hi", requests={"cpu": "1"}, priority=9))
    nominations = world.handle.nominations
    nominations.set(hi, "a")
    assert names(preempt(world, hi)) == ["leaving"]  # it ends for reasons of its own
    leaving.status = type(leaving.status)(
        conditions=[_condition("DisruptionTarget", "PreemptionByScheduler")]
    )
    assert isinstance(preempt(world, hi), Ineligible)
    nominations.preempting.add("hi")
    assert "to be finished" in str(preempt(world, hi))


def _condition(kind: str, reason: str) -> Any:
    return Condition(type=kind, status="True", reason=reason)


@pytest.mark.parametrize(
    "arguments",
    [
        {"minCandidateNodesPercentage": 101},
        {"minCandidateNodesAbsolute": -1},
        {"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 0},
    ],
)
def test_impossible_arguments_are_refused(arguments):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(arguments, DefaultPreemptionArgs)
    assert DefaultPreemption.Args is DefaultPreemptionArgs


# -- nominations ----------------------------------------------------------------------------


def test_a_nominated_place_is_kept_from_equals_and_lower_but_not_from_higher(cluster, node, pod):
    world = cluster(node("a", cpu="1"))
    nominations = world.handle.nominations
    nominee = world.info(pod("nominee", requests={"cpu": "1"}, priority=5))
    nominations.set(nominee, "a")
    before = snapshot(world.nodes)
    for priority, node_name in ((4, None), (5, None), (6, "a")):
        other = world.info(pod("other", requests={"cpu": "1"}, priority=priority))
        decision = world.cycle.schedule(other)
        assert decision.node == node_name, priority
    assert world.cycle.schedule(nominee).node == "a"
    assert snapshot(world.nodes) == before
    # A stand-in is nobody's victim, and gone once dropped.
    assert nominations.drop("nominee") is not None
    assert nominations.drop("nominee") is None
    assert world.nodes.requested[0].tolist() == [0]


def test_a_nominated_pod_takes_the_room_made_for_it(cluster, node, pod):
    world = cluster(node("a"), node("b"), node("c"))
    nominations = world.handle.nominations
    nominee = world.info(pod("nominee", requests={"cpu": "1"}, priority=5))
    for name in "cab":
        nominations.set(nominee, name)
        assert world.cycle.schedule(nominee).node == name
    assert nominations.on("b") == [nominee]
    assert nominations.on("c") == []


# -- anything -------------------------------------------------------------------------------

small = st.integers(1, 4)
running = st.lists(
    st.tuples(small, st.integers(0, 5), st.integers(1, 9), st.sampled_from(["x", "y", "z"])),
    max_size=6,
)


@settings(max_examples=60, deadline=None, suppress_health_check=FIXTURES)
@given(
    nodes=st.lists(running, min_size=1, max_size=24),
    wanted=small,
    priority=st.integers(1, 6),
    allowed=st.one_of(st.none(), st.integers(0, 2)),
    port=st.booleans(),
)
def test_victims_are_minimal_and_the_node_the_best(
    cluster, node, pod, nodes, wanted, priority, allowed, port
):
    world = cluster(*(node(f"n{i}", cpu="4") for i in range(len(nodes))))
    for i, pods in enumerate(nodes):
        for j, (cpu, level, day, app) in enumerate(pods):
            made = pod(f"p{i}-{j}", requests={"cpu": str(cpu)}, priority=level, labels={"app": app})
            world.place(started(made, day), f"n{i}")
    if allowed is not None:
        protects = budget("b", {"app": "x"}, allowed)
        world.handle.budgets.set(protects.key, protects)
    before = snapshot(world.nodes)
    hi = pod("hi", requests={"cpu": str(wanted)}, priority=priority, host_port=80 if port else 0)
    info = world.info(hi)
    decision = world.cycle.schedule(info)
    assert snapshot(world.nodes) == before
    if decision.node is not None:
        return
    ranks = {name: _reference(world, name, wanted, priority) for name in world.nodes.rows}
    expected = {name: rank for name, rank in ranks.items() if rank is not None}
    chosen = decision.nomination
    assert (chosen is None) == (not expected)
    if chosen is None:
        return
    victims, rank = expected[chosen.node]
    assert names(chosen) == victims
    assert rank[:4] == min(rank for _, rank in expected.values())[:4]
    for spared in chosen.victims:
        for victim in chosen.victims:
            if victim is not spared:
                world.nodes.remove_pod(victim.uid)
        row = world.nodes.rows[chosen.node]
        assert not world.cycle.evaluate(info).feasible[row]  # each of them had to go
        for victim in chosen.victims:
            world.nodes.add_pod(victim, chosen.node)


def _reference(world: Any, name: str, wanted: int, priority: int) -> Any:
    """Kubernetes' rules, node by node, in plain numbers."""
    placed = list(world.nodes.pods_on(name).values())
    lower = by_importance(p for p in placed if p.info.priority < priority)
    room = 4000 - sum(p.info.requests["cpu"] for p in placed if p not in lower)
    room -= wanted * 1000
    if room < 0 or not lower:
        return None
    violated = world.handle.budgets.violated_by(p.info.pod for p in lower)
    order = [p for p, v in zip(lower, violated, strict=True) if v]
    protected = len(order)
    order += [p for p, v in zip(lower, violated, strict=True) if not v]
    victims, violations = [], 0
    for i, p in enumerate(order):
        if p.info.requests["cpu"] <= room:
            room -= p.info.requests["cpu"]
        else:
            victims.append(p)
            violations += i < protected
    if not victims:
        return None
    candidate = Candidate(name, tuple(by_importance(victims)), violations)
    return sorted(v.info.key.name for v in victims), candidate.rank


@settings(max_examples=40, deadline=None, suppress_health_check=FIXTURES)
@given(events=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.booleans()), max_size=40))
def test_the_ranks_add_up_to_what_is_requested(cluster, node, pod, events):
    world = cluster(*(node(f"n{i}") for i in range(4)))
    for i, (priority, row, gpu) in enumerate(events):
        requests = {"cpu": "1", **({"example.com/gpu": "1"} if gpu else {})}
        world.place(pod(f"p{i}", requests=requests, priority=priority), f"n{row}")
        if i % 3 == 2:
            world.nodes.remove_pod(f"p{i - 1}")
    total = np.zeros_like(world.nodes.requested)
    for _, amounts in world.nodes.ranks.below(6):
        total[: amounts.shape[0]] += amounts[:, : world.nodes.size]
    assert total.tolist() == world.nodes.requested.tolist()
    assert (
        world.nodes.ranks.pods_below(6, world.nodes.size).tolist()
        == world.nodes.requested[PODS_ROW].tolist()
    )


def test_a_filter_that_raises_while_pods_are_out_leaves_everything_as_it_was(cluster, node, pod):
    world = cluster(node("a", cpu="1"))
    world.place(pod("low", host_port=80, requests={"cpu": "1"}), "a")
    hi = world.info(pod("hi", host_port=80, requests={"cpu": "1"}, priority=9))
    evaluation = world.cycle.evaluate(hi)
    trial = Trial(world.profile, world.nodes, hi, evaluation.skipped, world.handle.nominations)
    before = snapshot(world.nodes)

    def broken() -> Any:
        raise RuntimeError("broken")

    trial.ask = broken  # type: ignore[method-assign]
    potential = np.ones(world.nodes.size, np.bool_)
    with pytest.raises(RuntimeError):
        preemption.search(trial, potential, world.handle.budgets, enough=10)
    assert snapshot(world.nodes) == before


# -- pods of one template -------------------------------------------------------------------


@settings(max_examples=60, deadline=None, suppress_health_check=FIXTURES)
@given(
    changes=st.lists(
        st.tuples(
            st.sampled_from(["come", "go", "start", "nominate", "node"]),
            st.integers(0, 5),
            st.integers(1, 3),
        ),
        max_size=12,
    )
)
def test_what_was_found_for_one_pod_serves_the_next_unless_it_changed(cluster, node, pod, changes):
    world = cluster(*(node(f"n{i}", cpu="2") for i in range(6)))
    for i in range(12):
        world.place(pod(f"p{i}", requests={"cpu": "1"}, priority=i % 3), f"n{i % 6}")
    for number, (what, row, size) in enumerate(changes):
        name = f"n{row}"
        there = world.nodes.pods_on(name)
        if what == "come":
            world.place(pod(f"c{number}", requests={"cpu": str(size)}, priority=size), name)
        elif what == "go" and there:
            world.nodes.remove_pod(next(iter(there)))
        elif what == "start" and there:
            started(next(iter(there.values())).info.pod, size)
            world.nodes.touch(name)
        elif what == "nominate":
            other = world.info(pod(f"o{number}", requests={"cpu": str(size)}, priority=size * 3))
            world.handle.nominations.set(other, name)
        elif what == "node":
            world.nodes.set_node(node(name, cpu=str(size)))
        same = world.info(pod(f"hi{number}", requests={"cpu": "2"}, priority=7))
        known = world.cycle.schedule(same)
        plugin = world.profile.plugins["DefaultPreemption"]
        kept, plugin._known = plugin._known, KnownByTemplate(world.nodes)
        assert world.cycle.schedule(same).post_filter == known.post_filter
        plugin._known = kept


def test_a_later_start_is_seen_although_no_column_has_it(cluster, node, pod):
    world = cluster(node("a", cpu="1"), node("b", cpu="1"))
    first = world.place(started(pod("x", requests={"cpu": "1"}), 1), "a")
    world.place(started(pod("y", requests={"cpu": "1"}), 2), "b")
    hi = world.info(pod("hi", requests={"cpu": "1"}, priority=1))
    assert names(preempt(world, hi)) == ["y"]
    queue = Queue({world.profile.name: world.profile})
    preempting, _, _ = carrying_out(world, SYSTEM)
    intake = Intake(world.nodes, queue, world.infos, preempting, Mock())
    later = started(pod("x", requests={"cpu": "1"}, node="a"), 3)
    intake.pod_changed(Change(first.pod, later))
    assert names(preempt(world, hi)) == ["x"]


# -- carrying it out ------------------------------------------------------------------------


def carrying_out(world: Any, clock: Any) -> tuple[Preempting, Queue, list[Any]]:
    happened: list[Any] = []
    queue = Queue({world.profile.name: world.profile}, clock=clock)
    made = Preempting(
        None,  # type: ignore[arg-type]  # nothing is carried out here
        world.handle,
        queue,
        {},
        happened.append,
        as_placed=lambda pod, _node: pod,
    )
    return made, queue, happened


def test_a_nomination_of_an_earlier_run_is_taken_over_and_ends_with_the_status(
    cluster, node, pod, clock
):
    world = cluster(node("a", cpu="1"))
    preempting, _, happened = carrying_out(world, clock)
    plain = pod("p", requests={"cpu": "1"}, priority=5)
    nominated = pod("p", requests={"cpu": "1"}, priority=5)
    nominated.status.nominated_node_name = "a"
    info = world.info(nominated)
    preempting.follow(None, nominated, info)
    assert world.handle.nominations.node_of("p") == "a"
    preempting.follow(nominated, nominated, info)  # any other change leaves it alone
    assert world.nodes.requested[0].tolist() == [1000]
    preempting.follow(nominated, plain, info)
    assert world.handle.nominations.node_of("p") == ""
    assert [type(event).__name__ for event in happened] == ["PodDeleted"]


def test_a_decision_nominates_displaces_and_gives_up(cluster, node, pod, clock):
    world = cluster(node("a", cpu="2"))
    preempting, queue, _ = carrying_out(world, clock)
    nominations = world.handle.nominations
    world.place(pod("low", requests={"cpu": "2"}), "a")
    middle = world.info(pod("middle", requests={"cpu": "2"}, priority=5))
    queue.add(middle)
    queued = queue.pop()
    assert preempting.decided(middle, world.cycle.schedule(middle)) == "a"
    queue.reject(queued, frozenset({"NodeResourcesFit"}))
    assert nominations.preempting == {"middle"}

    high = world.info(pod("high", requests={"cpu": "2"}, priority=9))
    assert preempting.decided(high, world.cycle.schedule(high)) == "a"
    assert [p.key.name for p in nominations.on("a")] == ["high"]
    assert queue.get("middle").place is Place.BACKOFF  # it looks for another place

    world.nodes.set_node(node("a", cpu="1"))
    nominations.preempting.clear()
    assert preempting.decided(high, world.cycle.schedule(high)) == ""
    assert len(nominations) == 0
    polite = world.info(pod("polite", requests={"cpu": "1"}, preemptionPolicy="Never"))
    assert preempting.decided(polite, world.cycle.schedule(polite)) is None


@pytest.mark.parametrize(
    ("said", "nominated", "patched"),
    [
        ("", None, {}),
        ("", "a", {"nominatedNodeName": "a"}),
        ("a", "a", {}),
        ("a", None, {}),
        ("a", "", {"nominatedNodeName": None}),
    ],
)
def test_the_status_is_patched_where_the_nomination_is_another(pod, said, nominated, patched):
    waiting = pod("p")
    waiting.status.nominated_node_name = said
    body = conditions.patch(waiting, "Unschedulable", "no room", 0.0, nominated)
    assert body is not None
    assert {k: v for k, v in body["status"].items() if k != "conditions"} == patched
    waiting.status.conditions = [
        Condition(type="PodScheduled", status="False", reason="Unschedulable", message="no room")
    ]
    again = conditions.patch(waiting, "Unschedulable", "no room", 0.0, nominated)
    assert again == ({"status": patched} if patched else None)
