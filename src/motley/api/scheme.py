"""The kinds the API serves: one row per kind, everything generic is derived from the row.

The server, discovery, the client and the schema all read this table, so a new kind is one row
(plus its schema, and defaults and validation where it has rules of its own).

Invariant: no other module lists kinds; a kind that is not here does not exist.
"""

import base64
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

# As discovery lists them: in alphabetical order.
VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
# Deleting all namespaces at once is an accident, never a wish: Kubernetes leaves it out.
_NAMESPACE_VERBS = tuple(v for v in VERBS if v != "deletecollection")
_READ_WRITE = ("get", "patch", "update")
_STREAM = ("create", "get")
_PROXY = ("create", "delete", "get", "patch", "update")


class Subresource(NamedTuple):
    """What discovery says of `resource/name`. An empty kind means: the parent's own kind."""

    name: str
    kind: str = ""
    group: str | None = None  # None: the parent's group and version
    version: str | None = None
    verbs: tuple[str, ...] = _READ_WRITE


_SUBRESOURCES = {
    s.name: s
    for s in (
        Subresource("status"),
        Subresource("scale", "Scale", "autoscaling", "v1"),
        Subresource("finalize", verbs=("update",)),
        Subresource("token", "TokenRequest", "authentication.k8s.io", "v1", ("create",)),
        Subresource("attach", "PodAttachOptions", verbs=_STREAM),
        Subresource("binding", "Binding", verbs=("create",)),
        Subresource("ephemeralcontainers"),
        Subresource("eviction", "Eviction", "policy", "v1", ("create",)),
        Subresource("exec", "PodExecOptions", verbs=_STREAM),
        Subresource("log", verbs=("get",)),
        Subresource("portforward", "PodPortForwardOptions", verbs=_STREAM),
        Subresource("resize"),
    )
}


