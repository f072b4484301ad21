"""The tunnel to nodes outside our subnet: one kernel VXLAN device with fixed entries.

The device learns nothing and asks nobody: for every far node it has one forwarding entry (MAC
address → node) and one neighbour entry (inner address → MAC address), both written from Node
objects. So no broadcast ever crosses the tunnel, and it works while no process of ours runs.

Invariant: entries are compared with the kernel's own, so what is right is not touched.
"""

import errno
import socket
from collections.abc import Collection
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Any

from pyroute2 import NetlinkError
from pyroute2.netlink.rtnl import ndmsg

from motley.lib import journal
from motley.network import sysctl
from motley.network.peers import Remote

log = journal.get(__name__)

DEFAULT_ID = 77
DEFAULT_PORT = 4789  # IANA's; 8472 is what Linux chose before there was one


class TunnelError(Exception):
    """The tunnel cannot be made as asked; the message says what is in the way."""


@dataclass(frozen=True)
class Device:
    """This node's end of the tunnel."""

    name: str
    id: int
    port: int
    local: IPv4Address  # the node's own address, outside
    inner: IPv4Address
    mac: str
    mtu: int


def device_name(bridge: str) -> str:
    """The tunnel's device beside a bridge, within the kernel's 15 characters."""
    return f"vx-{bridge}"[:15]


def ensure(ip: Any, device: Device) -> int:
    """Make the device as described, or repair it; its index.

    What cannot be changed in place (id, port, own address) makes it anew. Raises TunnelError.
    """
    link = find(ip, device.name)
    if link is not None and not _is_same(link, device):
        if _kind(link) != "vxlan":
            raise TunnelError(f"interface {device.name} exists and is no VXLAN device")
        ip.link("del", index=link["index"])
        link = None
    if link is None:
        link = _make(ip, device)
    index: int = link["index"]
    ip.link("set", index=index, state="up", mtu=device.mtu)
    _ensure_address(ip, index, device.inner)
    # 2, loose: with several uplinks an answer may come by another way than it would go.
    sysctl.write(f"net.ipv4.conf.{sysctl.escape(device.name)}.rp_filter", "2")
    return index


def sync(ip: Any, index: int, remotes: Collection[Remote]) -> None:
    """Have exactly these far ends, and none that is gone."""
    forwarding = {(remote.mac, str(remote.node)) for remote in remotes}
    neighbours = {(str(remote.inner), remote.mac) for remote in remotes}
    present = _forwarding(ip, index)
    for address, node in present - forwarding:
        ip.fdb("del", ifindex=index, lladdr=address, dst=node)
    for address, node in forwarding - present:
        ip.fdb("add", ifindex=index, lladdr=address, dst=node)
    known = _neighbours(ip, index)
    wanted = {inner for inner, _ in neighbours}
    for inner, address in known - neighbours:
        if inner not in wanted:
            ip.neigh("del", ifindex=index, dst=inner, lladdr=address)
    for inner, address in neighbours - known:
        ip.neigh("replace", ifindex=index, dst=inner, lladdr=address, state="permanent")


def remove(ip: Any, name: str) -> bool:
    """Take the device away with all that hangs on it; False when there is none of ours."""
    link = find(ip, name)
    if link is None or _kind(link) != "vxlan":
        return False
    ip.link("del", index=link["index"])
    log.info("tunnel removed", device=name)
    return True


def find(ip: Any, name: str) -> Any | None:
    """The device of a name, if there is one."""
    found = ip.link_lookup(ifname=name)
    return ip.link("get", index=found[0])[0] if found else None


def _make(ip: Any, device: Device) -> Any:
    try:
        ip.link(
            "add",
            ifname=device.name,
            kind="vxlan",
            address=device.mac,
            vxlan_id=device.id,
            vxlan_port=device.port,
            vxlan_local=str(device.local),
            vxlan_learning=0,
        )
    except NetlinkError as error:
        if error.code == errno.EEXIST:
            raise TunnelError(
                f"another VXLAN device has id {device.id} on UDP port {device.port}"
            ) from error
        if error.code == errno.EOPNOTSUPP:
            raise TunnelError("this kernel has no VXLAN") from error
        raise
    log.info("tunnel made", device=device.name, id=device.id, port=device.port)
    link = find(ip, device.name)
    assert link is not None
    return link


def _kind(link: Any) -> str | None:
    info = link.get_attr("IFLA_LINKINFO")
    return info.get_attr("IFLA_INFO_KIND") if info is not None else None


def _is_same(link: Any, device: Device) -> bool:
    if _kind(link) != "vxlan":
        return False
    data = link.get_attr("IFLA_LINKINFO").get_attr("IFLA_INFO_DATA")
    names = ("IFLA_VXLAN_ID", "IFLA_VXLAN_PORT", "IFLA_VXLAN_LOCAL")
    present = (*(data.get_attr(name) for name in names), link.get_attr("IFLA_ADDRESS"))
    return present == (device.id, device.port, str(device.local), device.mac)


def _ensure_address(ip: Any, index: int, inner: IPv4Address) -> None:
    """What this node's own processes send from when they reach far pods."""
    present = {
        (a.get_attr("IFA_LOCAL"), a["prefixlen"])
        for a in ip.get_addr(index=index, family=socket.AF_INET)
    }
    wanted = (str(inner), 32)
    for address, prefix in present - {wanted}:
        ip.addr("del", index=index, address=address, prefixlen=prefix)
    if wanted not in present:
        ip.addr("add", index=index, address=str(inner), prefixlen=32)


def _forwarding(ip: Any, index: int) -> set[tuple[str, str]]:
    entries = (e for e in ip.fdb("dump") if e["ifindex"] == index)
    found = ((e.get_attr("NDA_LLADDR"), e.get_attr("NDA_DST")) for e in entries)
    return {(address, node) for address, node in found if address and node}


def _neighbours(ip: Any, index: int) -> set[tuple[str, str]]:
    entries = ip.get_neighbours(family=socket.AF_INET, ifindex=index)
    return {
        (e.get_attr("NDA_DST"), e.get_attr("NDA_LLADDR"))
        for e in entries
        if e["state"] & ndmsg.NUD_PERMANENT and e.get_attr("NDA_LLADDR")
    }
