"""The last decisions about each pod, kept so that they can be explained afterwards.

A record is what the cycle said plus what only that moment knows: when, at which attempt, how old
the measurements were, how long each plugin took where that was measured. Taking one costs a few
microseconds; it becomes a document (the spec of a `Decision` object) only when somebody asks.

Invariant: at most `PODS` pods are remembered, the one longest ago decided about goes first, and
of each pod at most the last `PER_POD` decisions.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from motley.api.views.base import Key
from motley.lib import clock as clocks
from motley.lib.clock import SYSTEM, Clock
from motley.scheduler.contract import KnowsAges, PodInfo
from motley.scheduler.decisions import Decision
from motley.scheduler.profiles import Profile

PODS = 4000  # some 3 kB each
PER_POD = 3
EXPLAIN_ANNOTATION = "motley.io/explain"  # "true": time this pod's decisions and publish them

_NOTHING: Mapping[str, float] = {}
_NO_WEIGHTS: Mapping[str, int] = {}


class Record(NamedTuple):
    """One decision and its circumstances."""

    decision: Decision
    uid: str
    at: float  # wall clock
    attempts: int = 1
    weights: Mapping[str, int] = _NO_WEIGHTS  # of the profile's scorers
    ages: Mapping[str, Mapping[str, float]] = {}  # plugin → what was measured → seconds
    took_s: Mapping[str, float] = _NOTHING  # per plugin; empty: not measured this time

    def spec(self) -> dict[str, Any]:
        """As the spec of a `Decision` object; what does not apply is left out."""
        decision = self.decision
        nomination = decision.nomination
        oldest = max((s for ages in self.ages.values() for s in ages.values()), default=None)
        spec: dict[str, Any] = {
            "pod": {
                "namespace": decision.pod.namespace,
                "name": decision.pod.name,
                "uid": self.uid,
            },
            "profile": decision.profile,
            "node": decision.node or "",
            "message": decision.message,
            "decidedAt": clocks.rfc3339_micro(self.at),
            "attempts": self.attempts,
            "nodes": decision.nodes,
            "feasible": decision.feasible,
            "filters": list(_filters(decision)),
            "scores": [
                {
                    "node": ranked.node,
                    "total": ranked.total,
                    "plugins": dict(ranked.scores),
                }
                for ranked in decision.ranking
            ],
            "weights": self._weights(),
            "nominatedNode": nomination.node if nomination else "",
            "victims": [str(victim.key) for victim in nomination.victims] if nomination else [],
            "metrics": [
                {"plugin": plugin, "metric": metric, "ageSeconds": round(age_s, 3)}
                for plugin, ages in self.ages.items()
                for metric, age_s in ages.items()
            ],
            "metricsAgeSeconds": None if oldest is None else round(oldest, 3),
            "tookSeconds": round(decision.took_s, 6),
            "pluginSeconds": {name: round(s, 7) for name, s in self.took_s.items()},
        }
        return {name: value for name, value in spec.items() if value not in ("", None, [], {})}

    def _weights(self) -> dict[str, int]:
        """Only of the plugins that scored."""
        scored = self.decision.ranking[0].scores if self.decision.ranking else _NOTHING
        return {name: self.weights[name] for name in scored if name in self.weights}


def _filters(decision: Decision) -> Iterator[dict[str, Any]]:
    for plugin, reasons in decision.rejections.items():
        for reason, count in reasons.items():
            yield {"plugin": plugin, "rejected": count, "reason": reason}
        if not reasons:
            entry = {"plugin": plugin, "rejected": 0, "reason": decision.refused}
            yield {name: value for name, value in entry.items() if value != ""}


class Records:
    """The ring."""

    def __init__(self, profiles: Mapping[str, Profile], *, clock: Clock = SYSTEM) -> None:
        self._clock = clock
        self._by_pod: OrderedDict[Key, tuple[Record, ...]] = OrderedDict()
        self._weights: dict[str, Mapping[str, int]] = {}
        self._aging: dict[str, list[tuple[str, KnowsAges]]] = {}
        self.replan(profiles)

    def replan(self, profiles: Mapping[str, Profile]) -> None:
        """These profiles decide from now on."""
        for name, profile in profiles.items():
            self._weights[name] = {plugin.name: weight for plugin, weight in profile.score}
            # Most profiles look at no measurements: asking nobody costs nothing.
            self._aging[name] = [
                (n, plugin)
                for n, plugin in profile.plugins.items()
                if isinstance(plugin, KnowsAges)
            ]

    def __len__(self) -> int:
        return len(self._by_pod)

    def take(
        self,
        pod: PodInfo,
        decision: Decision,
        attempts: int = 1,
        took_s: Mapping[str, float] = _NOTHING,
    ) -> Record:
        """Remember a decision that was just made."""
        aging = self._aging[decision.profile]
        record = Record(
            decision,
            pod.uid,
            self._clock.now(),
            attempts,
            self._weights[decision.profile],
            {name: ages for name, plugin in aging if (ages := plugin.ages(pod))} if aging else {},
            took_s,
        )
        key = decision.pod
        known = self._by_pod.pop(key, ())
        if known and known[-1].uid != pod.uid:
            known = ()  # another pod of that name
        self._by_pod[key] = (*known[1 - PER_POD :], record)
        if len(self._by_pod) > PODS:
            self._by_pod.popitem(last=False)
        return record

    def of(self, key: Key) -> Sequence[Record]:
        """What was decided about a pod, oldest first; empty: nothing, or it is forgotten."""
        return self._by_pod.get(key, ())

    def latest(self) -> Iterator[Record]:
        """The last decision about each pod, newest first."""
        for records in reversed(self._by_pod.values()):
            yield records[-1]


def is_wanted(pod: PodInfo) -> bool:
    """Does the pod's author ask for its decisions to be explained?"""
    return pod.pod.metadata.annotations.get(EXPLAIN_ANNOTATION) == "true"
