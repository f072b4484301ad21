"""NetworkAware: expected latencies over call graphs and topologies, against plain loops."""

from pathlib import Path
from statistics import fmean

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motley.api import motleyio
from motley.api.views.base import Key
from motley.api.views.core import Node
from motley.api.views.network import CallGraph, NetworkTopology
from motley.api.views.pod import Pod
from motley.scheduler import images
from motley.scheduler.columns import Columns
from motley.scheduler.contract import SKIP, Handle
from motley.scheduler.network import HOSTNAME
from motley.scheduler.plugins.network_aware import (
    TOO_FAR,
    TOO_NARROW,
    NetworkAware,
    NetworkAwareArgs,
    NetworkChanged,
)
from motley.scheduler.podinfo import PodInfos

ROOT = Path(__file__).parents[3]
ZONE = "topology.kubernetes.io/zone"
KINDS = {row.kind: row for row in motleyio.rows()}


def topology(name="t", **spec):
    return NetworkTopology.of({"metadata": {"name": name}, "spec": spec})


def graph(*calls, workloads=("front", "cart", "db"), name="shop"):
    sets = [{"name": w, "selector": {"matchLabels": {"app": w}}} for w in workloads]
    return CallGraph.of(
        {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"workloads": sets, "calls": list(calls)},
        }
    )


class World:
    def __init__(self, node, clock, zones, *topologies, graphs=(), **args):
        self.nodes, self.infos = Columns(), PodInfos()
        for name, zone in zones.items():
            self.nodes.set_node(node(name, labels={ZONE: zone} if zone else {}))
        handle = Handle(self.nodes, clock, images.ImageTable())
        self.plugin = NetworkAware(msgspec.convert(args, NetworkAwareArgs), handle)
        for t in topologies:
            self.plugin.network.set_topology(t.metadata.name, t)
        for g in graphs:
            self.plugin.network.set_graph(g.key, g)

    def place(self, pod, app, *names):
        for name in names:
            uid = f"{app}-{len(self.nodes.placed)}"
            self.nodes.add_pod(self.infos.of(pod(uid, labels={"app": app})), name)

    def pod(self, pod, app):
        return self.infos.of(pod("new", labels={"app": app}))

    def costs(self, pod, app):
        raw = self.plugin.score(self.pod(pod, app), self.nodes)
        return {name: round(float(raw[row]), 6) for name, row in self.nodes.rows.items()}

    def scores(self, pod, app):
        info = self.pod(pod, app)
        if self.plugin.pre_score(info, self.nodes, self.nodes.live) is SKIP:
            return SKIP
        raw = self.plugin.score(info, self.nodes)
        found = self.plugin.normalize(info, raw, self.nodes.live)
        return {name: float(found[row]) for name, row in self.nodes.rows.items()}

    def allowed(self, pod, app):
        info = self.pod(pod, app)
        if self.plugin.pre_filter(info, self.nodes) is SKIP:
            return SKIP
        mask = self.plugin.filter(info, self.nodes) & self.nodes.live
        return "".join(sorted(np.array(self.nodes.names)[mask]))

    def why(self, pod, app):
        info = self.pod(pod, app)
        rejected = ~self.plugin.filter(info, self.nodes)
        return self.plugin.explain(info, self.nodes, rejected)


ZONES = topology(
    topologyKey=ZONE,
    within={"latencyMs": 1},
    links=[
        {"from": "x", "to": "y", "latencyMs": 10, "bandwidth": "1G"},
        {"from": "y", "to": "z", "latencyMs": 20},
    ],
    otherwise={"latencyMs": 50},
)
FOUR = {"a": "x", "b": "x", "c": "y", "d": "z"}


def test_pods_are_drawn_to_the_pods_they_call(node, pod, clock):
    calls = graph({"from": "front", "to": "db"})
    world = World(node, clock, FOUR, ZONES, graphs=[calls])
    world.place(pod, "db", "a")
    assert world.costs(pod, "front") == {"a": 0, "b": 1, "c": 10, "d": 50}
    assert world.scores(pod, "front") == {"a": 100, "b": 98, "c": 80, "d": 0}


