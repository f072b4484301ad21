"""Claims, volumes and the classes that say how volumes come to be."""

from typing import Any, ClassVar

import msgspec

from motley.api.views.base import LabelSelector, Object, ObjectReference, View
from motley.api.views.container import Quantity, ResourceList
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
    """What a volume is; of its sources those a node mounts alone, and those that are attached."""

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
    gce_persistent_disk: dict[str, Any] | None = None
    aws_elastic_block_store: dict[str, Any] | None = None
    azure_disk: dict[str, Any] | None = None
    cinder: dict[str, Any] | None = None
    portworx_volume: dict[str, Any] | None = None


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


class VolumeNodeResources(View):
    """How many volumes of a driver a node can have attached; None: as many as one likes."""

    count: int | None = None


class CSINodeDriver(View):
    """A driver that is installed on a node."""

    name: str = ""
    allocatable: VolumeNodeResources = msgspec.field(default_factory=VolumeNodeResources)


class CSINodeSpec(View):
    """The drivers of a node."""

    drivers: list[CSINodeDriver] = []


class CSINode(Object):
    """Which storage drivers a node has; named as the node."""

    API_VERSION: ClassVar[str] = "storage.k8s.io/v1"
    KIND: ClassVar[str] = "CSINode"
    PLURAL: ClassVar[str] = "csinodes"
    NAMESPACED: ClassVar[bool] = False

    spec: CSINodeSpec = msgspec.field(default_factory=CSINodeSpec)


class CSIDriverSpec(View):
    """What the scheduler has to mind."""

    storage_capacity: bool = False
    prevent_pod_scheduling_if_missing: bool = False


class CSIDriver(Object):
    """A storage driver of the cluster."""

    API_VERSION: ClassVar[str] = "storage.k8s.io/v1"
    KIND: ClassVar[str] = "CSIDriver"
    PLURAL: ClassVar[str] = "csidrivers"
    NAMESPACED: ClassVar[bool] = False

    spec: CSIDriverSpec = msgspec.field(default_factory=CSIDriverSpec)


class CSIStorageCapacity(Object):
    """How much a driver can still make, where, for one class."""

    API_VERSION: ClassVar[str] = "storage.k8s.io/v1"
    KIND: ClassVar[str] = "CSIStorageCapacity"
    PLURAL: ClassVar[str] = "csistoragecapacities"

    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None


class VolumeAttachmentSource(View):
    """What is attached."""

    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(View):
    """What, where, and by whom."""

    attacher: str = ""
    node_name: str = ""
    source: VolumeAttachmentSource = msgspec.field(default_factory=VolumeAttachmentSource)


class VolumeAttachment(Object):
    """A volume is, or is to be, attached to a node."""

    API_VERSION: ClassVar[str] = "storage.k8s.io/v1"
    KIND: ClassVar[str] = "VolumeAttachment"
    PLURAL: ClassVar[str] = "volumeattachments"
    NAMESPACED: ClassVar[bool] = False

    spec: VolumeAttachmentSpec = msgspec.field(default_factory=VolumeAttachmentSpec)
