"""Claims, volumes and classes as the scheduler knows them, and what it has promised of them.

Informers fill the book; between a decision and its binding the promises stand in it, so that two
pods in flight are never given one volume, nor one claim two nodes.
Invariant: a promise is held by one pod and ends with its binding, well or ill.
"""

import asyncio
from dataclasses import dataclass, field
from typing import TypeVar

from motley.api import storage
from motley.api.views.base import Key, Object
from motley.api.views.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from motley.client.informer import Change
from motley.scheduler.events import ClaimChanged, StorageClassChanged, VolumeChanged
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
    promises: dict[str, Promise] = field(default_factory=dict)  # by pod uid

    def __post_init__(self) -> None:
        self._changed = asyncio.Event()

    def set_claim(self, key: Key, new: PersistentVolumeClaim | None) -> None:
        """A claim came, changed or went."""
        _put(self.claims, key, new)
        self._tell()

    def set_volume(self, key: Key, new: PersistentVolume | None) -> None:
        """A volume came, changed or went."""
        _put(self.volumes, key, new)
        self._tell()

    def set_class(self, key: Key, new: StorageClass | None) -> None:
        """A class came, changed or went."""
        _put(self.classes, key, new)

    def follow(self, feed: Feed) -> None:
        """Keep the book by informers; who decides about no volumes need not read them."""
        if not feed.once("volumes"):
            return
        feed.informer(PersistentVolumeClaim).add_handler(lambda c: self._claim_changed(feed, c))
        feed.informer(PersistentVolume).add_handler(lambda c: self._volume_changed(feed, c))
        feed.informer(StorageClass).add_handler(lambda c: self._class_changed(feed, c))

    def _claim_changed(self, feed: Feed, change: Change[PersistentVolumeClaim]) -> None:
        self.set_claim(change.key, change.new)
        if change.new is not None:
            feed.happened(ClaimChanged(change.new))

    def _volume_changed(self, feed: Feed, change: Change[PersistentVolume]) -> None:
        self.set_volume(change.key, change.new)
        if change.new is not None:
            feed.happened(VolumeChanged(change.new))

    def _class_changed(self, feed: Feed, change: Change[StorageClass]) -> None:
        self.set_class(change.key, change.new)
        if change.new is not None:
            feed.happened(StorageClassChanged(change.new))

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def changed(self) -> None:
        """Wait for the next change of a claim or volume."""
        await self._changed.wait()

    def storage_class(self, claim: PersistentVolumeClaim) -> StorageClass | None:
        """The class a claim asks for, if it exists."""
        return self.classes.get(Key("", storage.claim_class(claim)))

    def selected_node(self, claim: PersistentVolumeClaim) -> str | None:
        """Where the claim's volume is being made, or is promised to be."""
        selected = claim.metadata.annotations.get(storage.SELECTED_NODE)
        if selected is not None:
            return selected
        for promise in self.promises.values():
            if any(other.key == claim.key for other in promise.provisions):
                return promise.node
        return None

    def free(self, claim: PersistentVolumeClaim) -> list[PersistentVolume]:
        """Volumes the claim may have, best first: what was promised to others is not free."""
        promised = {
            volume.metadata.name: owner.key
            for promise in self.promises.values()
            for volume, owner in promise.bindings
        }
        unpromised = [
            v
            for v in self.volumes.values()
            if promised.get(v.metadata.name, claim.key) == claim.key
        ]
        reserved = storage.best_match(claim, unpromised, delayed=True)
        return [reserved] if reserved is not None else storage.candidates(claim, unpromised)


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
