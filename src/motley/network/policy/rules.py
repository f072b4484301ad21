"""One NetworkPolicy as rules: what each direction allows, and which sets it speaks of; pure.

A rule that allows ends in `return`: the chain it stands in ends in `drop`. Pods are meant by sets
of addresses, one per selector, named ports by sets of address and port, so a pod that comes or goes
changes elements and no rule.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network, collapse_addresses
from typing import NamedTuple

from motley.api.selectors import Selector
from motley.api.views.networkpolicy import (
    IPBlock,
    NetworkPolicy,
    NetworkPolicyPeer,
    NetworkPolicyPort,
)
from motley.network.policy import layout
from motley.network.proxy.endpoints import PROTOCOLS
from motley.network.proxy.fragments import chain_name
from motley.network.proxy.ruleset import Set

ADDRESSES = Set("set", "type ipv4_addr;")
ADDRESSES_AND_PORTS = Set("set", "type ipv4_addr . inet_service;")
_NAME_LABEL = "kubernetes.io/metadata.name"


class Peer(NamedTuple):
    """Pods at the other end: of one namespace, or (`namespace` empty) of those that match."""

    namespace: str
    namespaces: Selector
    pods: Selector

    def matches(
        self, namespace: str, namespace_labels: Mapping[str, str], labels: Mapping[str, str]
    ) -> bool:
        """Is a pod with these labels meant?"""
        if self.namespace:
            return namespace == self.namespace and self.pods.matches(labels)
        return self.namespaces.matches(namespace_labels) and self.pods.matches(labels)

    @property
    def set_name(self) -> str:
        """The set of the addresses of these pods."""
        return chain_name("pods", f"{self.namespace or f'({self.namespaces})'}/{self.pods}")


class PortName(NamedTuple):
    """A named port, of whichever pod has it."""

    protocol: str  # as nft spells it
    name: str

    @property
    def set_name(self) -> str:
        """The set of addresses and numbers that have this name."""
        return chain_name("port", f"{self.protocol}/{self.name}")


@dataclass(frozen=True)
class Compiled:
    """A policy, ready to be put into chains. A direction that it does not isolate is absent."""

    namespace: str
    selector: Selector
    allows: Mapping[str, tuple[str, ...]]
    peers: frozenset[Peer] = frozenset()
    ports: frozenset[PortName] = frozenset()


@dataclass
class _Named:
    peers: set[Peer] = field(default_factory=set)
    ports: set[PortName] = field(default_factory=set)


def namespace_labels(name: str, labels: Mapping[str, str] | None) -> Mapping[str, str]:
    """A namespace's labels; its name is one of them even before we have seen the namespace."""
    return {**(labels or {}), _NAME_LABEL: name}


def compiled(policy: NetworkPolicy) -> Compiled:
    """The rules of a policy; raises SelectorError for a selector that means nothing."""
    spec, namespace = policy.spec, policy.metadata.namespace
    # Ingress unless said otherwise; egress when there are rules for it.
    types = spec.policy_types or ["Ingress", *(["Egress"] if spec.egress else [])]
    named = _Named()
    allows: dict[str, tuple[str, ...]] = {}
    if "Ingress" in types:
        ways = [(rule.from_, rule.ports) for rule in spec.ingress]
        allows[layout.IN] = tuple(_texts("ip saddr", namespace, ways, named))
    if "Egress" in types:
        ways = [(rule.to, rule.ports) for rule in spec.egress]
        allows[layout.OUT] = tuple(_texts("ip daddr", namespace, ways, named))
    return Compiled(
        namespace,
        Selector.of(spec.pod_selector),
        allows,
        frozenset(named.peers),
        frozenset(named.ports),
    )


def _texts(
    side: str,
    namespace: str,
    ways: Iterable[tuple[Sequence[NetworkPolicyPeer], Sequence[NetworkPolicyPort]]],
    named: _Named,
) -> Iterator[str]:
    for peers, ports in ways:
        # Nobody named is everybody; but peers of the other address family are nobody.
        others = list(_peers(side, namespace, peers, named)) if peers else [""]
        doors = list(_ports(ports, named)) if ports else [""]
        for other in others:
            for door in doors:
                yield " ".join(part for part in (other, door, "return") if part)


def _peers(
    side: str, namespace: str, peers: Iterable[NetworkPolicyPeer], named: _Named
) -> Iterator[str]:
    for peer in peers:
        if peer.ip_block is not None:
            text = _block(side, peer.ip_block)
            if text is not None:
                yield text
            continue
        pods = (
            Selector.everything() if peer.pod_selector is None else Selector.of(peer.pod_selector)
        )
        if peer.namespace_selector is None:
            meant = Peer(namespace, Selector.nothing(), pods)
        else:
            meant = Peer("", Selector.of(peer.namespace_selector), pods)
        named.peers.add(meant)
        yield f"{side} @{meant.set_name}"


def _block(side: str, block: IPBlock) -> str | None:
    inside = _networks([block.cidr])
    if not inside:
        return None
    parts = [] if inside[0].prefixlen == 0 else [f"{side} {inside[0]}"]
    holes = _networks(block.except_)
    if any(hole.prefixlen == 0 for hole in holes):
        return None
    if holes:
        parts.append(f"{side} != {{ {', '.join(str(hole) for hole in holes)} }}")
    return " ".join(parts)


def _networks(texts: Iterable[str]) -> list[IPv4Network]:
    return list(
        collapse_addresses(IPv4Network(text, strict=False) for text in texts if ":" not in text)
    )


def _ports(ports: Iterable[NetworkPolicyPort], named: _Named) -> Iterator[str]:
    """One condition per protocol for all numbers, one for each name."""
    numbers: dict[str, list[tuple[int, int]]] = {}
    whole: set[str] = set()
    names: set[PortName] = set()
    for port in ports:
        protocol = PROTOCOLS.get(port.protocol)
        if protocol is None:
            continue
        if port.port is None:
            whole.add(protocol)
        elif isinstance(port.port, str):
            names.add(PortName(protocol, port.port))
        else:
            numbers.setdefault(protocol, []).append((port.port, port.end_port or port.port))
    named.ports |= names
    yield from (f"meta l4proto {protocol}" for protocol in sorted(whole))
    for protocol, ranges in sorted(numbers.items()):
        listed = [f"{low}-{high}" if high > low else str(low) for low, high in _merged(ranges)]
        if protocol not in whole and listed:
            text = listed[0] if len(listed) == 1 else f"{{ {', '.join(listed)} }}"
            yield f"{protocol} dport {text}"
    yield from (
        f"ip daddr . {name.protocol} dport @{name.set_name}"
        for name in sorted(names)
        if name.protocol not in whole
    )


def _merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same numbers in ranges that neither overlap nor touch: nft takes no others."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if not 0 < low <= high < 65536:
            continue
        if found and low <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return found