def test_and_to_the_pods_that_call_them(node, pod, clock):
    one_way = topology(
        topologyKey=ZONE,
        links=[
            {"from": "x", "to": "y", "latencyMs": 10},
            {"from": "y", "to": "x", "latencyMs": 30},
        ],
    )
    world = World(node, clock, FOUR, one_way, graphs=[graph({"from": "front", "to": "db"})])
    world.place(pod, "front", "a")
    assert world.costs(pod, "db")["c"] == 10, "calls come from x to y"
    assert world.costs(pod, "db")["d"] == 30, "nothing is known of z: the worst that is stated"


def test_calls_go_evenly_to_all_pods_of_a_workload_and_weigh_differently(node, pod, clock):
    calls = graph({"from": "cart", "to": "db", "weight": 3}, {"from": "front", "to": "cart"})
    world = World(node, clock, FOUR, ZONES, graphs=[calls])
    world.place(pod, "db", "a", "c")
    world.place(pod, "front", "d")
    assert world.costs(pod, "cart") == {
        "a": (3 * (0 + 10) / 2 + 50) / 4,
        "b": (3 * (1 + 10) / 2 + 50) / 4,
        "c": (3 * (10 + 0) / 2 + 20) / 4,
        "d": (3 * (50 + 20) / 2 + 0) / 4,
    }


def test_a_finer_topology_goes_before_a_coarser_one(node, pod, clock):
    hosts = topology(
        "hosts", topologyKey=HOSTNAME, links=[{"from": "a", "to": "d", "latencyMs": 2}]
    )
    world = World(node, clock, FOUR, ZONES, hosts, graphs=[graph({"from": "front", "to": "db"})])
    world.place(pod, "db", "a")
    assert world.costs(pod, "front") == {"a": 0, "b": 1, "c": 10, "d": 2}
    only = World(
        node, clock, FOUR, ZONES, hosts,
        graphs=[graph({"from": "front", "to": "db"})], topologies=["t"],
    )  # fmt: skip
    only.place(pod, "db", "a")
    assert only.costs(pod, "front")["d"] == 50


def test_pods_in_no_graph_and_workloads_that_are_nowhere_pull_nobody(node, pod, clock):
    world = World(node, clock, FOUR, ZONES, graphs=[graph({"from": "front", "to": "db"})])
    assert world.scores(pod, "front") is SKIP
    world.place(pod, "db", "a")
    assert world.scores(pod, "cart") is SKIP
    assert world.scores(pod, "front") is not SKIP
    info = world.infos.of(pod("other", labels={"app": "front"}))
    info = msgspec.structs.replace(info.pod, metadata=msgspec.structs.replace(
        info.pod.metadata, namespace="elsewhere"))  # fmt: skip
    elsewhere = world.infos.of(info)
    assert world.plugin.pre_score(elsewhere, world.nodes, world.nodes.live) is SKIP


def test_without_a_topology_the_same_node_is_as_good_as_any(node, pod, clock):
    world = World(node, clock, FOUR, graphs=[graph({"from": "front", "to": "db"})])
    world.place(pod, "db", "a")
    assert set(world.scores(pod, "front").values()) == {100}


def test_objects_that_change_act_at_once(node, pod, clock):
    world = World(node, clock, FOUR, ZONES, graphs=[graph({"from": "front", "to": "db"})])
    world.place(pod, "db", "a")
    world.nodes.set_node(node("d", labels={ZONE: "x"}))
    assert world.costs(pod, "front")["d"] == 1
    world.plugin.network.set_topology("t", None)
    assert world.costs(pod, "front")["c"] == 0
    world.plugin.network.set_graph(Key("default", "shop"), None)
    assert world.scores(pod, "front") is SKIP


