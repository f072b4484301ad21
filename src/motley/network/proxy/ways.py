"""Ways to Services' addresses, for programs of this machine itself.

Pods send everything to the bridge, where the rules wait. A program of the machine asks the routing
table first. The cluster's own range has a route there (`podnet`); a Service may have an address of
another range (10.6.1.1, by a ServiceCIDR), and so may a Route's name: each of these gets a route to
the bridge, on every node.

Minik8s does it another way, for IPVS: every Service's address is put on an interface of its own,
`minik8s-proxy0`. With `interface` given it is done here, too, for those who look for addresses
there: the packet is the machine's own then, and the same rules change where it goes. A program must
not speak in a Service's name, so the way to such an address says the bridge's as the source.

Invariant: what is there is what Services say, whoever changed it meanwhile; nothing is touched that
is not marked as ours or on our own interface.
"""

import asyncio
import errno
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from ipaddress import AddressValueError, IPv4Address, IPv4Network
from typing import Any

from pyroute2 import IPRoute, NetlinkError

from motley.api.views.base import Key
from motley.api.views.core import Service
from motley.lib import clock as clocks
from motley.lib import journal

log = journal.get(__name__)

PROTOCOL = 78  # who made a route; free for private use. Routes to other nodes' pods have 77
_SCOPE_LINK = 253
_LOCAL_TABLE, _LOCAL_TYPE, _SCOPE_HOST = 255, 2, 254
_GATHER_S = 0.05
_AGAIN_S = 1.0  # until a bridge that is not there yet is looked for again
_DRIFT_S = 30.0


def outside(addresses: Iterable[str], networks: Iterable[str]) -> set[str]:
    """Addresses that are in none of the networks; pure."""
    ranges = [IPv4Network(network) for network in networks]
    return {a for a in addresses if not any(IPv4Address(a) in network for network in ranges)}


def virtual(services: Iterable[Service | None]) -> set[str]:
    """The IPv4 addresses that Services have for themselves; pure."""
    found = set()
    for service in services:
        for text in service.spec.cluster_ips or [service.spec.cluster_ip] if service else ():
            try:
                found.add(str(IPv4Address(text)))
            except AddressValueError:
                continue  # headless, not given yet, or of the other family
    return found


@dataclass
class Ways:
    """Keeps them: `mark` when Services changed; `run` follows."""

    addresses: Callable[[], set[str]]
    bridge: str
    networks: tuple[str, ...]  # those that have a way already
    interface: str = ""  # where all addresses are to be; empty: no such interface
    clock: clocks.Clock = clocks.SYSTEM
    _changed: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def mark(self, _key: Key) -> None:
        """A Service changed."""
        self._changed.set()

    async def run(self) -> None:
        """Follow Services for ever. Start it when they are all known."""
        before: set[str] | None = None
        while True:
            wanted = self.addresses()
            if not self.interface:
                wanted = outside(wanted, self.networks)
            pause_s = _DRIFT_S
            try:
                if not await asyncio.to_thread(ensure, self.bridge, wanted, self.interface):
                    pause_s = _AGAIN_S
                elif wanted != before and (wanted or before):
                    log.info("ways to addresses of Services", addresses=len(wanted))
                    before = wanted
            except (NetlinkError, OSError) as error:
                log.warning("ways to addresses of Services are missing", error=error)
                pause_s = _AGAIN_S
            try:
                async with asyncio.timeout(pause_s):
                    await self._changed.wait()
            except TimeoutError:
                continue
            await self.clock.sleep(_GATHER_S)
            self._changed.clear()


def ensure(bridge: str, wanted: set[str], interface: str = "") -> bool:
    """Have exactly these ways; False when there is no bridge yet."""
    with IPRoute() as ip:
        found = ip.link_lookup(ifname=bridge)
        if not found:
            return not wanted
        source = _source(ip, found[0])
        if source is None:
            return False
        if interface:
            _ensure_held(ip, _interface(ip, interface), wanted, source)
        else:
            _ensure_routes(ip, found[0], wanted, source)
    return True


def remove(interface: str) -> None:
    """Take the interface away; the routes go with the bridge."""
    if not interface:
        return
    with IPRoute() as ip:
        for index in ip.link_lookup(ifname=interface):
            ip.link("del", index=index)


def _source(ip: Any, index: int) -> str | None:
    """The bridge's own address; single ones on it (cluster DNS) must not become a source."""
    for entry in ip.get_addr(index=index, family=socket.AF_INET):
        if entry["prefixlen"] < 32:
            return str(entry.get_attr("IFA_LOCAL"))
    return None


def _ensure_routes(ip: Any, index: int, wanted: set[str], source: str) -> None:
    present = {
        str(route.get_attr("RTA_DST"))
        for route in ip.get_routes(family=socket.AF_INET, oif=index, proto=PROTOCOL)
        if route["proto"] == PROTOCOL
    }
    way = {"oif": index, "scope": _SCOPE_LINK, "proto": PROTOCOL}
    for address in sorted(wanted - present):
        ip.route("replace", dst=f"{address}/32", **way, prefsrc=source)
    for address in sorted(present - wanted):
        _delete(ip, address, way)


def _interface(ip: Any, name: str) -> int:
    found = ip.link_lookup(ifname=name)
    if not found:
        try:
            ip.link("add", ifname=name, kind="dummy")
        except NetlinkError as error:
            if error.code != errno.EOPNOTSUPP:
                raise
            # A kernel without dummy devices: a bridge without ports carries addresses as well.
            ip.link("add", ifname=name, kind="bridge")
        found = ip.link_lookup(ifname=name)
        log.info("interface of Services made", interface=name)
    ip.link("set", index=found[0], state="up")
    return int(found[0])


def _ensure_held(ip: Any, index: int, wanted: set[str], source: str) -> None:
    entries = ip.get_addr(index=index, family=socket.AF_INET)
    present = {str(entry.get_attr("IFA_LOCAL")) for entry in entries}
    local = {"oif": index, "table": _LOCAL_TABLE, "type": _LOCAL_TYPE, "scope": _SCOPE_HOST}
    for address in sorted(wanted - present):
        ip.addr("add", index=index, address=address, prefixlen=32)
        # The kernel made a way with the address itself as the source: a pod of another node would
        # answer the address, that is, its own machine.
        ip.route("del", dst=f"{address}/32", **local)
        ip.route("add", dst=f"{address}/32", **local, prefsrc=source, proto=PROTOCOL)
    for address in sorted(present - wanted):
        ip.addr("del", index=index, address=address, prefixlen=32)
        _delete(ip, address, local)


def _delete(ip: Any, address: str, way: dict[str, int]) -> None:
    try:
        ip.route("del", dst=f"{address}/32", **way)
    except NetlinkError as error:
        if error.code != errno.ESRCH:  # it went with its address or device, or by another hand
            raise
