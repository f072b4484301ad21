"""What happens in the cluster that may make an unschedulable pod schedulable.

A filter lists in `wakes_on` the events that may change its mind; a pod it rejected is tried again
only after one of those. A plugin with objects of its own defines events of its own: a subclass of
`ClusterEvent` is enough.
"""

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from motley.api.views.core import Node
from motley.api.views.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from motley.scheduler.facts import NodeChange
from motley.scheduler.podinfo import PodInfo


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """Something that may make an unschedulable pod schedulable."""

    at_once: ClassVar[bool] = False  # also while the pod rests from its last attempt


@dataclass(frozen=True, slots=True)
class NodeAdded(ClusterEvent):
    """There is a new node."""

    node: Node


@dataclass(frozen=True, slots=True)
class NodeRemoved(ClusterEvent):
    """A node is gone, and the pods on it count no more."""

    name: str


@dataclass(frozen=True, slots=True)
class NodeAllocatableChanged(ClusterEvent):
    """A node has more, or less, to give."""

    node: Node


@dataclass(frozen=True, slots=True)
class NodeLabelsChanged(ClusterEvent):
    """A node's labels (or its platform) are others."""

    node: Node


@dataclass(frozen=True, slots=True)
class NodeTaintsChanged(ClusterEvent):
    """A node's taints are others, or it was cordoned or uncordoned."""

    node: Node


@dataclass(frozen=True, slots=True)
class NodeConditionsChanged(ClusterEvent):
    """A node became ready, or stopped being so."""

    node: Node


@dataclass(frozen=True, slots=True)
class PodAdded(ClusterEvent):
    """A pod was placed on a node, by whomever."""

    pod: PodInfo
    node: str


@dataclass(frozen=True, slots=True)
class PodUpdated(ClusterEvent):
    """A placed pod's labels or requests changed."""

    pod: PodInfo
    node: str


@dataclass(frozen=True, slots=True)
class PodDeleted(ClusterEvent):
    """A placed pod is gone, or has ended: its room and ports are free."""

    pod: PodInfo
    node: str


@dataclass(frozen=True, slots=True)
class ImageMapChanged(ClusterEvent):
    """It is now known, or known otherwise, which platforms some image is built for."""

    at_once: ClassVar[bool] = True  # what only waited for this has not failed


@dataclass(frozen=True, slots=True)
class ClaimChanged(ClusterEvent):
    """A PersistentVolumeClaim is new, or another."""

    claim: PersistentVolumeClaim
    old: PersistentVolumeClaim | None = None


@dataclass(frozen=True, slots=True)
class VolumeChanged(ClusterEvent):
    """A PersistentVolume is new, or another."""

    volume: PersistentVolume
    old: PersistentVolume | None = None


@dataclass(frozen=True, slots=True)
class StorageClassChanged(ClusterEvent):
    """A StorageClass is new, or another."""

    storage_class: StorageClass
    old: StorageClass | None = None


@dataclass(frozen=True, slots=True)
class CSINodeChanged(ClusterEvent):
    """A node has other storage drivers, or may have more volumes of one."""

    csi_node: CSINode
    old: CSINode | None = None


@dataclass(frozen=True, slots=True)
class CSIDriverChanged(ClusterEvent):
    """A storage driver is new, or wants something else minded."""

    driver: CSIDriver
    old: CSIDriver | None = None


@dataclass(frozen=True, slots=True)
class CapacityChanged(ClusterEvent):
    """A driver can make more, or less, than it said before."""

    capacity: CSIStorageCapacity
    old: CSIStorageCapacity | None = None


@dataclass(frozen=True, slots=True)
class VolumeDetached(ClusterEvent):
    """A volume is attached to a node no longer."""

    attachment: VolumeAttachment


@dataclass(frozen=True, slots=True)
class QuotaChanged(ClusterEvent):
    """An ElasticQuota is new, gone, or another."""


@dataclass(frozen=True, slots=True)
class PodsActivated(ClusterEvent):
    """What was decided about others concerns these pods: they are tried at once, whoever rejected
    them and however short their rest was."""

    uids: frozenset[str]


Events: TypeAlias = tuple[type[ClusterEvent], ...]


def of_node(change: NodeChange, node: Node) -> list[ClusterEvent]:
    """What an update of a node means to plugins."""
    events: list[ClusterEvent] = []
    if change.allocatable:
        events.append(NodeAllocatableChanged(node))
    if change.labels:
        events.append(NodeLabelsChanged(node))
    if change.taints:
        events.append(NodeTaintsChanged(node))
    if change.conditions:
        events.append(NodeConditionsChanged(node))
    return events
