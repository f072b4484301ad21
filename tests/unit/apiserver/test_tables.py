"""The words in kubectl's columns."""

import pytest

from motley.api import scheme
from motley.apiserver import tables
from motley.apiserver.tables import columns
from motley.apiserver.tables.age import age, duration
from motley.apiserver.tables.pods import cells, status_of
from motley.lib.clock import rfc3339

NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (185, "3m5s"),
        (600, "10m"),
        (10_799, "179m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 300, "3h5m"),
        (26 * 3600, "26h"),
        (49 * 3600, "2d1h"),
        (9 * 86400, "9d"),
        (800 * 86400, "2y70d"),
        (9 * 365 * 86400, "9y"),
        (-5, "<invalid>"),
    ],
)
def test_durations_are_short(seconds, text):
    assert duration(seconds) == text


def test_an_age_without_a_time_is_unknown():
    assert age(None, NOW) == "<unknown>"
    assert age(rfc3339(NOW - 30), NOW) == "30s"


def pod(**status) -> dict:
    return {
        "metadata": {"name": "p", "creationTimestamp": rfc3339(NOW - 60)},
        "spec": {"containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}]},
        "status": {"phase": "Running", **status},
    }


def container(name: str, state: dict, **more) -> dict:
    return {"name": name, "state": state, **more}


RUNNING = {"running": {}}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"phase": "Pending"}, "Pending"),
        ({"phase": "Failed", "reason": "Evicted"}, "Evicted"),
        (
            {"containerStatuses": [container("a", {"waiting": {"reason": "CrashLoopBackOff"}})]},
            "CrashLoopBackOff",
        ),
        (
            {"containerStatuses": [container("a", {"terminated": {"reason": "OOMKilled"}})]},
            "OOMKilled",
        ),
        ({"containerStatuses": [container("a", {"terminated": {"signal": 9}})]}, "Signal:9"),
        ({"containerStatuses": [container("a", {"terminated": {"exitCode": 3}})]}, "ExitCode:3"),
        ({"initContainerStatuses": [container("i", RUNNING)]}, "Init:0/1"),
        (
            {"initContainerStatuses": [container("i", {"waiting": {"reason": "ErrImagePull"}})]},
            "Init:ErrImagePull",
        ),
        (
            {"initContainerStatuses": [container("i", {"terminated": {"exitCode": 1}})]},
            "Init:ExitCode:1",
        ),
        ({"initContainerStatuses": [container("i", {"terminated": {"exitCode": 0}})]}, "Running"),
        (
            {
                "containerStatuses": [
                    container("a", {"terminated": {"reason": "Completed"}}),
                    container("b", RUNNING, ready=True),
                ]
            },
            "NotReady",
        ),
        (
            {"conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]},
            "SchedulingGated",
        ),
    ],
)
def test_a_pods_status_is_its_most_telling_reason(status, expected):
    assert status_of(pod(**status)) == expected


def test_a_deleted_pod_is_terminating_until_it_has_ended():
    leaving = pod()
    leaving["metadata"]["deletionTimestamp"] = rfc3339(NOW)

    assert status_of(leaving) == "Terminating"
    leaving["status"]["reason"] = "NodeLost"
    assert status_of(leaving) == "Unknown"
    leaving["status"] = {"phase": "Succeeded"}
    assert status_of(leaving) == "Succeeded"


def test_a_pods_row_counts_ready_containers_and_restarts():
    ended = {"terminated": {"finishedAt": rfc3339(NOW - 300)}}
    shown = pod(
        podIP="10.1.1.1",
        containerStatuses=[
            container("a", RUNNING, ready=True, restartCount=2, lastState=ended),
            container("b", RUNNING, ready=False, restartCount=1),
        ],
    )
    shown["spec"]["nodeName"] = "n1"

    row = cells(shown, NOW)

    assert row == ["p", "1/2", "Running", "3 (5m ago)", "60s", "10.1.1.1", "n1", "<none>", "<none>"]


def test_every_kind_has_a_row_for_an_empty_object():
    for kind in scheme.kinds():
        empty = {"metadata": {"name": "x", "creationTimestamp": rfc3339(NOW)}}
        shape = columns.of(kind)
        assert len(shape.cells(empty, NOW)) == len(shape.definitions), kind


def test_a_node_that_is_cordoned_says_so():
    nodes = scheme.resource("", "v1", "nodes")
    node = {
        "metadata": {"name": "n", "labels": {"node-role.kubernetes.io/control-plane": ""}},
        "spec": {"unschedulable": True},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }

    row = tables.of_object(nodes, node, "None", "v1")["rows"][0]

    assert row["cells"][1:3] == ["Ready,SchedulingDisabled", "control-plane"]
    assert row["object"] is None
