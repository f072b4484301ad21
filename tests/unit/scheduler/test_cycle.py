"""One cycle: who is feasible, who wins, and what is said about it."""

import numpy as np
import pytest

from motley.scheduler import contract, events, profiles
from motley.scheduler.contract import Handle, PluginError
from motley.scheduler.cycle import Cycle, Rotation
from motley.scheduler.images import ImageTable
from motley.scheduler.plugins.registry import PLUGINS

NO_SCHEDULE = [{"key": "k", "value": "v", "effect": "NoSchedule"}]


def test_without_nodes_it_says_so(cluster, pod):
    world = cluster()
    decision = world.cycle.schedule(world.info(pod()))
    assert decision.node is None
    assert decision.message == "no nodes available to schedule pods"


def test_reasons_are_counted_under_the_first_filter_that_rejects(cluster, node, pod):
    world = cluster(
        node("a", cpu="1", taints=NO_SCHEDULE),
        node("b", cpu="1", taints=NO_SCHEDULE),
        node("c", cpu="1", memory="1Gi"),
        node("d", cpu="1", memory="64Gi"),
        node("e", unschedulable=True),
    )
    decision = world.cycle.schedule(world.info(pod(requests={"cpu": "2", "memory": "2Gi"})))
    assert decision.message == (
        "0/5 nodes are available: 1 Insufficient memory, 1 node(s) were unschedulable, "
        "2 Insufficient cpu, 2 node(s) had untolerated taint(s). "
        "preemption: 0/5 nodes are available: 5 Preemption is not helpful for scheduling."
    )
    assert decision.rejected_by == {"NodeUnschedulable", "TaintToleration", "NodeResourcesFit"}


def test_nodes_outside_named_fields_are_counted_under_the_narrowing_plugin(cluster, node, pod):
    world = cluster(node("a", cpu="1"), node("b"), node("c"))
    requirement = {"key": "metadata.name", "operator": "In", "values": ["a"]}
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchFields": [requirement]}]
            }
        }
    }
    decision = world.cycle.schedule(world.info(pod(requests={"cpu": "2"}, affinity=affinity)))
    assert decision.message == (
        "0/3 nodes are available: 1 Insufficient cpu, "
        "2 node(s) didn't satisfy plugin(s) [NodeAffinity]. "
        "preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
    )


def test_equal_nodes_take_turns(cluster, node, pod):
    world = cluster(*(node(f"n{i}") for i in range(4)))
    chosen = [world.cycle.schedule(world.info(pod(f"p{i}"))).node for i in range(8)]
    assert chosen == ["n0", "n1", "n2", "n3"] * 2


def test_the_rotation_starts_where_the_seed_says_and_repeats_with_it():
    rows = np.arange(50)

    def sequence(seed):
        rotation = Rotation(seed)
        return [rotation.pick(rows) for _ in range(60)]

    assert sequence(7) == sequence(7)
    assert sorted(sequence(7)[:50]) == list(range(50))


def test_a_burst_of_equal_pods_spreads_evenly_over_equal_nodes(cluster, node, pod):
    world = cluster(*(node(f"n{i}") for i in range(5)))
    for i in range(50):
        info = world.info(pod(f"p{i}", requests={"cpu": "100m", "memory": "100Mi"}))
        decision = world.cycle.schedule(info)
        world.nodes.add_pod(info, decision.node, assumed=True)
    assert {len(world.nodes.pods_on(f"n{i}")) for i in range(5)} == {10}


def test_the_decision_lists_the_winner_then_runners_up_with_scores(cluster, node, pod):
    world = cluster(node("a", cpu="2"), node("b", cpu="16"), node("c", cpu="4"))
    decision = world.cycle.schedule(world.info(pod(requests={"cpu": "1"})))
    assert decision.node == "b"
    assert [ranked.node for ranked in decision.ranking] == ["b", "c", "a"]
    best = decision.ranking[0]
    assert best.total == sum(best.scores.values())
    assert best.scores["TaintToleration"] == 300
    assert decision.feasible == 3


def test_with_one_feasible_node_nothing_is_scored(cluster, node, pod):
    world = cluster(node("a"), node("b", unschedulable=True))
    assert world.cycle.evaluate(world.info(pod())).scores == {}
    assert world.cycle.schedule(world.info(pod())).node == "a"


def test_answers_kept_per_template_follow_changes_of_nodes(cluster, node, pod):
    world = cluster(node("a"), node("b", taints=NO_SCHEDULE))
    assert world.feasible(pod("1")) == ["a"]
    world.nodes.set_node(node("b"))
    assert world.feasible(pod("2")) == ["a", "b"]
    world.nodes.set_node(node("a", unschedulable=True))
    assert world.feasible(pod("3")) == ["b"]


def test_a_removed_node_is_never_chosen(cluster, node, pod):
    world = cluster(node("a"), node("b"))
    world.nodes.remove_node("a")
    assert {world.cycle.schedule(world.info(pod(f"p{i}"))).node for i in range(4)} == {"b"}


class Broken:
    """A user's plugin with a bug."""

    name = "Broken"
    reason = "never"
    wakes_on: events.Events = ()
    Args = contract.NoArgs

    def __init__(self, args, handle): ...

    def filter(self, pod, nodes):
        raise KeyError("oops")


class Unsure(Broken):
    """One whose scores are not numbers."""

    name = "Unsure"

    def filter(self, pod, nodes):
        return nodes.live

    def score(self, pod, nodes):
        return np.full(nodes.size, np.nan)


class Odd(Unsure):
    """One that cannot compare."""

    name = "Odd"

    def normalize(self, pod, scores, feasible):
        raise KeyError("oops")


@pytest.mark.parametrize(
    ("plugin", "complaint"),
    [
        (Unsure, r'plugin "Unsure" failed at Score: ValueError: .* not a number'),
        (Odd, r'plugin "Odd" failed at NormalizeScore: KeyError'),
    ],
)
def test_a_scorer_that_fails_is_named(cluster, node, pod, clock, plugin, complaint):
    world = cluster(node("a"), node("b"))
    text = f"""
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{{plugins: {{score: {{enabled: [{{name: {plugin.name}}}]}}}}}}]
"""
    handle = Handle(world.nodes, clock, ImageTable())
    built = profiles.build(profiles.parse(text), handle, {**PLUGINS, plugin.name: plugin})
    with pytest.raises(PluginError, match=complaint):
        Cycle(built["default-scheduler"], world.nodes).schedule(world.info(pod()))


def test_a_plugin_that_raises_is_named(cluster, node, pod, clock):
    world = cluster(node("a"))
    text = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{plugins: {filter: {enabled: [{name: Broken}]}}}]
"""
    handle = Handle(world.nodes, clock, ImageTable())
    built = profiles.build(profiles.parse(text), handle, {**PLUGINS, "Broken": Broken})
    with pytest.raises(PluginError, match=r'plugin "Broken" failed at Filter: KeyError'):
        Cycle(built["default-scheduler"], world.nodes).schedule(world.info(pod()))
