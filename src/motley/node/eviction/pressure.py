"""From observations to pressure: which conditions the node has, and what must be reclaimed now.

A pure state machine, stepped with what was observed and the time. A threshold that was crossed
counts until its minimum reclaim is reached too; a soft one drives evictions only after its grace
period; a condition stays for the transition period after it was last observed, so that it does
not flap.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from motley.node.eviction.thresholds import SIGNALS, Threshold, parse

TRANSITION_S = 300.0  # the kubelet's --eviction-pressure-transition-period


@dataclass(frozen=True, slots=True)
class Policy:
    """When and how a node evicts; everything comes from the command line."""

    thresholds: tuple[Threshold, ...] = parse()
    max_pod_grace_s: float = 0.0
    transition_s: float = TRANSITION_S


@dataclass(frozen=True, slots=True)
class Observation:
    """What there is of something, and what is left."""

    available: int
    capacity: int


@dataclass(frozen=True, slots=True)
class Shortage:
    """A threshold whose time has come, with what was observed."""

    threshold: Threshold
    observed: Observation


@dataclass(slots=True)
class Pressure:
    """The node's state between observations."""

    thresholds: tuple[Threshold, ...]
    transition_s: float = TRANSITION_S
    conditions: frozenset[str] = frozenset()
    _first_seen: dict[Threshold, float] = field(default_factory=dict)
    _last_seen: dict[str, float] = field(default_factory=dict)  # by condition
    _driving: frozenset[Threshold] = frozenset()

    def step(self, observed: Mapping[str, Observation], now: float) -> list[Shortage]:
        """Take an observation; what is to be reclaimed now, most urgent first."""
        crossed = [
            t
            for t in self.thresholds
            if (seen := observed.get(t.signal)) is not None
            and _is_short(t, seen, must_reclaim=t in self._driving)
        ]
        self._first_seen = {t: self._first_seen.get(t, now) for t in crossed}
        for threshold in crossed:
            self._last_seen[threshold.condition] = now
        self.conditions = frozenset(
            condition
            for condition, at in self._last_seen.items()
            if now - at < self.transition_s or any(t.condition == condition for t in crossed)
        )
        due = [t for t in crossed if now - self._first_seen[t] >= (t.grace_s or 0.0)]
        self._driving = frozenset(due)
        order = list(SIGNALS)
        due.sort(key=lambda t: (order.index(t.signal), not t.is_hard))
        return [Shortage(t, observed[t.signal]) for t in due]

    def is_relieved(self, shortage: Shortage, observed: Mapping[str, Observation]) -> bool:
        """Is it over, the minimum reclaim included?"""
        seen = observed.get(shortage.threshold.signal)
        return seen is not None and not _is_short(shortage.threshold, seen, must_reclaim=True)


def _is_short(threshold: Threshold, seen: Observation, *, must_reclaim: bool) -> bool:
    wanted = threshold.value.of(seen.capacity)
    if must_reclaim:
        wanted += threshold.min_reclaim.of(seen.capacity)
    return seen.available < wanted


def refusal(conditions: Iterable[str], *, is_best_effort: bool, tolerates_memory: bool) -> str:
    """Why a node under pressure does not take a pod; empty when it does.

    Under memory pressure only those that promised nothing are kept away.
    """
    conditions = sorted(conditions)
    if not conditions:
        return ""
    if conditions == ["MemoryPressure"] and (not is_best_effort or tolerates_memory):
        return ""
    return f"The node had condition: [{' '.join(conditions)}]. "
