"""Motley preempts as the real kube-scheduler did.

Recorded decisions over full clusters are taken again. Among equally good nodes the choice is free;
so the node must be at least as good by Kubernetes' order, and on the recorded node the victims
must be the same. A small recording is part of this file; a large one is replayed too where there
is one (`MOTLEY_GOLDEN` names its folder).
"""

import gzip
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from motley.api.views.core import Node
from motley.api.views.pod import Pod
from motley.api.views.policy import PodDisruptionBudget
from motley.scheduler import preemption
from motley.scheduler.contract import Nomination
from motley.scheduler.preemption import Candidate
from motley.scheduler.trial import Trial

ROOT = Path(__file__).parents[3]
LARGE = Path(os.environ.get("MOTLEY_GOLDEN", ROOT.parent / "shared" / "golden"))


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
]


def _recordings(path: Path | None) -> Iterator[dict[str, Any]]:
    if path is None:
        yield from SMALL
        return
    with gzip.open(path, "rt") as lines:
        for line in lines:
            yield json.loads(line)


def _sorted_reasons(message: str) -> list[str]:
    return sorted(part.strip(" .") for part in message.replace(". preemption:", ",").split(","))


class Replay:
    """One recorded cluster."""

    def __init__(self, cluster: Any, recorded: dict[str, Any]) -> None:
        self.recorded = recorded
        self.world = cluster(*(Node.of(node) for node in recorded["nodes"]))
        for pod in recorded["running"]:
            self.world.place(Pod.of(pod), pod["spec"]["nodeName"])
        for budget in recorded["budgets"] or []:
            made = PodDisruptionBudget.of(budget)
            self.world.handle.budgets.set(made.key, made)
        self.pod = self.world.info(Pod.of(recorded["preemptor"]))

    def differences(self, seen: Counter[str]) -> Iterator[str]:
        name, node = self.recorded["preemptor"]["metadata"]["name"], self.recorded["node"]
        theirs = self.recorded["victims"] or []
        decision = self.world.cycle.schedule(self.pod)
        seen["decisions"] += 1
        if node is None:
            seen["refusals"] += 1
            if decision.node or decision.nomination:
                yield f"{name}: {decision} instead of nothing"
            elif _sorted_reasons(decision.message) != _sorted_reasons(self.recorded["message"]):
                yield f"{name}: says {decision.message!r}, not {self.recorded['message']!r}"
        elif not theirs:
            seen["plain placements"] += 1
            if decision.node is None:
                yield f"{name}: {decision.message} instead of {node}"
        else:
            seen["preemptions"] += 1
            yield from self._compare(name, decision.nomination, node, theirs, seen)

    def _compare(
        self, name: str, ours: Nomination | None, node: str, theirs: list[str], seen: Counter[str]
    ) -> Iterator[str]:
        candidates = self._candidates()
        if node not in candidates:
            yield f"{name}: no candidate {node}"
            return
        victims = sorted(v.info.key.name for v in candidates[node].victims)
        if victims != sorted(theirs):
            yield f"{name}: victims {victims} on {node} instead of {theirs}"
        if ours is None:
            yield f"{name}: nothing instead of {node}"
            return
        seen["same node"] += ours.node == node
        if candidates[ours.node].rank > candidates[node].rank:
            yield f"{name}: {ours.node} is worse than {node}"

    def _candidates(self) -> dict[str, Candidate]:
        cycle, pod = self.world.cycle, self.pod
        evaluation = cycle.evaluate(pod)
        trial = Trial(
            cycle.profile, cycle.nodes, pod, evaluation.skipped, self.world.handle.nominations
        )
        potential = np.zeros(cycle.nodes.size, np.bool_)
        for mask in evaluation.rejected.values():
            potential |= mask
        found = preemption.search(trial, potential, self.world.handle.budgets, enough=1000)
        return {candidate.node: candidate for candidate in found.candidates}


@pytest.mark.parametrize(
    "path",
    [None, *sorted(LARGE.glob("preemption*.jsonl.gz"))],
    ids=lambda path: path.name if path else "small",
)
def test_recorded_preemptions_are_decided_alike(cluster, path):
    seen: Counter[str] = Counter()
    differences: list[str] = []
    for recorded in _recordings(path):
        differences += Replay(cluster, recorded).differences(seen)
    assert differences[:5] == [], len(differences)
    assert seen["preemptions"] >= 2
    assert seen["refusals"] >= 3
