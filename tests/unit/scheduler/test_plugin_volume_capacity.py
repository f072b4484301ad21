"""VolumeBinding: where a driver has room, where a migrated disk is, and which node is better."""

import pytest

from motley.scheduler import events

from .conftest import Cluster, make_node
from .stored import (
    capacity,
    claim,
    csi_node,
    driver,
    forget,
    know,
    pod,
    storage_class,
    verdict,
    volume,
)

NAME = "VolumeBinding"
NO_SPACE = "node(s) did not have enough free storage"
NO_VOLUME = "node(s) didn't find available persistent volumes to bind"
ELSEWHERE = "node(s) didn't match PersistentVolume's node affinity"
HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"


def on(*names):
    expression = {"key": HOST, "operator": "In", "values": list(names)}
    return {"matchExpressions": [expression]}


@pytest.fixture
def cluster():
    made = Cluster(*(make_node(n, labels={ZONE: f"z-{n}"}) for n in "abc"))
    know(made, storage_class(), driver(storageCapacity=True), claim("c", size="5Gi"))
    return made


def test_a_volume_is_made_only_where_the_driver_has_room(cluster):
    know(
        cluster,
        capacity("a", topology=on("a"), capacity="5Gi"),
        capacity("b", topology={"matchLabels": {HOST: "b"}}, capacity="9Gi"),
        capacity("b-most", topology=on("b"), capacity="9Gi", maximumVolumeSize="4Gi"),
        capacity("c", topology=on("c"), capacity="9Gi", maximumVolumeSize="4Gi"),
    )
    assert verdict(cluster, NAME, pod("p", "c")) == (["a", "b"], {NO_SPACE: 1})
    know(cluster, claim("c", size="6Gi", resourceVersion="2"))
    assert verdict(cluster, NAME, pod("p", "c")) == (["b"], {NO_SPACE: 2})
    forget(cluster, capacity("b"))
    assert verdict(cluster, NAME, pod("p", "c")) == ([], {NO_SPACE: 3})


@pytest.mark.parametrize(
    "said",
    [
        [],
        [capacity("x", capacity="9Gi")],
        [capacity("x", topology=on("a"))],
        [capacity("x", topology=on("a"), capacity="9Gi", kind="another")],
    ],
)
def test_no_word_of_room_is_no_room(cluster, said):
    know(cluster, *said)
    assert verdict(cluster, NAME, pod("p", "c")) == ([], {NO_SPACE: 3})


def test_a_topology_without_conditions_is_the_whole_cluster(cluster):
    know(cluster, capacity("x", topology={}, capacity="5Gi"))
    assert verdict(cluster, NAME, pod("p", "c"))[0] == ["a", "b", "c"]
    cluster.nodes.set_node(make_node("d"))
    assert verdict(cluster, NAME, pod("p", "c"))[0] == ["a", "b", "c", "d"]


def test_a_driver_that_does_not_track_room_is_not_asked(cluster):
    know(cluster, driver())
    assert verdict(cluster, NAME, pod("p", "c"))[0] == ["a", "b", "c"]
    forget(cluster, driver())
    assert verdict(cluster, NAME, pod("p", "c"))[0] == ["a", "b", "c"]


def test_every_reason_of_a_node_counts(cluster):
    topology = [{"matchLabelExpressions": [{"key": HOST, "values": ["a"]}]}]
    know(cluster, volume("v", affinity={HOST: ["a"]}, kind="x"), claim("bound", volume="v"))
    know(cluster, storage_class("narrow", "d.example", allowedTopologies=topology))
    know(cluster, claim("narrow", kind="narrow"))
    found, reasons = verdict(cluster, NAME, pod("p", "bound", "narrow"))
    assert (found, reasons) == ([], {ELSEWHERE: 2, NO_VOLUME: 2, NO_SPACE: 1})


