"""Claims, volumes and classes as the scheduler knows them, and what it has promised of them.

Informers fill the book; between a decision and its binding the promises stand in it, so that two
pods in flight are never given one volume, nor one claim two nodes. What pods on nodes use of it
is counted beside, in `disks` and `attached`, by the rows of the columns.
Invariant: a promise is held by one pod and ends with its binding, well or ill.
"""

import asyncio
from dataclasses import dataclass, field
from typing import TypeVar

from motley.api import intree, storage
from motley.api.intree import VolumeHandle
from motley.api.views.base import Key, Object
from motley.api.views.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from motley.client.informer import Change
from motley.scheduler import events
from motley.scheduler.attached import Attached
from motley.scheduler.columns import Columns
from motley.scheduler.disks import Disks
from motley.scheduler.feed import Feed

T = TypeVar("T", bound=Object)


@dataclass(frozen=True, slots=True)
class Promise:
    """What a pod on a node needs done to its claims before it can be bound."""

    node: str
    bindings: tuple[tuple[PersistentVolume, PersistentVolumeClaim], ...] = ()
    provisions: tuple[PersistentVolumeClaim, ...] = ()


@dataclass
class Volumes:
    """The book. Changed by informers and by the VolumeBinding plugin, on one event loop."""

    claims: dict[Key, PersistentVolumeClaim] = field(default_factory=dict)
    volumes: dict[Key, PersistentVolume] = field(default_factory=dict)
    classes: dict[Key, StorageClass] = field(default_factory=dict)
    drivers: dict[Key, CSIDriver] = field(default_factory=dict)
    capacities: dict[Key, CSIStorageCapacity] = field(default_factory=dict)
    attachments: dict[Key, VolumeAttachment] = field(default_factory=dict)
    promises: dict[str, Promise] = field(default_factory=dict)  # by pod uid; see `promise`

    def __post_init__(self) -> None:
        self._changed = asyncio.Event()
        self.capacities_version = 0  # counts what drivers say of their capacities
        self._csi_nodes: dict[str, CSINode] = {}
        self._disks: Disks | None = None
        self._attached: Attached | None = None
        self._by_class: dict[str, dict[Key, PersistentVolume]] = {}
        self._claimants: dict[str, set[Key]] = {}  # by the volume they name
        self._given: dict[str, Key] = {}  # promised volumes, and the claims that get them
        self._places: dict[Key, str] = {}  # claims whose volume is promised to be made, and where
        self._counted: dict[Key, tuple[str, VolumeHandle]] = {}  # attachments that count
        self._attachments_of: dict[str, set[Key]] = {}  # by volume

    # -- what is used on nodes --------------------------------------------------------------

    def disks(self, nodes: Columns) -> Disks:
        """The disks that pods use; counted from the first question on."""
        if self._disks is None:
            self._disks = Disks(nodes)
        return self._disks

    def attached(self, nodes: Columns) -> Attached:
        """The volumes that are attached; counted from the first question on."""
        if self._attached is None:
            self._attached = Attached(nodes, self.meaning)
            for name, known in self._csi_nodes.items():
                self._attached.set_csi_node(name, known)
            for node, handle in self._counted.values():
                self._attached.attach(node, handle, 1)
        return self._attached

    def meaning(self, key: Key) -> VolumeHandle | None:
        """The volume a claim means, or one yet to be made; None: no driver attaches it."""
        claim = self.claims.get(key)
        if claim is None:
            return None
        volume = self.volumes.get(Key("", claim.spec.volume_name))
        if volume is not None:
            return intree.handle_of(volume.spec, volume.metadata.labels)
        found = self.storage_class(claim)
        if found is None or not found.provisioner:
            return None
        return VolumeHandle(intree.driver_of(found.provisioner), f"claim of {key}")

    # -- what the API has -------------------------------------------------------------------

    def set_claim(self, key: Key, new: PersistentVolumeClaim | None) -> None:
        """A claim came, changed or went."""
        before = self.claims.get(key)
        _put(self.claims, key, new)
        now = self.claims.get(key)
        if before is not None:
            _discard(self._claimants, before.spec.volume_name, key)
        if now is not None:
            self._claimants.setdefault(now.spec.volume_name, set()).add(key)
        if self._attached is not None:
            self._attached.claim_changed(key)
        self._tell()

    def set_volume(self, key: Key, new: PersistentVolume | None) -> None:
        """A volume came, changed or went."""
        before = self.volumes.get(key)
        _put(self.volumes, key, new)
        now = self.volumes.get(key)
        if before is not None:
            there = self._by_class[storage.volume_class(before)]
            del there[key]
        if now is not None:
            self._by_class.setdefault(storage.volume_class(now), {})[key] = now
        for name in list(self._attachments_of.get(key.name, ())):
            self._count_attachment(name)
        if self._attached is not None:
            for claim in self._claimants.get(key.name, ()):
                self._attached.claim_changed(claim)
        self._tell()

    def set_class(self, key: Key, new: StorageClass | None) -> None:
        """A class came, changed or went."""
        _put(self.classes, key, new)
        if self._attached is not None:
            self._attached.all_changed()

    def set_driver(self, key: Key, new: CSIDriver | None) -> None:
        """A storage driver came, changed or went."""
        _put(self.drivers, key, new)

    def set_capacity(self, key: Key, new: CSIStorageCapacity | None) -> None:
        """A driver said how much it can make."""
        _put(self.capacities, key, new)
        self.capacities_version += 1

    def set_csi_node(self, key: Key, new: CSINode | None) -> None:
        """A node said which drivers it has."""
        if new is None:
            self._csi_nodes.pop(key.name, None)
        else:
            self._csi_nodes[key.name] = new
        if self._attached is not None:
            self._attached.set_csi_node(key.name, new)

    def set_attachment(self, key: Key, new: VolumeAttachment | None) -> None:
        """A volume was attached to a node, or detached."""
        before = self.attachments.get(key)
        _put(self.attachments, key, new)
        if before is not None:
            _discard(self._attachments_of, before.spec.source.persistent_volume_name or "", key)
        if new is not None:
            name = new.spec.source.persistent_volume_name or ""
            self._attachments_of.setdefault(name, set()).add(key)
        self._count_attachment(key)

    def _count_attachment(self, key: Key) -> None:
        now = self._attachment(key)
        before = self._counted.pop(key, None)
        if now is not None:
            self._counted[key] = now
        if self._attached is not None and before != now:
            if before is not None:
                self._attached.attach(*before, -1)
            if now is not None:
                self._attached.attach(*now, 1)

    def _attachment(self, key: Key) -> tuple[str, VolumeHandle] | None:
        found = self.attachments.get(key)
        if found is None or not found.spec.attacher or not found.spec.node_name:
            return None
        volume = self.volumes.get(Key("", found.spec.source.persistent_volume_name or ""))
        if volume is None or volume.spec.csi is None:
            return None
        handle = str(volume.spec.csi.get("volumeHandle", ""))
        return found.spec.node_name, VolumeHandle(found.spec.attacher, handle)

    # -- keeping it -------------------------------------------------------------------------

    def follow(self, feed: Feed) -> None:
        """Keep claims, volumes and classes by informers; who decides about none need not read."""
        if not feed.once("volumes"):
            return
        feed.informer(PersistentVolumeClaim).add_handler(lambda c: self._claim_changed(feed, c))
        feed.informer(PersistentVolume).add_handler(lambda c: self._volume_changed(feed, c))
        feed.informer(StorageClass).add_handler(lambda c: self._class_changed(feed, c))

    def follow_nodes(self, feed: Feed) -> None:
        """Keep what drivers nodes have. Servers older than the kind, or the right, do without."""
        if feed.once("csinodes"):
            nodes = feed.informer(CSINode, optional=True)
            nodes.add_handler(lambda c: self._csi_node_changed(feed, c))

    def follow_drivers(self, feed: Feed) -> None:
        """Keep what drivers want minded."""
        if feed.once("csidrivers"):
            drivers = feed.informer(CSIDriver, optional=True)
            drivers.add_handler(lambda c: self._driver_changed(feed, c))

    def follow_capacities(self, feed: Feed) -> None:
        """Keep how much drivers can make."""
        if feed.once("csistoragecapacities"):
            capacities = feed.informer(CSIStorageCapacity, optional=True)
            capacities.add_handler(lambda c: self._capacity_changed(feed, c))

    def follow_attachments(self, feed: Feed) -> None:
        """Keep what is attached to nodes."""
        if feed.once("volumeattachments"):
            attachments = feed.informer(VolumeAttachment, optional=True)
            attachments.add_handler(lambda c: self._attachment_changed(feed, c))

    def _claim_changed(self, feed: Feed, change: Change[PersistentVolumeClaim]) -> None:
        self.set_claim(change.key, change.new)
        if change.new is not None:
            feed.happened(events.ClaimChanged(change.new, change.old))

    def _volume_changed(self, feed: Feed, change: Change[PersistentVolume]) -> None:
        self.set_volume(change.key, change.new)
        if change.new is not None:
            feed.happened(events.VolumeChanged(change.new, change.old))

    def _class_changed(self, feed: Feed, change: Change[StorageClass]) -> None:
        self.set_class(change.key, change.new)
        if change.new is not None:
            feed.happened(events.StorageClassChanged(change.new, change.old))

    def _csi_node_changed(self, feed: Feed, change: Change[CSINode]) -> None:
        self.set_csi_node(change.key, change.new)
        if change.new is not None:
            feed.happened(events.CSINodeChanged(change.new, change.old))

    def _driver_changed(self, feed: Feed, change: Change[CSIDriver]) -> None:
        self.set_driver(change.key, change.new)
        if change.new is not None:
            feed.happened(events.CSIDriverChanged(change.new, change.old))

    def _capacity_changed(self, feed: Feed, change: Change[CSIStorageCapacity]) -> None:
        self.set_capacity(change.key, change.new)
        if change.new is not None:
            feed.happened(events.CapacityChanged(change.new, change.old))

    def _attachment_changed(self, feed: Feed, change: Change[VolumeAttachment]) -> None:
        self.set_attachment(change.key, change.new)
        if change.new is None:
            feed.happened(events.VolumeDetached(change.object))

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def changed(self) -> None:
        """Wait for the next change of a claim or volume."""
        await self._changed.wait()

    # -- what may be had, and what is promised ----------------------------------------------

    def storage_class(self, claim: PersistentVolumeClaim) -> StorageClass | None:
        """The class a claim asks for, if it exists."""
        return self.classes.get(Key("", storage.claim_class(claim)))

    def selected_node(self, claim: PersistentVolumeClaim) -> str | None:
        """Where the claim's volume is being made, or is promised to be."""
        selected = claim.metadata.annotations.get(storage.SELECTED_NODE)
        return selected if selected is not None else self._places.get(claim.key)

    def promise(self, uid: str, promise: Promise) -> None:
        """Promise a pod its volumes."""
        self.release(uid)
        self.promises[uid] = promise
        self._given.update((volume.metadata.name, claim.key) for volume, claim in promise.bindings)
        self._places.update((claim.key, promise.node) for claim in promise.provisions)

    def release(self, uid: str) -> None:
        """The promise is kept, or taken back."""
        promise = self.promises.pop(uid, None)
        if promise is None:
            return
        for volume, _ in promise.bindings:
            self._given.pop(volume.metadata.name, None)
        for claim in promise.provisions:
            if not self._is_promised(claim.key):
                self._places.pop(claim.key, None)

    def _is_promised(self, claim: Key) -> bool:
        """Two pods may share a claim, and wait for it on the same node."""
        return any(claim == p.key for promise in self.promises.values() for p in promise.provisions)

    def free(self, claim: PersistentVolumeClaim) -> list[PersistentVolume]:
        """Volumes the claim may have, the smallest first: what is promised to others is not free.

        A volume that names the claim is the only one: somebody has decided.
        """
        wanted = self._by_class.get(storage.claim_class(claim), {})
        unpromised = [
            volume
            for volume in wanted.values()
            if self._given.get(volume.metadata.name, claim.key) == claim.key
        ]
        reserved = storage.best_match(claim, unpromised, delayed=True)
        if reserved is not None:
            return [reserved]
        found = storage.candidates(claim, unpromised)
        return sorted(found, key=lambda volume: (storage.capacity(volume), volume.metadata.name))


def _discard(sets: dict[str, set[Key]], name: str, key: Key) -> None:
    there = sets.get(name)
    if there is not None:
        there.discard(key)
        if not there:
            del sets[name]


def _put(known: dict[Key, T], key: Key, new: T | None) -> None:
    if new is None:
        known.pop(key, None)
        return
    old = known.get(key)
    if old is None or old.metadata.uid != new.metadata.uid or _version(new) >= _version(old):
        known[key] = new


def _version(obj: Object) -> int:
    text = obj.metadata.resource_version
    return int(text) if text.isdigit() else 0
