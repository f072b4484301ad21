"""Routes to other nodes' pods, kept as Node objects want them.

`peers` decides, this module carries it out and goes on: when a node comes, goes or moves, and every
now and then, because somebody may have changed the kernel's tables. Our routes carry a protocol
number of their own, so that nobody else's are touched. It runs beside the service proxy, whose
identity may read all Node objects; a node agent's may read only its own.

Invariant: nothing is removed before the list of nodes is complete, and nothing when this process
ends: pods keep talking while it is away.
"""

import asyncio
import errno
import socket
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from random import Random
from typing import Any, NamedTuple

from pyroute2 import IPRoute, NetlinkError

from motley.api.views.core import Node
from motley.client.informer import Change, Informer
from motley.client.rest import Client
from motley.lib import clock as clocks
from motley.lib import journal
from motley.lib.backoff import Backoff
from motley.network import peers, sysctl, vxlan
from motley.network.peers import Mode, Plan, Underlay

log = journal.get(__name__)

PROTOCOL = 77  # "M"; /etc/iproute2/rt_protos gives this number to nobody
_ONLINK = 4  # RTNH_F_ONLINK
_MAIN = 254
_CHECK_S = 30.0


@dataclass(frozen=True)
class Options:
    """How one node reaches the pods of others."""

    node_name: str
    mode: Mode = Mode.AUTO
    cluster_cidr: str = "10.244.0.0/16"
    bridge: str = "motley0"
    vxlan_id: int = vxlan.DEFAULT_ID
    vxlan_port: int = vxlan.DEFAULT_PORT

    @property
    def cluster(self) -> IPv4Network:
        """All pods."""
        return IPv4Network(self.cluster_cidr)


class _Entry(NamedTuple):
    """A route as the kernel has it."""

    subnet: IPv4Network
    via: str
    device: int
    onlink: bool


async def run(
    client: Client,
    options: Options,
    *,
    clock: clocks.Clock = clocks.SYSTEM,
    rng: Random | None = None,
) -> None:
    """Keep the routes until cancelled."""
    if options.mode is Mode.NONE:
        return
    nodes: Informer[Node] = Informer(client, Node, clock=clock)
    changed = asyncio.Event()

    def moved(change: Change[Node]) -> None:
        old, new = change.old, change.new
        if old is None or new is None or peers.facts(old) != peers.facts(new):
            changed.set()

    nodes.add_handler(moved)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(nodes.run(), name="nodes")
        tasks.create_task(_follow(nodes, changed, options, rng or Random()), name="pod routes")


async def _follow(
    nodes: Informer[Node], changed: asyncio.Event, options: Options, rng: Random
) -> None:
    backoff = Backoff(base_s=0.2, cap_s=_CHECK_S, rng=rng)
    said: tuple[str, ...] = ()
    await nodes.synced()
    while True:
        changed.clear()
        pause = _CHECK_S
        try:
            done = await asyncio.to_thread(apply, [peers.facts(n) for n in nodes.items()], options)
        except (NetlinkError, OSError, vxlan.TunnelError) as error:
            log.warning("pod routes not set", error=error)
            pause = backoff.next()
        else:
            backoff.reset()
            skipped = done.skipped if done is not None else ()
            for reason in skipped if skipped != said else ():
                log.warning("pods of a node cannot be reached", reason=reason)
            said = skipped
            if done is None:
                log.info("waiting for this node's podCIDR and address")
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await changed.wait()


def apply(known: list[peers.Facts], options: Options) -> Plan | None:
    """Make the kernel's tables what these nodes want; None when this node has no range yet."""
    with IPRoute() as ip:
        own = next((one.address for one in known if one.name == options.node_name), "")
        underlay = _underlay(ip, own, options.bridge)
        wanted = peers.plan(
            known,
            name=options.node_name,
            cluster=options.cluster,
            mode=options.mode,
            underlay=underlay,
        )
        if wanted is None:
            return None
        if underlay is None:
            return wanted  # nothing can be said of the way out: what is there stays
        tunnel = _ensure_tunnel(ip, wanted, underlay, options) if wanted.remotes else None
        _apply_routes(ip, wanted, underlay, tunnel, options.cluster)
        if tunnel is None:  # last: its routes have been replaced by now
            vxlan.remove(ip, vxlan.device_name(options.bridge))
        return wanted


