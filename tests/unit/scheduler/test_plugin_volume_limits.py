"""NodeVolumeLimits: how many volumes a driver can attach to a node."""

import pytest

from motley.scheduler import events
from motley.scheduler.contract import SKIP, Nomination

from .conftest import Cluster, make_node
from .stored import (
    attachment,
    claim,
    csi,
    csi_node,
    driver,
    forget,
    know,
    pod,
    storage_class,
    verdict,
    volume,
)

NAME = "NodeVolumeLimits"
TOO_MANY = "node(s) exceed max volume count"


@pytest.fixture
def cluster():
    made = Cluster(make_node("a"), make_node("b"))
    know(made, csi_node("a", d_example=2))
    for i in range(5):
        know(made, volume(f"v{i}", csi=csi("d.example", f"h{i}")), claim(f"c{i}", volume=f"v{i}"))
    return made


def test_a_pod_without_volumes_to_attach_is_not_looked_at(cluster):
    plugin = cluster.profile.plugins[NAME]
    assert plugin.pre_filter(cluster.info(pod("p")), cluster.nodes) is SKIP
    disk = pod("p", iscsi={"iqn": "i"})
    assert plugin.pre_filter(cluster.info(disk), cluster.nodes) is SKIP


def test_a_node_takes_as_many_volumes_as_its_driver_says(cluster):
    cluster.place(pod("p0", "c0"), "a")
    assert verdict(cluster, NAME, pod("q", "c1"))[0] == ["a", "b"]
    assert verdict(cluster, NAME, pod("q", "c1", "c2")) == (["b"], {TOO_MANY: 1})
    cluster.place(pod("p1", "c1"), "a")
    assert verdict(cluster, NAME, pod("q", "c2")) == (["b"], {TOO_MANY: 1})
    cluster.nodes.remove_pod("p0")
    assert verdict(cluster, NAME, pod("q", "c2"))[0] == ["a", "b"]


def test_one_volume_counts_once_whoever_uses_it(cluster):
    know(cluster, volume("again", csi=csi("d.example", "h0")), claim("alias", volume="again"))
    cluster.place(pod("p0", "c0"), "a")
    cluster.place(pod("p1", "c0", "alias"), "a")
    assert verdict(cluster, NAME, pod("q", "c0", "c1"))[0] == ["a", "b"]
    cluster.place(pod("p2", "c1"), "a")
    assert verdict(cluster, NAME, pod("q", "c0", "c1"))[0] == ["a", "b"]
    cluster.nodes.remove_pod("p0")
    assert verdict(cluster, NAME, pod("q", "c2"))[0] == ["b"]
    cluster.nodes.remove_pod("p1")
    assert verdict(cluster, NAME, pod("q", "c2"))[0] == ["a", "b"]


def test_a_limit_comes_changes_and_goes_with_the_csi_node(cluster):
    cluster.place(pod("p", "c0", "c1"), "a")
    assert verdict(cluster, NAME, pod("q", "c2"))[0] == ["b"]
    know(cluster, csi_node("a", d_example=3), csi_node("b", d_example=0))
    assert verdict(cluster, NAME, pod("q", "c2"))[0] == ["a"]
    know(cluster, csi_node("a", d_example=None))
    assert verdict(cluster, NAME, pod("q", "c2", "c3"))[0] == ["a"]
    know(cluster, csi_node("a", d_example=1))
    forget(cluster, csi_node("a"))
    assert verdict(cluster, NAME, pod("q", "c2", "c3"))[0] == ["a"]


def test_the_limit_of_a_node_that_comes_back_holds_again(cluster):
    cluster.place(pod("p", "c0", "c1"), "a")
    cluster.nodes.remove_node("a")
    cluster.nodes.set_node(make_node("c"))  # takes over the row
    assert verdict(cluster, NAME, pod("q", "c2"))[0] == ["b", "c"]
    cluster.nodes.set_node(make_node("a"))
    assert verdict(cluster, NAME, pod("q", "c2"))[0] == ["b", "c"]


def test_a_claim_that_waits_counts_under_the_driver_of_its_class(cluster):
    know(cluster, storage_class(), *(claim(f"w{i}") for i in range(4)))
    cluster.place(pod("p", "w0", "w1"), "a")
    assert verdict(cluster, NAME, pod("q", "w2"))[0] == ["b"]
    assert verdict(cluster, NAME, pod("q", "w0", "w1"))[0] == ["a", "b"]
    know(cluster, claim("w1", volume="v0"))  # bound while the pod uses it
    cluster.place(pod("p2", "c0"), "a")
    assert verdict(cluster, NAME, pod("q", "c0"))[0] == ["a", "b"]
    forget(cluster, storage_class())  # nobody can say any more what w0 will be
    assert verdict(cluster, NAME, pod("q", "c1"))[0] == ["a", "b"]
    know(cluster, storage_class())
    assert verdict(cluster, NAME, pod("q", "c1"))[0] == ["b"]


def test_a_volume_that_is_known_later_than_its_pod_counts(cluster):
    cluster.place(pod("p", "late", "c0"), "a")
    assert verdict(cluster, NAME, pod("q", "c1"))[0] == ["a", "b"]
    know(cluster, claim("late", volume="late", kind=None))
    assert verdict(cluster, NAME, pod("q", "c1"))[0] == ["a", "b"]
    know(cluster, volume("late", csi=csi("d.example", "late")))
    assert verdict(cluster, NAME, pod("q", "c1"))[0] == ["b"]


