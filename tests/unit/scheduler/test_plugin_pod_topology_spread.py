"""PodTopologySpread: hard and soft constraints, and the ones pods get by default."""

from typing import Any

import numpy as np
import pytest

from motley.api.selectors import Selector
from motley.api.views.base import Key
from motley.api.views.pod import Pod, TopologySpreadConstraint
from motley.scheduler import contract, directory, events
from motley.scheduler.plugins.pod_topology_spread import PodTopologySpread, PodTopologySpreadArgs

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
WEB = {"app": "web"}


def constraint(key: str = ZONE, skew: int = 1, *, hard: bool = True, **more: Any) -> dict[str, Any]:
    return {
        "topologyKey": key,
        "maxSkew": skew,
        "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
        "labelSelector": {"matchLabels": WEB},
        **more,
    }


@pytest.fixture
def world(cluster, node):
    """Two nodes in zone a, one in b, one in no zone."""
    return cluster(
        node("a1", labels={ZONE: "a"}),
        node("a2", labels={ZONE: "a"}),
        node("b1", labels={ZONE: "b"}, taints=[{"key": "k", "effect": "NoSchedule"}]),
        node("out"),
    )


@pytest.fixture
def plugin(world):
    return PodTopologySpread(PodTopologySpreadArgs(), world.handle)


@pytest.fixture
def spread(pod):
    """A web pod with constraints."""

    def make(
        *constraints: dict[str, Any], labels: dict[str, str] | None = None, **more: Any
    ) -> Pod:
        return pod("new", labels=labels or WEB, topologySpreadConstraints=list(constraints), **more)

    return make


def _fill(world: Any, pod: Any, **counts: int) -> None:
    for node, count in counts.items():
        for i in range(count):
            world.place(pod(f"{node}-{i}", labels=WEB), node)


@pytest.mark.parametrize(
    ("placed", "constraints", "expected"),
    [
        ({}, [constraint()], ["a1", "a2", "b1"]),
        ({"a1": 1}, [constraint()], ["b1"]),
        ({"a1": 1}, [constraint(skew=2)], ["a1", "a2", "b1"]),
        ({"a1": 1, "b1": 1}, [constraint()], ["a1", "a2", "b1"]),
        ({"a1": 1}, [constraint(HOST)], ["a2", "b1", "out"]),
        ({"a1": 1, "b1": 1}, [constraint(), constraint(HOST)], ["a2"]),
        ({"a1": 1, "b1": 1}, [constraint(minDomains=2)], ["a1", "a2", "b1"]),
        ({"a1": 1, "b1": 1}, [constraint(minDomains=3)], []),
        # The tainted zone does not count, so the other one is the emptiest.
        ({"a1": 1}, [constraint(nodeTaintsPolicy="Honor")], ["a1", "a2", "b1"]),
        ({"a1": 1}, [constraint(labelSelector={})], ["a1", "a2", "b1"]),
        ({"a1": 1}, [constraint(labelSelector=None)], ["a1", "a2", "b1"]),
        ({"a1": 1}, [constraint("rack")], []),
    ],
)
def test_hard_constraints_filter(world, plugin, pod, spread, placed, constraints, expected):
    _fill(world, pod, **placed)
    assert world.allowed(plugin, spread(*constraints)) == expected


def test_nodes_the_pod_cannot_select_are_counted_only_if_asked_for(world, plugin, pod, spread):
    _fill(world, pod, a1=1)
    chosen = {"nodeSelector": {ZONE: "a"}}
    assert world.allowed(plugin, spread(constraint(), **chosen)) == ["a1", "a2", "b1"]
    ignoring = constraint(nodeAffinityPolicy="Ignore")
    assert world.allowed(plugin, spread(ignoring, **chosen)) == ["b1"]


def test_pods_of_other_namespaces_or_on_their_way_out_do_not_count(world, plugin, pod, spread):
    ending, foreign = pod("ending", labels=WEB), pod("foreign", labels=WEB)
    ending.metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
    foreign.metadata.namespace = "elsewhere"
    world.place(ending, "a1")
    world.place(foreign, "a2")
    assert world.allowed(plugin, spread(constraint(HOST))) == ["a1", "a2", "b1", "out"]


