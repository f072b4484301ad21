"""The fixed part of the table: hooks, and the maps that Services are put into.

    prerouting, output ─ services ─ @services  (address . protocol . port) ─▶ svc-…, ext-…
                                  └ @nodeports (protocol . port)           ─▶ ext-…
    forward, output, input        ─ @refused, @refused-nodeports, rest of the service CIDR ─▶ refuse
    postrouting                   ─ masquerade: hairpin, marked, leaving the cluster

A packet's cost is one hash lookup, whatever the number of Services.
"""

from dataclasses import dataclass

from motley.network.policy import layout as policies
from motley.network.proxy.ruleset import Chain, Ruleset, Set

SERVICES = "services"
NODE_PORTS = "nodeports"
REFUSED = "refused"
REFUSED_NODE_PORTS = "refused-nodeports"
HAIRPIN = "hairpin"
REFUSE = "refuse"

# kube-proxy's masquerade bit, so that tools which know it see what they expect.
MARK = 0x4000
SET_MARK = f"meta mark set meta mark or {MARK:#x}"


@dataclass(frozen=True)
class Settings:
    """What the table depends on besides Services."""

    node_name: str
    cluster_cidr: str = "10.244.0.0/16"
    service_cidr: str = "10.96.0.0/16"
    localhost_node_ports: bool = True
    network_policy: bool = False
    dns_address: str = ""  # empty: this node answers no names


def base(settings: Settings) -> Ruleset:
    """The table without any Service and without any policy."""
    found = _services(settings)
    if settings.network_policy:
        judging = policies.base(settings.dns_address)
        found.sets |= judging.sets
        found.chains |= judging.chains
    return found


def _services(settings: Settings) -> Ruleset:
    cluster, services = settings.cluster_cidr, settings.service_cidr
    frontend = "type ipv4_addr . inet_proto . inet_service : verdict;"
    node_port = "type inet_proto . inet_service : verdict;"
    local = "fib daddr type local"
    reachable = local if settings.localhost_node_ports else f"{local} ip daddr != 127.0.0.0/8"
    guard = (
        f"ct state new ip daddr . meta l4proto . th dport vmap @{REFUSED}",
        f"ip daddr {services} fib daddr type != local goto {REFUSE}",
    )
    return Ruleset(
        sets={
            SERVICES: Set("map", frontend),
            NODE_PORTS: Set("map", node_port),
            REFUSED: Set("map", frontend),
            REFUSED_NODE_PORTS: Set("map", node_port),
            HAIRPIN: Set("set", "type ipv4_addr . ipv4_addr;"),
        },
        chains={
            "nat-prerouting": Chain(("jump services",), "type nat hook prerouting priority -100;"),
            "nat-output": Chain(("jump services",), "type nat hook output priority -100;"),
            "services": Chain(
                (
                    # A stranger who routes to a virtual address: the answer must come back here.
                    f"ip daddr {services} ip saddr != {cluster} fib saddr type != local {SET_MARK}",
                    f"ip daddr . meta l4proto . th dport vmap @{SERVICES}",
                    f"{reachable} meta l4proto . th dport vmap @{NODE_PORTS}",
                )
            ),
            "nat-postrouting": Chain(
                (
                    # A pod that reaches itself by its Service would answer itself directly.
                    f"ip saddr . ip daddr @{HAIRPIN} masquerade fully-random",
                    f"meta mark and {MARK:#x} != 0 meta mark set meta mark xor {MARK:#x} "
                    "masquerade fully-random",
                    f"ip saddr {cluster} ip daddr != {{ {cluster}, {services} }} "
                    'oifname != "lo" masquerade fully-random',
                ),
                "type nat hook postrouting priority 100;",
            ),
            # route_localnet makes 127.0.0.1:NodePort work; it must not let others in that way.
            # Before conntrack, so that answers (still addressed to us) are not touched.
            "raw-prerouting": Chain(
                ('iifname != "lo" ip daddr 127.0.0.0/8 drop',),
                "type filter hook prerouting priority -300;",
            ),
            "filter-forward": Chain(guard, "type filter hook forward priority -1;"),
            "filter-output": Chain(guard, "type filter hook output priority -1;"),
            "filter-input": Chain(
                (
                    f"ct state new {local} meta l4proto . th dport vmap @{REFUSED_NODE_PORTS}",
                    f"ct state new ip daddr . meta l4proto . th dport vmap @{REFUSED}",
                ),
                "type filter hook input priority -1;",
            ),
            # To a local client the kernel does not deliver a reset, but takes the ICMP message for
            # "connection refused"; to others it sends only a few ICMP messages a second.
            REFUSE: Chain(
                (
                    "meta iif != 0 meta l4proto tcp reject with tcp reset",
                    "reject with icmp port-unreachable",
                )
            ),
        },
    )
