"""What one Service needs in the table: its chains, sets and elements; pure."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network, collapse_addresses
from typing import NamedTuple

from motley.api.views.core import EndpointSlice, Service, ServicePort
from motley.network.proxy import balance, layout
from motley.network.proxy.endpoints import (
    NOWHERE,
    PROTOCOLS,
    Surroundings,
    Target,
    Targets,
    is_proxied,
    is_routable,
    targets,
)
from motley.network.proxy.layout import Settings
from motley.network.proxy.ruleset import Chain, Element, Set

_LONGEST_NAME = 120  # NFT_NAME_MAXLEN is 256 today, was 128 with its closing zero
_FOREIGN = re.compile(r"[^a-zA-Z0-9/_.-]")
_AFFINITY_SIZE = 65536
_DEFAULT_AFFINITY_S = 10800  # three hours, the API's default


class Route(NamedTuple):
    """One way a UDP packet may take; `address` is empty for a node port."""

    address: str
    port: int
    target: Target


@dataclass
class Fragment:
    """What one owner (a Service, a pod under a policy) adds to the table."""

    sets: dict[str, Set] = field(default_factory=dict)
    chains: dict[str, Chain] = field(default_factory=dict)
    elements: dict[Element, str] = field(default_factory=dict)
    udp_routes: set[Route] = field(default_factory=set)
    tcp_targets: set[Target] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.sets or self.chains or self.elements)


class _Frontend(NamedTuple):
    """An address or port by which a Service is reached from outside."""

    served: str
    refused: str
    key: str
    is_balanced: bool = False  # a load balancer's address: source ranges apply


def chain_name(kind: str, name: str) -> str:
    """A name nft accepts, unique by digest, readable by people: `svc-1f0c9a2b-default/web/tcp/80`.

    What nft's scanner would not take for part of a name never reaches it, whoever named it.
    """
    digest = hashlib.blake2b(name.encode(), digest_size=6).hexdigest()
    return f"{kind}-{digest}-{_FOREIGN.sub('/', name)}"[:_LONGEST_NAME]


def fragment(
    service: Service | None,
    slices: Sequence[EndpointSlice],
    settings: Settings,
    around: Surroundings = NOWHERE,
) -> Fragment:
    """What this Service needs in the table; nothing for headless and ExternalName ones."""
    result = Fragment()
    if service is None or not is_proxied(service):
        return result
    for port in service.spec.ports:
        if port.protocol in PROTOCOLS and port.port:
            usable = targets(service, port, slices, settings.node_name, around)
            _add_port(result, service, port, usable, settings)
    return result


def _add_port(
    result: Fragment, service: Service, port: ServicePort, usable: Targets, settings: Settings
) -> None:
    spec = service.spec
    protocol = PROTOCOLS[port.protocol]
    name = f"{service.key}/{protocol}/{port.name or port.port}"
    chains = _Balancers(result, service, protocol, name, usable)
    internal_local = spec.internal_traffic_policy == "Local"
    external_local = spec.external_traffic_policy == "Local"

    internal = usable.here if internal_local else usable.everywhere
    cluster_ip = f"{spec.cluster_ip} . {protocol} . {port.port}"
    if internal:
        chain = chains.balance("loc" if internal_local else "svc", internal)
        result.elements[Element(layout.SERVICES, cluster_ip)] = f"goto {chain}"
    elif internal_local and usable.everywhere:
        result.elements[Element(layout.REFUSED, cluster_ip)] = "drop"
    # A cluster address without endpoints needs no element: the rest of the CIDR is refused.

    frontends = list(_frontends(service, port, protocol))
    if frontends and usable.everywhere:
        chain = _external_chain(result, chains, name, usable, external_local, settings)
        guarded = _guarded_chain(result, service, name, chain)
    for frontend in frontends:
        if usable.everywhere:
            where = guarded if frontend.is_balanced else chain
            result.elements[Element(frontend.served, frontend.key)] = f"goto {where}"
        else:
            result.elements[Element(frontend.refused, frontend.key)] = f"goto {layout.REFUSE}"

    outside = {*usable.everywhere, *(usable.here if external_local else ())} if frontends else set()
    for target in {*internal, *outside}:
        result.elements[Element(layout.HAIRPIN, f"{target.ip} . {target.ip}")] = ""
    if protocol == "tcp":
        result.tcp_targets |= {*internal, *outside}
    if protocol == "udp":
        result.udp_routes |= {Route(spec.cluster_ip, port.port, t) for t in internal}
        for frontend in frontends:
            by_port = frontend.served == layout.NODE_PORTS
            address = "" if by_port else frontend.key.split(" ")[0]
            number = port.node_port if by_port else port.port
            result.udp_routes |= {Route(address, number, t) for t in outside}


def _frontends(service: Service, port: ServicePort, protocol: str) -> Sequence[_Frontend]:
    spec = service.spec
    found = [
        _Frontend(layout.SERVICES, layout.REFUSED, f"{address} . {protocol} . {port.port}")
        for address in spec.external_ips
        if is_routable(address)
    ]
    if spec.type == "LoadBalancer":
        found += [
            _Frontend(layout.SERVICES, layout.REFUSED, f"{i.ip} . {protocol} . {port.port}", True)
            for i in service.status.load_balancer.ingress
            if is_routable(i.ip) and i.ip_mode != "Proxy"
        ]
    # allocateLoadBalancerNodePorts may leave a LoadBalancer without one.
    if spec.type in ("NodePort", "LoadBalancer") and port.node_port:
        key = f"{protocol} . {port.node_port}"
        found.append(_Frontend(layout.NODE_PORTS, layout.REFUSED_NODE_PORTS, key))
    return found


def _external_chain(
    result: Fragment,
    chains: "_Balancers",
    name: str,
    usable: Targets,
    local: bool,
    settings: Settings,
) -> str:
    """Traffic from outside. Policy Local keeps the client's address and this node's endpoints."""
    everywhere = chains.balance("svc", usable.everywhere)
    rules: tuple[str, ...] = (layout.SET_MARK, f"goto {everywhere}")
    if local:
        here = f"goto {chains.balance('loc', usable.here)}" if usable.here else "drop"
        rules = (
            # The cluster's own traffic is not external, whatever address it used.
            f"ip saddr {settings.cluster_cidr} goto {everywhere}",
            f"fib saddr type local {layout.SET_MARK} goto {everywhere}",
            here,
        )
    chain = chain_name("ext", name)
    result.chains[chain] = Chain(rules)
    return chain


def _guarded_chain(result: Fragment, service: Service, name: str, behind: str) -> str:
    """A load balancer's address is only for its source ranges, and for the node itself."""
    ranges = _ranges(service.spec.load_balancer_source_ranges)
    if service.spec.type != "LoadBalancer" or not service.spec.load_balancer_source_ranges:
        return behind
    allowed = ", ".join(str(network) for network in ranges)
    strangers = f"ip saddr != {{ {allowed} }} " if ranges else ""
    rules = [f"{strangers}fib saddr type != local drop", f"goto {behind}"]
    if any(network.prefixlen == 0 for network in ranges):
        del rules[0]
    chain = chain_name("fw", name)
    result.chains[chain] = Chain(tuple(rules))
    return chain