def test_a_pod_that_begins_to_end_stops_counting(world, plugin, pod, spread):
    _fill(world, pod, a1=1)
    assert world.allowed(plugin, spread(constraint())) == ["b1"]
    ending = pod("a1-0", labels=WEB)
    ending.metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
    world.place(ending, "a1")
    assert world.allowed(plugin, spread(constraint())) == ["a1", "a2", "b1"]


def test_match_label_keys_narrow_the_selector_to_the_pods_own_values(world, plugin, pod, spread):
    world.place(pod("v1", labels={**WEB, "rev": "1"}), "a1")
    own = {**WEB, "rev": "2"}
    assert world.allowed(plugin, spread(constraint(), labels=own)) == ["b1"]
    narrowed = constraint(matchLabelKeys=["rev", "none"])
    assert world.allowed(plugin, spread(narrowed, labels=own)) == ["a1", "a2", "b1"]


def test_reasons_tell_missing_labels_from_skew(world, pod, spread):
    _fill(world, pod, a1=1)
    decision = world.cycle.schedule(world.info(spread(constraint())))
    assert decision.message.startswith(
        "0/4 nodes are available: "
        "1 node(s) didn't match pod topology spread constraints (missing required label), "
        "1 node(s) had untolerated taint(s), "
        "2 node(s) didn't match pod topology spread constraints."
    )


def test_only_a_missing_label_is_beyond_the_help_of_evictions(world, plugin, pod, spread):
    _fill(world, pod, a1=1)
    lost = plugin.hopeless(world.info(spread(constraint())), world.nodes, world.nodes.live)
    assert [world.nodes.names[row] for row in np.flatnonzero(lost)] == ["out"]


@pytest.mark.parametrize(("order", "expected"), [((ZONE, "rack"), []), (("rack", ZONE), ["a2"])])
def test_a_node_that_fails_another_constraint_before_is_not_given_up(
    cluster, node, pod, spread, order, expected
):
    """As with the real scheduler, which stops at the first constraint."""
    world = cluster(
        node("a1", labels={ZONE: "a", "rack": "1"}),
        node("a2", labels={ZONE: "a"}),
        node("b1", labels={ZONE: "b", "rack": "1"}),
    )
    _fill(world, pod, a1=2)
    plugin, info = (
        world.profile.plugins["PodTopologySpread"],
        world.info(spread(*(constraint(key) for key in order))),
    )
    rejected = world.nodes.live & ~plugin.filter(info, world.nodes)
    lost = plugin.hopeless(info, world.nodes, rejected)
    assert [world.nodes.names[row] for row in np.flatnonzero(lost)] == expected


# -- score ----------------------------------------------------------------------------------


def _scores(world: Any, plugin: Any, pod: Any) -> dict[str, float] | None:
    info = world.info(pod)
    if plugin.pre_score(info, world.nodes, world.nodes.live) is contract.SKIP:
        return None
    scores = plugin.normalize(info, plugin.score(info, world.nodes), world.nodes.live)
    return {name: float(scores[row]) for name, row in world.nodes.rows.items()}


def test_emptier_domains_score_higher_and_nodes_outside_of_them_nothing(world, plugin, pod, spread):
    soft = constraint(hard=False)
    assert _scores(world, plugin, spread(soft)) == {"a1": 100, "a2": 100, "b1": 100, "out": 0}
    _fill(world, pod, a1=2, a2=1, b1=1)
    # Two zones: 3·ln 4 → 4, 1·ln 4 → 1.
    assert _scores(world, plugin, spread(soft)) == {"a1": 25, "a2": 25, "b1": 100, "out": 0}
    # Four hosts: 2·ln 6 → 4, 1·ln 6 → 2, 0.
    by_host = constraint(HOST, hard=False)
    assert _scores(world, plugin, spread(by_host)) == {"a1": 0, "a2": 50, "b1": 50, "out": 100}


def test_hard_constraints_do_not_score_and_soft_ones_do_not_filter(world, plugin, spread):
    assert _scores(world, plugin, spread(constraint())) is None
    info = world.info(spread(constraint(hard=False)))
    assert plugin.pre_filter(info, world.nodes) is contract.SKIP


