"""The snapshot after any sequence of events equals the one built at once."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motley.api.views.core import Node
from motley.api.views.pod import Pod
from motley.scheduler.columns import EVERY_ROW, Columns
from motley.scheduler.podinfo import HostPort, PodInfos

NODES = ["n0", "n1", "n2", "n3"]
KEYS = ["zone", "disk", "gen"]
RESOURCES = ["cpu", "memory", "pods", "example.com/gpu", "ephemeral-storage"]
PORTS = [80, 443]


def snapshot(columns: Columns) -> dict[str, Any]:
    """Everything a plugin can see, by node name instead of by row."""
    seen: dict[str, Any] = {}
    for name, row in columns.rows.items():
        ports = {
            (address, port)
            for address in ("0.0.0.0", "10.0.0.1")
            for port in PORTS
            if not columns.ports_free(HostPort(address, "TCP", port), EVERY_ROW)[row]
        }
        taints = {
            kind
            for bit, kind in enumerate(columns.taint_kinds)
            if int(columns.taints[bit // 64, row]) >> (bit % 64) & 1
        }
        seen[name] = {
            "live": bool(columns.live[row]),
            "resources": {
                resource: (float(columns.allocatable[i, row]), float(columns.requested[i, row]))
                for i, resource in enumerate(columns.resources)
                if columns.allocatable[i, row] or columns.requested[i, row]
            },
            "nonzero": columns.nonzero[:, row].tolist(),
            "labels": {
                key: columns.values.value(int(columns.label(key)[row]))
                for key in KEYS
                if columns.label(key)[row]
            },
            "taints": taints,
            "ports": ports,
            "arch": int(columns.arch[row]) and columns.platforms.value(int(columns.arch[row])),
            "flags": (bool(columns.unschedulable[row]), bool(columns.ready[row])),
            "images": {
                image: (float(found[0][row]), found[1])
                for image in ("a:1", "b:1")
                if (found := columns.image_bytes(image)) is not None
            },
            "pods": sorted(columns.pods_on(name)),
        }
    return seen


nodes = st.builds(
    lambda name, labels, allocatable, taints, images, flags, arch: Node.of(
        {
            "metadata": {"name": name, "labels": {**labels, "kubernetes.io/arch": arch}},
            "spec": {
                "taints": [{"key": t, "value": "v", "effect": "NoSchedule"} for t in taints],
                "unschedulable": flags[0],
            },
            "status": {
                "allocatable": allocatable,
                "images": [{"names": [i], "sizeBytes": 10} for i in images],
                "conditions": [{"type": "Ready", "status": str(flags[1])}],
            },
        }
    ),
    st.sampled_from(NODES),
    st.dictionaries(st.sampled_from(KEYS), st.sampled_from(["a", "b", "3"]), max_size=3),
    st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 9), max_size=5),
    st.sets(st.sampled_from(["t1", "t2"])),
    st.sets(st.sampled_from(["a:1", "b:1"])),
    st.tuples(st.booleans(), st.booleans()),
    st.sampled_from(["amd64", "arm64"]),
)
pods = st.builds(
    lambda uid, node, requests, ports, address: Pod.of(
        {
            "metadata": {"name": uid, "namespace": "d", "uid": uid},
            "spec": {
                "nodeName": node,
                "containers": [
                    {
                        "name": "c",
                        "image": "a:1",
                        "resources": {"requests": requests},
                        "ports": [{"hostPort": p, "hostIP": address} for p in ports],
                    }
                ],
            },
        }
    ),
    st.sampled_from(["p0", "p1", "p2", "p3", "p4"]),
    st.sampled_from([*NODES, "unknown"]),
    st.dictionaries(st.sampled_from(RESOURCES[:4]), st.integers(0, 9), max_size=3).map(
        lambda r: {k: v for k, v in r.items() if k != "pods"}
    ),
    st.sets(st.sampled_from(PORTS)),
    st.sampled_from(["", "10.0.0.1"]),
)
events = st.lists(
    st.one_of(
        st.tuples(st.just("node"), nodes),
        st.tuples(st.just("no node"), st.sampled_from(NODES)),
        st.tuples(st.just("pod"), pods),
        st.tuples(st.just("assume"), pods),
        st.tuples(st.just("no pod"), st.sampled_from(["p0", "p1", "p2", "p3", "p4"])),
    ),
    max_size=40,
)


def _apply(columns: Columns, infos: PodInfos, kind: str, what: Any) -> None:
    match kind:
        case "node":
            columns.set_node(what)
        case "no node":
            columns.remove_node(what)
        case "pod" | "assume":
            columns.add_pod(infos.of(what), what.spec.node_name, assumed=kind == "assume")
        case "no pod":
            columns.remove_pod(what)


def _rebuilt(live: Mapping[str, Node], placed: Mapping[str, Pod]) -> Columns:
    columns, infos = Columns(), PodInfos()
    for node in live.values():
        columns.set_node(node)
    for pod in placed.values():
        columns.add_pod(infos.of(pod), pod.spec.node_name)
    return columns


@settings(max_examples=150, deadline=None)
@given(events)
def test_columns_changed_by_events_equal_columns_built_at_once(history):
    columns, infos = Columns(), PodInfos()
    live: dict[str, Node] = {}
    placed: dict[str, Pod] = {}
    for kind, what in history:
        _apply(columns, infos, kind, what)
        for key in KEYS:  # a dense column once made must follow
            columns.label(key)
        match kind:
            case "node":
                live[what.metadata.name] = what
            case "no node":
                live.pop(what, None)
            case "pod" | "assume":
                placed[what.metadata.uid] = what
            case "no pod":
                placed.pop(what, None)
    assert snapshot(columns) == snapshot(_rebuilt(live, placed))
    assert columns.count == len(live)


def test_rows_of_removed_nodes_are_reused_and_empty(node, pod):
    columns, infos = Columns(), PodInfos()
    for i in range(100):
        columns.set_node(node(f"n{i}", labels={"zone": "a"}))
    columns.add_pod(infos.of(pod(requests={"cpu": "1"})), "n7")
    columns.remove_node("n7")
    columns.set_node(node("fresh"))
    row = columns.rows["fresh"]
    assert columns.size == 100
    assert columns.requested[:, row].sum() == 0
    assert columns.label("zone")[row] == 0


def test_a_pod_on_a_node_that_comes_later_is_counted_then(node, pod):
    columns, infos = Columns(), PodInfos()
    columns.add_pod(infos.of(pod(requests={"cpu": "1"})), "late")
    columns.set_node(node("late"))
    assert columns.requested[0, columns.rows["late"]] == 1000


def test_an_assumed_pod_is_counted_once_when_confirmed(node, pod):
    columns, infos = Columns(), PodInfos()
    columns.set_node(node("a"))
    columns.add_pod(infos.of(pod(requests={"cpu": "1"})), "a", assumed=True)
    columns.add_pod(infos.of(pod(requests={"cpu": "1"}, node="a")), "a")
    assert columns.requested[0, 0] == 1000
    assert not columns.placed["p"].assumed


def test_an_update_says_what_it_changed(node):
    columns = Columns()
    assert columns.set_node(node("a")) is None
    generation = columns.generation
    same = columns.set_node(node("a"))
    assert same is not None
    assert not same.anything
    assert columns.generation == generation
    change = columns.set_node(node("a", unschedulable=True, labels={"x": "y"}))
    assert change is not None
    assert (change.taints, change.labels, change.allocatable) == (True, True, False)
    assert columns.generation > generation


def test_more_than_64_distinct_taints_fit(cluster, node, pod):
    plenty = [
        node(f"n{i}", taints=[{"key": f"k{i}", "value": "", "effect": "NoSchedule"}])
        for i in range(130)
    ]
    tolerant = pod(tolerations=[{"key": "k128", "operator": "Exists"}])
    world = cluster(*plenty)
    assert world.nodes.taints.dtype == np.uint64
    assert world.feasible(tolerant) == ["n128"]


@pytest.mark.parametrize("huge", ["1e30", "999999999999999999e300", "1000000E"])
def test_an_absurd_request_does_not_swallow_what_others_have(node, pod, huge):
    nodes, infos = Columns(), PodInfos()
    nodes.set_node(node("a"))
    nodes.add_pod(infos.of(pod("sane", requests={"cpu": "501m", "memory": "333Mi"})), "a")
    before = nodes.requested[:, 0].tolist(), nodes.nonzero[:, 0].tolist()
    nodes.add_pod(infos.of(pod("absurd", requests={"cpu": huge, "memory": huge})), "a")
    assert nodes.requested[0, 0] > 1e15
    nodes.remove_pod("absurd")
    assert (nodes.requested[:, 0].tolist(), nodes.nonzero[:, 0].tolist()) == before
