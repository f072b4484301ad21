"""Ways to addresses outside the cluster's ranges, for programs of this machine.

A Route may choose its name's address (10.8.0.1), and so may a Service (10.6.1.1). Pods send
everything to the bridge, where the proxy's rules wait; a program of the machine itself asks the
routing table first, which may know no way. Each such address gets a route to the bridge, as the
range of Services has. The routes go when the bridge goes.

By iproute2's own command: a netlink library would be a fifth of this process' memory, for a handful
of routes in its life.
"""

import subprocess
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network

import msgspec

_PROTOCOL = "77"  # who made a route; free for private use
_TIMEOUT_S = 10


def outside(addresses: Iterable[str], networks: Iterable[str]) -> set[str]:
    """Addresses that are in none of the networks; pure."""
    ranges = [IPv4Network(network) for network in networks]
    return {a for a in addresses if not any(IPv4Address(a) in network for network in ranges)}


def ensure(bridge: str, wanted: set[str]) -> bool:
    """Have exactly these routes to the bridge; False when there is no bridge yet."""
    shown = _ip("-json", "route", "show", "dev", bridge, "proto", _PROTOCOL)
    if shown.returncode != 0:
        return not wanted
    listed = msgspec.json.decode(shown.stdout or "[]", type=list[dict[str, object]])
    present = {str(route["dst"]) for route in listed}
    for verb, addresses in (("replace", wanted - present), ("del", present - wanted)):
        for address in sorted(addresses):
            way = (f"{address}/32", "dev", bridge, "scope", "link", "proto", _PROTOCOL)
            done = _ip("route", verb, *way)
            if done.returncode != 0:
                raise OSError(f"ip route {verb} {address}: {done.stderr.strip()}")
    return True


def _ip(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *words], capture_output=True, text=True, timeout=_TIMEOUT_S)
