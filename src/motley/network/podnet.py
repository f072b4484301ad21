"""Pod network of one node: a bridge, the addresses and routes on it, and the CNI configuration.

Pods hang on the bridge and use its first address as their gateway. The service CIDR is routed to
the bridge, so that a virtual address without a rule never leaves the machine, and the cluster DNS
address lives on it, so that every node answers names itself.

Invariant: `ensure` and `remove` may be called at any time, any number of times, also after a
crash half-way; `ensure` never takes an address away from running pods.
"""

import asyncio
import errno
import ipaddress
import os
import shutil
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from pyroute2 import IPRoute, NetlinkError

from motley.lib import journal
from motley.network import sysctl

log = journal.get(__name__)

CONFLIST = "10-motley.conflist"
CNI_VERSION = "1.0.0"

_SCOPE_LINK = 253


class PodNetworkError(Exception):
    """The node's pod network cannot be made as asked; the message says what is in the way."""


@dataclass(frozen=True)
class PodNetwork:
    """What one node's pod network should be, checked for sense."""

    subnet: ipaddress.IPv4Network
    bridge: str
    services: ipaddress.IPv4Network
    dns: ipaddress.IPv4Address
    cluster: ipaddress.IPv4Network
    mtu: int | None = None

    @property
    def gateway(self) -> ipaddress.IPv4Address:
        """The bridge's own address: the first of the subnet, as host-local's default is."""
        return self.subnet.network_address + 1

    @property
    def mac(self) -> str:
        """A fixed address for the bridge.

        Without one a bridge takes the lowest MAC of its ports, and pods lose their gateway for
        a moment whenever a pod comes or goes.
        """
        return "0a:58:" + ":".join(f"{octet:02x}" for octet in self.gateway.packed)


def parse(
    *,
    pod_cidr: str,
    bridge: str,
    service_cidr: str,
    dns_address: str,
    cluster_cidr: str,
    mtu: int | None = None,
) -> PodNetwork:
    """The network these options mean; raises PodNetworkError when they contradict each other."""
    try:
        network = PodNetwork(
            subnet=ipaddress.IPv4Network(pod_cidr),
            bridge=bridge,
            services=ipaddress.IPv4Network(service_cidr),
            dns=ipaddress.IPv4Address(dns_address),
            cluster=ipaddress.IPv4Network(cluster_cidr),
            mtu=mtu,
        )
    except ValueError as error:
        raise PodNetworkError(f"pod network: {error}") from error
    if not 0 < len(bridge) < 16 or "/" in bridge:  # IFNAMSIZ with its closing zero
        raise PodNetworkError(f"bridge name {bridge!r} is not an interface name")
    if network.subnet.prefixlen > 30:
        raise PodNetworkError(f"podCIDR {pod_cidr} has no room for a gateway and a pod")
    if not network.subnet.subnet_of(network.cluster):
        raise PodNetworkError(f"podCIDR {pod_cidr} is not part of cluster CIDR {cluster_cidr}")
    if network.services.overlaps(network.cluster):
        raise PodNetworkError(f"service CIDR {service_cidr} overlaps cluster CIDR {cluster_cidr}")
    if network.dns not in network.services:
        raise PodNetworkError(f"DNS address {dns_address} is not in service CIDR {service_cidr}")
    return network


