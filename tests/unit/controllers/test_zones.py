"""How fast nodes of a zone may be given up."""

import msgspec
import pytest

from motley.api.views.core import Node
from motley.controllers import zones
from motley.controllers.zones import Rates, Zones


def node(name, ready=True, zone=""):
    labels = {"topology.kubernetes.io/zone": zone} if zone else {}
    condition = {"type": "Ready", "status": "True" if ready else "Unknown"}
    return made(
        {"metadata": {"name": name, "labels": labels}, "status": {"conditions": [condition]}}
    )


def made(document):
    return msgspec.convert(document, Node)


def cluster(ready, lost, zone=""):
    return [
        *(node(f"{zone}r{i}", True, zone) for i in range(ready)),
        *(node(f"{zone}l{i}", False, zone) for i in range(lost)),
    ]


@pytest.mark.parametrize(
    ("ready", "lost", "rate"),
    [
        (10, 1, 0.1),
        (1, 2, 0.1),  # two lost nodes say nothing, whatever their share
        (3, 3, 0.1),  # half is below the threshold
        (2, 3, 0.0),  # most of a small zone
        (20, 31, 0.01),  # most of a large one
    ],
)
def test_the_share_of_lost_nodes_sets_the_rate(ready, lost, rate):
    known = Zones()
    known.observe(cluster(ready, lost), 0.0)
    assert known.wait_s(node("l0", False), 0.0) == (0.0 if rate else None)
    assert known.wait_s(node("l1", False), 0.0) == (pytest.approx(1 / rate) if rate else None)


def test_turns_are_given_in_order_and_kept_until_they_are_used():
    known = Zones(Rates(node_eviction_rate=0.5))
    known.observe(cluster(9, 3), 100.0)
    lost = [node(f"l{i}", False) for i in range(3)]
    assert [known.wait_s(n, 100.0) for n in lost] == [0.0, 2.0, 4.0]
    assert [known.wait_s(n, 101.0) for n in lost] == [0.0, 1.0, 3.0]
    known.forget(lost[1])
    assert known.wait_s(lost[2], 104.0) == 0.0
    assert known.wait_s(lost[1], 104.0) == 2.0


def test_a_zone_without_ready_nodes_is_given_up_while_another_has_some():
    known = Zones()
    assert not known.observe([*cluster(0, 4, "a"), *cluster(4, 0, "b")], 0.0)
    assert known.wait_s(node("al0", False, "a"), 0.0) == 0.0


def test_nobody_is_given_up_when_no_node_is_ready():
    known = Zones()
    everything = [*cluster(0, 4, "a"), *cluster(0, 4, "b")]
    assert known.observe(everything, 0.0)
    assert known.is_cut_off
    assert known.wait_s(node("al0", False, "a"), 0.0) is None
    assert known.observe([*everything, node("new", True, "b")], 1.0)
    assert not known.is_cut_off
    assert known.wait_s(node("al0", False, "a"), 1.0) is not None


def test_zones_of_different_regions_are_different():
    labels = {"topology.kubernetes.io/zone": "a", "topology.kubernetes.io/region": "r"}
    far = made({"metadata": {"name": "n", "labels": labels}})
    assert zones.of(far) != zones.of(node("n", zone="a"))
    assert zones.of(node("n")) == ""
