"""Claims, volumes and the classes that say how volumes come to be."""

from typing import Any, ClassVar

import msgspec

from motley.api.views.base import LabelSelector, Object, ObjectReference, View
from motley.api.views.container import ResourceList
from motley.api.views.scheduling import NodeSelector
from motley.api.views.volume import HostPathVolumeSource

FILESYSTEM = "Filesystem"


class VolumeResources(View):
    """How much a claim asks for."""

    requests: ResourceList = {}


class PersistentVolumeClaimSpec(View):
    """What is asked for, and which volume it became."""

    access_modes: list[str] = []
    resources: VolumeResources = msgspec.field(default_factory=VolumeResources)
    volume_name: str = ""
    # None: no class was named; the empty name asks for a volume without one.
    storage_class_name: str | None = None
    volume_mode: str = FILESYSTEM
    selector: LabelSelector | None = None
    volume_attributes_class_name: str | None = None


class ModifyVolumeStatus(View):
    """The class of attributes a volume is being given."""

    target_volume_attributes_class_name: str = ""


class PersistentVolumeClaimStatus(View):
    """How far it got."""

    phase: str = ""
    access_modes: list[str] = []
    capacity: ResourceList = {}
    current_volume_attributes_class_name: str | None = None
    modify_volume_status: ModifyVolumeStatus | None = None


class PersistentVolumeClaim(Object):
    """A request for storage."""

    API_VERSION: ClassVar[str] = "v1"
    KIND: ClassVar[str] = "PersistentVolumeClaim"
    PLURAL: ClassVar[str] = "persistentvolumeclaims"

    spec: PersistentVolumeClaimSpec = msgspec.field(default_factory=PersistentVolumeClaimSpec)
    status: PersistentVolumeClaimStatus = msgspec.field(default_factory=PersistentVolumeClaimStatus)


class LocalVolumeSource(View):
    """A directory or disk of one node, which must exist."""

    path: str = ""


class VolumeNodeAffinity(View):
    """From which nodes a volume can be reached."""

    required: NodeSelector | None = None


class PersistentVolumeSpec(View):
    """What a volume is; of its sources those that a node can mount without a driver."""

    capacity: ResourceList = {}
    access_modes: list[str] = []
    storage_class_name: str = ""
    volume_mode: str = FILESYSTEM
    persistent_volume_reclaim_policy: str = "Retain"
    claim_ref: ObjectReference | None = None
    node_affinity: VolumeNodeAffinity | None = None
    volume_attributes_class_name: str | None = None
    host_path: HostPathVolumeSource | None = None
    local: LocalVolumeSource | None = None
    csi: dict[str, Any] | None = None  # whatever it says, a driver sees to it


class PersistentVolumeStatus(View):
    """Whether it is free, bound, or waits to be reclaimed."""

    phase: str = ""


class PersistentVolume(Object):
    """A piece of storage."""

    API_VERSION: ClassVar[str] = "v1"
    KIND: ClassVar[str] = "PersistentVolume"
    PLURAL: ClassVar[str] = "persistentvolumes"
    NAMESPACED: ClassVar[bool] = False

    spec: PersistentVolumeSpec = msgspec.field(default_factory=PersistentVolumeSpec)
    status: PersistentVolumeStatus = msgspec.field(default_factory=PersistentVolumeStatus)


class StorageClass(Object):
    """How volumes are made for claims that name it."""

    API_VERSION: ClassVar[str] = "storage.k8s.io/v1"
    KIND: ClassVar[str] = "StorageClass"
    PLURAL: ClassVar[str] = "storageclasses"
    NAMESPACED: ClassVar[bool] = False

    provisioner: str = ""
    parameters: dict[str, str] = {}
    reclaim_policy: str = "Delete"
    volume_binding_mode: str = "Immediate"
    allow_volume_expansion: bool = False
    mount_options: list[str] = []
    allowed_topologies: list[dict[str, Any]] = []
