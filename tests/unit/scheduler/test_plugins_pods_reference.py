"""Affinity and spreading, node by node and pod by pod as Kubernetes documents them.

Slow and plain, written from the semantics and not from the plugins, and compared with them on
random clusters: after some pods have come and some have gone, so that counts kept along are
compared with counts made afresh.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from motley.api.views.core import Node
from motley.api.views.pod import Pod

HOST, ZONE, RACK = "kubernetes.io/hostname", "topology.kubernetes.io/zone", "rack"
KEYS = [HOST, ZONE, RACK]
NAMESPACES = {"ns-a": {"team": "a"}, "ns-b": {"team": "b"}, "ns-c": {}}
NODES = [f"n{i}" for i in range(6)]

Doc = dict[str, Any]


# -- the reference --------------------------------------------------------------------------


def matches(selector: Doc | None, labels: Mapping[str, str]) -> bool:
    if selector is None:
        return False
    if any(labels.get(k) != v for k, v in selector.get("matchLabels", {}).items()):
        return False
    for e in selector.get("matchExpressions", []):
        value = labels.get(e["key"])
        holds = {
            "In": lambda v, e=e: v in e.get("values", []),
            "NotIn": lambda v, e=e: v not in e.get("values", []),
            "Exists": lambda v: v is not None,
            "DoesNotExist": lambda v: v is None,
        }[e["operator"]](value)
        if not holds:
            return False
    return True


def labels_of(pod: Doc) -> dict[str, str]:
    return pod["metadata"]["labels"]


def speaks_of(owner: Doc, term: Doc, other: Doc) -> bool:
    """Does a term of `owner` speak of `other`?"""
    space = other["metadata"]["namespace"]
    by_selector = term.get("namespaceSelector")
    if not term.get("namespaces") and by_selector is None:
        in_namespace = space == owner["metadata"]["namespace"]
    else:
        in_namespace = space in term.get("namespaces", []) or matches(
            by_selector, NAMESPACES[space]
        )
    own, theirs = labels_of(owner), labels_of(other)
    alike = all(theirs.get(k) == own[k] for k in term.get("matchLabelKeys", []) if k in own)
    unlike = all(theirs.get(k) != own[k] for k in term.get("mismatchLabelKeys", []) if k in own)
    return in_namespace and matches(term.get("labelSelector"), theirs) and alike and unlike


def terms_of(pod: Doc, kind: str, strength: str) -> list[Doc]:
    affinity = pod["spec"].get("affinity", {}).get(kind, {})
    return affinity.get(f"{strength}DuringSchedulingIgnoredDuringExecution", [])


@dataclass
class Reference:
    nodes: dict[str, Doc]
    placed: list[tuple[Doc, str]]

    def value(self, node: str, key: str) -> str | None:
        return self.nodes[node]["metadata"]["labels"].get(key)

    def together(self, a: str, b: str, key: str) -> bool:
        return self.value(a, key) is not None and self.value(a, key) == self.value(b, key)

    # -- affinity

    def affinity_allows(self, pod: Doc, node: str) -> bool:
        near = terms_of(pod, "podAffinity", "required")
        if any(self.value(node, t["topologyKey"]) is None for t in near):
            return False
        wanted = [
            (p, n) for p, n in self.placed if near and all(speaks_of(pod, t, p) for t in near)
        ]
        reachable = any(self.value(n, t["topologyKey"]) for _, n in wanted for t in near)
        if not all(any(self.together(node, n, t["topologyKey"]) for _, n in wanted) for t in near):
            itself = all(speaks_of(pod, t, pod) for t in near)
            if reachable or not itself:
                return False
        for other, n in self.placed:
            for t in terms_of(pod, "podAntiAffinity", "required"):
                if speaks_of(pod, t, other) and self.together(node, n, t["topologyKey"]):
                    return False
            for t in terms_of(other, "podAntiAffinity", "required"):
                if speaks_of(other, t, pod) and self.together(node, n, t["topologyKey"]):
                    return False
        return True

    def affinity_score(self, pod: Doc, node: str) -> int:
        score = 0
        for other, n in self.placed:
            weighted = [
                (owner, one, w["podAffinityTerm"], sign * w["weight"])
                for owner, one in ((pod, other), (other, pod))
                for kind, sign in (("podAffinity", 1), ("podAntiAffinity", -1))
                for w in terms_of(owner, kind, "preferred")
            ]
            weighted += [(other, pod, t, 1) for t in terms_of(other, "podAffinity", "required")]
            score += sum(
                weight
                for owner, one, term, weight in weighted
                if speaks_of(owner, term, one) and self.together(node, n, term["topologyKey"])
            )
        return score

    # -- spreading

    def constraints(self, pod: Doc, action: str) -> list[Doc]:
        all_of = pod["spec"].get("topologySpreadConstraints", [])
        return [c for c in all_of if c["whenUnsatisfiable"] == action]

    def selects(self, constraint: Doc, pod: Doc, other: Doc) -> bool:
        own, theirs = labels_of(pod), labels_of(other)
        return matches(constraint.get("labelSelector"), theirs) and all(
            theirs.get(k) == own[k] for k in constraint.get("matchLabelKeys", []) if k in own
        )

    def counts_at(self, constraint: Doc, pod: Doc, node: str) -> int:
        selector = constraint.get("labelSelector")
        own = [k for k in constraint.get("matchLabelKeys", []) if k in labels_of(pod)]
        if selector is not None and not any(selector.values()) and not own:
            return 0  # an empty selector counts nobody here
        return sum(
            n == node
            and other["metadata"]["namespace"] == pod["metadata"]["namespace"]
            and "deletionTimestamp" not in other["metadata"]
            and self.selects(constraint, pod, other)
            for other, n in self.placed
        )

    def included(self, constraint: Doc, pod: Doc, node: str) -> bool:
        spec = self.nodes[node]
        if constraint.get("nodeAffinityPolicy", "Honor") == "Honor":
            wanted = pod["spec"].get("nodeSelector", {})
            if any(spec["metadata"]["labels"].get(k) != v for k, v in wanted.items()):
                return False
        if constraint.get("nodeTaintsPolicy", "Ignore") == "Honor":
            tolerated = {t["key"] for t in pod["spec"].get("tolerations", [])}
            if any(t["key"] not in tolerated for t in spec["spec"]["taints"]):
                return False
        return True

    def per_domain(self, group: list[Doc], constraint: Doc, pod: Doc) -> Counter[str]:
        counts: Counter[str] = Counter()
        for node in self.nodes:
            if any(self.value(node, c["topologyKey"]) is None for c in group):
                continue
            if self.included(constraint, pod, node):
                domain = self.value(node, constraint["topologyKey"])
                counts[domain] += self.counts_at(constraint, pod, node)
        return counts

    def spread_allows(self, pod: Doc, node: str) -> bool:
        hard = self.constraints(pod, "DoNotSchedule")
        for c in hard:
            domain = self.value(node, c["topologyKey"])
            if domain is None:
                return False
            counts = self.per_domain(hard, c, pod)
            lowest = min(counts.values()) if len(counts) >= c.get("minDomains", 1) else 0
            if counts[domain] + self.selects(c, pod, pod) - lowest > c["maxSkew"]:
                return False
        return True

    def spread_scores(self, pod: Doc, feasible: Iterable[str]) -> dict[str, int]:
        soft = self.constraints(pod, "ScheduleAnyway")
        nodes = [n for n in feasible if all(self.value(n, c["topologyKey"]) for c in soft)]
        raw = dict.fromkeys(nodes, 0.0)
        for c in soft:
            key, counts = c["topologyKey"], self.per_domain(soft, c, pod)
            domains = nodes if key == HOST else {self.value(n, key) for n in nodes}
            for n in nodes:
                here = self.counts_at(c, pod, n) if key == HOST else counts[self.value(n, key)]
                raw[n] += here * math.log(len(domains) + 2) + c["maxSkew"] - 1
        rounded = {n: math.floor(score + 0.5) for n, score in raw.items()}
        highest = max(rounded.values(), default=0)
        lowest = min(rounded.values(), default=0)
        scores = dict.fromkeys(feasible, 0)
        for n, score in rounded.items():
            scores[n] = 100 * (highest + lowest - score) // highest if highest else 100
        return scores


# -- random clusters ------------------------------------------------------------------------

_labels = st.fixed_dictionaries(
    {}, optional={"app": st.sampled_from("abc"), "tier": st.sampled_from("xy")}
)
_selector = st.one_of(
    st.fixed_dictionaries({"matchLabels": _labels}),
    st.fixed_dictionaries(
        {
            "matchExpressions": st.lists(
                st.one_of(
                    st.fixed_dictionaries(
                        {
                            "key": st.sampled_from(["app", "tier"]),
                            "operator": st.sampled_from(["In", "NotIn"]),
                            "values": st.lists(st.sampled_from("abcxy"), min_size=1, max_size=2),
                        }
                    ),
                    st.fixed_dictionaries(
                        {
                            "key": st.sampled_from(["app", "tier"]),
                            "operator": st.sampled_from(["Exists", "DoesNotExist"]),
                        }
                    ),
                ),
                max_size=2,
            )
        }
    ),
    st.just({}),
)
_label_keys = st.lists(st.sampled_from(["app", "tier"]), unique=True, max_size=1)


@st.composite
def _term(draw: Any) -> Doc:
    term: Doc = {"topologyKey": draw(st.sampled_from(KEYS))}
    if draw(st.integers(0, 9)):
        term["labelSelector"] = draw(_selector)
    where = draw(st.sampled_from(["own", "own", "named", "selected", "both"]))
    if where in ("named", "both"):
        term["namespaces"] = draw(st.lists(st.sampled_from(sorted(NAMESPACES)), max_size=2))
    if where in ("selected", "both"):
        chosen = [{}, {"matchLabels": {"team": "a"}}, {"matchLabels": {"team": "b"}}]
        term["namespaceSelector"] = draw(st.sampled_from(chosen))
    if "labelSelector" in term:
        stated = str(term["labelSelector"])
        keys = [k for k in draw(_label_keys) if k not in stated]
        term[draw(st.sampled_from(["matchLabelKeys", "mismatchLabelKeys"]))] = keys
    return term


@st.composite
def _affinity(draw: Any) -> Doc:
    weighted = st.fixed_dictionaries({"weight": st.integers(1, 100), "podAffinityTerm": _term()})
    return {
        kind: {
            "requiredDuringSchedulingIgnoredDuringExecution": draw(st.lists(_term(), max_size=2)),
            "preferredDuringSchedulingIgnoredDuringExecution": draw(st.lists(weighted, max_size=2)),
        }
        for kind in draw(st.sets(st.sampled_from(["podAffinity", "podAntiAffinity"])))
    }


_constraint = st.fixed_dictionaries(
    {
        "topologyKey": st.sampled_from(KEYS),
        "maxSkew": st.integers(1, 3),
        "whenUnsatisfiable": st.sampled_from(["DoNotSchedule", "ScheduleAnyway"]),
    },
    optional={
        "labelSelector": _selector,
        "minDomains": st.integers(1, 4),
        "nodeAffinityPolicy": st.sampled_from(["Honor", "Ignore"]),
        "nodeTaintsPolicy": st.sampled_from(["Honor", "Ignore"]),
        "matchLabelKeys": _label_keys,
    },
)


@st.composite
def _pod(draw: Any, name: str) -> Doc:
    space = draw(st.sampled_from(sorted(NAMESPACES)))
    meta: Doc = {"name": name, "namespace": space, "uid": name, "labels": draw(_labels)}
    spec: Doc = {"containers": [{"name": "c", "image": "app:1"}]}
    if draw(st.booleans()):
        spec["affinity"] = draw(_affinity())
    if draw(st.booleans()):
        spec["topologySpreadConstraints"] = draw(st.lists(_constraint, max_size=3))
    if not draw(st.integers(0, 3)):
        spec["nodeSelector"] = {ZONE: draw(st.sampled_from("uv"))}
    if draw(st.booleans()):
        spec["tolerations"] = [{"key": "k", "operator": "Exists"}]
    return {"metadata": meta, "spec": spec}


@st.composite
def _node(draw: Any, name: str) -> Doc:
    labels = draw(
        st.fixed_dictionaries(
            {}, optional={ZONE: st.sampled_from("uv"), RACK: st.sampled_from(["1", "2", "3"])}
        )
    )
    if draw(st.integers(0, 7)):
        labels[HOST] = name
    taints = [{"key": "k", "effect": "NoSchedule"}] if not draw(st.integers(0, 3)) else []
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints},
        "status": {"allocatable": {"cpu": "64", "memory": "64Gi", "pods": "110"}},
    }


@st.composite
def _history(draw: Any) -> Any:
    nodes = {name: draw(_node(name)) for name in NODES[: draw(st.integers(1, 6))]}
    pods = [draw(_pod(f"p{i}")) for i in range(draw(st.integers(0, 8)))]
    where = [draw(st.sampled_from(sorted(nodes))) for _ in pods]
    moved = draw(st.lists(st.sampled_from(range(8)), max_size=3, unique=True))
    leaving = draw(st.lists(st.sampled_from(range(8)), max_size=2, unique=True))
    changed = draw(st.sampled_from(sorted(nodes)))
    return nodes, pods, where, moved, leaving, (changed, draw(_node(changed))), draw(_pod("new"))


class Compared:
    """A cluster twice: as columns, and as the reference."""

    def __init__(self, cluster: Any, nodes: dict[str, Doc]) -> None:
        self.world = cluster(*(Node.of(n) for n in nodes.values()))
        for name, labels in NAMESPACES.items():
            self.world.handle.directory.set_namespace(name, labels)
        self.plain = Reference(dict(nodes), [])

    def place(self, pod: Doc, node: str) -> None:
        self.remove(pod)
        self.world.place(Pod.of(pod), node)
        self.plain.placed.append((pod, node))

    def remove(self, pod: Doc) -> None:
        uid = pod["metadata"]["uid"]
        self.world.nodes.remove_pod(uid)
        self.plain.placed = [p for p in self.plain.placed if p[0]["metadata"]["uid"] != uid]

    def change(self, name: str, node: Doc) -> None:
        self.world.nodes.set_node(Node.of(node))
        self.plain.nodes[name] = node

    def check(self, pod: Doc) -> None:
        world, plain = self.world, self.plain
        info, names = world.info(Pod.of(pod)), world.nodes.rows
        allows = {
            "InterPodAffinity": plain.affinity_allows,
            "PodTopologySpread": plain.spread_allows,
        }
        for plugin, allowed in allows.items():
            ours = world.allowed(world.profile.plugins[plugin], Pod.of(pod))
            assert ours == sorted(n for n in plain.nodes if allowed(pod, n)), plugin
        scores = world.cycle.score(info, world.nodes.live.copy()).scores
        raw = {n: plain.affinity_score(pod, n) for n in plain.nodes}
        low, high = min(raw.values()), max(raw.values())
        expected = {n: 2 * int(100 * ((raw[n] - low) / (high - low or 1))) for n in raw}
        ours = scores.get("InterPodAffinity", np.zeros(world.nodes.size))
        assert {n: ours[row] for n, row in names.items()} == expected
        assert ("PodTopologySpread" in scores) == bool(plain.constraints(pod, "ScheduleAnyway"))
        if "PodTopologySpread" in scores:
            table = {n: scores["PodTopologySpread"][row] for n, row in names.items()}
            wanted = plain.spread_scores(pod, list(plain.nodes))
            assert table == {n: 2 * s for n, s in wanted.items()}


# The fixture is a class, which no example changes.
@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(history=_history())
def test_columns_and_the_plain_reference_say_the_same(cluster, history):
    nodes, pods, where, moved, leaving, (changed, node), new = history
    both = Compared(cluster, nodes)
    for pod, name in zip(pods, where, strict=True):
        both.place(pod, name)
    both.check(new)
    for i in moved:
        if i < len(pods):
            both.place(pods[i], sorted(nodes)[i % len(nodes)])
    both.check(new)
    for i in leaving:
        if i < len(pods) and i % 2:
            both.remove(pods[i])
        elif i < len(pods):  # it is still there, but on its way out
            ending = {**pods[i]["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
            both.place({**pods[i], "metadata": ending}, where[i])
    both.change(changed, node)
    both.check(new)
