"""What every typed view shares.

A view is what a component *reads*: fields it does not know are ignored, so a view is never
written back whole. Writes are patches and subresources of plain dicts.
"""

from typing import Any, ClassVar, NamedTuple, Self

import msgspec

# Kubernetes' spelling where plain camelCase is wrong.
_SPELLING = {
    "api_version": "apiVersion",
    "host_ip": "hostIP",
    "host_ips": "hostIPs",
    "pod_ip": "podIP",
    "pod_ips": "podIPs",
    "host_pid": "hostPID",
    "host_ipc": "hostIPC",
    "cluster_ip": "clusterIP",
    "cluster_ips": "clusterIPs",
    "external_ips": "externalIPs",
    "load_balancer_ip": "loadBalancerIP",
    "container_id": "containerID",
    "image_id": "imageID",
    "pod_cidr": "podCIDR",
    "pod_cidrs": "podCIDRs",
    "provider_id": "providerID",
    "machine_id": "machineID",
    "system_uuid": "systemUUID",
    "boot_id": "bootID",
    "target_ref": "targetRef",
    "fs_group": "fsGroup",
    "ip": "ip",
}


def spelling(name: str) -> str:
    """The JSON name of a Python field name."""
    if name in _SPELLING:
        return _SPELLING[name]
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


class Key(NamedTuple):
    """An object's identity within its kind; `namespace` is empty for cluster-wide objects."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class View(msgspec.Struct, rename=spelling, omit_defaults=True, gc=False, kw_only=True):
    """A part of an object."""


class OwnerReference(View):
    """Who an object belongs to."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(View):
    """What every object has."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[OwnerReference] = []
    finalizers: list[str] = []

    def controller(self) -> OwnerReference | None:
        """The owner that manages this object, if one does."""
        return next((r for r in self.owner_references if r.controller), None)


class Object(View):
    """A whole object: has metadata, and says where in the API its kind lives."""

    API_VERSION: ClassVar[str]
    KIND: ClassVar[str]
    PLURAL: ClassVar[str]
    NAMESPACED: ClassVar[bool] = True

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return Key(self.metadata.namespace, self.metadata.name)

    @classmethod
    def of(cls, document: dict[str, Any]) -> Self:
        """The view of a plain dict."""
        return msgspec.convert(document, cls)


class LabelSelectorRequirement(View):
    """One expression of a label selector."""

    key: str = ""
    operator: str = ""
    values: list[str] = []


class LabelSelector(View):
    """Labels an object must have: all of `match_labels` and all `match_expressions`."""

    match_labels: dict[str, str] = {}
    match_expressions: list[LabelSelectorRequirement] = []


class ObjectReference(View):
    """A pointer to an object."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""


class Condition(View):
    """A condition in a status."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    last_update_time: str | None = None
    last_heartbeat_time: str | None = None
    last_probe_time: str | None = None
    observed_generation: int = 0
