"""A VerticalPodAutoscaler from a real container's measured use to its real cgroup."""

import sys
from pathlib import Path

import pytest

from .conftest import BUSYBOX, NODE, eventually

pytestmark = pytest.mark.root

MOTLEY = (sys.executable, "-m", "motley.cli.main")


@pytest.fixture
def controller(rig):
    """The one controller, as a process of its own."""
    rig.spawn(
        "controllers",
        *(*MOTLEY, "controllers", "--kubeconfig", rig.kubeconfig, "--no-leader-elect"),
        *("--controllers", "verticalpodautoscaling", "--health-port", "0"),
        *("--vertical-pod-autoscaler-sync-period-s", "1"),
    )
    yield
    rig.end("controllers")


def _quota(rig, name):
    pod = rig.get("pod", name)
    uid, container = pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["containerID"]
    if Path("/sys/fs/cgroup/cgroup.controllers").exists():
        return rig.cgroup_file(uid, container[13:], ".", "cpu.max").split()[0]
    return rig.cgroup_file(uid, container[13:], "cpu", "cpu.cfs_quota_us").strip()


def test_a_busy_container_is_given_more_in_place_from_what_it_was_measured_to_use(rig, controller):
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "busy",
        "uid": "8a1f5fd2-0000-4000-8000-000000000001",
        "controller": True,
    }
    container = {
        "name": "main",
        "image": BUSYBOX,
        "command": ["sh", "-c", "while :; do :; done"],
        "resources": {
            "requests": {"cpu": "10m", "memory": "32Mi"},
            "limits": {"cpu": "50m", "memory": "32Mi"},
        },
    }
    spec = {"nodeName": NODE, "terminationGracePeriodSeconds": 1, "containers": [container]}
    metadata = {"name": "busy", "ownerReferences": [owner]}
    rig.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    rig.until_ready("busy")
    before = rig.container("busy")
    assert _quota(rig, "busy") == "5000"
    policy = {
        "containerName": "main",
        "controlledResources": ["cpu"],
        "maxAllowed": {"cpu": "30m"},
    }
    autoscaler = {
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": {"name": "busy"},
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "busy"},
            "updatePolicy": {"updateMode": "InPlaceOrRecreate"},
            "resourcePolicy": {"containerPolicies": [policy]},
        },
    }
    rig.create(autoscaler)
    # Three times the request, and so three times the limit.
    eventually(lambda: _quota(rig, "busy") == "15000")
    after = eventually(
        lambda: (c := rig.container("busy"))["resources"]["requests"]["cpu"] == "30m" and c
    )
    assert after["containerID"] == before["containerID"], "it was not made anew"
    assert after["restartCount"] == 0
    found = rig.get("verticalpodautoscaler", "busy")["status"]["recommendation"]
    made = found["containerRecommendations"][0]
    assert made["target"] == {"cpu": "30m"}
    # It used all of its 50m, and would be recommended that with the margin, or more by now.
    assert int(made["uncappedTarget"]["cpu"].removesuffix("m")) >= 40

    def events():
        return rig.kubectl("get", "events", "-o", "jsonpath={.items[*].reason}").split()

    eventually(lambda: "ResizedByVPA" in events())
    assert "EvictedByVPA" not in events()
    rig.kubectl("delete", "verticalpodautoscaler", "busy")
    rig.delete("busy")
