"""Taking a node's network away again, for the end of a cluster."""

import asyncio
from ipaddress import IPv4Network

from motley.lib import journal
from motley.network import podnet, podroutes, sysctl
from motley.network.proxy import conntrack, ways
from motley.network.proxy.nftables import Nft

log = journal.get(__name__)


async def remove(
    *, bridge: str, table: str, service_cidr: str, cluster_cidr: str, service_interface: str = ""
) -> None:
    """Remove bridge, pod interfaces, routes to other nodes, and the table with all its rules.

    May be called at any time, also when nothing is there, or only a part.
    """
    nft = Nft()
    try:
        if (await nft.read(table)).exists:
            # The proxy opened loopback to node ports behind the table's protection.
            sysctl.write("net.ipv4.conf.all.route_localnet", "0")
            await nft.remove(table)
            log.info("service rules removed", table=table)
    finally:
        await nft.close()
    await podnet.remove(bridge=bridge)
    await asyncio.to_thread(ways.remove, service_interface)
    await asyncio.to_thread(podroutes.remove, bridge=bridge, cluster_cidr=cluster_cidr)
    services = IPv4Network(service_cidr)
    await asyncio.to_thread(conntrack.forget_stale, (), (), services)
