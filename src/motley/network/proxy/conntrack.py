"""Connection tracking: forget flows whose endpoint is gone.

The kernel chooses an endpoint once per flow. A UDP client that keeps its source port would send
into the void for as long as it keeps sending. A TCP connection to a dead endpoint ends by itself,
but one that was never answered is remembered for two minutes: whoever tries again in that time, or
happens to get the same source port, is sent to the same dead endpoint. Forgotten, the very next
packet of such an attempt goes to an endpoint that lives.
"""

import errno
import socket
from collections.abc import Collection, Iterable
from ipaddress import IPv4Address, IPv4Network
from typing import NamedTuple

from pyroute2 import Conntrack, NetlinkError
from pyroute2.netlink.nfnetlink.nfctsocket import NFCTAttrTuple

from motley.network.proxy.endpoints import Target
from motley.network.proxy.fragments import Route

_SEEN_REPLY = 1 << 1  # IPS_SEEN_REPLY
_MOST_TARGETS = 64  # looked for one by one: more at once end by themselves, as everywhere


class Flow(NamedTuple):
    """A tracked flow: who sent where, and who really answers."""

    source: Target
    destination: Target
    answering: Target
    protocol: int = socket.IPPROTO_UDP


def stale(
    flows: Iterable[Flow],
    current: Collection[Route],
    retired: Collection[Route],
    services: IPv4Network,
) -> list[Flow]:
    """The flows to forget: those on a retired route, and those of an address of `services`
    that no current route explains (their end was missed while no proxy ran).
    """
    return [flow for flow in flows if _is_stale(flow, current, retired, services)]


def _is_stale(
    flow: Flow, current: Collection[Route], retired: Collection[Route], services: IPv4Network
) -> bool:
    if flow.answering == flow.destination:
        return False  # not translated: none of ours
    direct = Route(flow.destination.ip, flow.destination.port, flow.answering)
    by_node_port = Route("", flow.destination.port, flow.answering)
    if direct in current or by_node_port in current:
        return False
    ours = IPv4Address(flow.destination.ip) in services
    return ours or direct in retired or by_node_port in retired


def udp_flows() -> list[Flow]:
    """Every UDP flow of this network namespace; blocking."""
    only_udp = NFCTAttrTuple(proto=socket.IPPROTO_UDP)
    with Conntrack() as table:
        return [
            Flow(
                Target(entry.tuple_orig.saddr, entry.tuple_orig.sport),
                Target(entry.tuple_orig.daddr, entry.tuple_orig.dport),
                Target(entry.tuple_reply.saddr, entry.tuple_reply.sport),
            )
            for entry in table.dump_entries(tuple_orig=only_udp)
            if entry.tuple_orig.saddr is not None and ":" not in entry.tuple_orig.saddr
        ]


def unanswered(targets: Collection[Target]) -> list[Flow]:
    """TCP flows to these targets of which no answer was seen; blocking."""
    with Conntrack() as table:
        return [
            Flow(
                Target(entry.tuple_orig.saddr, entry.tuple_orig.sport),
                Target(entry.tuple_orig.daddr, entry.tuple_orig.dport),
                target,
                socket.IPPROTO_TCP,
            )
            for target in targets
            for entry in table.dump_entries(
                tuple_reply=NFCTAttrTuple(
                    proto=socket.IPPROTO_TCP, saddr=target.ip, sport=target.port
                )
            )
            # A kernel that knows no filters gives everything.
            if entry.tuple_reply.saddr == target.ip
            and entry.tuple_reply.sport == target.port
            and entry.tuple_orig.proto == socket.IPPROTO_TCP
            and not entry.status & _SEEN_REPLY
        ]


def forget(flows: Iterable[Flow]) -> int:
    """Delete these flows and return how many there still were; blocking."""
    count = 0
    with Conntrack() as table:
        for flow in flows:
            original = NFCTAttrTuple(
                proto=flow.protocol,
                saddr=flow.source.ip,
                sport=flow.source.port,
                daddr=flow.destination.ip,
                dport=flow.destination.port,
            )
            try:
                table.entry("del", tuple_orig=original)
            except NetlinkError as error:
                if error.code != errno.ENOENT:  # it may have ended by itself
                    raise
            else:
                count += 1
    return count


def forget_stale(
    current: Collection[Route], retired: Collection[Route], services: IPv4Network
) -> int:
    """Find and forget stale flows; blocking."""
    found = stale(udp_flows(), current, retired, services)
    return forget(found) if found else 0


def forget_unanswered(targets: Collection[Target]) -> int:
    """Let attempts to reach targets that are gone try others; blocking."""
    wanted = [one for one in targets if ":" not in one.ip][:_MOST_TARGETS]
    found = unanswered(wanted) if wanted else []
    return forget(found) if found else 0
