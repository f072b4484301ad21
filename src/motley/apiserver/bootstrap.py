"""What every cluster has from its first start: namespaces, priority classes, its own Service.

Idempotent: run at every start. A server that has its store to itself also brings the Service's
EndpointSlice up to date, because its address may have changed; others see `presence`.
"""

import ipaddress
from typing import Any

from motley.api import scheme, status
from motley.apiserver import document, presence
from motley.apiserver.admission.priority import SYSTEM_CLASSES
from motley.apiserver.allocation import cidrs
from motley.apiserver.writer import Writer
from motley.lib import journal

log = journal.get(__name__)

NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
Document = dict[str, Any]


def _kind(group: str, plural: str) -> scheme.Kind:
    kind = scheme.resource(group, "v1", plural)
    assert kind is not None
    return kind


async def run(
    writer: Writer, *, service_cidr: str, address: str, port: int, is_alone: bool = True
) -> None:
    """Create what is missing; another server may do the same at this moment."""
    for name in NAMESPACES:
        await _create(writer, _kind("", "namespaces"), "", {"metadata": {"name": name}})
    for system_class in SYSTEM_CLASSES:
        kind = _kind("scheduling.k8s.io", "priorityclasses")
        await _create(writer, kind, "", document.copy(system_class))
    await cidrs.ensure(writer, service_cidr)
    service = kubernetes_service(service_address(service_cidr), port)
    await _create(writer, _kind("", "services"), "default", service)
    if is_alone:
        await _ensure_slice(writer, address, port)


def service_address(service_cidr: str) -> str:
    """The address of the `kubernetes` Service: the first of the range."""
    return str(ipaddress.ip_network(service_cidr).network_address + 1)


async def _create(writer: Writer, kind: scheme.Kind, namespace: str, new: Document) -> bool:
    # Asked first: a Service that exists holds its address, so creating it again is refused as such.
    if await writer.store.get(kind.key(namespace, new["metadata"]["name"])) is not None:
        return False
    name = new["metadata"]["name"]
    try:
        await writer.create(kind, namespace, new)
    except status.AlreadyExists:
        return False
    except status.Invalid:
        # Of two servers that create the Service one finds its address taken: by the other's.
        if await writer.store.get(kind.key(namespace, name)) is None:
            raise
        return False
    log.info("created", kind=kind.kind, name=name)
    return True


def kubernetes_service(cluster_ip: str, port: int) -> Document:
    """The Service by which pods find the API."""
    return {
        "metadata": {
            "name": "kubernetes",
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "type": "ClusterIP",
            "clusterIP": cluster_ip,
            "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": port}],
            "sessionAffinity": "None",
        },
    }


def kubernetes_slice(address: str, port: int) -> Document:
    """Where the `kubernetes` Service leads. It has no selector, so no controller touches it.

    A server that listens on loopback only is no endpoint: pods could not reach it there.
    """
    reachable = not ipaddress.ip_address(address).is_loopback
    return {
        "metadata": {
            "name": "kubernetes",
            "labels": {"kubernetes.io/service-name": "kubernetes"},
        },
        "addressType": "IPv6" if ":" in address else "IPv4",
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}] if reachable else [],
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
    }


async def _ensure_slice(writer: Writer, address: str, port: int) -> None:
    kind = _kind("discovery.k8s.io", "endpointslices")
    wanted = kubernetes_slice(address, port)
    await presence.write_endpoints(writer, presence.endpoints([wanted]))
    if await _create(writer, kind, "default", kubernetes_slice(address, port)):
        return

    def correct(stored: Document) -> Document:
        metadata = {k: v for k, v in stored["metadata"].items() if k != "resourceVersion"}
        return {
            **stored,
            "metadata": metadata,
            "endpoints": wanted["endpoints"],
            "ports": wanted["ports"],
        }

    await writer.update(kind, "default", "kubernetes", correct)
