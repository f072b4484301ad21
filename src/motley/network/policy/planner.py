"""From policies, pods and namespaces to fragments of the table; pure, and incremental.

Three kinds of owners put fragments into the plan:

    a set      the declaration of a selector's or port name's set
    a pod      its address in every set that means it; on this node also in the maps of the
               directions it is isolated in
    a group    a chain with the rules of some policies: pods that the same policies select share it

A pod's change costs that pod, a policy's change the pods that it, or a selector it speaks of first
or last, means. Invariant: after any sequence of puts the fragments are those made from scratch.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from motley.api.selectors import SelectorError
from motley.api.views.base import Key
from motley.api.views.networkpolicy import NetworkPolicy, ReachablePod
from motley.lib import journal
from motley.network.policy import layout
from motley.network.policy.rules import (
    ADDRESSES,
    ADDRESSES_AND_PORTS,
    Compiled,
    Peer,
    PortName,
    compiled,
    namespace_labels,
)
from motley.network.proxy.endpoints import PROTOCOLS, is_routable
from motley.network.proxy.fragments import Fragment, chain_name
from motley.network.proxy.ruleset import Chain, Element

log = journal.get(__name__)

DNS_NAMESPACE = "kube-system"
_DNS_POD = Key(DNS_NAMESPACE, "#cluster-dns")
_DNS_LABELS = {"k8s-app": "kube-dns"}
_DNS_PORTS = frozenset({(PortName("udp", "dns"), 53), (PortName("tcp", "dns-tcp"), 53)})
_KINDS = {layout.IN: "in", layout.OUT: "out"}


class Reachable(NamedTuple):
    """What policies are judged by, of one pod."""

    address: str
    labels: Mapping[str, str]
    ports: frozenset[tuple[PortName, int]] = frozenset()
    is_here: bool = False


class _Group(NamedTuple):
    direction: str
    policies: tuple[Key, ...]

    @property
    def chain(self) -> str:
        return chain_name(_KINDS[self.direction], ",".join(str(key) for key in self.policies))


def reachable(pod: ReachablePod, node_name: str) -> Reachable | None:
    """A pod's facts; None for one without an address of its own: not yet, no more, the node's."""
    spec, status = pod.spec, pod.status
    if spec.host_network or status.phase in ("Succeeded", "Failed"):
        return None
    if not is_routable(status.pod_ip):
        return None
    ports = frozenset(
        (PortName(PROTOCOLS[port.protocol], port.name), port.container_port)
        for container in (*spec.containers, *spec.init_containers)
        for port in container.ports
        if port.name and port.protocol in PROTOCOLS
    )
    return Reachable(status.pod_ip, pod.metadata.labels, ports, spec.node_name == node_name)


class Policies:
    """All policies of the cluster as this node's table needs them. `put` what changed, `take`."""

    def __init__(self, dns_address: str = "") -> None:
        self._policies: dict[Key, Compiled] = {}
        self._by_namespace: dict[str, set[Key]] = {}
        self._pods: dict[Key, Reachable] = {}
        self._pods_of: dict[str, set[Key]] = {}
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self._peers: Counter[Peer] = Counter()
        self._peers_of: dict[str, set[Peer]] = {}  # by their one namespace; "" for the others
        self._ports: Counter[PortName] = Counter()
        self._groups_of: dict[Key, set[_Group]] = {}
        self._groups: Counter[_Group] = Counter()
        self._dirty: set[Key] = set()
        self._changed_policies: set[Key] = set()
        self._fragments: dict[Key, Fragment] = {}
        if dns_address:
            # Kubernetes' manifests allow DNS by the labels of its pods; here it is the node's.
            self.put_pod(_DNS_POD, Reachable(dns_address, _DNS_LABELS, _DNS_PORTS))

    def __len__(self) -> int:
        return len(self._policies)

    def put_pod(self, key: Key, pod: Reachable | None) -> None:
        """A pod as it is now; None when it is gone or cannot be reached."""
        if self._pods.get(key) == pod:
            return
        if pod is None:
            del self._pods[key]
            self._pods_of[key.namespace].discard(key)
        else:
            self._pods[key] = pod
            self._pods_of.setdefault(key.namespace, set()).add(key)
        self._dirty.add(key)

    def put_namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        """A namespace's labels; None when it is gone."""
        if self._namespaces.get(name) == labels:
            return
        if labels is None:
            del self._namespaces[name]
        else:
            self._namespaces[name] = labels
        self._dirty |= self._pods_of.get(name, set())

    def put_policy(self, key: Key, policy: NetworkPolicy | None) -> None:
        """A policy as it is now; None when it is gone."""
        new: Compiled | None = None
        if policy is not None:
            try:
                new = compiled(policy)
            except (SelectorError, ValueError) as error:
                # The API server lets none through; to isolate whom it may have meant is a guess.
                log.error("network policy is not understood", policy=str(key), error=error)
        old = self._policies.pop(key, None)
        if new is not None:
            self._policies[key] = new
            self._by_namespace.setdefault(key.namespace, set()).add(key)
        else:
            self._by_namespace.get(key.namespace, set()).discard(key)
        self._use(new, 1)
        self._use(old, -1)
        for pod in self._pods_of.get(key.namespace, ()):
            labels = self._pods[pod].labels
            if any(c is not None and c.selector.matches(labels) for c in (old, new)):
                self._dirty.add(pod)
        self._changed_policies.add(key)

    def _use(self, policy: Compiled | None, step: int) -> None:
        if policy is None:
            return
        for peer in policy.peers:
            before = self._peers[peer]
            self._peers[peer] += step
            if not before or not self._peers[peer]:
                self._peer_changed(peer, bool(self._peers[peer]))
        for port in policy.ports:
            before = self._ports[port]
            self._ports[port] += step
            if not before or not self._ports[port]:
                self._port_changed(port, bool(self._ports[port]))

    def _peer_changed(self, peer: Peer, used: bool) -> None:
        found = Fragment(sets={peer.set_name: ADDRESSES}) if used else Fragment()
        self._fragments[Key("policy:set", peer.set_name)] = found
        peers = self._peers_of.setdefault(peer.namespace, set())
        if used:
            peers.add(peer)
        else:
            peers.discard(peer)
            del self._peers[peer]
        keys = self._pods_of.get(peer.namespace, ()) if peer.namespace else self._pods
        self._dirty |= {key for key in keys if self._means(peer, key)}

    def _port_changed(self, port: PortName, used: bool) -> None:
        found = Fragment(sets={port.set_name: ADDRESSES_AND_PORTS}) if used else Fragment()
        self._fragments[Key("policy:set", port.set_name)] = found
        if not used:
            del self._ports[port]
        self._dirty |= {
            key for key, pod in self._pods.items() if any(name == port for name, _ in pod.ports)
        }

    def _means(self, peer: Peer, key: Key) -> bool:
        labels = namespace_labels(key.namespace, self._namespaces.get(key.namespace))
        return peer.matches(key.namespace, labels, self._pods[key].labels)

    def take(self) -> dict[Key, Fragment]:
        """The fragments that changed since the last call, by owner; empty ones are gone."""
        touched: set[_Group] = set()
        for key in self._dirty:
            self._fragments[Key(f"policy:pod:{key.namespace}", key.name)] = self._pod(key, touched)
        if self._changed_policies:
            touched |= {g for g in self._groups if self._changed_policies & set(g.policies)}
        for group in touched:
            self._fragments[Key("policy:chain", group.chain)] = self._chain(group)
        self._dirty = set()
        self._changed_policies = set()
        taken, self._fragments = self._fragments, {}
        return taken

    def _pod(self, key: Key, touched: set[_Group]) -> Fragment:
        pod = self._pods.get(key)
        groups = set(self._groups_for(key, pod)) if pod is not None and pod.is_here else set()
        self._join(key, groups, touched)
        if pod is None:
            return Fragment()
        elements = {Element(name, pod.address): "" for name in self._sets_of(key)}
        for port, number in pod.ports:
            if port in self._ports:
                elements[Element(port.set_name, f"{pod.address} . {number}")] = ""
        for group in groups:
            element, verdict = layout.isolated(group.direction, pod.address, group.chain)
            elements[element] = verdict
            elements[layout.itself(pod.address)] = ""
        return Fragment(elements=elements)

    def _sets_of(self, key: Key) -> Iterator[str]:
        for namespace in (key.namespace, ""):
            for peer in self._peers_of.get(namespace, ()):
                if self._means(peer, key):
                    yield peer.set_name

    def _groups_for(self, key: Key, pod: Reachable) -> Iterator[_Group]:
        selecting = [
            policy
            for policy in self._by_namespace.get(key.namespace, ())
            if self._policies[policy].selector.matches(pod.labels)
        ]
        for direction in (layout.IN, layout.OUT):
            members = sorted(p for p in selecting if direction in self._policies[p].allows)
            if members:
                yield _Group(direction, tuple(members))

    def _join(self, key: Key, groups: set[_Group], touched: set[_Group]) -> None:
        old = self._groups_of.pop(key, set())
        if groups:
            self._groups_of[key] = groups
        self._groups.update(groups)
        for group in old:
            self._groups[group] -= 1
            if not self._groups[group]:
                del self._groups[group]
        touched |= groups ^ old

    def _chain(self, group: _Group) -> Fragment:
        if group not in self._groups:
            return Fragment()
        allowed: Iterable[str] = (
            rule for key in group.policies for rule in self._policies[key].allows[group.direction]
        )
        # The same rule in two policies is one rule; order does not matter between returns.
        return Fragment(chains={group.chain: Chain((*dict.fromkeys(allowed), "drop"))})
