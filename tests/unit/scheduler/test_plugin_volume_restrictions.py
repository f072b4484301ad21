"""VolumeRestrictions: disks and claims that one pod keeps from others."""

import pytest

from motley.scheduler import events
from motley.scheduler.contract import SKIP, Nomination

from .conftest import Cluster, make_node
from .stored import claim, know, pod, verdict, volume

NAME = "VolumeRestrictions"
NO_DISK = "node(s) had no available disk"
IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already "
    "in-use by another pod"
)


def gce(name="d", read_only=False):
    return {"gcePersistentDisk": {"pdName": name, "readOnly": read_only}}


def aws(name="d", read_only=False):
    return {"awsElasticBlockStore": {"volumeID": name, "readOnly": read_only}}


def iscsi(name="d", read_only=False, portal="p"):
    return {"iscsi": {"iqn": name, "targetPortal": portal, "lun": 0, "readOnly": read_only}}


def rbd(image="d", read_only=False, monitors=("m",), pool="rbd"):
    source = {"image": image, "monitors": list(monitors), "pool": pool, "readOnly": read_only}
    return {"rbd": source}


@pytest.fixture
def cluster():
    return Cluster(make_node("a"), make_node("b"))


@pytest.mark.parametrize(
    ("there", "wanted", "fits"),
    [
        (gce(), gce(), False),
        (gce(), gce("other"), True),
        (gce(read_only=True), gce(read_only=True), True),
        (gce(read_only=True), gce(), False),
        (gce(), gce(read_only=True), False),
        (aws(), aws(), False),
        (aws(read_only=True), aws(read_only=True), False),
        (aws(), aws("other"), True),
        (iscsi(), iscsi(portal="q"), False),
        (iscsi(read_only=True), iscsi(read_only=True), True),
        (iscsi(read_only=True), iscsi(), False),
        (rbd(), rbd(), False),
        (rbd(monitors=("m", "n")), rbd(monitors=("n", "o")), False),
        (rbd(monitors=("m",)), rbd(monitors=("n",)), True),
        (rbd(), rbd(pool="other"), True),
        (rbd(read_only=True), rbd(read_only=True), True),
        (rbd(), rbd(read_only=True), False),
        (gce(), aws(), True),
        ({}, gce(), True),
    ],
)
def test_a_disk_is_for_one_pod_of_a_node_or_for_several_readers(cluster, there, wanted, fits):
    cluster.place(pod("first", **there), "a")
    found, reasons = verdict(cluster, NAME, pod("second", **wanted))
    assert found == (["a", "b"] if fits else ["b"])
    assert reasons == ({} if fits else {NO_DISK: 1})


def test_a_disk_is_free_when_its_last_pod_has_gone(cluster):
    readers = [pod(f"r{i}", **gce(read_only=True)) for i in range(2)]
    for reader in readers:
        cluster.place(reader, "a")
    cluster.place(pod("other", **gce(read_only=True)), "b")
    writer = pod("w", **gce())
    assert verdict(cluster, NAME, writer)[0] == []
    cluster.nodes.remove_pod("r0")
    assert verdict(cluster, NAME, writer)[0] == []
    cluster.nodes.remove_pod("r1")
    assert verdict(cluster, NAME, writer)[0] == ["a"]
    cluster.nodes.remove_node("b")
    cluster.nodes.set_node(make_node("c"))
    assert verdict(cluster, NAME, writer)[0] == ["a", "c"]


def test_a_claim_for_one_pod_is_in_use_everywhere(cluster):
    know(cluster, volume("v"), claim("mine", volume="v", modes=("ReadWriteOncePod",)))
    know(cluster, claim("shared", volume="v"))
    plugin = cluster.profile.plugins[NAME]
    assert plugin.pre_filter(cluster.info(pod("p", "mine")), cluster.nodes) is SKIP
    cluster.place(pod("first", "mine", "shared"), "a")
    assert verdict(cluster, NAME, pod("p", "mine")) == ([], {IN_USE: 2})
    assert verdict(cluster, NAME, pod("p", "shared"))[0] == ["a", "b"]
    assert verdict(cluster, NAME, pod("p", "gone")) == (
        [],
        {'persistentvolumeclaim "gone" not found': 2},
    )


def test_the_disk_is_named_first_where_both_are_wrong(cluster):
    know(cluster, volume("v"), claim("mine", volume="v", modes=("ReadWriteOncePod",)))
    cluster.place(pod("first", "mine", **gce()), "a")
    found, reasons = verdict(cluster, NAME, pod("p", "mine", **gce()))
    assert (found, reasons) == ([], {NO_DISK: 1, IN_USE: 1})


@pytest.mark.parametrize("wanted", [{"claims": ["mine"]}, {"inline": aws()}])
def test_preemption_frees_what_a_less_important_pod_has(cluster, wanted):
    know(cluster, volume("v"), claim("mine", volume="v", modes=("ReadWriteOncePod",)))
    claims, inline = wanted.get("claims", []), wanted.get("inline", {})
    cluster.place(pod("holder", *claims, **inline), "b")
    for node in ("a", "b"):
        cluster.place(pod(f"bystander-{node}"), node)
    if not claims:
        cluster.place(pod("holder-too", **inline), "a")
    important = cluster.info(pod("important", *claims, priority=10, **inline))
    decision = cluster.cycle.schedule(important)
    assert decision.node is None
    assert isinstance(decision.post_filter, Nomination)
    [victim] = decision.post_filter.victims
    assert victim.key.name.startswith("holder")
    assert decision.post_filter.node == ("b" if claims else decision.post_filter.node)
    equal = cluster.cycle.schedule(cluster.info(pod("equal", *claims, **inline)))
    assert not isinstance(equal.post_filter, Nomination)


def test_only_the_end_of_a_pod_with_the_same_disk_or_claim_wakes(cluster):
    plugin = cluster.profile.plugins[NAME]
    info = cluster.info(pod("p", "mine", **gce()))

    def helps(event):
        return plugin.may_help(info, event)

    assert helps(events.PodDeleted(cluster.info(pod("q", **gce())), "a"))
    assert helps(events.PodDeleted(cluster.info(pod("q", "mine")), "a"))
    assert not helps(events.PodDeleted(cluster.info(pod("q", "other", **gce("x"))), "a"))
    assert helps(events.ClaimChanged(claim("mine")))
    assert not helps(events.ClaimChanged(claim("mine"), claim("mine")))
    assert helps(events.NodeAdded(make_node("n")))