def test_what_is_attached_counts_until_it_is_detached(cluster):
    know(cluster, attachment("one", "v0", "a"), attachment("two", "v1", "a"))
    assert verdict(cluster, NAME, pod("q", "c2"))[0] == ["b"]
    cluster.place(pod("p", "c0"), "a")  # attached and used: once
    forget(cluster, attachment("two", "v1", "a"))
    assert verdict(cluster, NAME, pod("q", "c2"))[0] == ["a", "b"]
    cluster.nodes.remove_pod("p")
    assert verdict(cluster, NAME, pod("q", "c2"))[0] == ["a", "b"]
    assert verdict(cluster, NAME, pod("q", "c2", "c3"))[0] == ["b"]
    forget(cluster, attachment("one", "v0", "a"))
    assert verdict(cluster, NAME, pod("q", "c2", "c3"))[0] == ["a", "b"]


def test_an_attachment_counts_once_its_volume_is_known(cluster):
    know(cluster, attachment("one", "late", "a"), attachment("two", "v1", "a"))
    know(cluster, attachment("odd", "none", "a", driver=""))
    assert verdict(cluster, NAME, pod("q", "c2"))[0] == ["a", "b"]
    know(cluster, volume("late", csi=csi("d.example", "late")))
    assert verdict(cluster, NAME, pod("q", "c2"))[0] == ["b"]


@pytest.mark.parametrize(
    ("kind", "source", "attacher"),
    [
        ("awsElasticBlockStore", {"volumeID": "aws://z/vol-{}"}, "ebs_csi_aws_com"),
        ("gcePersistentDisk", {"pdName": "disk-{}"}, "pd_csi_storage_gke_io"),
        ("azureDisk", {"diskName": "d", "diskURI": "uri-{}"}, "disk_csi_azure_com"),
        ("cinder", {"volumeID": "vol-{}"}, "cinder_csi_openstack_org"),
        ("portworxVolume", {"volumeID": "vol-{}"}, "pxd_portworx_com"),
    ],
)
def test_disks_of_clouds_count_for_the_drivers_that_took_over(cluster, kind, source, attacher):
    def numbered(i):
        return {kind: {key: value.format(i) for key, value in source.items()}}

    know(cluster, csi_node("a", **{attacher: 2}))
    for i in range(2):
        know(cluster, volume(f"i{i}", **numbered(i)), claim(f"i{i}", volume=f"i{i}"))
    cluster.place(pod("p0", "i0"), "a")
    cluster.place(pod("p1", **numbered(0)), "a")
    assert verdict(cluster, NAME, pod("q", "i1"))[0] == ["a", "b"]
    cluster.place(pod("p2", **numbered(1)), "a")
    assert verdict(cluster, NAME, pod("q", **numbered(2))) == (["b"], {TOO_MANY: 1})


def test_ephemeral_volumes_count_by_the_claim_made_for_them(cluster):
    know(cluster, storage_class(), claim("p-scratch", owner="p"), claim("q-scratch", owner="q"))
    cluster.place(pod("p", "c0", ephemeral=("scratch",)), "a")
    assert verdict(cluster, NAME, pod("q", ephemeral=("scratch",)))[0] == ["b"]


def test_a_missing_claim_fits_nowhere(cluster):
    found, reasons = verdict(cluster, NAME, pod("p", "gone"))
    why = 'looking up PVC default/gone: persistentvolumeclaim "gone" not found'
    assert (found, reasons) == ([], {why: 2})


def test_a_driver_may_insist_on_being_there(cluster):
    know(cluster, driver(preventPodSchedulingIfMissing=True))
    found, reasons = verdict(cluster, NAME, pod("p", "c0"))
    why = "d.example CSI driver is not installed on the node"
    assert (found, reasons) == (["a"], {why: 1})
    cluster.place(pod("p0", "c1", "c2"), "a")
    assert verdict(cluster, NAME, pod("p", "c0")) == ([], {why: 1, TOO_MANY: 1})


def test_preemption_makes_room_for_volumes(cluster):
    know(cluster, csi_node("b", d_example=1))
    cluster.place(pod("one", "c0", priority=5), "a")
    cluster.place(pod("two", "c1", priority=1), "a")
    cluster.place(pod("three", "c2", priority=7), "b")
    decision = cluster.cycle.schedule(cluster.info(pod("important", "c3", priority=10)))
    assert isinstance(decision.post_filter, Nomination)
    assert decision.post_filter.node == "a"
    assert [v.key.name for v in decision.post_filter.victims] == ["two"]


def test_only_what_may_help_wakes_the_pod(cluster):
    plugin = cluster.profile.plugins[NAME]
    info = cluster.info(pod("p", "c0"))

    def helps(event):
        return plugin.may_help(info, event)

    assert helps(events.PodDeleted(cluster.info(pod("q", "c9")), "a"))
    assert not helps(events.PodDeleted(cluster.info(pod("q")), "a"))
    assert helps(events.ClaimChanged(claim("c0")))
    assert not helps(events.ClaimChanged(claim("c1")))
    assert helps(events.CSINodeChanged(csi_node("a", d_example=2)))
    assert helps(events.CSINodeChanged(csi_node("a", d_example=3), csi_node("a", d_example=2)))
    assert not helps(events.CSINodeChanged(csi_node("a", d_example=2), csi_node("a", d_example=2)))
    assert helps(events.VolumeDetached(attachment("x", "v", "a")))
    inline = cluster.info(pod("r", cinder={"volumeID": "x"}))
    assert not plugin.may_help(inline, events.VolumeDetached(attachment("x", "v", "a")))
