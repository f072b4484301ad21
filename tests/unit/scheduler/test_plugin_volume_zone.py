"""VolumeZone: volumes of a zone are used in that zone."""

import pytest

from motley.scheduler import events
from motley.scheduler.contract import SKIP

from .conftest import Cluster, make_node
from .stored import claim, know, pod, storage_class, verdict, volume

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
OLD_REGION = "failure-domain.beta.kubernetes.io/region"
NO_ZONE = "node(s) had no available volume zone"


def zones(nodes, labels):
    """Where a pod can run whose volume has these labels."""
    cluster = Cluster(*(make_node(n, labels=given) for n, given in nodes.items()))
    know(cluster, volume("v", labels=labels), claim("c", volume="v"))
    return verdict(cluster, "VolumeZone", pod("p", "c"))


@pytest.mark.parametrize(
    ("nodes", "labels", "fits"),
    [
        ({"a": {ZONE: "z1"}, "b": {ZONE: "z2"}}, {ZONE: "z1"}, ["a"]),
        ({"a": {ZONE: "z1"}, "b": {}}, {ZONE: "z1"}, ["a", "b"]),
        ({"a": {REGION: "r1"}}, {ZONE: "z1"}, []),
        ({"a": {ZONE: "z1", REGION: "r1"}}, {ZONE: "z1", REGION: "r2"}, []),
        ({"a": {ZONE: "z1"}, "b": {ZONE: "z3"}}, {ZONE: "z1__z2"}, ["a"]),
        ({"a": {ZONE: "z1"}, "b": {ZONE: "z2"}}, {ZONE: " z1 __ z2"}, ["a", "b"]),
        ({"a": {ZONE: "z1"}, "b": {ZONE: "z9"}}, {OLD_ZONE: "z1"}, ["a"]),
        ({"a": {OLD_ZONE: "z1"}, "b": {OLD_ZONE: "z9"}}, {OLD_ZONE: "z1"}, ["a"]),
        ({"a": {OLD_ZONE: "z1"}}, {ZONE: "z1"}, []),
        ({"a": {OLD_ZONE: "z9", ZONE: "z1"}}, {OLD_ZONE: "z1"}, []),
        ({"a": {ZONE: "z1", REGION: "r"}}, {OLD_ZONE: "z1", OLD_REGION: "r"}, ["a"]),
        ({"a": {ZONE: "z1"}}, {ZONE: "z2__"}, ["a"]),
        ({"a": {ZONE: "z1"}}, {}, ["a"]),
    ],
)
def test_labels_of_the_volume_must_be_the_nodes(nodes, labels, fits):
    found, reasons = zones(nodes, labels)
    assert found == fits
    refused = len(nodes) - len(fits)
    assert reasons == ({NO_ZONE: refused} if refused else {})


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ([], 'persistentvolumeclaim "c" not found'),
        ([claim("c", volume="gone")], 'persistentvolume "gone" not found'),
        ([claim("c", kind=None)], "PersistentVolumeClaim had no pv name and storageClass name"),
        ([claim("c", kind="no")], 'storageclass.storage.k8s.io "no" not found'),
        (
            [claim("c"), storage_class(volumeBindingMode="Immediate")],
            "PersistentVolume had no name",
        ),
    ],
)
def test_a_claim_without_a_volume_fits_nowhere(found, why):
    cluster = Cluster(make_node("a"))
    know(cluster, *found)
    assert verdict(cluster, "VolumeZone", pod("p", "c")) == ([], {why: 1})


def test_claims_that_wait_for_their_pod_and_pods_without_claims_are_not_looked_at():
    cluster = Cluster(make_node("a", labels={ZONE: "z"}))
    know(cluster, claim("c"), storage_class())
    plugin = cluster.profile.plugins["VolumeZone"]
    for asked in (pod("p", "c"), pod("q"), pod("r", ephemeral=("scratch",))):
        assert plugin.pre_filter(cluster.info(asked), cluster.nodes) is SKIP


def test_only_what_may_help_wakes_the_pod():
    cluster = Cluster(make_node("a"))
    plugin = cluster.profile.plugins["VolumeZone"]
    info = cluster.info(pod("p", "c"))
    here, there = volume("v", labels={ZONE: "1"}), volume("v", labels={ZONE: "2"})
    immediate = storage_class(volumeBindingMode="Immediate")
    assert plugin.may_help(info, events.ClaimChanged(claim("c")))
    assert not plugin.may_help(info, events.ClaimChanged(claim("other")))
    assert plugin.may_help(info, events.VolumeChanged(here))
    assert plugin.may_help(info, events.VolumeChanged(there, here))
    assert not plugin.may_help(info, events.VolumeChanged(here, here))
    assert plugin.may_help(info, events.StorageClassChanged(storage_class()))
    assert not plugin.may_help(info, events.StorageClassChanged(storage_class(), storage_class()))
    assert not plugin.may_help(info, events.StorageClassChanged(immediate))
    assert plugin.may_help(info, events.NodeAdded(make_node("b")))
