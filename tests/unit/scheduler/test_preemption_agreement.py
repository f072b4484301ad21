"""Motley preempts as the real kube-scheduler did.

Recorded decisions over full clusters are taken again. A small recording is part of this file; a
large one is replayed too where there is one (`MOTLEY_GOLDEN` names its folder).
"""

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the replayer is a package beside this file

from recorded import agreement, recordings
from recorded.replay import replay


def _node(name: str) -> dict[str, Any]:
    resources = {"cpu": "2", "memory": "8Gi", "pods": "110"}
    return {"metadata": {"name": name}, "status": {"allocatable": resources}}


def _pod(name: str, cpu: str, priority: int, node: str = "", **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    return {
        "metadata": {"name": name, "namespace": "pre", "labels": {"app": name[0]}},
        "spec": {"priority": priority, "containers": [container], "nodeName": node, **spec},
        "status": {"startTime": "2026-01-01T00:00:00Z"} if node else {},
    }


def _with_port(pod: dict[str, Any]) -> dict[str, Any]:
    pod["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8080}]
    return pod


_PORTS = "1 node(s) didn't have free ports for the requested pod ports"
_RUNNING = [
    _pod("a0", "1", 10, "n0"),
    _pod("b0", "1", 5, "n0"),
    _pod("a1", "1500m", 5, "n1"),
    _pod("c1", "500m", 500, "n1"),
]
_BUDGET = {
    "metadata": {"name": "b", "namespace": "pre"},
    "spec": {"selector": {"matchLabels": {"app": "b"}}},
    "status": {"disruptionsAllowed": 0},
}
SMALL: list[dict[str, Any]] = [
    {
        "nodes": [_node("n0"), _node("n1")],
        "running": _RUNNING,
        "budgets": [_BUDGET],
        "preemptor": _pod("hi", "1", 100),
        "node": "n1",
        "victims": ["a1"],
    },
    {
        "nodes": [_node("n0"), _node("n1")],
        "running": _RUNNING,
        "budgets": [],
        "preemptor": _pod("hi", "1800m", 100),
        "node": "n0",
        "victims": ["a0", "b0"],
    },
    {
        "nodes": [_node("n0"), _node("n1")],
        "running": _RUNNING,
        "budgets": [],
        "preemptor": _pod("hi", "1", 100, preemptionPolicy="Never"),
        "node": None,
        "victims": [],
        "message": "0/2 nodes are available: 2 Insufficient cpu. "
        "preemption: not eligible due to preemptionPolicy=Never.",
    },
    {
        "nodes": [_node("n0"), _node("n1")],
        "running": _RUNNING,
        "budgets": [],
        "preemptor": _pod("hi", "2500m", 100),
        "node": None,
        "victims": [],
        "message": "0/2 nodes are available: 2 Insufficient cpu. preemption: "
        "0/2 nodes are available: 2 Preemption is not helpful for scheduling.",
    },
    {
        "nodes": [_node("n0"), _node("n1")],
        "running": _RUNNING,
        "budgets": [],
        "preemptor": _pod("hi", "2", 7),
        "node": None,
        "victims": [],
        "message": "0/2 nodes are available: 2 Insufficient cpu. preemption: "
        "0/2 nodes are available: 2 Insufficient cpu.",
    },
    {
        # There is no room either, but the port is asked for first.
        "nodes": [_node("n0")],
        "running": [_with_port(_pod("a0", "500m", 500, "n0")), _pod("b0", "500m", 5, "n0")],
        "budgets": [],
        "preemptor": _with_port(_pod("hi", "1800m", 100)),
        "node": None,
        "victims": [],
        "message": f"0/1 nodes are available: {_PORTS}. "
        f"preemption: 0/1 nodes are available: {_PORTS}.",
    },
]


@pytest.mark.parametrize(
    "path",
    [None, *recordings.found("preemption*.jsonl*")],
    ids=lambda path: path.name if path else "small",
)
def test_recorded_preemptions_are_decided_alike(path):
    found = replay(recordings.read(path) if path else SMALL)
    assert found.differences[:5] == [], len(found.differences)
    assert found.failures() == []
    assert found.compared[agreement.VICTIMS] >= 2
    assert found.compared[agreement.REFUSED] >= 3


def test_other_victims_and_a_better_node_are_found():
    victims = replay([{**SMALL[0], "victims": ["c1"]}])
    assert victims.failures() == [agreement.VICTIMS]
    # The recorded scheduler is said to have done what is better than what ours does.
    better = replay([{**SMALL[0], "node": "n9"}])
    assert agreement.NOMINATED in better.failures()
