"""Sets of pods, and how many of each run on every node: what affinity and spreading count.

A selector over pods would have to be tried on every pod of the cluster for every pod that is
scheduled. Instead placed pods are grouped by what selectors can see (namespace, labels), and a
set that somebody has asked about is a column of counts per node that is changed along with every
pod that comes or goes. Affinity also works the other way round: terms of placed pods that concern
the pod to be placed; equal terms are one column too.

Invariant: after any sequence of events each count equals the one made from the placed pods at
once.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from motley.api.selectors import Requirement, Selector, SelectorError
from motley.api.views.pod import Pod, PodAffinity, PodAffinityTerm
from motley.scheduler.domains import Domains, Sums
from motley.scheduler.sparse import SparseColumn

Counts = npt.NDArray[np.float64]
T = TypeVar("T", bound=Hashable)

_SETS_KEPT = 256  # 40 kB each at 5,000 nodes


class PodGroup(NamedTuple):
    """What a selector can tell pods apart by; and whether the pod is on its way out."""

    namespace: str
    labels: tuple[tuple[str, str], ...]
    terminating: bool

    @classmethod
    def of(cls, pod: Pod) -> "PodGroup":
        """The group of a pod."""
        meta = pod.metadata
        labels = tuple(sorted(meta.labels.items()))
        return cls(meta.namespace, labels, meta.deletion_timestamp is not None)


class Condition(NamedTuple):
    """Pods with these labels in these namespaces; None: in any."""

    namespaces: frozenset[str] | None
    selector: Selector


class PodSet(NamedTuple):
    """Pods that meet all conditions; `staying`: without those that are on their way out."""

    conditions: tuple[Condition, ...]
    staying: bool = False

    def holds(self, group: PodGroup) -> bool:
        """Are the pods of this group in the set?"""
        if self.staying and group.terminating:
            return False
        labels = dict(group.labels)
        return all(
            (c.namespaces is None or group.namespace in c.namespaces) and c.selector.matches(labels)
            for c in self.conditions
        )


class Term(NamedTuple):
    """An affinity term, its selectors parsed and its pod's own namespace filled in."""

    namespaces: frozenset[str]
    namespace_selector: Selector
    selector: Selector
    topology_key: str

    def concerns(self, group: PodGroup, namespace_labels: Mapping[str, str]) -> bool:
        """Does the term speak of the pods of this group?"""
        return (
            group.namespace in self.namespaces or self.namespace_selector.matches(namespace_labels)
        ) and self.selector.matches(dict(group.labels))

    def condition(self, namespaces: Mapping[str, Mapping[str, str]]) -> Condition:
        """The pods the term speaks of, with the namespaces as they are now."""
        if self.namespace_selector.is_everything:
            return Condition(None, self.selector)
        chosen = {n for n, labels in namespaces.items() if self.namespace_selector.matches(labels)}
        return Condition(self.namespaces | chosen, self.selector)


@dataclass(frozen=True, slots=True)
class PodTerms:
    """All pod affinity terms of a pod. Preferences carry a weight, below zero to be away."""

    near: tuple[Term, ...] = ()
    away: tuple[Term, ...] = ()
    preferred: tuple[tuple[Term, int], ...] = ()
    wrong: str = ""  # why they cannot be understood; then there are none

    def __bool__(self) -> bool:
        return bool(self.near or self.away or self.preferred or self.wrong)

    @classmethod
    def of(cls, pod: Pod) -> "PodTerms":
        """The terms of a pod."""
        affinity = pod.spec.affinity
        if affinity is None or not (affinity.pod_affinity or affinity.pod_anti_affinity):
            return _NO_TERMS
        near = affinity.pod_affinity or PodAffinity()
        away = affinity.pod_anti_affinity or PodAffinity()
        try:
            return cls(
                tuple(_term(pod, term) for term in near.required),
                tuple(_term(pod, term) for term in away.required),
                (
                    *((_term(pod, p.pod_affinity_term), p.weight) for p in near.preferred),
                    *((_term(pod, p.pod_affinity_term), -p.weight) for p in away.preferred),
                ),
            )
        except SelectorError as error:
            return cls(wrong=str(error))


_NO_TERMS = PodTerms()


def _term(pod: Pod, term: PodAffinityTerm) -> Term:
    if term.namespaces or term.namespace_selector is not None:
        namespaces = frozenset(term.namespaces)
    else:
        namespaces = frozenset({pod.metadata.namespace})
    selector = Selector.of(term.label_selector)
    if not selector.is_nothing:
        # Kubernetes' API server writes these into the selector itself; others do not.
        stated = {requirement.key for requirement in selector.requirements}
        like = with_own_labels(pod, "in", set(term.match_label_keys) - stated)
        unlike = with_own_labels(pod, "notin", set(term.mismatch_label_keys) - stated)
        selector = Selector((*selector.requirements, *like, *unlike))
    return Term(namespaces, Selector.of(term.namespace_selector), selector, term.topology_key)


def with_own_labels(pod: Pod, operator: str, keys: Iterable[str]) -> list[Requirement]:
    """`matchLabelKeys`: requirements made of the values the pod itself has."""
    labels = pod.metadata.labels
    return [Requirement(key, operator, (labels[key],)) for key in sorted(keys) if key in labels]


_Kind: TypeAlias = tuple[PodGroup, int]  # pods of a group and a priority