@dataclass(frozen=True)
class Kind:
    """One kind of object and where in the API it lives."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    short_names: tuple[str, ...] = ()
    namespaced: bool = True
    subresources: frozenset[str] = frozenset()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = VERBS

    @cached_property
    def api_version(self) -> str:
        """As objects carry it: `v1`, `apps/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def list_kind(self) -> str:
        """The kind of a list of these."""
        return f"{self.kind}List"

    @cached_property
    def qualified(self) -> str:
        """As messages name the resource: `pods`, `deployments.apps`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @cached_property
    def storage_prefix(self) -> str:
        """The start of every key of this kind; ends with a slash."""
        middle = f"{self.group}/{self.plural}" if self.group else self.plural
        return f"/registry/{middle}/"

    def key(self, namespace: str, name: str) -> str:
        """Where in the store the object lives."""
        return f"{self.prefix(namespace)}{name}"

    def prefix(self, namespace: str = "") -> str:
        """The start of every key in this namespace; all of the kind's when it is empty."""
        if self.namespaced and namespace:
            return f"{self.storage_prefix}{namespace}/"
        return self.storage_prefix

    def subresource(self, name: str) -> Subresource | None:
        """What is behind `plural/name`, if the kind has it."""
        if name not in self.subresources:
            return None
        found = _SUBRESOURCES[name]
        return found._replace(
            kind=found.kind or self.kind,
            group=self.group if found.group is None else found.group,
            version=found.version or self.version,
        )

    @cached_property
    def storage_version_hash(self) -> str:
        """Discovery's opaque mark of the stored form, made as Kubernetes makes it."""
        text = f"{self.group}/{self.version}/{self.kind}"
        return base64.b64encode(hashlib.sha256(text.encode()).digest()[:8]).decode()

    def __str__(self) -> str:
        return f"{self.api_version}.{self.kind}"


_POD_SUBRESOURCES = [
    "attach",
    "binding",
    "ephemeralcontainers",
    "eviction",
    "exec",
    "log",
    "portforward",
    "resize",
    "status",
]


def _row(
    group: str,
    kind: str,
    plural: str,
    short: str = "",
    subresources: Iterable[str] = (),
    *,
    version: str = "v1",
    namespaced: bool = True,
    shown_in_all: bool = False,
    singular: str = "",
    verbs: tuple[str, ...] = VERBS,
) -> Kind:
    return Kind(
        group=group,
        version=version,
        kind=kind,
        plural=plural,
        singular=singular or kind.lower(),
        short_names=tuple(short.split()),
        namespaced=namespaced,
        subresources=frozenset(subresources),
        categories=("all",) if shown_in_all else (),
        verbs=verbs,
    )


_STATUS = ("status",)
_SCALED = ("status", "scale")
_RBAC = "rbac.authorization.k8s.io"

_KINDS: tuple[Kind, ...] = (
    _row("", "ConfigMap", "configmaps", "cm"),
    _row("", "Endpoints", "endpoints", "ep"),
    _row("", "Event", "events", "ev"),
    _row("", "LimitRange", "limitranges", "limits"),
    _row(
        "",
        "Namespace",
        "namespaces",
        "ns",
        ("finalize", "status"),
        namespaced=False,
        verbs=_NAMESPACE_VERBS,
    ),
    _row("", "Node", "nodes", "no", _STATUS, namespaced=False),
    _row("", "PersistentVolumeClaim", "persistentvolumeclaims", "pvc", _STATUS),
    _row("", "PersistentVolume", "persistentvolumes", "pv", _STATUS, namespaced=False),
    _row("", "Pod", "pods", "po", _POD_SUBRESOURCES, shown_in_all=True),
    _row("", "ResourceQuota", "resourcequotas", "quota", _STATUS),
    _row("", "Secret", "secrets"),
    _row("", "ServiceAccount", "serviceaccounts", "sa", ("token",)),
    _row("", "Service", "services", "svc", _STATUS, shown_in_all=True),
    _row("apps", "ControllerRevision", "controllerrevisions"),
    _row("apps", "DaemonSet", "daemonsets", "ds", _STATUS, shown_in_all=True),
    _row("apps", "Deployment", "deployments", "deploy", _SCALED, shown_in_all=True),
    _row("apps", "ReplicaSet", "replicasets", "rs", _SCALED, shown_in_all=True),
    _row("apps", "StatefulSet", "statefulsets", "sts", _SCALED, shown_in_all=True),
    _row(
        "autoscaling",
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
        "hpa",
        _STATUS,
        version="v2",
        shown_in_all=True,
    ),
    _row("batch", "CronJob", "cronjobs", "cj", _STATUS, shown_in_all=True),
    _row("batch", "Job", "jobs", "", _STATUS, shown_in_all=True),
    _row("coordination.k8s.io", "Lease", "leases"),
    _row("discovery.k8s.io", "EndpointSlice", "endpointslices"),
    _row("networking.k8s.io", "IngressClass", "ingressclasses", namespaced=False),
    _row("networking.k8s.io", "Ingress", "ingresses", "ing", _STATUS),
    _row("networking.k8s.io", "NetworkPolicy", "networkpolicies", "netpol"),
    _row("node.k8s.io", "RuntimeClass", "runtimeclasses", namespaced=False),
    _row("policy", "PodDisruptionBudget", "poddisruptionbudgets", "pdb", _STATUS),
    _row(_RBAC, "ClusterRoleBinding", "clusterrolebindings", namespaced=False),
    _row(_RBAC, "ClusterRole", "clusterroles", namespaced=False),
    _row(_RBAC, "RoleBinding", "rolebindings"),
    _row(_RBAC, "Role", "roles"),
    _row("scheduling.k8s.io", "PriorityClass", "priorityclasses", "pc", namespaced=False),
    _row("storage.k8s.io", "StorageClass", "storageclasses", "sc", namespaced=False),
)

_BY_RESOURCE = {(k.group, k.version, k.plural): k for k in _KINDS}
_BY_KIND = {(k.api_version, k.kind): k for k in _KINDS}


def kinds() -> tuple[Kind, ...]:
    """Every kind, by group and then in the order discovery lists them."""
    return _KINDS


def resource(group: str, version: str, plural: str) -> Kind | None:
    """The kind behind a path such as `/apis/apps/v1/…/deployments`."""
    return _BY_RESOURCE.get((group, version, plural))


def by_kind(api_version: str, kind: str) -> Kind | None:
    """The kind an object says it is."""
    return _BY_KIND.get((api_version, kind))


def groups() -> dict[str, list[str]]:
    """Each group with its versions; the core group is the empty string."""
    found: dict[str, list[str]] = {}
    for kind in _KINDS:
        versions = found.setdefault(kind.group, [])
        if kind.version not in versions:
            versions.append(kind.version)
    return found
