"""Nodes that a pod could be given by ending others, and which of them is missed least.

Pods of one template find the same: where nothing has changed since, what was found for one
serves the next, too (`Known`), as with `batches`.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

from motley.api.views.pod import Pod
from motley.lib import clock
from motley.scheduler.columns import Columns, PlacedPod
from motley.scheduler.podinfo import PodInfo

_OFFSET = 1 << 31  # makes every priority positive, so that fewer victims weigh less
_NEVER = float("inf")
_TEMPLATES = 32  # kept

# Violated budgets, highest priority, sum of priorities, number, and when the first began, negated.
Rank: TypeAlias = tuple[int, int, int, int, float]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node, and who must leave it."""

    node: str
    victims: tuple[PlacedPod, ...]  # most important first
    violations: int
    rank: Rank = field(init=False)  # smaller is better: Kubernetes' order

    def __post_init__(self) -> None:
        object.__setattr__(self, "rank", self._rank())

    def _rank(self) -> Rank:
        if not self.victims:
            return (0, -_OFFSET, 0, 0, -_NEVER)
        highest, total, started = self.victims[0].info.priority, 0, _NEVER
        for victim in self.victims:
            priority = victim.info.priority
            total += priority + _OFFSET
            if priority == highest:
                started = min(started, started_at(victim.info.pod))
        return (self.violations, highest, total, len(self.victims), -started)


def started_at(pod: Pod) -> float:
    """When a pod began to run; one that has not is the youngest of all."""
    stamp = pod.status.start_time
    return _parsed(stamp) if stamp else _NEVER


_parsed = lru_cache(maxsize=65536)(clock.parse_rfc3339)


def by_importance(placed: Iterable[PlacedPod]) -> list[PlacedPod]:
    """Higher priority first, then who has run longer."""
    return sorted(placed, key=_unimportance)


def _unimportance(placed: PlacedPod) -> tuple[int, float]:
    return -placed.info.priority, started_at(placed.info.pod)


class Known:
    """The candidates found for pods of one template.

    Invariant: what is given out is what would be found now. A row's candidate is true as long as
    no pod came to the row or left it; all of them, until a node changes.
    """

    def __init__(self, nodes: Columns) -> None:
        self._nodes = nodes
        self._generation = nodes.generation
        self._by_row: dict[int, tuple[int, Candidate]] = {}  # with the version of the pods

    def among(self, rows: Iterable[int]) -> dict[int, Candidate]:
        """Of these rows, those with a candidate that is still true."""
        nodes = self._nodes
        if self._generation != nodes.generation:
            self._by_row.clear()
            self._generation = nodes.generation
        touched, known = nodes.touched, self._by_row
        return {
            row: entry[1]
            for row in rows
            if (entry := known.get(row)) is not None and touched.item(row) <= entry[0]
        }

    def keep(self, found: Mapping[int, Candidate]) -> None:
        """What was found just now."""
        version = self._nodes.pods_version
        self._by_row.update((row, (version, candidate)) for row, candidate in found.items())


class KnownByTemplate:
    """Of the templates that looked last."""

    def __init__(self, nodes: Columns) -> None:
        self._nodes = nodes
        self._known: OrderedDict[int, Known] = OrderedDict()

    def of(self, pod: PodInfo) -> Known:
        """What was found for pods like this one."""
        known = self._known.get(pod.template)
        if known is None:
            known = self._known[pod.template] = Known(self._nodes)
            if len(self._known) > _TEMPLATES:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(pod.template)
        return known