def conflist(network: PodNetwork, ipam_dir: Path, *, portmap: bool) -> dict[str, Any]:
    """The CNI configuration list for this network; `portmap` serves hostPort through iptables."""
    bridge: dict[str, Any] = {
        "type": "bridge",
        "bridge": network.bridge,
        "isGateway": True,
        "hairpinMode": True,
        "ipMasq": False,
        "promiscMode": False,
        "ipam": {
            "type": "host-local",
            "dataDir": str(ipam_dir),
            "ranges": [[{"subnet": str(network.subnet), "gateway": str(network.gateway)}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    if network.mtu is not None:
        bridge["mtu"] = network.mtu
    plugins = [bridge]
    if portmap:
        plugins.append({"type": "portmap", "capabilities": {"portMappings": True}, "snat": True})
    return {"cniVersion": CNI_VERSION, "name": "motley", "plugins": plugins}


async def ensure(
    *,
    pod_cidr: str,
    bridge: str,
    service_cidr: str,
    dns_address: str,
    cni_conf_dir: str | Path,
    cluster_cidr: str,
    mtu: int | None = None,
) -> None:
    """Make this network namespace's pod network as described, or repair it.

    Raises PodNetworkError when the options contradict each other, or when the bridge carries
    another podCIDR while pods hang on it: their addresses would be wrong at once.
    """
    network = parse(
        pod_cidr=pod_cidr,
        bridge=bridge,
        service_cidr=service_cidr,
        dns_address=dns_address,
        cluster_cidr=cluster_cidr,
        mtu=mtu,
    )
    await asyncio.to_thread(_ensure_links, network)
    await asyncio.to_thread(_write_conflist, network, Path(cni_conf_dir))


async def remove(*, bridge: str, cni_conf_dir: str | Path | None = None) -> None:
    """Take the pod network away: bridge, its routes, the pods' host-side interfaces.

    For the end of a cluster; pods that still run are cut off.
    """
    await asyncio.to_thread(_remove_links, bridge)
    if cni_conf_dir is not None:
        (Path(cni_conf_dir) / CONFLIST).unlink(missing_ok=True)


async def ensure_dns_address(*, bridge: str, address: str) -> bool:
    """Put the DNS address on the bridge if it is missing there; True when it was.

    Without the bridge, or before it has its own address, there is nothing to do: `ensure` will.
    """
    return await asyncio.to_thread(_ensure_dns_address, bridge, ipaddress.IPv4Address(address))


def _ensure_dns_address(bridge: str, address: ipaddress.IPv4Address) -> bool:
    with IPRoute() as ip:
        link = _link(ip, bridge)
        if link is None:
            return False
        present = _addresses(ip, link["index"])
        if not present or (address, 32) in present:
            return False
        ip.addr("add", index=link["index"], address=str(address), prefixlen=32)
        return True


def _ensure_links(network: PodNetwork) -> None:
    with IPRoute() as ip:
        index = _ensure_bridge(ip, network)
        _ensure_addresses(ip, index, network)
        # prefsrc: the DNS address is on the same device and must not become a source.
        ip.route(
            "replace",
            dst=str(network.services),
            oif=index,
            scope=_SCOPE_LINK,
            prefsrc=str(network.gateway),
        )
    sysctl.write("net.ipv4.ip_forward", "1")
    # Virtual addresses are routed back to where packets came from; the kernel would tell pods to
    # send there directly. Either of the two switches allows that, so both go off.
    for name in ("all", sysctl.escape(network.bridge)):
        sysctl.write(f"net.ipv4.conf.{name}.send_redirects", "0")
    # Answers of a pod on the same bridge must pass conntrack, or a Service's address is never put
    # back into them. The switch exists only where br_netfilter is in the kernel.
    if not sysctl.write("net.bridge.bridge-nf-call-iptables", "1", missing_ok=True):
        log.warning("br_netfilter is missing: pods cannot reach their own node's pods by Service")
    # 2, loose: an answer may come back by another path than the kernel would choose.
    sysctl.write(f"net.ipv4.conf.{sysctl.escape(network.bridge)}.rp_filter", "2")


def _link(ip: Any, name: str) -> Any | None:
    found = ip.link_lookup(ifname=name)
    return ip.link("get", index=found[0])[0] if found else None


def _ports(ip: Any, bridge_index: int) -> list[Any]:
    return [link for link in ip.get_links() if link.get_attr("IFLA_MASTER") == bridge_index]


def _ensure_bridge(ip: Any, network: PodNetwork) -> int:
    link = _link(ip, network.bridge)
    if link is None:
        try:
            ip.link("add", ifname=network.bridge, kind="bridge", address=network.mac)
        except NetlinkError as error:
            if error.code != errno.EEXIST:
                raise PodNetworkError(f"bridge {network.bridge}: {error}") from error
        link = _link(ip, network.bridge)
        log.info("bridge made", bridge=network.bridge)
    assert link is not None
    info = link.get_attr("IFLA_LINKINFO")
    if info is None or info.get_attr("IFLA_INFO_KIND") != "bridge":
        raise PodNetworkError(f"interface {network.bridge} exists and is no bridge")
    index: int = link["index"]
    change: dict[str, Any] = {"state": "up"}
    if link.get_attr("IFLA_ADDRESS") != network.mac and not _ports(ip, index):
        change["address"] = network.mac
    if network.mtu is not None and link.get_attr("IFLA_MTU") != network.mtu:
        change["mtu"] = network.mtu
    ip.link("set", index=index, **change)
    return index


def _addresses(ip: Any, index: int) -> list[tuple[ipaddress.IPv4Address, int]]:
    found = ip.get_addr(index=index, family=socket.AF_INET)
    return [(ipaddress.IPv4Address(a.get_attr("IFA_LOCAL")), a["prefixlen"]) for a in found]


def _ensure_addresses(ip: Any, index: int, network: PodNetwork) -> None:
    """The gateway first, the DNS address after it, nothing else.

    The order matters: the CNI bridge plugin takes the first address it is shown for the bridge's
    own and refuses to go on when that is not the gateway.
    """
    gateway = (network.gateway, network.subnet.prefixlen)
    dns = (network.dns, 32)
    present = _addresses(ip, index)
    if present == [gateway, dns]:
        return
    foreign = [f"{a}/{p}" for a, p in present if p < 32 and (a, p) != gateway]
    if foreign and (ports := _ports(ip, index)):
        raise PodNetworkError(
            f"bridge {network.bridge} has address {', '.join(foreign)} and {len(ports)} running "
            f"pods; podCIDR {network.subnet} can be used once they are gone"
        )
    keep = present[:1] == [gateway]
    for address, prefix in present[1:] if keep else present:
        ip.addr("del", index=index, address=str(address), prefixlen=prefix)
    for address, prefix in (dns,) if keep else (gateway, dns):
        ip.addr("add", index=index, address=str(address), prefixlen=prefix)


def _write_conflist(network: PodNetwork, conf_dir: Path) -> None:
    """Write only what changed, by rename: containerd loads the directory at every change."""
    conf_dir.mkdir(parents=True, exist_ok=True)
    # libcni reads files of this directory, never folders in it.
    portmap = shutil.which("iptables", path=_search_path(os.environ)) is not None
    document = conflist(network, conf_dir.absolute() / "ipam", portmap=portmap)
    encoded = msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
    path = conf_dir / CONFLIST
    if path.exists() and path.read_bytes() == encoded:
        return
    draft = path.with_name(f".{CONFLIST}.{os.getpid()}")
    draft.write_bytes(encoded)
    draft.replace(path)
    log.info("CNI configuration written", path=path, subnet=network.subnet)


def _search_path(environ: Mapping[str, str]) -> str:
    return environ.get("PATH", "") + ":/usr/sbin:/sbin"


def _remove_links(bridge: str) -> None:
    with IPRoute() as ip:
        link = _link(ip, bridge)
        if link is None:
            return
        for index in [port["index"] for port in _ports(ip, link["index"])] + [link["index"]]:
            try:
                ip.link("del", index=index)
            except NetlinkError as error:
                if error.code != errno.ENODEV:  # a pod's end may take its interface first
                    raise
        log.info("bridge removed", bridge=bridge)