# -- bounds ---------------------------------------------------------------------------------


def test_a_call_with_a_bound_keeps_nodes_that_are_near_enough(node, pod, clock):
    calls = graph({"from": "front", "to": "db", "maxLatencyMs": 10}, {"from": "cart", "to": "db"})
    world = World(node, clock, FOUR, ZONES, graphs=[calls])
    assert world.allowed(pod, "front") == "abcd", "there is no db yet"
    assert world.allowed(pod, "cart") is SKIP
    world.place(pod, "db", "a")
    assert world.allowed(pod, "front") == "abc"
    assert world.why(pod, "front") == {TOO_FAR: 1}
    info = world.pod(pod, "front")
    assert world.plugin.may_help(info, NetworkChanged())


def test_links_carry_what_was_promised_and_no_more(node, pod, clock):
    calls = graph({"from": "front", "to": "db", "minBandwidth": "400M"})
    world = World(node, clock, FOUR, ZONES, graphs=[calls])
    world.place(pod, "db", "a")
    assert world.allowed(pod, "front") == "abcd"
    world.place(pod, "front", "c", "c")
    assert world.allowed(pod, "front") == "abd", "x to y has 1G, and 800M are taken"
    assert world.why(pod, "front") == {TOO_NARROW: 1}
    world.place(pod, "db", "c")
    assert world.allowed(pod, "front") == "abcd", "half of the calls stay in y now"


def test_a_called_pod_counts_what_it_would_receive(node, pod, clock):
    calls = graph({"from": "front", "to": "db", "minBandwidth": "300M"})
    world = World(node, clock, FOUR, ZONES, graphs=[calls])
    world.place(pod, "front", "c", "c", "c", "c")
    assert world.allowed(pod, "db") == "cd", "four times 300M are too much from y to x"
    world.place(pod, "db", "d")
    assert world.allowed(pod, "db") == "abcd", "half of it is not"


# -- against a plain reference --------------------------------------------------------------

LATENCIES = st.integers(0, 40)


@st.composite
def clusters(draw):
    zones = draw(st.lists(st.sampled_from(["x", "y", "z", ""]), min_size=1, max_size=6))
    nodes = {f"n{i}": zone for i, zone in enumerate(zones)}
    tops = []
    for key, places in ((ZONE, ["x", "y", "z", "w"]), (HOSTNAME, [*nodes, "gone"])):
        if draw(st.booleans()):
            pairs = [(a, b) for a in places for b in places if a != b]
            chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=6))
            spec = {
                "topologyKey": key,
                "links": [{"from": a, "to": b, "latencyMs": draw(LATENCIES)} for a, b in chosen],
                "within": {"latencyMs": draw(LATENCIES)},
            }
            if draw(st.booleans()):
                spec["otherwise"] = {"latencyMs": draw(LATENCIES)}
            tops.append(spec)
    apps = ("front", "cart", "db")
    placed = draw(
        st.lists(st.tuples(st.sampled_from(apps), st.sampled_from(list(nodes))), max_size=10)
    )
    arrows = [(a, b) for a in apps for b in apps]
    calls = [
        {"from": a, "to": b, "weight": draw(st.integers(1, 5))}
        for a, b in draw(st.lists(st.sampled_from(arrows), unique=True, max_size=4))
    ]
    return nodes, tops, placed, calls


def plain_latency(a, b, zones, tops):
    """Between two nodes, by the rules as they are written; None: nothing is stated."""
    values = {HOSTNAME: {n: n for n in zones}, ZONE: zones}
    if a == b:
        by_node = [t for t in tops if t["topologyKey"] == HOSTNAME]
        return by_node[0]["within"]["latencyMs"] if by_node else 0
    for top in sorted(tops, key=lambda t: t["topologyKey"] != HOSTNAME):
        here, there = values[top["topologyKey"]][a], values[top["topologyKey"]][b]
        if not here or not there:
            continue
        if here == there:
            return top["within"]["latencyMs"]
        for one, other in ((here, there), (there, here)):
            for link in top["links"]:
                if (link["from"], link["to"]) == (one, other):
                    return link["latencyMs"]
        if "otherwise" in top:
            return top["otherwise"]["latencyMs"]
    return None


