"""The book of volumes: what it reads, what it tells, and what it keeps."""

import pytest

from motley.client.informer import Change
from motley.scheduler import events
from motley.scheduler.volumes import Promise, Volumes

from .conftest import Cluster, make_node
from .stored import (
    attachment,
    capacity,
    claim,
    csi,
    csi_node,
    driver,
    know,
    pod,
    storage_class,
    verdict,
    volume,
)


class Told:
    """A feed without a server."""

    def __init__(self):
        self.handlers = {}
        self.optional = set()
        self.events = []
        self._once = set()

    def once(self, what):
        return not (what in self._once or self._once.add(what))

    def informer(self, cls, *, optional=False):
        self.handlers.setdefault(cls, [])
        if optional:
            self.optional.add(cls.KIND)
        self.asked = cls
        return self

    def add_handler(self, handler):
        self.handlers[self.asked].append(handler)

    def happened(self, event):
        self.events.append(event)

    def tell(self, old, new):
        for handler in self.handlers[type(new if new is not None else old)]:
            handler(Change(old, new))


@pytest.fixture
def feed():
    return Told()


def test_plugins_share_one_informer_of_each_kind(feed):
    cluster = Cluster(make_node("a"))
    plugins = cluster.profile.plugins
    for name in ("VolumeZone", "VolumeRestrictions"):
        plugins[name].follow(feed)
    assert {cls.KIND for cls in feed.handlers} == {
        "PersistentVolume",
        "PersistentVolumeClaim",
        "StorageClass",
    }
    for name in ("VolumeBinding", "NodeVolumeLimits"):
        plugins[name].follow(feed)
    assert {len(handlers) for handlers in feed.handlers.values()} == {1}
    assert feed.optional == {"CSINode", "CSIDriver", "CSIStorageCapacity", "VolumeAttachment"}


@pytest.mark.parametrize(
    ("made", "event"),
    [
        (claim("x"), events.ClaimChanged),
        (volume("x"), events.VolumeChanged),
        (storage_class("x"), events.StorageClassChanged),
        (csi_node("x"), events.CSINodeChanged),
        (driver("x"), events.CSIDriverChanged),
        (capacity("x"), events.CapacityChanged),
    ],
)
def test_what_comes_or_changes_is_told_and_what_goes_is_not(feed, made, event):
    plugins = Cluster(make_node("a")).profile.plugins
    for name in ("VolumeBinding", "NodeVolumeLimits"):
        plugins[name].follow(feed)
    feed.tell(None, made)
    feed.tell(made, made)
    feed.tell(made, None)
    assert feed.events == [event(made), event(made, made)]


def test_of_attachments_the_end_is_told(feed):
    Cluster(make_node("a")).profile.plugins["NodeVolumeLimits"].follow(feed)
    made = attachment("x", "v", "a")
    feed.tell(None, made)
    feed.tell(made, None)
    assert feed.events == [events.VolumeDetached(made)]


def test_two_pods_that_share_a_promised_claim_keep_its_node_until_both_are_bound():
    book = Volumes()
    shared = claim("c")
    book.promise("one", Promise("n", provisions=(shared,)))
    book.promise("two", Promise("n", provisions=(shared,)))
    book.release("one")
    assert book.selected_node(shared) == "n"
    book.release("two")
    book.release("two")
    assert book.selected_node(shared) is None


def test_a_profile_that_is_made_later_knows_what_is_attached():
    cluster = Cluster(make_node("a"))
    know(cluster, csi_node("a", d_example=1), attachment("x", "v0", "a"))
    for i in range(2):
        know(
            cluster, volume(f"v{i}", csi=csi("d.example", f"h{i}")), claim(f"c{i}", volume=f"v{i}")
        )
    cluster.handle.volumes._attached = None  # as if nobody had asked yet
    plugin = type(cluster.profile.plugins["NodeVolumeLimits"])
    cluster.place(pod("p", "c0"), "a")
    cluster.profile.plugins["NodeVolumeLimits"] = plugin(None, cluster.handle)
    assert verdict(cluster, "NodeVolumeLimits", pod("q", "c1"))[0] == []
    assert verdict(cluster, "NodeVolumeLimits", pod("q", "c0"))[0] == ["a"]