def test_where_a_driver_took_over_its_own_label_says_where_the_disk_is():
    own = "topology.gke.io/zone"
    cluster = Cluster(
        make_node("a", labels={ZONE: "z", own: "z"}),
        make_node("b", labels={ZONE: "z"}),
        make_node("c", labels={own: "z"}),
    )
    disk = {"gcePersistentDisk": {"pdName": "d"}}
    know(cluster, volume("v", affinity={ZONE: ["z"]}, **disk), claim("c", volume="v"))
    assert verdict(cluster, NAME, pod("p", "c"))[0] == ["a", "b"]
    for name in "abc":
        know(cluster, csi_node(name, migrated="kubernetes.io/gce-pd,kubernetes.io/cinder"))
    assert verdict(cluster, NAME, pod("p", "c")) == (["a", "c"], {ELSEWHERE: 1})
    know(cluster, volume("w", labels={ZONE: "z__y"}, **disk), claim("d", volume="w"))
    assert verdict(cluster, NAME, pod("p", "d"))[0] == ["a", "c"]


def scores(cluster, *claims):
    info = cluster.info(pod("p", *claims))
    plugin = cluster.profile.plugins[NAME]
    plugin.pre_filter(info, cluster.nodes)
    mask = plugin.filter(info, cluster.nodes)
    if plugin.pre_score(info, cluster.nodes, mask) is not None:
        return None
    found = plugin.score(info, cluster.nodes)
    return {name: float(found[row]) for name, row in cluster.nodes.rows.items() if mask[row]}


def test_the_volumes_that_are_filled_least_are_best(cluster):
    local = "kubernetes.io/no-provisioner"
    know(cluster, storage_class("local", local), claim("x", kind="local", size="2Gi"))
    for name, size in {"a": "2Gi", "b": "8Gi", "c": "3Gi"}.items():
        know(cluster, volume(name, kind="local", size=size, affinity={HOST: [name]}))
    assert scores(cluster, "x") == {"a": 0, "b": 75, "c": 34}
    know(cluster, storage_class("other", local), claim("y", kind="other"))
    for name in "ab":
        know(cluster, volume(f"y-{name}", kind="other", affinity={HOST: [name]}))
    assert scores(cluster, "x", "y") == {"a": 0, "b": 38}


def test_room_that_a_driver_has_counts_where_volumes_are_made(cluster):
    know(cluster, capacity("a", topology=on("a"), capacity="10Gi"))
    know(cluster, capacity("b", topology=on("b"), capacity="20Gi"))
    assert scores(cluster, "c") == {"a": 50, "b": 75}
    know(cluster, claim("d", size="5Gi"))
    assert scores(cluster, "c", "d") == {"a": 0, "b": 50}


def test_bound_claims_make_no_difference(cluster):
    know(cluster, volume("v"), claim("bound", volume="v"))
    assert scores(cluster, "bound") is None


def test_only_what_may_help_wakes_the_pod(cluster):
    plugin = cluster.profile.plugins[NAME]
    info = cluster.info(pod("p", "c", ephemeral=("scratch",)))

    def helps(event):
        return plugin.may_help(info, event)

    assert helps(events.ClaimChanged(claim("c")))
    assert helps(events.ClaimChanged(claim("p-scratch")))
    assert not helps(events.ClaimChanged(claim("d")))
    assert helps(events.StorageClassChanged(storage_class()))
    assert not helps(events.StorageClassChanged(storage_class(), storage_class()))
    narrow = storage_class(allowedTopologies=[{"matchLabelExpressions": []}])
    assert helps(events.StorageClassChanged(storage_class(), narrow))
    small, large = capacity("x", capacity="1Gi"), capacity("x", capacity="2Gi")
    assert helps(events.CapacityChanged(small))
    assert helps(events.CapacityChanged(large, small))
    assert not helps(events.CapacityChanged(small, large))
    assert helps(events.CSIDriverChanged(driver(), driver(storageCapacity=True)))
    assert not helps(events.CSIDriverChanged(driver(storageCapacity=True), driver()))
    assert helps(events.CSINodeChanged(csi_node("a")))
    assert not helps(events.CSINodeChanged(csi_node("a"), csi_node("a")))
    assert helps(events.CSINodeChanged(csi_node("a", migrated="x"), csi_node("a")))
