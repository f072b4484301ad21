"""Disks of clouds in their drivers' words."""

import pytest

from motley.api import intree
from motley.api.views.storage import PersistentVolume
from motley.api.views.volume import Volume

GCE = "projects/UNSPECIFIED/{}/disks/d"
OLD = "failure-domain.beta.kubernetes.io"


def volume(labels=None, affinity=None, **source):
    spec = dict(source)
    if affinity is not None:
        expressions = [{"key": k, "operator": "In", "values": v} for k, v in affinity.items()]
        terms = [{"matchExpressions": expressions}]
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    return PersistentVolume.of({"metadata": {"name": "v", "labels": labels or {}}, "spec": spec})


@pytest.mark.parametrize(
    ("labels", "source", "handle"),
    [
        ({}, {"awsElasticBlockStore": {"volumeID": "vol-1"}}, "vol-1"),
        ({}, {"awsElasticBlockStore": {"volumeID": "aws://us-1a/vol-1"}}, "vol-1"),
        ({}, {"awsElasticBlockStore": {"volumeID": "aws:///vol-1"}}, "vol-1"),
        ({}, {"awsElasticBlockStore": {"volumeID": "aws://us-1a/disk"}}, None),
        ({}, {"gcePersistentDisk": {"pdName": "d"}}, GCE.format("zones/UNSPECIFIED")),
        ({intree.ZONE: "z"}, {"gcePersistentDisk": {"pdName": "d"}}, GCE.format("zones/z")),
        (
            {f"{OLD}/zone": "us-east1-a__us-east1-b"},
            {"gcePersistentDisk": {"pdName": "d"}},
            GCE.format("regions/us-east1"),
        ),
        ({intree.ZONE: "us-a-1__eu-b-1"}, {"gcePersistentDisk": {"pdName": "d"}}, None),
        ({}, {"azureDisk": {"diskURI": "uri"}}, "uri"),
        ({}, {"azureDisk": {"diskURI": "uri", "kind": "Dedicated"}}, None),
        ({}, {"cinder": {"volumeID": "c"}}, "c"),
        ({}, {"csi": {"driver": "d", "volumeHandle": "h"}}, "h"),
        ({}, {"hostPath": {"path": "/x"}}, None),
    ],
)
def test_a_volume_has_the_handle_that_its_driver_knows(labels, source, handle):
    made = volume(labels, **source)
    found = intree.handle_of(made.spec, made.metadata.labels)
    assert (found and found.handle) == handle


def test_an_inline_volume_of_a_driver_is_not_attached_by_handle():
    inline = Volume(name="v", csi={"driver": "d"})
    assert intree.handle_of(inline, {}) is None


def test_provisioners_of_old_are_their_drivers():
    assert intree.driver_of("kubernetes.io/gce-pd") == "pd.csi.storage.gke.io"
    assert intree.driver_of("d.example") == "d.example"


@pytest.mark.parametrize(
    ("labels", "affinity", "expected"),
    [
        ({}, {intree.ZONE: ["z"]}, {"topology.ebs.csi.aws.com/zone": ["z"]}),
        (
            {},
            {f"{OLD}/zone": ["z"], f"{OLD}/region": ["r"], "disk": ["ssd"]},
            {"topology.ebs.csi.aws.com/zone": ["z"], intree.REGION: ["r"], "disk": ["ssd"]},
        ),
        ({intree.ZONE: "z2__z1"}, None, {"topology.ebs.csi.aws.com/zone": ["z1", "z2"]}),
        (
            {intree.ZONE: "z"},
            {"disk": ["ssd"]},
            {"disk": ["ssd"], "topology.ebs.csi.aws.com/zone": ["z"]},
        ),
        ({}, {"disk": ["ssd"]}, {"disk": ["ssd"]}),
    ],
)
def test_zones_are_told_in_the_drivers_label(labels, affinity, expected):
    made = volume(labels, affinity, awsElasticBlockStore={"volumeID": "v"})
    found = intree.affinity_by_driver(made)
    [term] = found.required.node_selector_terms
    assert {e.key: e.values for e in term.match_expressions} == expected


def test_where_no_driver_took_over_nothing_is_told_otherwise():
    made = volume({intree.ZONE: "z"}, None, azureDisk={"diskURI": "u"})
    assert intree.affinity_by_driver(made) is None
