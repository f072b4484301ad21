"""How packets for pods of other nodes leave this one: decided from Node objects, nothing else.

Every node has a range of pod addresses and an address of its own. A node in the subnet of our own
address gets a plain route by way of it: nothing is wrapped, nothing is slower. Any other is reached
through a VXLAN tunnel. A tunnel's far end needs no negotiation: its inner address is the first of
that node's range and its MAC address is made from it, so Node objects say everything.

Invariant: two nodes that see the same Node objects choose the same way for the same pair of them,
because both look only at the subnet of the address that the Node object names.
"""

from collections.abc import Iterable, Sequence
from enum import Enum
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, ip_address, ip_network
from typing import NamedTuple

from motley.api.views.core import Node

VXLAN_OVERHEAD = 50  # outer Ethernet 14, IPv4 20, UDP 8, VXLAN 8
_VIRTUAL = "virtual-kubelet"  # nodes without a machine: their address is that of who answers


class Mode(Enum):
    """How nodes reach each other's pods; `none` leaves it to somebody else."""

    AUTO = "auto"  # routes where they can be, a tunnel elsewhere
    ROUTES = "routes"
    VXLAN = "vxlan"
    NONE = "none"

    @property
    def may_tunnel(self) -> bool:
        """Must there be room for a tunnel's headers?"""
        return self in (Mode.AUTO, Mode.VXLAN)


class Underlay(NamedTuple):
    """The device that carries this node's own address."""

    address: IPv4Interface
    device: int
    name: str
    mtu: int


class Route(NamedTuple):
    """Where packets for one node's pods go; `tunnelled`: `via` is the far end of a tunnel."""

    subnet: IPv4Network
    via: IPv4Address
    tunnelled: bool = False


class Remote(NamedTuple):
    """The far end of a tunnel: inner address, its MAC address, and the node that has it."""

    inner: IPv4Address
    mac: str
    node: IPv4Address


class Facts(NamedTuple):
    """What of a Node object matters here."""

    name: str
    subnet: str
    address: str


class Plan(NamedTuple):
    """What the kernel should have; `skipped` says which nodes cannot be reached, and why."""

    own: IPv4Network  # this node's pods
    routes: frozenset[Route] = frozenset()
    remotes: frozenset[Remote] = frozenset()
    skipped: tuple[str, ...] = ()


def facts(node: Node) -> Facts:
    """What of a Node object matters here; two versions with equal facts need no work."""
    if node.metadata.labels.get("type") == _VIRTUAL:
        return Facts(node.metadata.name, "", "")
    return Facts(node.metadata.name, node.spec.pod_cidr, node.internal_ip)


def mac(inner: IPv4Address) -> str:
    """The address of a tunnel's end: locally administered, and the same whoever computes it."""
    return "0e:58:" + ":".join(f"{octet:02x}" for octet in inner.packed)


def pod_mtu(mode: Mode, underlay: Underlay | None) -> int | None:
    """The largest packet a pod may send; None: as the kernel likes.

    With a tunnel in reach every pod keeps room for it, because a pod's own MTU cannot follow when
    the first far node joins.
    """
    if underlay is None or mode is Mode.NONE:
        return None
    return underlay.mtu - VXLAN_OVERHEAD if mode.may_tunnel else underlay.mtu


def plan(
    known: Iterable[Facts],
    *,
    name: str,
    cluster: IPv4Network,
    mode: Mode,
    underlay: Underlay | None,
) -> Plan | None:
    """The way to every other node's pods; None as long as this node has no range or address.

    A range that is not part of the cluster's, or that another node has already, is left out: a
    wrong Node object must not draw traffic that is somebody else's.
    """
    every = sorted(known)
    own = next((one for one in every if one.name == name), None)
    mine = _subnet(own.subnet) if own is not None and own.address else None
    if mine is None:
        return None
    taken, routes, remotes, skipped = [mine], set(), set(), []
    for one in every:
        if one.name == name or not one.subnet or not one.address:
            continue  # ourselves, or a node that is about to come
        found = _way(one, cluster, taken, mode, underlay)
        if isinstance(found, str):
            skipped.append(f"{one.name}: {found}")
            continue
        taken.append(found.subnet)
        routes.add(found)
        if found.tunnelled:
            remotes.add(Remote(found.via, mac(found.via), IPv4Address(one.address)))
    return Plan(mine, frozenset(routes), frozenset(remotes), tuple(skipped))


def _way(
    one: Facts,
    cluster: IPv4Network,
    taken: Sequence[IPv4Network],
    mode: Mode,
    underlay: Underlay | None,
) -> Route | str:
    subnet, address = _subnet(one.subnet), _address(one.address)
    if subnet is None or not subnet.subnet_of(cluster):
        return f"podCIDR {one.subnet} is not part of {cluster}"
    if any(subnet.overlaps(other) for other in taken):
        return f"podCIDR {one.subnet} is another node's, too"
    if address is None:
        return "it has no IPv4 address"
    if underlay is None:
        return "this node's own address is on none of its devices that leads elsewhere"
    is_near = address in underlay.address.network
    if address == underlay.address.ip:
        return f"it has this node's address {address}"
    if mode is Mode.VXLAN or (mode is Mode.AUTO and not is_near):
        return Route(subnet, subnet.network_address, tunnelled=True)
    if not is_near:
        return f"{address} is not in {underlay.address.network}, and mode routes has no tunnel"
    return Route(subnet, address)


def _subnet(text: str) -> IPv4Network | None:
    try:
        found = ip_network(text)
    except ValueError:
        return None
    return found if isinstance(found, IPv4Network) else None


def _address(text: str) -> IPv4Address | None:
    try:
        found = ip_address(text)
    except ValueError:
        return None
    return found if isinstance(found, IPv4Address) else None