def _ranges(texts: Sequence[str]) -> list[IPv4Network]:
    networks = []
    for text in texts:
        try:
            networks.append(IPv4Network(text.strip(), strict=False))
        except ValueError:
            continue  # the other address family
    return list(collapse_addresses(networks))


class _Balancers:
    """Makes the chains that spread connections over targets, each at most once."""

    def __init__(
        self, result: Fragment, service: Service, protocol: str, name: str, usable: Targets
    ) -> None:
        self._result = result
        self._protocol = protocol
        self._name = name
        self._weights = usable.weights
        self._timeout_s: int | None = None
        if service.spec.session_affinity == "ClientIP":
            config = service.spec.session_affinity_config
            client_ip = config.client_ip if config else None
            self._timeout_s = client_ip.timeout_seconds if client_ip else _DEFAULT_AFFINITY_S

    def balance(self, kind: str, chosen: Sequence[Target]) -> str:
        chain = chain_name(kind, self._name)
        if chain not in self._result.chains:
            counts = balance.shares([self._weights[t] for t in chosen]) if self._weights else ()
            rules = (
                balance.spread(self._protocol, chosen, counts)
                if self._timeout_s is None
                else self._sticky(chosen, counts)
            )
            self._result.chains[chain] = Chain(tuple(rules))
        return chain

    def _sticky(self, chosen: Sequence[Target], counts: Sequence[int]) -> list[str]:
        """A client that was here before goes where it went; a set per target remembers."""
        chains = []
        rules = []
        for target in chosen:
            full = f"{self._name}/{target.ip}:{target.port}"
            chain = chain_name("ep", full)
            # The time is part of the name: a declared set cannot be changed.
            clients = chain_name("aff", f"{full}/{self._timeout_s}")
            chains.append(chain)
            self._result.sets[clients] = Set(
                "set",
                f"type ipv4_addr; size {_AFFINITY_SIZE}; flags dynamic,timeout; "
                f"timeout {self._timeout_s}s;",
            )
            forward = balance.spread(self._protocol, [target])
            self._result.chains[chain] = Chain((f"update @{clients} {{ ip saddr }}", *forward))
            rules.append(f"ip saddr @{clients} goto {chain}")
        return [*rules, balance.spread_chains(chains, counts)]
