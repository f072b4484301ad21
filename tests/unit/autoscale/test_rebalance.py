"""Which pods leave hot nodes, and why the others stay."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motley.autoscale import rebalance
from motley.autoscale.rebalance import CRITICAL, Amount, Node, Pod, Settings

GIB = float(1 << 30)


def a_node(name, cpu=0.0, memory=0.0, **more):
    return Node(name, Amount(4.0, 8 * GIB), Amount(cpu, memory * GIB), **more)


def a_pod(name, node="hot", cpu=0.5, memory=0.1, workload="Deployment/web", **more):
    return Pod("default", name, node, Amount(cpu, memory * GIB), workload=workload, **more)


def planned(nodes, pods, budgets=None, rested=None, now=0.0, fits=lambda p, n: "", **options):
    return rebalance.plan(nodes, pods, budgets or {}, Settings(**options), rested or {}, now, fits)


def moves(plan):
    return [(m.pod.name, m.to) for m in plan.moves]


def refusals(plan):
    return {r.pod.name: r.reason for r in plan.refusals}


def test_where_no_node_is_hot_nothing_moves():
    plan = planned([a_node("a", 3.1), a_node("b", 0.1)], [a_pod("p", "a")])
    assert (plan.hot, plan.moves, plan.refusals) == ({}, [], [])


def test_the_busiest_pod_leaves_a_hot_node_for_the_coolest():
    nodes = [a_node("hot", 3.6), a_node("cool", 0.4), a_node("cooler", 0.2)]
    plan = planned(nodes, [a_pod("small", cpu=0.2), a_pod("big", cpu=1.2)])
    assert plan.hot == {"hot": "cpu at 90%, threshold 80%"}
    assert moves(plan) == [("big", "cooler")]
    assert plan.moves[0].reason == "takes 30% of the cpu of hot; cooler would be at 35% with it"
    assert refusals(plan) == {"small": "the node will be cool enough without it"}


def test_the_least_important_leaves_first():
    nodes = [a_node("hot", 3.6), a_node("cool", 0.4)]
    pods = [a_pod("dear", cpu=1.2, priority=100), a_pod("cheap", cpu=1.1)]
    assert moves(planned(nodes, pods)) == [("cheap", "cool")]


def test_a_node_full_of_memory_loses_those_who_hold_it():
    nodes = [a_node("hot", 0.5, 7.5), a_node("cool", 1.0, 1.0)]
    plan = planned(nodes, [a_pod("busy", cpu=0.4), a_pod("large", cpu=0.01, memory=3.0)])
    assert moves(plan) == [("large", "cool")]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"workload": ""}, "no controller would make it anew"),
        ({"workload": "DaemonSet/agent"}, "a DaemonSet's pod belongs to its node"),
        ({"priority": CRITICAL}, "its priority is critical"),
        ({"objection": "it is a static pod"}, "it is a static pod"),
        ({"budgets": ("default/web",)}, "disruption budget default/web allows no more"),
    ],
)
def test_some_pods_are_never_moved(change, reason):
    nodes = [a_node("hot", 3.6), a_node("cool", 0.4)]
    plan = planned(nodes, [a_pod("p", cpu=1.0, **change)])
    assert plan.moves == []
    assert refusals(plan) == {"p": reason}


def test_where_nowhere_is_better_nothing_moves():
    pods = [a_pod("p", cpu=1.0)]
    warm = planned([a_node("hot", 3.6), a_node("warm", 2.2)], pods)
    assert refusals(warm)["p"] == "nowhere is better: 1 node(s) would be above 65% of cpu"
    alone = planned([a_node("hot", 3.6)], pods)
    assert refusals(alone)["p"] == "nowhere is better: there is no other node"
    cordoned = planned([a_node("hot", 3.6), a_node("c", takes_pods=False)], pods)
    assert refusals(cordoned)["p"] == "nowhere is better: 1 node(s) take no pods"
    full = Node("full", Amount(4.0, 8 * GIB), Amount(), Amount(3.9, 0.0))
    asks = [a_pod("p", cpu=1.0, requested=Amount(0.5, 0.0))]
    refused = planned([a_node("hot", 3.6), full], asks)
    assert "have too little cpu left to request" in refusals(refused)["p"]
    picky = planned([a_node("hot", 3.6), a_node("c")], pods, fits=lambda p, n: "do not match")
    assert refusals(picky)["p"] == "nowhere is better: 1 node(s) do not match"


def test_a_node_that_is_overcommitted_is_asked_for_more_but_not_loaded_with_more():
    def promised(used):
        whole, asked = Amount(4.0, 8 * GIB), Amount(3.9, 0.0)
        return Node("more", whole, Amount(used, 0.0), asked, promisable=Amount(8.0, 8 * GIB))

    asks = [a_pod("p", cpu=1.0, requested=Amount(0.5, 0.0))]
    assert moves(planned([a_node("hot", 3.6), promised(0.0)], asks)) == [("p", "more")]
    assert moves(planned([a_node("hot", 3.6), promised(2.2)], asks)) == []


def test_on_a_slow_node_the_same_work_takes_more():
    slow = a_node("slow", speed=0.25)
    plan = planned([a_node("hot", 3.6), slow], [a_pod("p", cpu=1.0)])
    assert plan.moves == [], "four cores there"
    faster = planned([a_node("hot", 3.6), a_node("fast", 2.0, speed=4.0)], [a_pod("p", cpu=1.0)])
    assert moves(faster) == [("p", "fast")], "a quarter of a core there"


def test_budgets_of_a_round_are_kept():
    nodes = [a_node("hot", 4.0), a_node("cool"), a_node("cool-2")]
    pods = [a_pod(f"p-{i}", cpu=0.4, workload=f"Deployment/w-{i}") for i in range(8)]
    assert len(planned(nodes, pods, per_node=2).moves) == 2
    assert len(planned(nodes, pods, per_node=9, per_round=3).moves) == 3
    same = [a_pod(f"p-{i}", cpu=0.4) for i in range(8)]
    assert len(planned(nodes, same, per_node=9).moves) == 1
    covered = [a_pod(f"p-{i}", cpu=0.4, workload=f"D/{i}", budgets=("b",)) for i in range(8)]
    assert len(planned(nodes, covered, {"b": 1}, per_node=9).moves) == 1


def test_a_node_and_a_workload_rest_after_a_move():
    nodes = [a_node("hot", 3.6), a_node("cool")]
    pods = [a_pod("p", cpu=1.0)]
    for key in ("hot", "default/Deployment/web"):
        plan = planned(nodes, pods, rested={key: 100.0}, now=400.0)
        assert plan.moves == []
        assert "rests after its last move for another 300 s" in refusals(plan)["p"]
        assert planned(nodes, pods, rested={key: 100.0}, now=701.0).moves


def test_thresholds_that_contradict_each_other_are_refused():
    with pytest.raises(ValueError, match="middle"):
        Settings(high={"cpu": 0.5, "memory": 0.8}, middle={"cpu": 0.6, "memory": 0.6})


amounts = st.floats(0, 4)


@st.composite
def worlds(draw):
    names = [f"n-{i}" for i in range(draw(st.integers(1, 6)))]
    nodes = [
        a_node(
            n,
            draw(amounts),
            draw(st.floats(0, 8)),
            speed=draw(st.sampled_from([0.25, 1.0, 2.0])),
            takes_pods=draw(st.booleans()),
        )
        for n in names
    ]
    pods = [
        a_pod(
            f"p-{i}",
            draw(st.sampled_from(names)),
            draw(amounts),
            draw(st.floats(0, 8)),
            draw(st.sampled_from(["", "Deployment/a", "Deployment/b", "DaemonSet/d"])),
            priority=draw(st.sampled_from([-5, 0, 100, CRITICAL])),
            budgets=draw(st.sampled_from([(), ("x",), ("x", "y")])),
        )
        for i in range(draw(st.integers(0, 20)))
    ]
    budgets = {"x": draw(st.integers(0, 3)), "y": draw(st.integers(0, 3))}
    limits = {
        "per_round": draw(st.integers(1, 6)),
        "per_node": draw(st.integers(1, 4)),
        "per_workload": draw(st.integers(1, 4)),
    }
    return nodes, pods, budgets, limits


@settings(max_examples=200, deadline=None)
@given(worlds())
def test_no_plan_breaks_a_promise(world):
    nodes, pods, budgets, limits = world
    plan = planned(nodes, pods, budgets, **limits)
    by_name = {n.name: n for n in nodes}
    options = Settings(**limits)
    hot = {
        n.name
        for n in nodes
        if any(n.share(n.used, r) > options.high[r] for r in rebalance.RESOURCES)
    }
    assert set(plan.hot) == hot
    told = sorted([m.pod.name for m in plan.moves] + [r.pod.name for r in plan.refusals])
    assert told == sorted(p.name for p in pods if p.node in hot), "each pod once, with a reason"
    assert len(plan.moves) <= limits["per_round"]
    used = {n.name: n.used for n in nodes}
    for move in plan.moves:
        pod, target = move.pod, by_name[move.to]
        assert pod.workload not in ("", "DaemonSet/d")
        assert pod.priority < CRITICAL
        assert target.takes_pods
        assert move.to != pod.node
        factor = by_name[pod.node].speed / target.speed
        used[move.to] = used[move.to].plus(Amount(pod.used.cpu * factor, pod.used.memory))
    for name in {m.to for m in plan.moves}:
        for resource in rebalance.RESOURCES:
            assert by_name[name].share(used[name], resource) <= options.middle[resource] + 1e-9
    for key, most in (("x", budgets["x"]), ("y", budgets["y"])):
        assert sum(key in m.pod.budgets for m in plan.moves) <= most
    for name in hot:
        assert sum(m.pod.node == name for m in plan.moves) <= limits["per_node"]
    for group in {p.group for p in pods}:
        assert sum(m.pod.group == group for m in plan.moves) <= limits["per_workload"]