class Tally:
    """How many pods of a set there are, by row. Changed by `Tallies` only."""

    __slots__ = ("_counts", "_sums", "pods")

    def __init__(self, pods: PodSet, size: int) -> None:
        self.pods = pods
        self._counts: Counts = np.zeros(size)
        self._sums = Sums()

    def add(self, row: int, sign: int) -> None:
        """A pod of the set came to a row (1) or left it (-1)."""
        if row >= len(self._counts):
            self._counts = _grown(self._counts, row + 1)
        self._counts[row] += sign
        self._sums.add(row, sign)

    def add_all(self, rows: Mapping[int, int]) -> None:
        """What was there before the tally was made."""
        _add(self._counts, rows)

    def dense(self, size: int) -> Counts:
        """By row. Not to be written to."""
        if len(self._counts) < size:
            self._counts = _grown(self._counts, size)
        return self._counts[:size]

    def by_domain(self, domains: Domains, size: int) -> Counts:
        """By domain. Not to be written to."""
        return self._sums.of(domains, self.dense(size))


class Tallies:
    """Counts of pods per node, by set."""

    def __init__(self) -> None:
        self._groups: dict[_Kind, dict[int, int]] = {}
        self._tallies: OrderedDict[PodSet, Tally] = OrderedDict()
        self._holding: dict[_Kind, list[Tally]] = {}

    def count(self, group: PodGroup, priority: int, row: int, sign: int) -> None:
        """A pod of the group came to a row (1) or left it (-1)."""
        kind = (group, priority)
        rows = self._groups.get(kind)
        if rows is None:
            rows = self._groups[kind] = {}
            self._holding[kind] = [t for t in self._tallies.values() if t.pods.holds(group)]
        for tally in self._holding[kind]:
            tally.add(row, sign)
        left = rows.get(row, 0) + sign
        if left:
            rows[row] = left
            return
        del rows[row]
        if not rows:
            del self._groups[kind], self._holding[kind]

    def of(self, pods: PodSet, size: int) -> Counts:
        """By row: how many pods of the set are there. Not to be written to."""
        return self.tally(pods, size).dense(size)

    def tally(self, pods: PodSet, size: int) -> Tally:
        """The count of a set, to be looked at now and not kept."""
        tally = self._tallies.get(pods)
        if tally is None:
            return self._made(pods, size)
        self._tallies.move_to_end(pods)
        return tally

    def below(self, pods: PodSet, priority: int, size: int) -> Counts:
        """The same, of the pods below a priority only. Made anew each time, for preemption."""
        counts = np.zeros(size)
        for (group, theirs), rows in self._groups.items():
            if theirs < priority and pods.holds(group):
                _add(counts, rows)
        return counts

    def _made(self, pods: PodSet, size: int) -> Tally:
        tally = self._tallies[pods] = Tally(pods, size)
        for kind, rows in self._groups.items():
            if pods.holds(kind[0]):
                self._holding[kind].append(tally)
                tally.add_all(rows)
        if len(self._tallies) > _SETS_KEPT:
            _, old = self._tallies.popitem(last=False)
            for holding in self._holding.values():
                if old in holding:
                    holding.remove(old)
        return tally


def _add(counts: Counts, rows: Mapping[int, int]) -> None:
    where = np.fromiter(rows.keys(), np.intp, len(rows))
    counts[where] += np.fromiter(rows.values(), np.float64, len(rows))


def _grown(counts: Counts, size: int) -> Counts:
    larger = np.zeros(max(size, 2 * len(counts)))
    larger[: len(counts)] = counts
    return larger


@dataclass
class StandingTerms:
    """The terms of placed pods: by row, how many pods there have each.

    `version` moves when a term is new or gone, so that who has looked for the terms that
    concern a pod need not look again until then.
    """

    near: dict[Term, SparseColumn[np.float64]] = field(default_factory=dict)
    away: dict[Term, SparseColumn[np.float64]] = field(default_factory=dict)
    preferred: dict[tuple[Term, int], SparseColumn[np.float64]] = field(default_factory=dict)
    version: int = 0
    # As `away`, by priority too: what goes with the pods that preemption would end.
    _away_by_priority: dict[tuple[Term, int], dict[int, int]] = field(default_factory=dict)

    def count(self, terms: PodTerms, priority: int, row: int, sign: int) -> None:
        """A pod with these terms came to a row (1) or left it (-1)."""
        for term in terms.near:
            self._count(self.near, term, row, sign)
        for term in terms.away:
            self._count(self.away, term, row, sign)
            self._rank(term, priority, row, sign)
        for weighted in terms.preferred:
            self._count(self.preferred, weighted, row, sign)

    def away_below(self, term: Term, priority: int, size: int) -> Counts:
        """By row: how many pods below a priority have this term to be away from others."""
        counts = np.zeros(size)
        for (theirs, level), rows in self._away_by_priority.items():
            if level < priority and theirs == term:
                _add(counts, rows)
        return counts

    def _rank(self, term: Term, priority: int, row: int, sign: int) -> None:
        rows = self._away_by_priority.setdefault((term, priority), {})
        left = rows.get(row, 0) + sign
        if left:
            rows[row] = left
            return
        del rows[row]
        if not rows:
            del self._away_by_priority[term, priority]

    def _count(
        self,
        columns: dict[T, SparseColumn[np.float64]],
        term: T,
        row: int,
        sign: int,
    ) -> None:
        column = columns.get(term)
        if column is None:
            column = columns[term] = SparseColumn(np.float64)
            self.version += 1
        left = column.values.get(row, 0) + sign
        if left:
            column.set(row, left)
            return
        column.clear(row)
        if not column:
            del columns[term]
            self.version += 1