async def find_underlay(address: str, bridge: str) -> Underlay | None:
    """The device that carries this machine's address; None when none leads to other machines."""

    def look() -> Underlay | None:
        with IPRoute() as ip:
            return _underlay(ip, address, bridge)

    return await asyncio.to_thread(look)


def remove(*, bridge: str, cluster_cidr: str) -> None:
    """Take our routes and the tunnel away, for the end of a cluster."""
    with IPRoute() as ip:
        vxlan.remove(ip, vxlan.device_name(bridge))
        for entry in _present(ip, IPv4Network(cluster_cidr)):
            _delete(ip, entry)


def _underlay(ip: Any, address: str, bridge: str) -> Underlay | None:
    """A machine without any network is known by an address of its own bridge, or of loopback."""
    for found in ip.get_addr(family=socket.AF_INET):
        if address and found.get_attr("IFA_LOCAL") == address:
            link = ip.link("get", index=found["index"])[0]
            name = link.get_attr("IFLA_IFNAME")
            if name in (bridge, "lo"):
                return None
            return Underlay(
                address=IPv4Interface(f"{address}/{found['prefixlen']}"),
                device=found["index"],
                name=name,
                mtu=link.get_attr("IFLA_MTU"),
            )
    return None


def _ensure_tunnel(ip: Any, wanted: Plan, underlay: Underlay, options: Options) -> int:
    inner = wanted.own.network_address
    device = vxlan.Device(
        name=vxlan.device_name(options.bridge),
        id=options.vxlan_id,
        port=options.vxlan_port,
        local=underlay.address.ip,
        inner=inner,
        mac=peers.mac(inner),
        mtu=underlay.mtu - peers.VXLAN_OVERHEAD,
    )
    index = vxlan.ensure(ip, device)
    vxlan.sync(ip, index, wanted.remotes)
    return index


def _apply_routes(
    ip: Any, wanted: Plan, underlay: Underlay, tunnel: int | None, cluster: IPv4Network
) -> None:
    entries = set()
    for route in wanted.routes:
        device = tunnel if route.tunnelled else underlay.device
        assert device is not None
        entries.add(_Entry(route.subnet, str(route.via), device, route.tunnelled))
    if any(not route.tunnelled for route in wanted.routes):
        _loosen(underlay.name)
    present = _present(ip, cluster)
    for entry in entries - present:
        ip.route(
            "replace",
            dst=str(entry.subnet),
            gateway=entry.via,
            oif=entry.device,
            proto=PROTOCOL,
            flags=_ONLINK if entry.onlink else 0,
        )
        log.info("route set", pods=entry.subnet, via=entry.via, tunnelled=entry.onlink)
    kept = {entry.subnet for entry in entries}
    for entry in present - entries:
        if entry.subnet not in kept:  # else it was replaced just now
            _delete(ip, entry)
            log.info("route removed", pods=entry.subnet, via=entry.via)


def _loosen(device: str) -> None:
    """A strict return-path filter drops pods' packets where a machine has several uplinks."""
    every = sysctl.read("net.ipv4.conf.all.rp_filter")
    name = f"net.ipv4.conf.{sysctl.escape(device)}.rp_filter"
    if "1" in (every, sysctl.read(name)) and "2" not in (every, sysctl.read(name)):
        sysctl.write(name, "2", missing_ok=True)


def _present(ip: Any, cluster: IPv4Network) -> set[_Entry]:
    found = set()
    for route in ip.get_routes(family=socket.AF_INET, table=_MAIN, proto=PROTOCOL):
        destination = route.get_attr("RTA_DST")
        if destination is None or route["proto"] != PROTOCOL:
            continue
        subnet = IPv4Network(f"{IPv4Address(destination)}/{route['dst_len']}")
        if subnet.subnet_of(cluster):
            via, device = route.get_attr("RTA_GATEWAY"), route.get_attr("RTA_OIF")
            onlink = bool(route["flags"] & _ONLINK)
            found.add(_Entry(subnet, via or "", device or 0, onlink))
    return found


def _delete(ip: Any, entry: _Entry) -> None:
    try:
        ip.route("del", dst=str(entry.subnet), proto=PROTOCOL)
    except NetlinkError as error:
        if error.code != errno.ESRCH:  # it went with its device, or by another hand
            raise
