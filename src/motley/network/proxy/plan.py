"""From Services and EndpointSlices to changes of the nftables table; pure.

Every Service becomes a `Fragment`: its chains, sets and elements. The plan lays fragments over
the base table, remembers which names a change touched, and diffs only those.

Invariant: after any sequence of `put`s the desired ruleset equals the one built from scratch from
the same Services.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from motley.api.views.base import Key
from motley.api.views.core import EndpointSlice, Service, ServicePort
from motley.network.proxy import layout, ruleset
from motley.network.proxy.endpoints import (
    PROTOCOLS,
    Target,
    Targets,
    is_proxied,
    is_routable,
    targets,
)
from motley.network.proxy.layout import Settings
from motley.network.proxy.ruleset import Applied, Chain, Changes, Element, Ruleset, Set

_LONGEST_NAME = 120  # NFT_NAME_MAXLEN is 256 today, was 128 with its closing zero
_MOST_RULES = 8
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
    """What one Service adds to the table."""

    sets: dict[str, Set] = field(default_factory=dict)
    chains: dict[str, Chain] = field(default_factory=dict)
    elements: dict[Element, str] = field(default_factory=dict)
    udp_routes: set[Route] = field(default_factory=set)


def fragment(
    service: Service | None, slices: Sequence[EndpointSlice], settings: Settings
) -> Fragment:
    """What this Service needs in the table; nothing for headless and ExternalName ones."""
    result = Fragment()
    if service is None or not is_proxied(service):
        return result
    for port in service.spec.ports:
        if port.protocol in PROTOCOLS and port.port:
            _add_port(result, service, port, slices, settings)
    return result


def _add_port(
    result: Fragment,
    service: Service,
    port: ServicePort,
    slices: Sequence[EndpointSlice],
    settings: Settings,
) -> None:
    spec = service.spec
    protocol = PROTOCOLS[port.protocol]
    usable = targets(service, port, slices, settings.node_name)
    name = f"{service.key}/{protocol}/{port.name or port.port}"
    chains = _Balancers(result, service, protocol, name)
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

    frontends = [
        (layout.SERVICES, layout.REFUSED, f"{address} . {protocol} . {port.port}")
        for address in spec.external_ips
        if is_routable(address)
    ]
    # allocateLoadBalancerNodePorts may leave a LoadBalancer without one.
    if spec.type in ("NodePort", "LoadBalancer") and port.node_port:
        frontends.append(
            (layout.NODE_PORTS, layout.REFUSED_NODE_PORTS, f"{protocol} . {port.node_port}")
        )
    if frontends and usable.everywhere:
        chain = _external_chain(result, chains, name, usable, external_local, settings)
    for served, refused, key in frontends:
        if usable.everywhere:
            result.elements[Element(served, key)] = f"goto {chain}"
        else:
            result.elements[Element(refused, key)] = f"goto {layout.REFUSE}"

    reachable = set(internal) | (set(usable.everywhere) if frontends else set())
    for target in reachable:
        result.elements[Element(layout.HAIRPIN, f"{target.ip} . {target.ip}")] = ""
    if protocol == "udp":
        result.udp_routes |= {Route(spec.cluster_ip, port.port, t) for t in internal}
        for served, _, key in frontends:
            address = "" if served == layout.NODE_PORTS else key.split(" ")[0]
            number = port.node_port if served == layout.NODE_PORTS else port.port
            result.udp_routes |= {Route(address, number, t) for t in usable.everywhere}


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


class _Balancers:
    """Makes the chains that spread connections over targets, each at most once."""

    def __init__(self, result: Fragment, service: Service, protocol: str, name: str) -> None:
        self._result = result
        self._protocol = protocol
        self._name = name
        self._timeout_s: int | None = None
        if service.spec.session_affinity == "ClientIP":
            config = service.spec.session_affinity_config
            client_ip = config.client_ip if config else None
            self._timeout_s = client_ip.timeout_seconds if client_ip else _DEFAULT_AFFINITY_S

    def balance(self, kind: str, chosen: Sequence[Target]) -> str:
        chain = chain_name(kind, self._name)
        if chain not in self._result.chains:
            rules = self._spread(chosen) if self._timeout_s is None else self._sticky(chosen)
            self._result.chains[chain] = Chain(tuple(rules))
        return chain

    def _spread(self, chosen: Sequence[Target]) -> list[str]:
        """Round robin: every n-th connection to the first, every (n-1)-th of the rest to the next…

        Many targets are one rule with a map instead. Not always, because every map is a set to
        the kernel, and libnftables reads the list of all sets before each change.
        """
        dnat = f"meta l4proto {self._protocol} dnat to"
        if len(chosen) > _MOST_RULES:
            listed = ", ".join(f"{i} : {t.ip} . {t.port}" for i, t in enumerate(chosen))
            return [f"{dnat} numgen inc mod {len(chosen)} map {{ {listed} }}"]
        *others, last = chosen
        rules = [
            f"numgen inc mod {len(chosen) - i} 0 {dnat} {t.ip}:{t.port}"
            for i, t in enumerate(others)
        ]
        return [*rules, f"{dnat} {last.ip}:{last.port}"]

    def _sticky(self, chosen: Sequence[Target]) -> list[str]:
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
            self._result.chains[chain] = Chain(
                (f"update @{clients} {{ ip saddr }}", *self._spread([target]))
            )
            rules.append(f"ip saddr @{clients} goto {chain}")
        listed = ", ".join(f"{i} : goto {chain}" for i, chain in enumerate(chains))
        return [*rules, f"numgen inc mod {len(chains)} vmap {{ {listed} }}"]


def chain_name(kind: str, name: str) -> str:
    """A name nft accepts, unique by digest, readable by people: `svc-1f0c9a2b-default/web/tcp/80`.

    What nft's scanner would not take for part of a name never reaches it, whoever named it.
    """
    digest = hashlib.blake2b(name.encode(), digest_size=6).hexdigest()
    return f"{kind}-{digest}-{_FOREIGN.sub('/', name)}"[:_LONGEST_NAME]


class Plan:
    """The desired table, kept current Service by Service, against what the kernel has."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.desired: Ruleset = layout.base(settings)
        self.applied = Applied()
        self._fragments: dict[Key, Fragment] = {}
        # Two Services may claim one element (an external address, a pod in both): all claims are
        # kept, the first name wins, and when it goes the next one takes over.
        self._claims: dict[Element, dict[Key, str]] = {}
        self._sets: set[str] = set()
        self._chains: set[str] = set()
        self._elements: set[Element] = set()
        self._retired: set[Route] = set()
        self._everything = True

    def put(self, key: Key, service: Service | None, slices: Sequence[EndpointSlice]) -> None:
        """Take in the current state of one Service; None when it is gone."""
        old = self._fragments.pop(key, None) or Fragment()
        new = fragment(service, slices, self.settings)
        if new.chains or new.elements:
            self._fragments[key] = new
        for name in old.sets.keys() | new.sets.keys():
            _assign(self.desired.sets, name, new.sets.get(name), self._sets)
        for name in old.chains.keys() | new.chains.keys():
            _assign(self.desired.chains, name, new.chains.get(name), self._chains)
        for element in old.elements.keys() | new.elements.keys():
            self._claim(key, element, new.elements.get(element))
        self._retired |= old.udp_routes - new.udp_routes

    def _claim(self, key: Key, element: Element, value: str | None) -> None:
        claims = self._claims.setdefault(element, {})
        if value is None:
            claims.pop(key, None)
        else:
            claims[key] = value
        if claims:
            _assign(self.desired.elements, element, claims[min(claims)], self._elements)
        else:
            del self._claims[element]
            _assign(self.desired.elements, element, None, self._elements)

    def adopt(self, applied: Applied) -> None:
        """Learn what the kernel really has; the next changes are against that."""
        self.applied = applied
        self._everything = True

    def changes(self) -> Changes:
        """What to do so that the kernel has what is desired."""
        if self._everything:
            return ruleset.diff(self.desired, self.applied)
        return ruleset.diff_touched(
            self.desired,
            self.applied,
            sets=self._sets,
            chains=self._chains,
            elements=self._elements,
        )

    def commit(self, changes: Changes) -> None:
        """The kernel has taken `changes`, which nothing was put in between."""
        ruleset.advance(self.applied, changes)
        self._sets.clear()
        self._chains.clear()
        self._elements.clear()
        self._everything = False

    def take_retired(self) -> frozenset[Route]:
        """UDP routes that ended since the last call, for the connection tracking table."""
        if not self._retired:
            return frozenset()
        retired = frozenset(self._retired - self.udp_routes())
        self._retired.clear()
        return retired

    def udp_routes(self) -> frozenset[Route]:
        """Every UDP route there is."""
        return frozenset(r for f in self._fragments.values() for r in f.udp_routes)

    def service_keys(self) -> Iterable[Key]:
        """The Services that have a part in the table."""
        return self._fragments.keys()


_N = TypeVar("_N")
_V = TypeVar("_V")


def _assign(into: dict[_N, _V], name: _N, value: _V | None, touched: set[_N]) -> None:
    if into.get(name) == value:
        return
    touched.add(name)
    if value is None:
        del into[name]
    else:
        into[name] = value
