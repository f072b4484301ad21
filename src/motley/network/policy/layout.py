"""The fixed part of network policies in the table: where packets are judged.

    forward ─ established ─▶ accept
            ─ @policy-out (source)      ─▶ out-…  return: allowed, end of chain: drop
            ─ @policy-in  (destination) ─▶ in-…   likewise
    input   ─ the cluster's DNS address: @policy-out

A pod that no policy isolates is in neither map and costs two lookups. The forward hook comes after
the choice of an endpoint, so traffic to a Service is judged by where it really goes, and before
masquerading, so by where it really comes from. What the node itself sends (probes, its own
clients, pods in its network namespace) and what pods send to the node passes no forward hook: it
is always allowed, as Kubernetes says. Only the cluster's DNS address, which every node has, counts
as a pod.
"""

from motley.network.proxy.ruleset import Chain, Element, Ruleset, Set

IN, OUT = "policy-in", "policy-out"
SELF = "policy-self"

_BY_ADDRESS = "type ipv4_addr : verdict;"
_KNOWN = "ct state established,related accept"


def base(dns_address: str) -> Ruleset:
    """Hooks and maps, without any policy. `dns_address` is empty where no DNS is served."""
    found = Ruleset(
        sets={
            IN: Set("map", _BY_ADDRESS),
            OUT: Set("map", _BY_ADDRESS),
            SELF: Set("set", "type ipv4_addr . ipv4_addr;"),
        },
        chains={
            "policy-forward": Chain(
                (
                    _KNOWN,
                    # A pod cannot be kept from itself, also not by way of its Service.
                    f"ip saddr . ip daddr @{SELF} accept",
                    f"ip saddr vmap @{OUT}",
                    f"ip daddr vmap @{IN}",
                ),
                "type filter hook forward priority 0;",
            ),
        },
    )
    if dns_address:
        found.chains["policy-input"] = Chain(
            (_KNOWN, f"ip daddr {dns_address} ip saddr vmap @{OUT}"),
            "type filter hook input priority 0;",
        )
    return found


def isolated(direction: str, address: str, chain: str) -> tuple[Element, str]:
    """The element that sends an address' packets of one direction through a chain."""
    return Element(direction, address), f"jump {chain}"


def itself(address: str) -> Element:
    """The element that lets an address talk to itself."""
    return Element(SELF, f"{address} . {address}")
