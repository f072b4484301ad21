"""VolumeZone: a volume that is in a zone can be used in that zone only.

Volumes of clouds carry the labels of the zone and region they are in, perhaps several zones in one
value (`us-1a__us-1b`). A node must have a label of the same key with one of the values. A node
without any such label is taken to be in a cluster without zones.
"""

import numpy as np

from motley.api import storage
from motley.api.intree import BETA_REGION, BETA_ZONE, REGION, ZONE, ZONE_DELIMITER
from motley.api.views.base import Key
from motley.api.views.storage import PersistentVolume
from motley.scheduler import contract, events
from motley.scheduler.contract import SKIP, Columns, Mask, PodInfo, Reject, Verdict
from motley.scheduler.disks import named_claims
from motley.scheduler.feed import Feed
from motley.scheduler.interning import ABSENT, UNKNOWN
from motley.scheduler.volumes import Volumes

_KEYS = (BETA_ZONE, BETA_REGION, ZONE, REGION)
_TODAYS = {BETA_ZONE: ZONE, BETA_REGION: REGION}

Topology = tuple[tuple[str, frozenset[str]], ...]  # label keys, and the values that will do


def topology(volume: PersistentVolume) -> Topology:
    """Where a volume says it is; a value with an empty zone in it says nothing."""
    found = []
    for key in _KEYS:
        if key in volume.metadata.labels:
            values = [v.strip() for v in volume.metadata.labels[key].split(ZONE_DELIMITER)]
            if all(values):
                found.append((key, frozenset(values)))
    return tuple(found)


class VolumeZone:
    """Keep nodes in the zones of the pod's bound volumes."""

    name = "VolumeZone"
    reason = "node(s) had no available volume zone"
    wakes_on = (
        events.NodeAdded,
        events.NodeLabelsChanged,
        events.ClaimChanged,
        events.VolumeChanged,
        events.StorageClassChanged,
    )
    removal_helps = False
    Args = contract.NoArgs

    def __init__(self, args: contract.NoArgs, handle: contract.Handle) -> None:
        self._book: Volumes = handle.volumes

    def follow(self, feed: Feed) -> None:
        """Claims, volumes and classes."""
        self._book.follow(feed)

    def pre_filter(self, pod: PodInfo, nodes: Columns) -> Reject | Verdict | None:
        """Find out where the volumes are; nothing to check if none says."""
        if not pod.volumes:
            return SKIP
        wanted: list[tuple[str, frozenset[str]]] = []
        for key in named_claims(pod):
            found = self._volume(key)
            if isinstance(found, Reject):
                return found
            if found is not None:
                wanted += topology(found)
        if not wanted:
            return SKIP
        pod.state[self.name] = wanted
        return None

    def _volume(self, key: Key) -> PersistentVolume | Reject | None:
        """The volume of a claim; None: the claim waits for the pod, and may get any."""
        claim = self._book.claims.get(key)
        if claim is None:
            return Reject(f'persistentvolumeclaim "{key.name}" not found')
        if claim.spec.volume_name:
            volume = self._book.volumes.get(Key("", claim.spec.volume_name))
            return volume or Reject(f'persistentvolume "{claim.spec.volume_name}" not found')
        name = storage.claim_class(claim)
        if not name:
            return Reject("PersistentVolumeClaim had no pv name and storageClass name")
        found = self._book.storage_class(claim)
        if found is None:
            return Reject(f'storageclass.storage.k8s.io "{name}" not found')
        if found.volume_binding_mode != storage.WAIT_FOR_FIRST_CONSUMER:
            return Reject("PersistentVolume had no name")
        return None

    def filter(self, pod: PodInfo, nodes: Columns) -> Mask:
        """True where every label of the volumes is the node's too."""
        labels = {key: nodes.label(key) for key in _KEYS}
        unzoned = np.ones(nodes.size, np.bool_)
        for column in labels.values():
            unzoned &= column == ABSENT
        matching = ~unzoned
        for key, values in pod.state[self.name]:
            column = labels[key]
            if key in _TODAYS:  # an old label's value may be under today's key
                column = np.where(column == ABSENT, labels[_TODAYS[key]], column)
            inside = np.zeros(nodes.size, np.bool_)
            for number in map(nodes.values.find, values):
                if number != UNKNOWN:
                    inside |= column == number
            matching &= inside
        mask: Mask = unzoned | matching
        return mask

    def may_help(self, pod: PodInfo, event: events.ClusterEvent) -> bool:
        """Own claims, volumes that are new or moved, classes that wait for their consumer."""
        match event:
            case events.ClaimChanged(claim):
                return claim.key in named_claims(pod)
            case events.VolumeChanged(new, PersistentVolume() as old):
                return topology(new) != topology(old)
            case events.StorageClassChanged(new, old):
                waits = new.volume_binding_mode == storage.WAIT_FOR_FIRST_CONSUMER
                return old is None and waits
            case _:
                return True


_: contract.Made[contract.FilterPlugin] = VolumeZone
