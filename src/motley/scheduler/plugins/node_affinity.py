"""NodeAffinity: `nodeSelector` and node affinity, required and preferred.

Terms are alternatives, the expressions in a term must all hold, and a term without any
expression matches nothing.
"""

from collections.abc import Iterable

import msgspec
import numpy as np

from motley.api.views.pod import (
    NodeAffinity as AffinityView,
)
from motley.api.views.pod import (
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PreferredSchedulingTerm,
)
from motley.scheduler import contract, events
from motley.scheduler.contract import SKIP, Columns, Mask, PodInfo, Reject, Scores, Verdict
from motley.scheduler.interning import ABSENT, UNKNOWN, parse_integer
from motley.scheduler.plugins import normalize


def _matches(requirement: NodeSelectorRequirement, nodes: Columns) -> Mask:
    column = nodes.label(requirement.key)
    match requirement.operator:
        case "Exists" | "DoesNotExist":
            exists: Mask = column != ABSENT
            return exists if requirement.operator == "Exists" else ~exists
        case "In":
            return _among(requirement.values, nodes, requirement.key)
        case "NotIn":
            return ~_among(requirement.values, nodes, requirement.key)
        case "Gt" | "Lt":
            bound = parse_integer(requirement.values[0]) if requirement.values else None
            if bound is None:
                return np.zeros(nodes.size, np.bool_)
            integers, is_integer = nodes.values.integers()
            value = integers[column]
            return is_integer[column] & (
                value > bound if requirement.operator == "Gt" else value < bound
            )
        case other:
            raise ValueError(f"unknown node selector operator {other!r}")


def _among(values: Iterable[str], nodes: Columns, key: str) -> Mask:
    column = nodes.label(key)
    mask = np.zeros(nodes.size, np.bool_)
    for value in values:
        number = nodes.values.find(value)
        if number != UNKNOWN:
            mask |= column == number
    return mask


def _matches_field(requirement: NodeSelectorRequirement, nodes: Columns) -> Mask:
    if requirement.key != "metadata.name" or requirement.operator not in ("In", "NotIn"):
        raise ValueError(f"unsupported field selector {requirement.key!r} {requirement.operator!r}")
    mask = np.zeros(nodes.size, np.bool_)
    mask[nodes.rows_named(requirement.values)] = True
    return mask if requirement.operator == "In" else ~mask


def match_term(term: NodeSelectorTerm, nodes: Columns) -> Mask:
    """Where every expression of the term holds."""
    if not term.match_expressions and not term.match_fields:
        return np.zeros(nodes.size, np.bool_)
    mask = np.ones(nodes.size, np.bool_)
    for requirement in term.match_expressions:
        mask &= _matches(requirement, nodes)
    for requirement in term.match_fields:
        mask &= _matches_field(requirement, nodes)
    return mask


def match_required(pod: PodInfo, nodes: Columns) -> Mask:
    """Where the pod's own `nodeSelector` and required affinity allow it."""
    mask = np.ones(nodes.size, np.bool_)
    for key, value in pod.pod.spec.node_selector.items():
        mask &= _among([value], nodes, key)
    terms = _required(pod)
    if terms is not None:
        mask &= _any_term(terms, nodes)
    return mask


def _any_term(terms: Iterable[NodeSelectorTerm], nodes: Columns) -> Mask:
    mask = np.zeros(nodes.size, np.bool_)
    for term in terms:
        mask |= match_term(term, nodes)
    return mask


def _required(pod: PodInfo) -> list[NodeSelectorTerm] | None:
    affinity = pod.pod.spec.affinity
    if affinity is None or affinity.node_affinity is None:
        return None
    required = affinity.node_affinity.required
    return required.node_selector_terms if required is not None else None


def _preferred(affinity: AffinityView | None) -> list[PreferredSchedulingTerm]:
    return affinity.preferred if affinity is not None else []


def _named_nodes(terms: Iterable[NodeSelectorTerm]) -> set[str] | None:
    """The nodes that `matchFields` names, if every term names some; else None."""
    union: set[str] = set()
    for term in terms:
        named: set[str] | None = None
        for requirement in term.match_fields:
            if requirement.key == "metadata.name" and requirement.operator == "In":
                values = set(requirement.values)
                named = values if named is None else named & values
        if named is None:
            return None
        union |= named
    return union


class NodeAffinityArgs(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """`addedAffinity`: an affinity every pod of the profile gets on top of its own."""

    added_affinity: AffinityView | None = None


class NodeAffinity:
    """Keep nodes that selector and required affinity allow, prefer those that are preferred."""

    name = "NodeAffinity"
    reason = "node(s) didn't match Pod's node affinity/selector"
    added_reason = "node(s) didn't match scheduler-enforced node affinity"
    wakes_on = (events.NodeAdded, events.NodeLabelsChanged)
    static = True
    Args = NodeAffinityArgs

    def __init__(self, args: NodeAffinityArgs, handle: contract.Handle) -> None:
        added = args.added_affinity
        self._added = added
        self._added_terms = added.required.node_selector_terms if added and added.required else None

    def pre_filter(self, pod: PodInfo, nodes: Columns) -> Mask | Reject | Verdict | None:
        """Skip pods without constraints; narrow to the nodes that `matchFields` names."""
        terms = _required(pod)
        if terms is None:
            unconstrained = not pod.pod.spec.node_selector and self._added_terms is None
            return SKIP if unconstrained else None
        named = _named_nodes(terms) if terms else None
        if named is None:
            return None
        if not named:
            return Reject("pod affinity terms conflict")
        mask = np.zeros(nodes.size, np.bool_)
        mask[nodes.rows_named(named)] = True
        return mask

    def filter(self, pod: PodInfo, nodes: Columns) -> Mask:
        """True where everything required holds."""
        mask = match_required(pod, nodes)
        if self._added_terms is not None:
            mask &= _any_term(self._added_terms, nodes)
        return mask

    def explain(self, pod: PodInfo, nodes: Columns, rejected: Mask) -> dict[str, int]:
        """The profile's own affinity is asked first and has its own reason."""
        if self._added_terms is None:
            return {self.reason: int(np.count_nonzero(rejected))}
        added = int(np.count_nonzero(rejected & ~_any_term(self._added_terms, nodes)))
        counts = {self.added_reason: added, self.reason: int(np.count_nonzero(rejected)) - added}
        return {reason: count for reason, count in counts.items() if count}

    def pre_score(self, pod: PodInfo, nodes: Columns, feasible: Mask) -> Verdict | None:
        """Skip pods that prefer nothing."""
        return None if self._preferences(pod) else SKIP

    def score(self, pod: PodInfo, nodes: Columns) -> Scores:
        """The sum of the weights of the preferred terms that match."""
        scores = np.zeros(nodes.size)
        for preferred in self._preferences(pod):
            if preferred.weight:
                scores += preferred.weight * match_term(preferred.preference, nodes)
        return scores

    def normalize(self, pod: PodInfo, scores: Scores, feasible: Mask) -> Scores:
        """The highest sum is 100."""
        return normalize.by_maximum(scores, feasible)

    def _preferences(self, pod: PodInfo) -> list[PreferredSchedulingTerm]:
        affinity = pod.pod.spec.affinity
        own = _preferred(affinity.node_affinity if affinity else None)
        return [*own, *_preferred(self._added)]


_f: contract.Made[contract.FilterPlugin] = NodeAffinity
_s: contract.Made[contract.ScorePlugin] = NodeAffinity
