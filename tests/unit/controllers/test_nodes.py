from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.api.views.core import Lease, Node, Taint
from motley.api.views.pod import Pod, Toleration
from motley.controllers import fakenodes, nodehealth
from motley.controllers.nodehealth import NOT_READY, UNREACHABLE
from motley.controllers.nodeipam import Ranges
from motley.lib import clock as clocks

NOW = 1_000_000.0


def node(ready="True", *, heartbeat="h1", taints=(), conditions=(), **spec):
    listed = [*conditions]
    if ready is not None:
        listed.append({"type": "Ready", "status": ready, "lastHeartbeatTime": heartbeat})
    return Node.of(
        {
            "metadata": {"name": "n", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"taints": list(taints), **spec},
            "status": {"conditions": listed},
        }
    )


def lease(renewed):
    return Lease.of({"metadata": {"name": "n"}, "spec": {"renewTime": renewed}})


def test_either_a_lease_or_a_status_is_a_sign_of_life():
    first = nodehealth.observe(None, node(), lease("l1"), 10.0)
    assert first.seen_at == 10.0
    assert nodehealth.observe(first, node(), lease("l1"), 20.0).seen_at == 10.0
    assert nodehealth.observe(first, node(), lease("l2"), 20.0).seen_at == 20.0
    assert nodehealth.observe(first, node(heartbeat="h2"), lease("l1"), 20.0).seen_at == 20.0
    assert nodehealth.observe(first, node(), None, 20.0).seen_at == 20.0


def test_a_silent_node_becomes_unknown_once():
    changes = nodehealth.unknown_conditions(node(), NOW)
    assert {c["type"] for c in changes} == {
        "Ready",
        "MemoryPressure",
        "DiskPressure",
        "PIDPressure",
    }
    ready = next(c for c in changes if c["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("Unknown", "NodeStatusUnknown")
    assert ready["lastHeartbeatTime"] == "h1"  # our marking is not a sign of life
    unknown = node(conditions=changes, ready=None)
    assert nodehealth.unknown_conditions(unknown, NOW) == []


def keys(taints):
    return sorted((t.key.rpartition("/")[2], t.effect) for t in taints)


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        (node("False"), [("not-ready", "NoExecute"), ("not-ready", "NoSchedule")]),
        (node("Unknown"), [("unreachable", "NoExecute"), ("unreachable", "NoSchedule")]),
        (node(None), [("not-ready", "NoSchedule")]),
        (node(unschedulable=True), [("unschedulable", "NoSchedule")]),
        (
            node(conditions=[{"type": "DiskPressure", "status": "True"}]),
            [("disk-pressure", "NoSchedule")],
        ),
    ],
)
def test_taints_follow_the_conditions(subject, expected):
    assert keys(nodehealth.taints(subject, NOW)) == expected


