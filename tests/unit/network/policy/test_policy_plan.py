"""Network policies as rules: judged by an interpreter of the rules against the plain semantics."""

import ipaddress
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motley.api.views.base import Key
from motley.api.views.networkpolicy import NetworkPolicy, ReachablePod
from motley.network.policy.planner import Policies, reachable
from motley.network.proxy import ruleset
from motley.network.proxy.layout import Settings
from motley.network.proxy.plan import Plan

NODE = "node-1"
DNS = "10.96.0.10"
HERE = Settings(NODE, network_policy=True, dns_address=DNS)


def pod(ip, labels=None, namespace="shop", node=NODE, ports=(), **spec):
    return ReachablePod.of(
        {
            "metadata": {"name": ip, "namespace": namespace, "labels": labels or {}},
            "spec": {"nodeName": node, "containers": [{"ports": list(ports)}], **spec},
            "status": {"podIP": ip, "phase": "Running"},
        }
    )


def policy(name="p", namespace="shop", **spec):
    return NetworkPolicy.of({"metadata": {"name": name, "namespace": namespace}, "spec": spec})


class World:
    """A planner and the plan it feeds."""

    def __init__(self):
        self.policies = Policies(DNS)
        self.plan = Plan(HERE)

    def pod(self, made, key=None):
        self.policies.put_pod(key or made.key, reachable(made, NODE))

    def sync(self):
        for owner, fragment in self.policies.take().items():
            self.plan.place(owner, fragment)
        changes = self.plan.changes()
        self.plan.commit(changes)
        return changes

    def allows(self, source, destination, protocol="tcp", port=80):
        self.sync()
        return judge(self.plan.desired, "policy-forward", source, destination, protocol, port)


def world(policies=(), pods=(), namespaces=None):
    made = World()
    for name, labels in (namespaces or {}).items():
        made.policies.put_namespace(name, labels)
    for each in pods:
        made.pod(each)
    for each in policies:
        made.policies.put_policy(each.key, each)
    return made


# An interpreter of the few words that policies are written in.

_WORDS = re.compile(r"\{[^}]*\}|\S+")


def judge(rules, chain, source, destination, protocol, port):
    fields = {"ip saddr": source, "ip daddr": destination, "port": port, "protocol": protocol}
    return run(rules, chain, fields) != "drop"


def run(rules, chain, fields):
    for rule in rules.chains[chain].rules:
        verdict = apply(rules, rule, fields)
        if verdict.startswith("jump"):
            verdict = run(rules, verdict.split()[1], fields)
        if verdict in ("accept", "drop"):
            return verdict
        if verdict == "return":
            return "continue"
    return "continue"


def apply(rules, rule, fields):
    words = _WORDS.findall(rule)
    while len(words) > 1:
        if words[:2] == ["ct", "state"]:
            return "continue"  # every packet here is a connection's first
        if words[:2] == ["meta", "l4proto"]:
            value, words = fields["protocol"], words[2:]
        elif words[0] in ("tcp", "udp", "sctp"):
            if words[0] != fields["protocol"]:
                return "continue"
            value, words = fields["port"], words[2:]
        else:
            value, words = fields[" ".join(words[:2])], words[2:]
            if words[0] == ".":
                if words[1] == "ip":
                    value, words = f"{value} . {fields[' '.join(words[1:3])]}", words[3:]
                elif words[1] != fields["protocol"]:
                    return "continue"
                else:
                    value, words = f"{value} . {fields['port']}", words[3:]
        if words[0] == "vmap":
            return rules.elements.get(ruleset.Element(words[1][1:], value), "continue")
        negated = words[0] == "!="
        words = words[1:] if negated else words
        if matches(rules, value, words[0]) == negated:
            return "continue"
        words = words[1:]
    return words[0]


def matches(rules, value, text):
    if text.startswith("@"):
        assert text[1:] in rules.sets
        return ruleset.Element(text[1:], value) in rules.elements
    if text.startswith("{"):
        return any(matches(rules, value, part.strip()) for part in text[1:-1].split(","))
    if isinstance(value, int):
        low, _, high = text.partition("-")
        return int(low) <= value <= int(high or low)
    if "." in text:
        return ipaddress.ip_address(value) in ipaddress.ip_network(text)
    return value == text