@settings(max_examples=150, deadline=None)
@given(clusters())
def test_costs_are_those_of_plain_loops(cluster):
    zones, tops, placed, calls = cluster
    nodes, infos = Columns(), PodInfos()
    for name, zone in zones.items():
        labels = {HOSTNAME: name, **({ZONE: zone} if zone else {})}
        nodes.set_node(Node.of({"metadata": {"name": name, "labels": labels}}))
    plugin = NetworkAware(NetworkAwareArgs(), Handle(nodes, None, images.ImageTable()))
    for i, spec in enumerate(tops):
        plugin.network.set_topology(str(i), topology(str(i), **spec))
    shop = graph(*calls)
    plugin.network.set_graph(shop.key, shop)
    for i, (app, name) in enumerate(placed):
        nodes.add_pod(infos.of(_pod(f"p{i}", app)), name)
    info = infos.of(_pod("new", "front"))
    known = {(a, b): plain_latency(a, b, zones, tops) for a in zones for b in zones}
    for here in zones:
        total = weights = 0.0
        for call in calls:
            for own, other, outgoing in (("from", "to", True), ("to", "from", False)):
                peers = [n for app, n in placed if app == call[other]]
                if call[own] != "front" or not peers:
                    continue
                ways = [(here, n) if outgoing else (n, here) for n in peers]
                if any(known[way] is None for way in ways):
                    break
                total += call["weight"] * fmean(known[way] for way in ways)
                weights += call["weight"]
            else:
                continue
            break
        else:
            found = plugin.score(info, nodes)[nodes.rows[here]]
            assert found == pytest.approx(total / max(weights, 1))


def _pod(name, app):
    return Pod.of({"metadata": {"name": name, "uid": name, "namespace": "default",
                                "labels": {"app": app}}})  # fmt: skip


# -- the objects ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "spec", "complaint"),
    [
        ("CallGraph", {"workloads": [], "calls": [{"from": "a", "to": "b"}]}, "must name workload"),
        ("CallGraph", {"calls": []}, "spec.workloads: Required"),
        ("NetworkTopology", {"links": [{"from": "a", "to": "b"}]}, "latencyMs: Required"),
        (
            "NetworkTopology",
            {"links": [{"from": "a", "to": "a", "latencyMs": 1}]},
            "use within",
        ),
        (
            "NetworkTopology",
            {"links": [{"from": "a", "to": "b", "latencyMs": -1}]},
            "greater than or equal to 0",
        ),
        ("NetworkTopology", {"otherwise": {"latencyMs": 1, "bandwidth": "fast"}}, "bandwidth"),
        ("NetworkTopology", {}, ""),
        (
            "CallGraph",
            {
                "workloads": [{"name": "a", "selector": {"matchLabels": {"app": "a"}}}],
                "calls": [{"from": "a", "to": "a", "minBandwidth": "10M", "maxLatencyMs": 2.5}],
            },
            "",
        ),
    ],
)
def test_objects_are_checked(kind, spec, complaint):
    definition = KINDS[kind].definition
    document = {"metadata": {"name": "x"}, "spec": spec}
    assert definition.conform(document) == []
    errors = [str(e) for e in definition.errors(document)]
    assert any(complaint in e for e in errors) if complaint else errors == []


def test_defaults_are_filled_in():
    document = {"metadata": {"name": "x"}, "spec": {}}
    KINDS["NetworkTopology"].definition.conform(document)
    assert document["spec"] == {"topologyKey": HOSTNAME, "within": {"latencyMs": 0}}
    assert NetworkTopology.of(document).spec.within.latency_ms == 0
