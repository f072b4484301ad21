"""Motley decides as the real kube-scheduler did.

Recorded decisions are replayed: every pod is placed where the real scheduler put it before the
next is asked about. A small recording is part of this file; a large one is replayed too where
there is one (`MOTLEY_GOLDEN` names its folder).
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
from motley.scheduler.podinfo import PodInfo

ROOT = Path(__file__).parents[3]
LARGE = Path(os.environ.get("MOTLEY_GOLDEN", ROOT.parent / "shared" / "golden"))

# Other scorers of the recorded scheduler; for pods without claims they say nothing but 0.
FOREIGN_SCORES = {"VolumeBinding", "DynamicResources"}
NAMESPACES = {"ns-a": {"team": "a"}, "ns-b": {"team": "b"}}


def _node(name: str, cpu: str, memory: str, **spec: Any) -> dict[str, Any]:
    resources = {"cpu": cpu, "memory": memory, "pods": "8"}
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": spec,
        "status": {"allocatable": resources, "capacity": resources},
    }


def _pod(name: str, cpu: str, memory: str, **spec: Any) -> dict[str, Any]:
    requests = {"cpu": cpu, "memory": memory}
    container = {"name": "c", "image": "app:1", "resources": {"requests": requests}}
    return {
        "metadata": {"name": name, "namespace": "d"},
        "spec": {"containers": [container], **spec},
    }


SMALL = {
    "nodes": [
        _node("n0", "4", "8Gi"),
        _node("n1", "8", "8Gi"),
        _node("n2", "4", "8Gi", taints=[{"key": "k", "effect": "NoSchedule"}]),
    ],
    "placed_first": [_pod("first", "1", "4Gi", nodeName="n0")],
    "decisions": [
        {
            "pod": _pod("p0", "1", "1Gi"),
            "node": "n1",
            "feasible": ["n0", "n1"],
            "scores": {
                "TaintToleration": {"n0": 300, "n1": 300},
                "NodeResourcesFit": {"n0": 43, "n1": 87},
                "NodeResourcesBalancedAllocation": {"n0": 78, "n1": 75},
                "ImageLocality": {"n0": 0, "n1": 0},
            },
            "total": {"n0": 421, "n1": 462},
        },
        {
            "pod": _pod("p1", "7500m", "1Gi"),
            "node": None,
            "feasible": [],
            "message": "0/3 nodes are available: 1 node(s) had untolerated taint(s), "
            "2 Insufficient cpu. preemption: 0/3 nodes are available: "
            "1 No preemption victims found for incoming pod, "
            "2 Preemption is not helpful for scheduling.",
        },
    ],
}


def _clusters(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt") as lines:
        for line in lines:
            yield json.loads(line)


class Replay:
    """One recorded cluster, and where we say something else."""

    def __init__(self, cluster: Any, recorded: dict[str, Any], seen: Counter[str]) -> None:
        self.world = cluster(*(Node.of(node) for node in recorded["nodes"]))
        for name, labels in NAMESPACES.items():
            named = {**labels, "kubernetes.io/metadata.name": name}
            self.world.handle.directory.set_namespace(name, named)
        self.recorded = recorded
        self.seen = seen
        self.differences: list[str] = []

    def run(self) -> list[str]:
        for pod in self.recorded["placed_first"]:
            self._place(pod, pod["spec"]["nodeName"])
        for decision in self.recorded["decisions"]:
            self._decide(decision)
            if decision["node"]:
                self._place(decision["pod"], decision["node"])
        return self.differences

    def _place(self, pod: dict[str, Any], node: str) -> None:
        self.world.place(Pod.of(pod), node)

    def _decide(self, decision: dict[str, Any]) -> None:
        name = decision["pod"]["metadata"]["name"]
        pod = self.world.info(Pod.of(decision["pod"]))
        mask = self.world.cycle.evaluate(pod).feasible
        ours = {self.world.nodes.names[row] for row in np.flatnonzero(mask)}
        theirs = set(decision.get("feasible") or [])
        self.seen["feasible sets compared"] += 1
        if ours != theirs:
            self.differences.append(f"{name}: feasible {sorted(ours)} instead of {sorted(theirs)}")
        if decision.get("message"):
            self._compare_message(name, pod, decision["message"])
        if decision.get("scores"):
            self._compare_scores(name, pod, theirs, decision["scores"])
            self._compare_choice(name, pod, decision["total"])

    def _compare_message(self, name: str, pod: PodInfo, message: str) -> None:
        ours = self.world.cycle.schedule(pod).message
        self.seen["messages compared"] += 1
        if ours != message:
            self.differences.append(f"{name}: says {ours!r} instead of {message!r}")

    def _compare_scores(
        self, name: str, pod: PodInfo, feasible: set[str], recorded: dict[str, dict[str, int]]
    ) -> None:
        rows = self.world.nodes.rows
        mask = np.zeros(self.world.nodes.size, np.bool_)
        mask[[rows[node] for node in feasible]] = True
        evaluation = self.world.cycle.score(pod, mask)
        theirs = {plugin: s for plugin, s in recorded.items() if plugin not in FOREIGN_SCORES}
        ours = {
            plugin: {node: int(scores[rows[node]]) for node in feasible}
            for plugin, scores in evaluation.scores.items()
        }
        self.seen["score tables compared"] += len(theirs)
        if ours != theirs:
            self.differences.append(f"{name}: scores {ours} instead of {theirs}")

    def _compare_choice(self, name: str, pod: PodInfo, total: dict[str, int]) -> None:
        best = {node for node, score in total.items() if score == max(total.values())}
        ours = self.world.cycle.schedule(pod).node
        self.seen["choices compared"] += 1
        if ours not in best:
            self.differences.append(f"{name}: on {ours} instead of {sorted(best)}")


@pytest.mark.parametrize(
    "path",
    [None, *sorted(LARGE.glob("scheduler*.jsonl.gz"))],
    ids=lambda path: path.name if path else "small",
)
def test_a_recording_is_decided_alike(cluster, path):
    seen: Counter[str] = Counter()
    differences: list[str] = []
    for recorded in _clusters(path) if path else [SMALL]:
        differences += Replay(cluster, recorded, seen).run()
    assert differences[:5] == []
    assert seen["messages compared"] >= 1
    assert seen["score tables compared"] >= 4
    assert seen["choices compared"] >= 1