# The semantics in plain words.


def selects(selector, labels):
    selector = selector or {}
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    for each in selector.get("matchExpressions") or ():
        has = each["key"] in labels
        if {"Exists": not has, "DoesNotExist": has}[each["operator"]]:
            return False
    return True


def expected(policies, pods, namespaces, source, destination, protocol, port):
    """`policies`: (namespace, spec); `pods`: by address, (namespace, labels, ports, node)."""
    if source == destination and source in pods:
        return True
    for direction, own, other in (
        ("Egress", source, destination),
        ("Ingress", destination, source),
    ):
        if own not in pods or pods[own][3] != NODE:
            continue
        chosen = [
            spec
            for namespace, spec in policies
            if namespace == pods[own][0]
            and selects(spec["podSelector"], pods[own][1])
            and direction in types(spec)
        ]
        if chosen and not any(
            allowed(rule, direction, pods, namespaces, pods[own][0], other, destination, door)
            for door in [(protocol, port)]
            for spec in chosen
            for rule in spec.get(direction.lower(), ())
        ):
            return False
    return True


def types(spec):
    return spec.get("policyTypes") or ["Ingress", *(["Egress"] if spec.get("egress") else [])]


def allowed(rule, direction, pods, namespaces, namespace, other, destination, door):
    peers = rule.get("from" if direction == "Ingress" else "to") or [None]
    return any(is_peer(p, pods, namespaces, namespace, other) for p in peers) and any(
        is_door(p, pods, destination, door) for p in rule.get("ports") or [None]
    )


def is_peer(peer, pods, namespaces, namespace, other):
    if peer is None:
        return True
    if "ipBlock" in peer:
        block = peer["ipBlock"]
        address = ipaddress.ip_address(other)
        return address in ipaddress.ip_network(block["cidr"]) and not any(
            address in ipaddress.ip_network(hole) for hole in block.get("except", ())
        )
    if other not in pods:
        return False
    its_namespace, labels, _, _ = pods[other]
    if "namespaceSelector" in peer:
        known = {
            **namespaces.get(its_namespace, {}),
            "kubernetes.io/metadata.name": its_namespace,
        }
        if not selects(peer["namespaceSelector"], known):
            return False
    elif its_namespace != namespace:
        return False
    return selects(peer.get("podSelector"), labels)


def is_door(wanted, pods, destination, door):
    if wanted is None:
        return True
    if wanted.get("protocol", "TCP").lower() != door[0]:
        return False
    port = wanted.get("port")
    if port is None:
        return True
    if isinstance(port, str):
        named = pods[destination][2] if destination in pods else ()
        return (port, *door) in named
    return port <= door[1] <= wanted.get("endPort", port)


labels = st.sampled_from([{}, {"a": "1"}, {"a": "2"}, {"a": "1", "b": "1"}])
selectors = st.sampled_from(
    [
        {},
        {"matchLabels": {"a": "1"}},
        {"matchLabels": {"a": "2"}},
        {"matchExpressions": [{"key": "b", "operator": "Exists"}]},
        {"matchExpressions": [{"key": "b", "operator": "DoesNotExist"}]},
    ]
)
blocks = st.builds(
    lambda cidr, holes: {"ipBlock": {"cidr": cidr, "except": holes}},
    st.sampled_from(["10.244.0.0/16", "0.0.0.0/0", "10.244.1.0/30", "192.0.2.0/24"]),
    st.lists(st.sampled_from(["10.244.1.0/30", "10.244.1.2/32", "192.0.2.0/25"]), max_size=2),
)
peers = st.one_of(
    blocks,
    st.builds(lambda s: {"podSelector": s}, selectors),
    st.builds(lambda s: {"namespaceSelector": s}, selectors),
    st.builds(lambda s, n: {"podSelector": s, "namespaceSelector": n}, selectors, selectors),
)
doors = st.one_of(
    st.just({}),
    st.builds(
        lambda protocol, port: {"protocol": protocol, "port": port},
        st.sampled_from(["TCP", "UDP"]),
        st.sampled_from([80, 81, "http", "dns"]),
    ),
    st.just({"protocol": "TCP", "port": 79, "endPort": 80}),
)
rules = st.lists(
    st.builds(
        lambda peers, ports: {"peers": peers, "ports": ports},
        st.lists(peers, max_size=2),
        st.lists(doors, max_size=2),
    ),
    max_size=2,
)


