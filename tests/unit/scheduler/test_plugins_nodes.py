"""Plugins that look at what nodes are: name, cordon, taints, labels."""

import pytest

from motley.scheduler.contract import NoArgs
from motley.scheduler.plugins.node_affinity import NodeAffinity, NodeAffinityArgs
from motley.scheduler.plugins.node_name import NodeName
from motley.scheduler.plugins.node_unschedulable import NodeUnschedulable
from motley.scheduler.plugins.taint_toleration import TaintToleration


def test_a_named_node_is_the_only_one(cluster, node, pod):
    world = cluster(node("a"), node("b"))
    plugin = NodeName(NoArgs(), world.handle)
    assert world.allowed(plugin, pod(node="b")) == ["b"]
    assert world.allowed(plugin, pod(node="nowhere")) == []


def test_a_cordoned_node_takes_only_pods_that_tolerate_the_cordon(cluster, node, pod):
    world = cluster(node("a"), node("b", unschedulable=True))
    plugin = NodeUnschedulable(NoArgs(), world.handle)
    cordon = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}
    assert world.allowed(plugin, pod()) == ["a"]
    assert world.allowed(plugin, pod(tolerations=[cordon])) == ["a", "b"]


TAINT = {"key": "k", "value": "v", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("taint", "toleration", "runs"),
    [
        (TAINT, None, False),
        (TAINT | {"effect": "NoExecute"}, None, False),
        (TAINT | {"effect": "PreferNoSchedule"}, None, True),
        (TAINT, {"key": "k", "value": "v"}, True),
        (TAINT, {"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}, True),
        (TAINT, {"key": "k", "operator": "Equal", "value": "w"}, False),
        (TAINT, {"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute"}, False),
        (TAINT, {"key": "k", "operator": "Exists"}, True),
        (TAINT, {"key": "other", "operator": "Exists"}, False),
        (TAINT, {"operator": "Exists"}, True),
        (TAINT, {"operator": "Exists", "effect": "NoExecute"}, False),
        (TAINT | {"value": ""}, {"key": "k", "operator": "Equal"}, True),
    ],
)
def test_hard_taints_must_be_tolerated(cluster, node, pod, taint, toleration, runs):
    world = cluster(node("free"), node("tainted", taints=[taint]))
    tolerations = [toleration] if toleration else []
    allowed = world.allowed(TaintToleration(NoArgs(), world.handle), pod(tolerations=tolerations))
    assert allowed == (["free", "tainted"] if runs else ["free"])


def test_soft_taints_cost_score_in_proportion(cluster, node, pod):
    def soft(*keys):
        return [{"key": k, "value": "", "effect": "PreferNoSchedule"} for k in keys]

    world = cluster(node("a"), node("b", taints=soft("x")), node("c", taints=soft("x", "y", "z")))
    plugin = TaintToleration(NoArgs(), world.handle)
    assert world.scores(plugin, pod()) == {"a": 100, "b": 67, "c": 0}
    tolerant = pod(tolerations=[{"operator": "Exists"}])
    assert world.scores(plugin, tolerant) == {"a": 100, "b": 100, "c": 100}


def _affinity(*terms, preferred=()):
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)},
            "preferredDuringSchedulingIgnoredDuringExecution": list(preferred),
        }
    }


def _expression(key, operator, *values):
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("term", "allowed"),
    [
        (_expression("disk", "In", "ssd", "nvme"), ["a", "b"]),
        (_expression("disk", "In", "tape"), []),
        (_expression("disk", "NotIn", "ssd"), ["b", "c"]),
        (_expression("disk", "Exists"), ["a", "b"]),
        (_expression("disk", "DoesNotExist"), ["c"]),
        (_expression("gen", "Gt", "6"), ["a", "c"]),
        (_expression("gen", "Lt", "7"), ["b"]),
        (_expression("gen", "Gt", "x"), []),
        (_expression("disk", "Gt", "1"), []),
        ({}, []),
        ({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}, ["b"]),
        (
            {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["b"]}]},
            ["a", "c"],
        ),
    ],
)
def test_required_expressions(cluster, node, pod, term, allowed):
    world = cluster(
        node("a", labels={"disk": "ssd", "gen": "7"}),
        node("b", labels={"disk": "nvme", "gen": "-6"}),
        node("c", labels={"gen": "10"}),
    )
    plugin = NodeAffinity(NodeAffinityArgs(), world.handle)
    assert world.allowed(plugin, pod(affinity=_affinity(term))) == allowed
    assert world.feasible(pod(affinity=_affinity(term))) == allowed


def test_terms_are_alternatives_and_the_selector_holds_besides(cluster, node, pod):
    world = cluster(
        node("a", labels={"disk": "ssd", "zone": "z1"}),
        node("b", labels={"disk": "hdd", "zone": "z1"}),
        node("c", labels={"disk": "hdd", "zone": "z2"}),
    )
    either = _affinity(_expression("disk", "In", "ssd"), _expression("disk", "In", "hdd"))
    assert world.feasible(pod(affinity=either, nodeSelector={"zone": "z1"})) == ["a", "b"]


def test_preferred_terms_add_their_weights(cluster, node, pod):
    world = cluster(
        node("a", labels={"disk": "ssd", "zone": "z1"}), node("b", labels={"zone": "z1"}), node("c")
    )
    preferred = [
        {"weight": 30, "preference": _expression("disk", "In", "ssd")},
        {"weight": 10, "preference": _expression("zone", "In", "z1")},
        {"weight": 50, "preference": {}},
    ]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    plugin = NodeAffinity(NodeAffinityArgs(), world.handle)
    assert world.scores(plugin, pod(affinity=affinity)) == {"a": 100, "b": 25, "c": 0}


def test_fields_that_name_no_node_in_common_refuse_the_pod(cluster, node, pod):
    def named(name):
        return {"key": "metadata.name", "operator": "In", "values": [name]}

    world = cluster(node("a"), node("b"))
    conflict = pod(affinity=_affinity({"matchFields": [named("a"), named("b")]}))
    assert world.cycle.schedule(world.info(conflict)).message == (
        "0/2 nodes are available: pod affinity terms conflict. "
        "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    )


def test_the_profiles_added_affinity_applies_to_every_pod(cluster, node, pod):
    world = cluster(node("a", labels={"pool": "x"}), node("b"))
    args = NodeAffinityArgs(
        added_affinity=pod(
            affinity=_affinity(_expression("pool", "Exists"))
        ).spec.affinity.node_affinity
    )
    plugin = NodeAffinity(args, world.handle)
    assert world.allowed(plugin, pod()) == ["a"]
