"""What selectors look at, read from an object once and kept beside its bytes.

A list or watch with a selector then costs a few comparisons for each object and never decodes
one. Every kind can be selected by name and namespace, which are in its key; the table below
names the further fields Kubernetes indexes.

Invariant: the fields of a kind are the ones Kubernetes accepts, others are refused with 400.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from motley.api import scheme, selectors, status

_NO_LABELS: dict[str, str] = {}


class Attributes(msgspec.Struct, gc=False, frozen=True):
    """The selectable facts of one object."""

    namespace: str
    name: str
    labels: dict[str, str]
    fields: tuple[str, ...]  # in the order of the kind's row, or of its definition


class _Meta(msgspec.Struct, gc=False):
    labels: dict[str, str] | None = None


class _Head(msgspec.Struct, gc=False):
    metadata: _Meta


class _Address(msgspec.Struct, gc=False):
    ip: str = ""


class _PodSpec(msgspec.Struct, gc=False, rename="camel"):
    node_name: str = ""
    restart_policy: str = ""
    scheduler_name: str = ""
    service_account_name: str = ""
    host_network: bool = False


class _PodStatus(msgspec.Struct, gc=False, rename="camel"):
    phase: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    pod_ips: list[_Address] | None = msgspec.field(default=None, name="podIPs")
    nominated_node_name: str = ""


class _Pod(_Head, gc=False):
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)


class _NodeSpec(msgspec.Struct, gc=False):
    unschedulable: bool = False


class _Node(_Head, gc=False):
    spec: _NodeSpec = msgspec.field(default_factory=_NodeSpec)


class _Phase(msgspec.Struct, gc=False):
    phase: str = ""


class _Namespace(_Head, gc=False):
    status: _Phase = msgspec.field(default_factory=_Phase)


class _Secret(_Head, gc=False):
    type: str = ""


class _ServiceSpec(msgspec.Struct, gc=False):
    cluster_ip: str = msgspec.field(default="", name="clusterIP")
    type: str = ""


class _Service(_Head, gc=False):
    spec: _ServiceSpec = msgspec.field(default_factory=_ServiceSpec)


class _JobStatus(msgspec.Struct, gc=False):
    succeeded: int = 0


class _Job(_Head, gc=False):
    status: _JobStatus = msgspec.field(default_factory=_JobStatus)


class _ReplicaStatus(msgspec.Struct, gc=False):
    replicas: int = 0


class _Replicated(_Head, gc=False):
    status: _ReplicaStatus = msgspec.field(default_factory=_ReplicaStatus)


class _SignerSpec(msgspec.Struct, gc=False, rename="camel"):
    signer_name: str = ""


class _Signed(_Head, gc=False):
    spec: _SignerSpec = msgspec.field(default_factory=_SignerSpec)


class _PodRequestSpec(msgspec.Struct, gc=False, rename="camel"):
    signer_name: str = ""
    pod_name: str = ""
    node_name: str = ""


class _PodRequest(_Head, gc=False):
    spec: _PodRequestSpec = msgspec.field(default_factory=_PodRequestSpec)


class _SliceSpec(msgspec.Struct, gc=False, rename="camel"):
    node_name: str = ""
    driver: str = ""


class _Slice(_Head, gc=False):
    spec: _SliceSpec = msgspec.field(default_factory=_SliceSpec)


class _Reference(msgspec.Struct, gc=False, rename="camel"):
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    resource_version: str = ""
    field_path: str = ""


class _Source(msgspec.Struct, gc=False):
    component: str = ""


class _Event(_Head, gc=False, rename="camel"):
    involved_object: _Reference = msgspec.field(default_factory=_Reference)
    reason: str = ""
    reporting_component: str = ""
    source: _Source = msgspec.field(default_factory=_Source)
    type: str = ""


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _pod(o: _Pod) -> tuple[str, ...]:
    spec, state = o.spec, o.status
    return (
        spec.node_name,
        spec.restart_policy,
        spec.scheduler_name,
        spec.service_account_name,
        _flag(spec.host_network),
        state.phase,
        state.pod_ip,
        ",".join(a.ip for a in state.pod_ips or ()),
        state.nominated_node_name,
    )


def _event(o: _Event) -> tuple[str, ...]:
    about = o.involved_object
    return (
        about.kind,
        about.namespace,
        about.name,
        about.uid,
        about.api_version,
        about.resource_version,
        about.field_path,
        o.reason,
        o.reporting_component,
        o.source.component or o.reporting_component,
        o.type,
    )


@dataclass(frozen=True)
class _Row:
    names: tuple[str, ...]
    head: type[_Head]
    read: Callable[..., tuple[str, ...]]


_SIGNER = _Row(("spec.signerName",), _Signed, lambda o: (o.spec.signer_name,))

_ROWS: dict[tuple[str, str], _Row] = {
    ("", "pods"): _Row(
        (
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ),
        _Pod,
        _pod,
    ),
    ("", "nodes"): _Row(("spec.unschedulable",), _Node, lambda o: (_flag(o.spec.unschedulable),)),
    ("", "namespaces"): _Row(("status.phase",), _Namespace, lambda o: (o.status.phase,)),
    ("", "secrets"): _Row(("type",), _Secret, lambda o: (o.type,)),
    ("", "services"): _Row(
        ("spec.clusterIP", "spec.type"), _Service, lambda o: (o.spec.cluster_ip, o.spec.type)
    ),
    ("", "replicationcontrollers"): _Row(
        ("status.replicas",), _Replicated, lambda o: (str(o.status.replicas),)
    ),
    ("certificates.k8s.io", "certificatesigningrequests"): _SIGNER,
    ("certificates.k8s.io", "clustertrustbundles"): _SIGNER,
    ("certificates.k8s.io", "podcertificaterequests"): _Row(
        ("spec.signerName", "spec.podName", "spec.nodeName"),
        _PodRequest,
        lambda o: (o.spec.signer_name, o.spec.pod_name, o.spec.node_name),
    ),
    ("resource.k8s.io", "resourceslices"): _Row(
        ("spec.nodeName", "spec.driver"), _Slice, lambda o: (o.spec.node_name, o.spec.driver)
    ),
    ("batch", "jobs"): _Row(("status.successful",), _Job, lambda o: (str(o.status.succeeded),)),
    ("", "events"): _Row(
        (
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ),
        _Event,
        _event,
    ),
}
_PLAIN = _Row((), _Head, lambda _: ())


def _row(kind: scheme.Kind) -> _Row:
    kept = kind.storage
    return _PLAIN if kind.definition is not None else _ROWS.get((kept.group, kept.plural), _PLAIN)


def reader(kind: scheme.Kind) -> Callable[[str, bytes], Attributes]:
    """The function that reads a kind's attributes from key and bytes.

    What a definition makes selectable is read elsewhere (`crds.selection`).
    """
    row = _row(kind)
    decode = msgspec.json.Decoder(row.head).decode
    read = row.read
    namespaced = kind.namespaced

    def attributes(key: str, value: bytes) -> Attributes:
        head = decode(value)
        rest, _, name = key.rpartition("/")
        namespace = rest.rpartition("/")[2] if namespaced else ""
        return Attributes(namespace, name, head.metadata.labels or _NO_LABELS, read(head))

    return attributes


@dataclass(frozen=True)
class Matcher:
    """A label and a field selector, ready to be asked about attributes."""

    labels: selectors.Selector | None
    fields: tuple[tuple[int, bool, str], ...]  # index (-1: name, -2: namespace), equal?, value

    @property
    def is_everything(self) -> bool:
        """Whether it selects all objects, so that nobody need ask."""
        return self.labels is None and not self.fields

    def matches(self, attributes: Attributes) -> bool:
        """Whether an object is selected."""
        for index, equal, value in self.fields:
            if index >= 0:
                have = attributes.fields[index]
            else:
                have = attributes.name if index == _NAME else attributes.namespace
            if (have == value) is not equal:
                return False
        return self.labels is None or self.labels.matches(attributes.labels)

    @property
    def has_fields(self) -> bool:
        """Whether it looks at more of the object than its metadata."""
        return any(index >= 0 for index, _, _ in self.fields)

    def only_name(self) -> str:
        """The one name it can select, empty when it may be several."""
        return next((v for i, equal, v in self.fields if i == _NAME and equal), "")


_NAME, _NAMESPACE = -1, -2


def matcher(kind: scheme.Kind, label_selector: str, field_selector: str) -> Matcher:
    """Compile the selectors of a request; 400 when they make no sense for the kind."""
    try:
        labels = selectors.Selector.parse(label_selector) if label_selector else None
        requirements: Sequence[tuple[str, str, str]] = (
            selectors.parse_fields(field_selector) if field_selector else ()
        )
    except selectors.SelectorError as error:
        raise status.BadRequest(str(error)) from None
    fields = tuple((_index(kind, path), op != "!=", value) for path, op, value in requirements)
    return Matcher(labels, fields)


def _index(kind: scheme.Kind, path: str) -> int:
    if path == "metadata.name":
        return _NAME
    if kind.group == "events.k8s.io":  # the same events under newer names
        if path.startswith("involvedObject.") or path in ("reportingComponent", "source"):
            raise status.BadRequest(f"field label not supported: {path}")
        path = path.replace("regarding.", "involvedObject.")
        path = {"reportingController": "reportingComponent"}.get(path, path)
    if kind.definition is not None and kind.definition.is_custom:
        return _custom_index(kind, kind.definition.selectable, path)
    names = _row(kind).names
    if path == "metadata.namespace" and (kind.namespaced or not names):
        return _NAMESPACE
    if path in names:
        return names.index(path)
    if kind.plural == "jobs":
        raise status.BadRequest(f'field label "{path}" not supported for Job')
    if kind.plural == "resourceslices":
        raise status.BadRequest(
            f"field label not supported for {kind.api_version}, Kind={kind.kind}: {path}"
        )
    if names:
        raise status.BadRequest(f"field label not supported: {path}")
    raise status.BadRequest(
        f'"{path}" is not a known field selector: only "metadata.name", "metadata.namespace"'
    )


def _custom_index(kind: scheme.Kind, selectable: Sequence[str], path: str) -> int:
    """Every version of a custom resource has fields of its own."""
    if path == "metadata.namespace" and kind.namespaced:
        return _NAMESPACE
    if f".{path}" not in selectable:
        raise status.BadRequest(f"field label not supported: {path}")
    return selectable.index(f".{path}")
