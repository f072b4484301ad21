"""Resizing on paper: what is granted, what waits, and what is remembered."""

import pytest

from motley.api.views.container import ResourceRequirements
from motley.api.views.pod import Pod
from motley.node import allocation, resizing
from motley.node.allocation import Allocations
from motley.node.model import RuntimeContainer, State

ROOM = {"cpu": 2000, "memory": 1 << 30, "pods": 10}


def _pod(cpu, uid="p", memory="64Mi", policy=()):
    amounts = {"cpu": cpu, "memory": memory}
    container = {
        "name": "main",
        "resources": {"requests": amounts, "limits": amounts},
        "resizePolicy": [{"resourceName": r, "restartPolicy": p} for r, p in policy],
    }
    return Pod.of({"metadata": {"name": uid, "uid": uid}, "spec": {"containers": [container]}})


@pytest.mark.parametrize(
    ("cpu", "others", "reason"),
    [
        ("2", [], None),
        ("1", ["500m"], None),
        ("1600m", ["500m"], "Deferred"),
        ("3", [], "Infeasible"),
    ],
)
def test_a_resize_is_granted_waits_or_never_will(cpu, others, reason):
    present = [_pod(c, f"o{n}") for n, c in enumerate(others)]
    pending = allocation.verdict(_pod(cpu), [_pod("1"), *present], ROOM, has_own_cpus=False)
    assert (pending.reason if pending else None) == reason
    if reason == "Deferred":
        assert pending.message == (
            "Node didn't have enough resource: cpu, requested: 1600, used: 500, capacity: 2000"
        )


def test_a_pod_with_cpus_of_its_own_keeps_its_size():
    pending = allocation.verdict(_pod("1"), [], ROOM, has_own_cpus=True)
    assert pending is not None
    assert pending.reason == "Infeasible"


def test_a_pod_runs_with_what_it_has_until_it_is_granted_more(tmp_path):
    (tmp_path / "p").mkdir()
    book = Allocations(lambda uid: tmp_path / uid)
    small, large = _pod("500m"), _pod("1500m")
    assert book.of(small) is small
    assert not book.wants_other(small)
    assert book.wants_other(large)
    assert book.of(large).spec.containers[0].resources.requests["cpu"] == "500m"
    book.keep(large)
    again = Allocations(lambda uid: tmp_path / uid)  # the agent was started anew meanwhile
    assert again.of(large).spec.containers[0].resources.requests["cpu"] == "500m"
    again.grant(large)
    assert again.of(large) is large
    assert Allocations(lambda uid: tmp_path / uid).of(large) is large
    again.forget("p")
    assert again.of(large) is large


def _running(container_id="c1"):
    return RuntimeContainer(container_id, "main", 0, "s", State.RUNNING)


def _has(cpu, memory="64Mi"):
    amounts = {"cpu": cpu, "memory": memory}
    return ResourceRequirements(requests=amounts, limits=amounts)


@pytest.mark.parametrize(
    ("policy", "cpu", "memory", "must_restart"),
    [
        ((), "2", "64Mi", False),
        ((("cpu", "NotRequired"), ("memory", "RestartContainer")), "2", "64Mi", False),
        ((("cpu", "NotRequired"), ("memory", "RestartContainer")), "1", "128Mi", True),
        ((("cpu", "RestartContainer"),), "2", "64Mi", True),
    ],
)
def test_a_container_is_made_anew_only_where_its_policy_says_so(policy, cpu, memory, must_restart):
    pod = _pod(cpu, memory=memory, policy=policy)
    (change,) = resizing.changes(pod, [_running()], {"c1": _has("1")})
    assert change.must_restart is must_restart


def test_what_runs_as_granted_is_left_alone():
    assert resizing.changes(_pod("1"), [_running()], {"c1": _has("1")}) == []
    assert resizing.changes(_pod("1"), [_running("unknown")], {}) == []


def test_conditions_say_what_waits_and_what_is_under_way():
    pending = allocation.Pending("Deferred", "no room")
    found = resizing.conditions(_pod("1"), pending, is_in_progress=True, error="busy", now=0.0)
    assert [(c["type"], c["reason"], c["message"]) for c in found] == [
        ("PodResizePending", "Deferred", "no room"),
        ("PodResizeInProgress", "Error", "busy"),
    ]
    assert resizing.conditions(_pod("1"), None, is_in_progress=False, error="", now=0.0) == []