def test_a_healthy_node_loses_our_taints_and_keeps_the_users():
    mine = {"key": UNREACHABLE, "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}
    users = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    assert keys(nodehealth.taints(node(taints=[mine, users]), NOW)) == [("gpu", "NoSchedule")]
    assert nodehealth.taints(node(taints=[users]), NOW) is None


def test_a_taint_that_stays_keeps_its_time():
    before = nodehealth.taints(node("Unknown"), NOW)
    documents = [{"key": t.key, "effect": t.effect, "timeAdded": t.time_added} for t in before]
    assert nodehealth.taints(node("Unknown", taints=documents), NOW + 100) is None


def tolerate(key="", seconds=None, operator="Exists", effect="NoExecute", value=""):
    return Toleration(
        key=key, operator=operator, effect=effect, toleration_seconds=seconds, value=value
    )


def taint(key=UNREACHABLE, effect="NoExecute", value=""):
    return Taint(key=key, effect=effect, value=value, time_added=clocks.rfc3339(NOW))


@pytest.mark.parametrize(
    ("tolerations", "taints", "expected"),
    [
        ([], [], None),
        ([], [taint(effect="NoSchedule")], None),
        ([], [taint()], NOW + 300),  # as admission would have given it
        ([], [taint("maintenance")], NOW),
        ([tolerate(UNREACHABLE, 30)], [taint()], NOW + 30),
        ([tolerate(UNREACHABLE, 0)], [taint()], NOW),
        ([tolerate(UNREACHABLE, -1)], [taint()], NOW),
        ([tolerate(UNREACHABLE)], [taint()], None),
        ([tolerate()], [taint(), taint("maintenance")], None),
        ([tolerate(UNREACHABLE, 30), tolerate(UNREACHABLE, 10)], [taint()], NOW + 10),
        (
            [tolerate(UNREACHABLE, 30), tolerate(NOT_READY, 20)],
            [taint(), taint(NOT_READY)],
            NOW + 20,
        ),
        ([tolerate("m", operator="Equal", value="a")], [taint("m", value="a")], None),
        ([tolerate("m", operator="Equal", value="b")], [taint("m", value="a")], NOW),
        ([tolerate("m", effect="NoSchedule")], [taint("m")], NOW),
    ],
)
def test_when_a_pod_must_leave(tolerations, taints, expected):
    assert nodehealth.evict_at(tolerations, taints, NOW) == expected


def test_ranges_are_handed_out_lowest_first_until_full():
    ranges = Ranges(ip_network("10.244.0.0/22"), 24)
    taken = []
    for expected in ("10.244.0.0/24", "10.244.1.0/24", "10.244.2.0/24", "10.244.3.0/24"):
        assert ranges.free(taken) == expected
        taken.append(expected)
    assert ranges.free(taken) is None
    taken.remove("10.244.2.0/24")
    assert ranges.free(taken) == "10.244.2.0/24"


def test_ranges_of_other_sizes_and_nonsense_are_respected_or_ignored():
    ranges = Ranges(ip_network("10.244.0.0/16"), 24)
    assert ranges.free(["10.244.0.0/23", "10.244.2.128/25"]) == "10.244.3.0/24"
    assert ranges.free(["10.0.0.0/8"]) is None
    assert ranges.free(["nonsense", "fd00::/64", "192.168.0.0/24"]) == "10.244.0.0/24"
    with pytest.raises(ValueError, match="does not fit"):
        Ranges(ip_network("10.0.0.0/26"), 24)


@given(st.lists(st.booleans(), max_size=60))
def test_ranges_never_overlap(steps):
    ranges = Ranges(ip_network("10.1.0.0/20"), 24)
    taken = []
    for allocate in steps:
        if allocate:
            fresh = ranges.free(taken)
            if fresh is None:
                assert len(taken) == 16
                continue
            assert not any(ip_network(fresh).overlaps(ip_network(t)) for t in taken)
            taken.append(fresh)
        elif taken:
            taken.pop(0)


def test_a_fake_node_is_ready_and_a_fake_pod_runs():
    shape = fakenodes.Shape(cpu="8", labels={"disk": "ssd"})
    made = Node.of(fakenodes.node_document("f-3", 3, shape, NOW))
    assert made.is_ready
    assert made.status.allocatable["cpu"] == "8"
    assert made.metadata.labels["kubernetes.io/hostname"] == "f-3"
    assert made.metadata.labels["disk"] == "ssd"
    pod = Pod.of({"metadata": {"uid": "u"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    running = Pod.of({"status": fakenodes.running(pod, "100.96.0.1", made.internal_ip, NOW)})
    assert running.is_ready
    assert running.status.phase == "Running"
    assert running.status.container_statuses[0].ready


def test_a_fake_pod_has_what_it_is_resized_to():
    def spec(cpu):
        resources = {"requests": {"cpu": cpu}}
        return {"containers": [{"name": "c", "image": "i", "resources": resources}]}

    pod = Pod.of({"metadata": {"uid": "u"}, "spec": spec("100m")})
    state = fakenodes.running(pod, "100.96.0.1", "100.64.0.1", NOW)
    assert not fakenodes.other_resources(Pod.of({"spec": spec("100m"), "status": state}))
    assert fakenodes.other_resources(Pod.of({"spec": spec("200m"), "status": state})) == {
        "containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "200m"}}}]
    }