def spec_of(selector, policy_types, ingress, egress):
    found = {
        "podSelector": selector,
        "ingress": [{"from": r["peers"], "ports": r["ports"]} for r in ingress],
        "egress": [{"to": r["peers"], "ports": r["ports"]} for r in egress],
    }
    return {**found, "policyTypes": policy_types} if policy_types else found


specs = st.builds(
    spec_of,
    selectors,
    st.sampled_from([[], ["Ingress"], ["Egress"], ["Ingress", "Egress"]]),
    rules,
    rules,
)
pod_ports = st.lists(
    st.sampled_from([("http", "tcp", 80), ("http", "tcp", 81), ("dns", "udp", 80)]),
    max_size=2,
    unique=True,
)
described = st.tuples(
    st.sampled_from(["shop", "bank"]), labels, pod_ports, st.sampled_from([NODE, "node-2"])
)
ADDRESSES = [f"10.244.1.{n}" for n in range(1, 6)]
OUTSIDE = ["192.0.2.7", "192.0.2.200"]
policies_put = st.tuples(
    st.just("policy"), st.sampled_from("xyz"), st.sampled_from(["shop", "shop", "bank"]), specs
)
pods_put = st.tuples(st.just("pod"), st.sampled_from(ADDRESSES), described)
namespaces_put = st.tuples(st.just("namespace"), st.sampled_from(["shop", "bank"]), labels)
beginnings = st.tuples(
    st.tuples(*(st.tuples(st.just("pod"), st.just(ip), described) for ip in ADDRESSES)),
    st.lists(namespaces_put, max_size=2),
    st.lists(policies_put, min_size=1, max_size=3),
).map(lambda parts: [event for part in parts for event in part])
gone = st.sampled_from(
    [
        *(("pod", ip, None) for ip in ADDRESSES),
        *(("policy", name, "shop", None) for name in "xyz"),
        ("namespace", "bank", None),
    ]
)
changes = st.lists(st.one_of(policies_put, pods_put, namespaces_put, gone), max_size=5)


def as_pod(ip, facts):
    namespace, found, ports, node = facts
    listed = [{"name": n, "protocol": p.upper(), "containerPort": c} for n, p, c in ports]
    return pod(ip, found, namespace, node, listed)


@settings(max_examples=100, deadline=None)
@given(beginnings, changes, st.randoms(use_true_random=False))
def test_the_rules_judge_as_the_semantics_say_whatever_came_in_which_order(begin, later, rng):
    made, policies, pods, namespaces = World(), {}, {}, {}
    rng.shuffle(begin)
    for number, (kind, name, *rest) in enumerate([*begin, *later]):
        if kind == "policy":
            namespace, spec = rest
            policies[namespace, name] = spec
            key = Key(namespace, name)
            made.policies.put_policy(key, None if spec is None else policy(name, namespace, **spec))
        elif kind == "pod":
            if (before := pods.get(name)) is not None:
                made.policies.put_pod(Key(before[0], name), None)
            pods[name] = rest[0]
            if rest[0] is not None:
                made.pod(as_pod(name, rest[0]))
        else:
            namespaces[name] = rest[0]
            made.policies.put_namespace(name, rest[0])
        if number + 1 >= len(begin):
            made.sync()
    policies = [(k[0], spec) for k, spec in policies.items() if spec is not None]
    pods = {ip: facts for ip, facts in pods.items() if facts is not None}
    namespaces = {name: found for name, found in namespaces.items() if found is not None}
    for source in [*ADDRESSES, *OUTSIDE]:
        for destination in [*ADDRESSES, *OUTSIDE]:
            for door in (("tcp", 80), ("tcp", 81), ("udp", 80)):
                assert judge(
                    made.plan.desired, "policy-forward", source, destination, *door
                ) == expected(policies, pods, namespaces, source, destination, *door), (
                    source,
                    destination,
                    door,
                )
    scratch = world(
        [policy(f"{i}", n, **spec) for i, (n, spec) in enumerate(policies)],
        [as_pod(ip, facts) for ip, facts in pods.items()],
        namespaces,
    )
    scratch.sync()
    assert made.plan.desired.sets == scratch.plan.desired.sets
    assert made.plan.applied.elements.keys() == scratch.plan.applied.elements.keys()
    assert len(made.plan.desired.chains) == len(scratch.plan.desired.chains)


