"""The kinds the API serves: one row per kind, everything generic is derived from the row.

The server, discovery, the client and the schema all read this table, so a new kind is one row
(plus its schema, and defaults and validation where it has rules of its own).

Invariant: no other module lists kinds; a kind that is not here does not exist.
"""

import base64
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from motley.api.structural.definition import Definition

# As discovery lists them: in alphabetical order.
VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
# Deleting all namespaces at once is an accident, never a wish: Kubernetes leaves it out.
_NAMESPACE_VERBS = tuple(v for v in VERBS if v != "deletecollection")
_READ = ("get", "list")
_READ_WRITE = ("get", "patch", "update")
_STREAM = ("create", "get")
_PROXY = ("create", "delete", "get", "patch", "update")


class Subresource(NamedTuple):
    """What discovery says of `resource/name`; `{}` in its kind stands for the parent's kind."""

    name: str
    kind: str = "{}"
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
        Subresource("approval"),
        Subresource("attach", "PodAttachOptions", verbs=_STREAM),
        Subresource("binding", "Binding", verbs=("create",)),
        Subresource("ephemeralcontainers"),
        Subresource("eviction", "Eviction", "policy", "v1", ("create",)),
        Subresource("exec", "PodExecOptions", verbs=_STREAM),
        Subresource("log", verbs=("get",)),
        Subresource("portforward", "PodPortForwardOptions", verbs=_STREAM),
        Subresource("proxy", "{}ProxyOptions", verbs=_PROXY),
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
    # Reviews and bindings are answered, not kept: generic verbs do not apply to them.
    is_stored: bool = True
    # The group and version in which the objects are kept, where it is not this row's own:
    # the same objects are then served in several versions, and `api/conversion` translates.
    stored_as: tuple[str, str] | None = None
    # What a kind with a structural schema brings along: custom resources, and Motley's own group.
    definition: "Definition | None" = field(default=None, compare=False, repr=False)

    @cached_property
    def storage(self) -> "Kind":
        """The row whose form is kept; almost always this one."""
        if self.stored_as is None:
            return self
        found = resource(*self.stored_as, self.plural)
        assert found is not None, f"{self} is stored as a kind that does not exist"
        return found

    @cached_property
    def api_version(self) -> str:
        """As objects carry it: `v1`, `apps/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def list_kind(self) -> str:
        """The kind of a list of these."""
        return self.definition.list_kind if self.definition else f"{self.kind}List"

    @cached_property
    def qualified(self) -> str:
        """As messages name the resource: `pods`, `deployments.apps`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @cached_property
    def storage_prefix(self) -> str:
        """The start of every key of this kind; ends with a slash."""
        if self.stored_as is not None:
            return self.storage.storage_prefix
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
            kind=found.kind.format(self.kind),
            group=self.group if found.group is None else found.group,
            version=found.version or self.version,
        )

    @cached_property
    def storage_version_hash(self) -> str:
        """Discovery's opaque mark of the stored form, made as Kubernetes makes it."""
        kept = self.storage
        text = f"{kept.group}/{_OLDER.get(kept.kind, kept.version)}/{kept.kind}"
        return base64.b64encode(hashlib.sha256(text.encode()).digest()[:8]).decode()

    def __str__(self) -> str:
        return f"{self.api_version}.{self.kind}"


# Kubernetes keeps these in an older version than it prefers, and its hashes say so.
_OLDER = {
    "ClusterTrustBundle": "v1beta1",
    "CustomResourceDefinition": "v1beta1",
    "DeviceTaintRule": "v1beta2",
    "PodCertificateRequest": "v1beta1",
    "StorageVersionMigration": "v1beta1",
}
# kubectl's name for all that extends the API.
_EXTENSIONS = "api-extensions"
_POD_SUBRESOURCES = [
    "attach",
    "binding",
    "ephemeralcontainers",
    "eviction",
    "exec",
    "log",
    "portforward",
    "proxy",
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
    categories: str = "",
    verbs: tuple[str, ...] = VERBS,
    is_stored: bool = True,
    stored_as: tuple[str, str] | None = None,
) -> Kind:
    return Kind(
        group=group,
        version=version,
        kind=kind,
        plural=plural,
        singular=kind.lower(),
        short_names=tuple(short.split()),
        namespaced=namespaced,
        subresources=frozenset(subresources),
        categories=tuple(categories.split()),
        verbs=verbs,
        is_stored=is_stored,
        stored_as=stored_as,
    )


