"""Which endpoints a Service has and how they are packed into EndpointSlices. Pure.

Packing is stable: an endpoint stays in the slice it is in, new ones fill slices that change anyway,
then those with room, then new slices. So one pod's change rewrites one slice, however large the
Service, and proxies receive little.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from motley.api.views.base import ObjectReference
from motley.api.views.core import (
    Endpoint,
    EndpointConditions,
    EndpointSlice,
    Service,
    ServicePort,
)
from motley.api.views.pod import Pod
from motley.controllers.workload import controller_reference

SERVICE_NAME = "kubernetes.io/service-name"
MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
HEADLESS = "service.kubernetes.io/headless"
CONTROLLER = "endpointslice-controller.k8s.io"
MAX_ENDPOINTS = 100  # Kubernetes' default: a slice stays small enough to send on every change

# Address type and ports: endpoints that share them share slices.
Shape = tuple[str, tuple[tuple[str, str, int, str], ...]]


@dataclass(frozen=True)
class Origin:
    """Whose slices these are, and how they say so."""

    name: str
    namespace: str
    labels: Mapping[str, str]
    owner: Mapping[str, Any]
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Plan:
    """What to write."""

    create: list[dict[str, Any]] = field(default_factory=list)
    update: list[tuple[EndpointSlice, dict[str, Any]]] = field(default_factory=list)
    delete: list[EndpointSlice] = field(default_factory=list)


def has_endpoints(service: Service) -> bool:
    """Does the controller make this Service's slices? Without a selector its owner does."""
    return bool(service.spec.selector) and service.spec.type != "ExternalName"


def endpoint(service: Service, pod: Pod, zone: str = "") -> Endpoint | None:
    """The pod as the Service's endpoint, or None while it cannot be one."""
    if not pod.status.pod_ip or pod.is_terminal:
        return None
    terminating = pod.metadata.deletion_timestamp is not None
    serving = pod.is_ready
    ready = service.spec.publish_not_ready_addresses or (serving and not terminating)
    named = pod.spec.hostname and pod.spec.subdomain == service.metadata.name
    return Endpoint(
        addresses=[pod.status.pod_ip],
        conditions=EndpointConditions(ready=ready, serving=serving, terminating=terminating),
        hostname=pod.spec.hostname if named else "",
        node_name=pod.spec.node_name,
        zone=zone,
        target_ref=ObjectReference(
            kind="Pod",
            namespace=pod.metadata.namespace,
            name=pod.metadata.name,
            uid=pod.metadata.uid,
        ),
    )


def shape(service: Service, pod: Pod) -> Shape:
    """Address family and resolved ports; a named target port may differ from pod to pod."""
    family = "IPv6" if ":" in pod.status.pod_ip else "IPv4"
    ports = []
    for port in service.spec.ports:
        number = _target(port, pod)
        if number is not None:
            ports.append((port.name, port.protocol, number, port.app_protocol))
    return family, tuple(ports)


def _target(port: ServicePort, pod: Pod) -> int | None:
    if isinstance(port.target_port, int):
        return port.target_port or port.port
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        for candidate in container.ports:
            if candidate.name == port.target_port and candidate.protocol == port.protocol:
                return candidate.container_port
    return None


def wanted(
    service: Service, pods: Iterable[Pod], zones: Mapping[str, str] | None = None
) -> dict[Shape, list[Endpoint]]:
    """All endpoints by shape; one empty shape when there are none, so that a slice exists."""
    found: dict[Shape, list[Endpoint]] = {}
    for pod in sorted(pods, key=lambda p: (p.metadata.creation_timestamp or "", p.metadata.name)):
        target = endpoint(service, pod, (zones or {}).get(pod.spec.node_name, ""))
        if target is not None:
            found.setdefault(shape(service, pod), []).append(target)
    return found or {("IPv4", ()): []}


def origin(service: Service) -> Origin:
    """A Service with a selector is the origin of its slices."""
    labels = {
        **service.metadata.labels,
        SERVICE_NAME: service.metadata.name,
        MANAGED_BY: CONTROLLER,
    }
    if service.spec.cluster_ip == "None":
        labels[HEADLESS] = ""
    meta = service.metadata
    return Origin(meta.name, meta.namespace, labels, controller_reference(service))


def plan(
    source: Origin,
    desired: Mapping[Shape, Sequence[Endpoint]],
    slices: Sequence[EndpointSlice],
    limit: int = MAX_ENDPOINTS,
) -> Plan:
    """The least writing that makes `slices` hold exactly `desired`."""
    result = Plan()
    by_shape: dict[Shape, list[EndpointSlice]] = {}
    for piece in slices:
        by_shape.setdefault(_shape_of(piece), []).append(piece)
    if not any(desired.values()) and by_shape:
        # A Service without endpoints keeps one empty slice: the one that is there.
        desired = {next(iter(by_shape)): []}
    for each, endpoints in desired.items():
        _pack(source, each, endpoints, by_shape.pop(each, []), limit, result)
    for leftover in by_shape.values():
        result.delete += leftover
    return result


def _pack(
    source: Origin,
    shape_: Shape,
    endpoints: Sequence[Endpoint],
    slices: Sequence[EndpointSlice],
    limit: int,
    result: Plan,
) -> None:
    pending = {_identity(e): e for e in endpoints}
    kept = [(piece, _still_wanted(piece, pending)) for piece in slices]
    queue = list(pending.values())
    # Fill slices that change anyway first, the fullest first, so that few are rewritten.
    for _, members in sorted(kept, key=lambda p: (p[1] == p[0].endpoints, -len(p[1]))):
        room = max(0, limit - len(members))
        members += queue[:room]
        queue = queue[room:]
    spared = kept[0][0] if kept and not endpoints else None
    for piece, members in kept:
        if not members and piece is not spared:
            result.delete.append(piece)
        elif members != piece.endpoints or source.labels != piece.metadata.labels:
            result.update.append((piece, _document(source, shape_, members)))
    if not endpoints and not kept:
        result.create.append(_document(source, shape_, []))
    for start in range(0, len(queue), limit):
        result.create.append(_document(source, shape_, queue[start : start + limit]))


def _still_wanted(piece: EndpointSlice, pending: dict[str, Endpoint]) -> list[Endpoint]:
    """The slice's endpoints in their order and newest state, taken out of `pending`."""
    return [
        pending.pop(identity)
        for identity in [_identity(e) for e in piece.endpoints]
        if identity in pending
    ]


def _identity(target: Endpoint) -> str:
    return target.target_ref.uid if target.target_ref else ",".join(target.addresses)


def _shape_of(piece: EndpointSlice) -> Shape:
    return piece.address_type, tuple(
        (p.name, p.protocol, p.port, p.app_protocol) for p in piece.ports
    )


def _document(source: Origin, shape_: Shape, members: Sequence[Endpoint]) -> dict[str, Any]:
    family, ports = shape_
    annotations = {"annotations": dict(source.annotations)} if source.annotations else {}
    return {
        "metadata": {
            "generateName": f"{source.name}-",
            "namespace": source.namespace,
            "labels": dict(source.labels),
            "ownerReferences": [source.owner],
            **annotations,
        },
        "addressType": family,
        "endpoints": [msgspec.to_builtins(e) for e in members],
        "ports": [_port(*port) for port in ports],
    }


def _port(name: str, protocol: str, number: int, app_protocol: str) -> dict[str, Any]:
    port = {"name": name, "protocol": protocol, "port": number}
    return {**port, "appProtocol": app_protocol} if app_protocol else port