DENY = policy("deny", podSelector={}, policyTypes=["Ingress"])


def test_only_pods_of_this_node_get_chains_and_equal_ones_share_them():
    pods = [pod(f"10.244.1.{n}", {"app": "web"}) for n in range(2, 6)]
    made = world([DENY], [*pods, pod("10.244.2.2", node="node-2")])
    made.sync()
    chains = [name for name in made.plan.desired.chains if name.startswith("in-")]
    assert len(chains) == 1
    assert not made.allows("10.244.2.2", "10.244.1.2")
    assert made.allows("10.244.1.2", "10.244.2.2"), "judged on the other node"


def test_a_pod_that_comes_changes_elements_and_no_rule():
    rule = {"from": [{"podSelector": {"matchLabels": {"app": "web"}}}]}
    first = pod("10.244.1.2", {"app": "db"})
    made = world([policy(podSelector={}, ingress=[rule])], [first])
    made.sync()
    made.pod(pod("10.244.2.9", {"app": "web"}, node="node-2"))
    changes = made.sync()
    assert not changes.set_rules
    assert not changes.add_sets
    assert [e.key for e in changes.add_elements] == ["10.244.2.9"]
    assert made.allows("10.244.2.9", first.status.pod_ip)


def test_pods_of_the_nodes_network_and_ended_ones_are_not_covered():
    ended = pod("10.244.1.3")
    ended.status.phase = "Succeeded"
    made = world([DENY], [pod("10.0.0.1", hostNetwork=True), ended])
    made.sync()
    assert not [e for e in made.plan.desired.elements if e.set == "policy-in"]


@pytest.mark.parametrize(
    "to",
    [
        [],
        [
            {
                "namespaceSelector": {
                    "matchLabels": {"kubernetes.io/metadata.name": "kube-system"}
                },
                "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
            }
        ],
        [{"ipBlock": {"cidr": f"{DNS}/32"}}],
    ],
)
def test_dns_is_allowed_by_the_manifests_that_kubernetes_users_have(to):
    rule = {"to": to, "ports": [{"protocol": "UDP", "port": 53}]}
    closed = policy(podSelector={}, policyTypes=["Egress"])
    opened = policy("dns", podSelector={}, policyTypes=["Egress"], egress=[rule])
    made = world([closed], [pod("10.244.1.2")])

    def asks(protocol):
        made.sync()
        return judge(made.plan.desired, "policy-input", "10.244.1.2", DNS, protocol, 53)

    assert not asks("udp")
    made.policies.put_policy(opened.key, opened)
    assert asks("udp")
    assert not asks("tcp")
    assert judge(made.plan.desired, "policy-input", "10.244.1.2", "10.244.1.1", "tcp", 22), "a node"


def test_peers_of_the_other_address_family_are_nobody_and_not_everybody():
    rule = {"from": [{"ipBlock": {"cidr": "fd00::/8"}}]}
    made = world([policy(podSelector={}, ingress=[rule])], [pod("10.244.1.2")])
    assert not made.allows("10.244.1.9", "10.244.1.2")


def test_touching_and_overlapping_port_ranges_become_one():
    ports = [{"port": 80, "endPort": 90}, {"port": 85, "endPort": 95}, {"port": 96}, {"port": 99}]
    made = world([policy(podSelector={}, ingress=[{"ports": ports}])], [pod("10.244.1.2")])
    made.sync()
    (chain,) = (c for n, c in made.plan.desired.chains.items() if n.startswith("in-"))
    assert chain.rules == ("tcp dport { 80-96, 99 } return", "drop")


def test_switched_off_the_table_holds_nothing_of_policies():
    plan = Plan(Settings(NODE))
    assert not [name for name in plan.desired.chains if "policy" in name]