# -- constraints by default -----------------------------------------------------------------


def _owned(pod: Any, kind: str = "ReplicaSet", name: str = "web-1") -> Pod:
    made = pod("new", labels=WEB)
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": name, "controller": True}
    document = {"metadata": {"name": "x", "ownerReferences": [owner]}}
    made.metadata.owner_references = Pod.of(document).metadata.owner_references
    return made


def test_pods_of_a_replica_set_are_spread_by_default(world, plugin, pod):
    _fill(world, pod, a1=3)
    assert _scores(world, plugin, _owned(pod)) is None  # it is not known yet
    selector = Selector.of_map(WEB)
    world.handle.directory.set_controller(directory.REPLICA_SET, Key("default", "web-1"), selector)
    scores = _scores(world, plugin, _owned(pod))
    assert scores is not None
    assert scores["a1"] < scores["a2"] < scores["b1"]
    assert scores["out"] == 100  # a node without a zone counts by its name alone
    assert _scores(world, plugin, pod("alone", labels=WEB)) is None


def test_pods_of_a_service_are_spread_by_default(world, plugin, pod):
    _fill(world, pod, a1=3)
    world.handle.directory.set_service(Key("default", "web"), WEB)
    world.handle.directory.set_service(Key("default", "headless"), {})
    scores = _scores(world, plugin, pod("new", labels=WEB))
    assert scores is not None
    assert scores["a1"] < scores["b1"]
    world.handle.directory.set_service(Key("default", "web"), None)
    assert _scores(world, plugin, pod("new", labels=WEB)) is None


def test_a_profile_can_bring_its_own_defaults_or_none(world, pod, spread):
    world.handle.directory.set_service(Key("default", "web"), WEB)
    given = TopologySpreadConstraint(topology_key=ZONE, max_skew=1)
    args = PodTopologySpreadArgs(default_constraints=[given], defaulting_type="List")
    plugin = PodTopologySpread(args, world.handle)
    _fill(world, pod, a1=1)
    assert world.allowed(plugin, pod("new", labels=WEB)) == ["b1"]
    stated = spread(constraint(HOST, skew=5))
    assert world.allowed(plugin, stated) == ["a1", "a2", "b1", "out"]
    none = PodTopologySpread(PodTopologySpreadArgs(defaulting_type="List"), world.handle)
    assert _scores(world, none, pod("new", labels=WEB)) is None


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"max_skew": 0, "topology_key": ZONE}, "maxSkew"),
        ({"max_skew": 1}, "topologyKey"),
        ({"topology_key": ZONE, "when_unsatisfiable": "Perhaps"}, "whenUnsatisfiable"),
    ],
)
def test_wrong_defaults_are_refused(written, message):
    wrong = TopologySpreadConstraint(**written)
    with pytest.raises(ValueError, match=message):
        PodTopologySpreadArgs(default_constraints=[wrong], defaulting_type="List")


def test_defaults_need_the_list_type_and_must_differ():
    one = TopologySpreadConstraint(topology_key=ZONE)
    with pytest.raises(ValueError, match="defaultingType List"):
        PodTopologySpreadArgs(default_constraints=[one])
    with pytest.raises(ValueError, match="two default constraints"):
        PodTopologySpreadArgs(default_constraints=[one, one], defaulting_type="List")


# -- what wakes a pod -----------------------------------------------------------------------


def test_only_pods_a_constraint_counts_wake_a_rejected_pod(world, plugin, pod, spread):
    waiting = world.info(spread(constraint()))
    web, mail = world.info(pod("w", labels=WEB)), world.info(pod("m", labels={"app": "mail"}))
    foreign = pod("f", labels=WEB)
    foreign.metadata.namespace = "elsewhere"
    assert plugin.may_help(waiting, events.PodAdded(web, "a1"))
    assert plugin.may_help(waiting, events.PodDeleted(web, "a1"))
    assert not plugin.may_help(waiting, events.PodDeleted(mail, "a1"))
    assert not plugin.may_help(waiting, events.PodAdded(world.info(foreign), "a1"))
    assert plugin.may_help(waiting, events.NodeRemoved("b1"))