# A row of a kind whose objects live in no namespace.
_cluster = partial(_row, namespaced=False)

_STATUS = ("status",)
_SCALED = ("status", "scale")
_CREATE_ONLY = ("create",)
_ADMISSION = "admissionregistration.k8s.io"
_AUTHORIZATION = "authorization.k8s.io"
_CERTIFICATES = "certificates.k8s.io"
_FLOW = "flowcontrol.apiserver.k8s.io"
_MIGRATION = "storagemigration.k8s.io"
_NET = "networking.k8s.io"
_RBAC = "rbac.authorization.k8s.io"
_RESOURCE = "resource.k8s.io"
_STORAGE = "storage.k8s.io"
_CRD = ("CustomResourceDefinition", "customresourcedefinitions", "crd crds", _STATUS)
_HPA = ("HorizontalPodAutoscaler", "horizontalpodautoscalers", "hpa", _STATUS)
_APPS = ("apps", "v1")
_HPA_KEPT = ("autoscaling", "v2")
_PRIORITY = ("scheduling.k8s.io", "PriorityClass", "priorityclasses", "pc")

# Groups in the order in which a real server lists them; versions with the preferred one first.
_KINDS: tuple[Kind, ...] = (
    _row("", "Binding", "bindings", verbs=_CREATE_ONLY, is_stored=False),
    _cluster("", "ComponentStatus", "componentstatuses", "cs", verbs=_READ, is_stored=False),
    _row("", "ConfigMap", "configmaps", "cm"),
    _row("", "Endpoints", "endpoints", "ep"),
    _row("", "Event", "events", "ev"),
    _row("", "LimitRange", "limitranges", "limits"),
    _cluster("", "Namespace", "namespaces", "ns", ("finalize", "status"), verbs=_NAMESPACE_VERBS),
    _cluster("", "Node", "nodes", "no", ("proxy", "status")),
    _row("", "PersistentVolumeClaim", "persistentvolumeclaims", "pvc", _STATUS),
    _cluster("", "PersistentVolume", "persistentvolumes", "pv", _STATUS),
    _row("", "Pod", "pods", "po", _POD_SUBRESOURCES, categories="all"),
    _row("", "PodTemplate", "podtemplates"),
    _row("", "ReplicationController", "replicationcontrollers", "rc", _SCALED, categories="all"),
    _row("", "ResourceQuota", "resourcequotas", "quota", _STATUS),
    _row("", "Secret", "secrets"),
    _row("", "ServiceAccount", "serviceaccounts", "sa", ("token",)),
    _row("", "Service", "services", "svc", ("proxy", "status"), categories="all"),
    _cluster(
        "apiregistration.k8s.io", "APIService", "apiservices", "", _STATUS, categories=_EXTENSIONS
    ),
    _row("apps", "ControllerRevision", "controllerrevisions"),
    _row("apps", "DaemonSet", "daemonsets", "ds", _STATUS, categories="all"),
    _row("apps", "Deployment", "deployments", "deploy", _SCALED, categories="all"),
    _row("apps", "ReplicaSet", "replicasets", "rs", _SCALED, categories="all"),
    _row("apps", "StatefulSet", "statefulsets", "sts", _SCALED, categories="all"),
    _row("events.k8s.io", "Event", "events", "ev", stored_as=("", "v1")),
    *(
        _cluster("authentication.k8s.io", kind, plural, verbs=_CREATE_ONLY, is_stored=False)
        for kind, plural in (
            ("SelfSubjectReview", "selfsubjectreviews"),
            ("TokenReview", "tokenreviews"),
        )
    ),
    _row(
        _AUTHORIZATION,
        "LocalSubjectAccessReview",
        "localsubjectaccessreviews",
        verbs=_CREATE_ONLY,
        is_stored=False,
    ),
    *(
        _cluster(_AUTHORIZATION, kind, plural, verbs=_CREATE_ONLY, is_stored=False)
        for kind, plural in (
            ("SelfSubjectAccessReview", "selfsubjectaccessreviews"),
            ("SelfSubjectRulesReview", "selfsubjectrulesreviews"),
            ("SubjectAccessReview", "subjectaccessreviews"),
        )
    ),
    _row("autoscaling", *_HPA, version="v2", categories="all"),
    _row("autoscaling", *_HPA, stored_as=_HPA_KEPT, categories="all"),
    _row("autoscaling", *_HPA, version="v2beta2", stored_as=_HPA_KEPT, categories="all"),
    _row("batch", "CronJob", "cronjobs", "cj", _STATUS, categories="all"),
    _row("batch", "Job", "jobs", "", _STATUS, categories="all"),
    _cluster(
        _CERTIFICATES,
        "CertificateSigningRequest",
        "certificatesigningrequests",
        "csr",
        ("approval", "status"),
    ),
    _cluster(_CERTIFICATES, "ClusterTrustBundle", "clustertrustbundles"),
    _row(_CERTIFICATES, "PodCertificateRequest", "podcertificaterequests", "", _STATUS),
    _cluster(_NET, "IngressClass", "ingressclasses"),
    _row(_NET, "Ingress", "ingresses", "ing", _STATUS),
    _cluster(_NET, "IPAddress", "ipaddresses", "ip"),
    _row(_NET, "NetworkPolicy", "networkpolicies", "netpol"),
    _cluster(_NET, "ServiceCIDR", "servicecidrs", "", _STATUS),
    _row("policy", "PodDisruptionBudget", "poddisruptionbudgets", "pdb", _STATUS),
    _cluster(_RBAC, "ClusterRoleBinding", "clusterrolebindings"),
    _cluster(_RBAC, "ClusterRole", "clusterroles"),
    _row(_RBAC, "RoleBinding", "rolebindings"),
    _row(_RBAC, "Role", "roles"),
    _cluster(_STORAGE, "CSIDriver", "csidrivers"),
    _cluster(_STORAGE, "CSINode", "csinodes", "", _STATUS),
    _row(_STORAGE, "CSIStorageCapacity", "csistoragecapacities"),
    _cluster(_STORAGE, "StorageClass", "storageclasses", "sc"),
    _cluster(_STORAGE, "VolumeAttachment", "volumeattachments", "", _STATUS),
    _cluster(_STORAGE, "VolumeAttributesClass", "volumeattributesclasses", "vac"),
    *(
        _cluster(_ADMISSION, kind, plural, "", subresources, categories=_EXTENSIONS)
        for kind, plural, subresources in (
            ("MutatingAdmissionPolicy", "mutatingadmissionpolicies", ()),
            ("MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings", ()),
            ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations", ()),
            ("ValidatingAdmissionPolicy", "validatingadmissionpolicies", _STATUS),
            ("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", ()),
            ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations", ()),
        )
    ),
    _cluster("apiextensions.k8s.io", *_CRD, categories=_EXTENSIONS),
    _cluster(*_PRIORITY),
    _cluster(*_PRIORITY, version="v1beta1", stored_as=("scheduling.k8s.io", "v1")),
    _row("coordination.k8s.io", "Lease", "leases"),
    _cluster("node.k8s.io", "RuntimeClass", "runtimeclasses"),
    _row("discovery.k8s.io", "EndpointSlice", "endpointslices"),
    _cluster(_RESOURCE, "DeviceClass", "deviceclasses"),
    _cluster(_RESOURCE, "DeviceTaintRule", "devicetaintrules", "", _STATUS),
    _row(_RESOURCE, "ResourceClaim", "resourceclaims", "", _STATUS),
    _row(_RESOURCE, "ResourceClaimTemplate", "resourceclaimtemplates"),
    _cluster(_RESOURCE, "ResourceSlice", "resourceslices"),
    _cluster(_FLOW, "FlowSchema", "flowschemas", "", _STATUS),
    _cluster(_FLOW, "PriorityLevelConfiguration", "prioritylevelconfigurations", "", _STATUS),
    _cluster(_MIGRATION, "StorageVersionMigration", "storageversionmigrations", "", _STATUS),
    # Long gone from Kubernetes, but still in many people's files.
    _row(
        "extensions", "Deployment", "deployments", "", _SCALED, version="v1beta1", stored_as=_APPS
    ),
)

