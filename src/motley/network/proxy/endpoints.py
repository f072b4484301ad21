"""Which endpoints of a Service may get traffic: readiness, draining, locality, hints and speed.

Pure: Service and EndpointSlices in, targets per port out.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from ipaddress import IPv4Address
from typing import NamedTuple

from motley.api.views.core import Endpoint, EndpointSlice, Hint, Service, ServicePort

SERVICE_NAME = "kubernetes.io/service-name"
PROTOCOLS = {"TCP": "tcp", "UDP": "udp", "SCTP": "sctp"}
ZONE = "topology.kubernetes.io/zone"
WEIGHTS = "motley.io/endpoint-weights"
BY_SPEED = "speed"

_SPEED_LABEL, _SPEED_ANNOTATION = "hice.kj", "motley.io/estimated-speed"
_DECIMAL = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_ONE = Fraction(1)


class Target(NamedTuple):
    """Where one connection can go."""

    ip: str
    port: int


@dataclass(frozen=True)
class Surroundings:
    """What of the nodes matters to traffic: where this one is, and how fast each is."""

    zone: str = ""
    speeds: Mapping[str, Fraction] = field(default_factory=dict)


NOWHERE = Surroundings()


@dataclass(frozen=True)
class Targets:
    """A Service port's endpoints: all that may be used from here, and those on this node.

    `weights` is empty where all get the same.
    """

    everywhere: tuple[Target, ...] = ()
    here: tuple[Target, ...] = ()
    weights: Mapping[Target, Fraction] = field(default_factory=dict)


def is_proxied(service: Service) -> bool:
    """Does this Service have a virtual address at all? Headless and ExternalName do not."""
    spec = service.spec
    return spec.type != "ExternalName" and is_routable(spec.cluster_ip)


def is_weighted(service: Service) -> bool:
    """Should faster nodes get more of this Service's traffic?"""
    return service.metadata.annotations.get(WEIGHTS) == BY_SPEED


def speed(labels: Mapping[str, str], annotations: Mapping[str, str]) -> Fraction | None:
    """How fast a node is: what a person or the scheduler's label says, else the estimate."""
    for text in (labels.get(_SPEED_LABEL, ""), annotations.get(_SPEED_ANNOTATION, "")):
        if _DECIMAL.fullmatch(text) and (found := Fraction(text)):
            return found
    return None


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


Candidates = list[tuple[Target, Endpoint]]


def targets(
    service: Service,
    port: ServicePort,
    slices: Iterable[EndpointSlice],
    node_name: str,
    around: Surroundings = NOWHERE,
) -> Targets:
    """The targets of one port, in a stable order so that equal input gives equal rules."""
    known: Candidates = []
    for piece in slices:
        if piece.address_type != "IPv4":
            continue
        for endpoint_port in piece.ports:
            if endpoint_port.name == port.name and endpoint_port.protocol == port.protocol:
                known += [
                    (Target(endpoint.addresses[0], endpoint_port.port), endpoint)
                    for endpoint in piece.endpoints
                    if endpoint.addresses
                    and is_routable(endpoint.addresses[0])
                    and 0 < endpoint_port.port < 65536
                ]
    here = [(t, e) for t, e in known if e.node_name == node_name]
    weights: dict[Target, Fraction] = {}
    if is_weighted(service):
        weights = {t: around.speeds.get(e.node_name, _ONE) for t, e in known}
    everywhere = hinted(_usable(known), node_name, around.zone)
    return Targets(_sorted(everywhere), _sorted(_usable(here)), weights)


def _usable(candidates: Candidates) -> Candidates:
    """The ready ones; when there are none, those that still serve while they terminate."""
    # An absent condition is to be read as true (EndpointConditions in the API reference).
    ready = [(t, e) for t, e in candidates if e.conditions.ready is not False]
    if ready:
        return ready
    return [(t, e) for t, e in candidates if e.conditions.serving and e.conditions.terminating]


def hinted(usable: Candidates, node_name: str, zone: str) -> Candidates:
    """Those meant for this node, else for its zone, else all.

    Hints count only when every ready endpoint has one (a half-written set of slices must not send
    a zone's whole traffic to the first endpoint that got its hint) and one is meant for us.
    """
    if any(e.conditions.ready is False for _, e in usable):
        return usable  # only terminating ones are left
    for ours in (
        _meant(usable, [e.hints.for_nodes if e.hints else [] for _, e in usable], node_name),
        _meant(usable, [e.hints.for_zones if e.hints else [] for _, e in usable], zone),
    ):
        if ours:
            return ours
    return usable


def _meant(usable: Candidates, hints: Sequence[Sequence[Hint]], name: str) -> Candidates:
    if not name or not all(hints):
        return []
    return [
        candidate
        for candidate, listed in zip(usable, hints, strict=True)
        if any(hint.name == name for hint in listed)
    ]


def _sorted(chosen: Candidates) -> tuple[Target, ...]:
    return tuple(sorted({t for t, _ in chosen}))
