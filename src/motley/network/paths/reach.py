"""Ways to addresses outside the cluster's ranges, for programs of this machine.

A Route may choose its name's address (10.8.0.1), and so may a Service (10.6.1.1). Pods send
everything to the bridge, where the proxy's rules wait; a program of the machine itself asks the
routing table first, which may know no way. Each such address gets a route to the bridge, as the
range of Services has. The routes go when the bridge goes.
"""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from pyroute2 import IPRoute

_PROTOCOL = 77  # who made a route; free for private use
_SCOPE_LINK = 253


def outside(addresses: Iterable[str], networks: Iterable[str]) -> set[str]:
    """Addresses that are in none of the networks; pure."""
    ranges = [IPv4Network(network) for network in networks]
    return {a for a in addresses if not any(IPv4Address(a) in network for network in ranges)}


def ensure(bridge: str, wanted: set[str]) -> bool:
    """Have exactly these routes to the bridge; False when there is no bridge yet."""
    with IPRoute() as ip:
        found = ip.link_lookup(ifname=bridge)
        if not found:
            return not wanted
        present = {_destination(r) for r in ip.get_routes(oif=found[0], proto=_PROTOCOL)}
        for address in wanted - present:
            ip.route(
                "replace",
                dst=f"{address}/32",
                oif=found[0],
                scope=_SCOPE_LINK,
                proto=_PROTOCOL,
            )
        for address in present - wanted:
            ip.route("del", dst=f"{address}/32", oif=found[0], scope=_SCOPE_LINK, proto=_PROTOCOL)
    return True


def _destination(route: Any) -> str:
    return str(route.get_attr("RTA_DST"))