_BY_RESOURCE = {(k.group, k.version, k.plural): k for k in _KINDS}
_BY_KIND = {(k.api_version, k.kind): k for k in _KINDS}
_added: dict[tuple[str, str, str], Kind] = {}
_generation = 0


def kinds() -> tuple[Kind, ...]:
    """Every kind, by group and then in the order discovery lists them; added ones at the end."""
    return (*_KINDS, *_added.values()) if _added else _KINDS


def add(kind: Kind) -> None:
    """Serve one more kind from now on, in place of what this server added under the same name."""
    global _generation
    key = (kind.group, kind.version, kind.plural)
    assert key not in _BY_RESOURCE or key in _added, f"{kind} is built in"
    if (before := _added.get(key)) is not None:
        _BY_KIND.pop((before.api_version, before.kind), None)
    _added[key] = _BY_RESOURCE[key] = kind
    _BY_KIND[kind.api_version, kind.kind] = kind
    _generation += 1


def remove(kind: Kind) -> None:
    """Serve an added kind no longer."""
    global _generation
    key = (kind.group, kind.version, kind.plural)
    if _added.pop(key, None) is not None:
        del _BY_RESOURCE[key]
        _BY_KIND.pop((kind.api_version, kind.kind), None)
        _generation += 1


def withhold(api_version: str) -> None:
    """Serve a whole version no longer; only before anything is made from the table."""
    global _KINDS, _generation
    for kind in [k for k in kinds() if k.api_version == api_version]:
        key = (kind.group, kind.version, kind.plural)
        _added.pop(key, None)
        del _BY_RESOURCE[key]
        del _BY_KIND[kind.api_version, kind.kind]
    _KINDS = tuple(k for k in _KINDS if k.api_version != api_version)
    _generation += 1


