"""Which endpoints of a Service may get traffic: readiness, draining and locality.

Pure: Service and EndpointSlices in, targets per port out.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address
from typing import NamedTuple

from motley.api.views.core import Endpoint, EndpointSlice, Service, ServicePort

SERVICE_NAME = "kubernetes.io/service-name"
PROTOCOLS = {"TCP": "tcp", "UDP": "udp", "SCTP": "sctp"}


class Target(NamedTuple):
    """Where one connection can go."""

    ip: str
    port: int


@dataclass(frozen=True)
class Targets:
    """A Service port's endpoints: all that may be used, and those on this node."""

    everywhere: tuple[Target, ...] = ()
    here: tuple[Target, ...] = ()


def is_proxied(service: Service) -> bool:
    """Does this Service have a virtual address at all? Headless and ExternalName do not."""
    spec = service.spec
    return spec.type != "ExternalName" and is_routable(spec.cluster_ip)


@lru_cache(maxsize=65536)
def is_routable(address: str) -> bool:
    """Is this text an IPv4 address that a packet may be sent to?

    Loopback and link-local addresses would let whoever may write an EndpointSlice reach what a
    node keeps to itself; anything that is no address must never get into a rule's text.
    """
    try:
        ip = IPv4Address(address)
    except ValueError:
        return False
    return not (ip.is_loopback or ip.is_link_local or ip.is_multicast or ip.is_unspecified)


def targets(
    service: Service, port: ServicePort, slices: Iterable[EndpointSlice], node_name: str
) -> Targets:
    """The targets of one port, in a stable order so that equal input gives equal rules."""
    everywhere: list[tuple[Target, Endpoint]] = []
    for piece in slices:
        if piece.address_type != "IPv4":
            continue
        for endpoint_port in piece.ports:
            if endpoint_port.name == port.name and endpoint_port.protocol == port.protocol:
                everywhere += [
                    (Target(endpoint.addresses[0], endpoint_port.port), endpoint)
                    for endpoint in piece.endpoints
                    if endpoint.addresses
                    and is_routable(endpoint.addresses[0])
                    and 0 < endpoint_port.port < 65536
                ]
    here = [(t, e) for t, e in everywhere if e.node_name == node_name]
    return Targets(_usable(everywhere), _usable(here))


def _usable(candidates: Sequence[tuple[Target, Endpoint]]) -> tuple[Target, ...]:
    """The ready ones; when there are none, those that still serve while they terminate."""
    # An absent condition is to be read as true (EndpointConditions in the API reference).
    ready = {t for t, e in candidates if e.conditions.ready is not False}
    if not ready:
        ready = {t for t, e in candidates if e.conditions.serving and e.conditions.terminating}
    return tuple(sorted(ready))
