"""Motley decides as the real kube-scheduler did.

Recorded decisions are replayed: every pod is placed where the real scheduler put it before the
next is asked about. A small recording is part of this file; a large one is replayed too where
there is one (`MOTLEY_GOLDEN` names its folder). `tools/replay-scheduler` is the same by hand.
"""

import copy
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the replayer is a package beside this file

from recorded import agreement, meaning, recordings
from recorded.replay import replay


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


@pytest.mark.parametrize(
    "path",
    [None, *recordings.found("scheduler*.jsonl*")],
    ids=lambda path: path.name if path else "small",
)
def test_a_recording_is_decided_alike(path):
    found = replay(recordings.read(path) if path else [SMALL])
    assert found.differences[:5] == []
    assert found.failures() == []
    assert not found.unknown
    assert found.compared[agreement.FEASIBLE] >= 2
    assert found.compared[agreement.REASONS] >= 1
    assert found.compared[agreement.CHOICE] >= 1
    assert len(found.by_plugin) >= 4


# -- the replayer itself --------------------------------------------------------------------


def changed(**fields: Any) -> dict[str, Any]:
    """The small recording with something else in its first decision."""
    other = copy.deepcopy(SMALL)
    other["decisions"][0] |= fields
    return other


@pytest.mark.parametrize(
    ("fields", "heading"),
    [
        ({"feasible": ["n0", "n1", "n2"]}, agreement.FEASIBLE),
        ({"total": {"n0": 462, "n1": 421}}, agreement.CHOICE),
        (
            {"scores": {**SMALL["decisions"][0]["scores"], "ImageLocality": {"n0": 9, "n1": 0}}},
            f"{agreement.SCORES} of ImageLocality",
        ),
        ({"scores": {"OfTomorrow": {"n0": 9, "n1": 0}}}, f"{agreement.SCORES} of OfTomorrow"),
    ],
)
def test_a_difference_is_found(fields, heading):
    found = replay([changed(**fields)])
    assert heading in found.failures()
    assert found.differences


def test_a_plugin_of_the_real_scheduler_that_says_nothing_is_no_difference():
    scores = {**SMALL["decisions"][0]["scores"], "OfTomorrow": {"n0": 0, "n1": 0}}
    assert replay([changed(scores=scores)]).failures() == []


def test_rounding_is_forgiven_but_counted():
    scores = copy.deepcopy(SMALL["decisions"][0]["scores"])
    scores["NodeResourcesFit"]["n0"] += 1
    found = replay([changed(scores=scores)])
    assert found.failures() == []
    assert found.percent(agreement.EXACT) < 100


def test_a_field_that_is_not_understood_is_named():
    found = replay([{**changed(weather="fine"), "moon": "full"}])
    assert set(found.unknown) == {"field decisions.weather", "field moon"}


def test_reasons_mean_the_same_in_any_order_but_not_with_other_counts():
    one = "0/5 nodes are available: 2 Insufficient cpu, 3 Too many pods. preemption: a, b."
    assert meaning.of(one) == meaning.of(
        "0/5 nodes are available: 3 Too many pods, 2 Insufficient cpu. preemption: a, b."
    )
    assert meaning.of(one) != meaning.of(one.replace("3 Too", "2 Too"))
    assert meaning.of(one) != meaning.of(one.replace("a, b", "a"))