def generation() -> int:
    """Grows whenever kinds come or go: documents made from the table are good for one value."""
    return _generation


def resource(group: str, version: str, plural: str) -> Kind | None:
    """The kind behind a path such as `/apis/apps/v1/…/deployments`."""
    return _BY_RESOURCE.get((group, version, plural))


def by_kind(api_version: str, kind: str) -> Kind | None:
    """The kind an object says it is."""
    return _BY_KIND.get((api_version, kind))


def groups() -> dict[str, list[str]]:
    """Each group with its versions; the core group is the empty string."""
    found: dict[str, list[str]] = {}
    for kind in kinds():
        versions = found.setdefault(kind.group, [])
        if kind.version not in versions:
            versions.append(kind.version)
    for group in {kind.group for kind in _added.values()}:
        found[group].sort(key=version_order)
    return found


def version_order(version: str) -> tuple[int, int, int, str]:
    """Sorts versions as Kubernetes prefers them: v10, v2, v1, v1beta1, v1alpha1, then the rest."""
    match = re.fullmatch(r"v(\d+)(?:(alpha|beta)(\d+))?", version)
    if match is None:
        return 3, 0, 0, version
    stage = {None: 0, "beta": 1, "alpha": 2}[match[2]]
    return stage, -int(match[1]), -int(match[3] or 0), version
