"""One scheduling cycle: (columns, pod) → decision. Pure: reads memory, changes nothing.

Filters run in the profile's order over all nodes at once; a node counts under the first filter
that rejects it, as with kube-scheduler. Every feasible node is scored, at any cluster size.
Equal totals take turns.

Pods of one template share what the plugins said (`batches`), so that the hundredth pod of a
Deployment costs only what the ninety-nine before it have changed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

import numpy as np
import numpy.typing as npt

from motley.lib.clock import SYSTEM, Clock
from motley.scheduler.batches import Batch, Batches
from motley.scheduler.columns import Columns
from motley.scheduler.contract import (
    SKIP,
    ExplainsRejection,
    Mask,
    Nomination,
    PluginError,
    PodInfo,
    Reject,
    Scores,
)
from motley.scheduler.decisions import Decision, Ranked
from motley.scheduler.nominations import Nominations
from motley.scheduler.profiles import Profile
from motley.scheduler.trial import Trial, scope

_RUNNERS_UP = 3


class Rotation:
    """Takes turns among equals: the next row after the one chosen last, wrapping around."""

    def __init__(self, seed: int = 0) -> None:
        self._last = Random(seed).randrange(1 << 16) if seed else -1

    def pick(self, candidates: npt.NDArray[np.intp]) -> int:
        """One of these rows, which are in ascending order."""
        position = int(candidates.searchsorted(self._last, side="right"))
        self._last = int(candidates[position % len(candidates)])
        return self._last


@dataclass(slots=True)
class Evaluation:
    """All that the plugins said about all nodes, before one is chosen.

    Scores and total belong to the pod's batch: not to be written to, and true until the next cycle.
    """

    feasible: Mask
    rejected: dict[str, Mask] = field(default_factory=dict)  # by filter, first to reject
    refused: Reject | None = None
    refused_by: str = ""
    narrowed_by: list[str] = field(default_factory=list)
    narrowed: Mask | None = None  # rows that pre-filters have left
    skipped: set[str] = field(default_factory=set)  # filters with nothing to check
    scores: dict[str, Scores] = field(default_factory=dict)  # weighted
    total: Scores | None = None


class Cycle:
    """The cycle of one profile over one cluster."""

    def __init__(
        self,
        profile: Profile,
        nodes: Columns,
        *,
        rotation: Rotation | None = None,
        nominations: Nominations | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        self.profile = profile
        self.nodes = nodes
        self._rotation = rotation or Rotation()
        self._nominations = Nominations(nodes) if nominations is None else nominations
        self._clock = clock
        self._batches = Batches(nodes)
        self._now_at = ("", "")  # plugin and point, to name whoever raises

    def schedule(self, pod: PodInfo) -> Decision:
        """Choose a node, or say why there is none. Raises PluginError."""
        began = self._clock.monotonic()
        with self._nominations.seen_by(pod):
            evaluation = self.evaluate(pod)
            count = int(np.count_nonzero(evaluation.feasible))
            if not count:
                return self._failure(pod, evaluation, began)
        row, ranking = self._choose(evaluation, count)
        return Decision(
            pod=pod.key,
            profile=self.profile.name,
            node=self.nodes.names[row],
            nodes=self.nodes.count,
            feasible=count,
            rejections={
                name: {self._filters_reason(name): int(np.count_nonzero(mask))}
                for name, mask in evaluation.rejected.items()
            },
            ranking=ranking,
            took_s=self._clock.monotonic() - began,
        )

    def feasible(self, pod: PodInfo) -> list[str]:
        """The nodes that all filters accept now, for others to choose from. Raises PluginError."""
        with self._nominations.seen_by(pod):
            rows = np.flatnonzero(self.evaluate(pod).feasible)
        return [self.nodes.names[row] for row in rows.tolist()]

    def evaluate(self, pod: PodInfo) -> Evaluation:
        """Run PreFilter, Filter, PreScore, Score and Normalize. Raises PluginError."""
        pod.state.clear()
        batch = self._batches.of(pod)
        try:
            evaluation = self._filter(pod, batch)
            if len(self._nominations):
                self._respect_nominations(pod, evaluation, batch)
            # With one feasible node there is nothing to compare.
            if np.count_nonzero(evaluation.feasible) > 1:
                self._score(pod, evaluation, batch)
        except PluginError:
            raise
        except Exception as e:
            raise PluginError(*self._now_at, e) from e
        return evaluation

    def score(self, pod: PodInfo, feasible: Mask) -> Evaluation:
        """Run PreScore, Score and Normalize over nodes that are known to be feasible.

        For replays and what-if questions. Raises PluginError.
        """
        evaluation = Evaluation(feasible=feasible)
        try:
            self._score(pod, evaluation, self._batches.of(pod))
        except PluginError:
            raise
        except Exception as e:
            raise PluginError(*self._now_at, e) from e
        return evaluation

    def _respect_nominations(self, pod: PodInfo, evaluation: Evaluation, batch: Batch) -> None:
        """Room was made for this pod: take it. Affinity must not rest on pods yet to come."""
        if evaluation.feasible.any() and any(
            scope(plugin) == "cluster" and plugin.name not in evaluation.skipped
            for plugin in self.profile.filter
        ):
            with self._nominations.hidden():
                without = self._filter(pod, batch)
            for name, rows in without.rejected.items():
                fresh = rows & evaluation.feasible
                evaluation.rejected[name] = evaluation.rejected.get(name, fresh) | fresh
            evaluation.feasible &= without.feasible
        row = self.nodes.rows.get(self._nominations.node_of(pod.uid))
        if row is not None and evaluation.feasible[row]:
            evaluation.feasible[:] = False
            evaluation.feasible[row] = True

    def _filter(self, pod: PodInfo, batch: Batch) -> Evaluation:
        nodes = self.nodes
        evaluation = Evaluation(feasible=nodes.live.copy())
        skipped = evaluation.skipped
        for plugin in self.profile.pre_filter:
            self._now_at = (plugin.name, "PreFilter")
            answer = plugin.pre_filter(pod, nodes)
            if answer is SKIP:
                skipped.add(plugin.name)
            elif isinstance(answer, Reject):
                evaluation.refused, evaluation.refused_by = answer, plugin.name
                evaluation.feasible[:] = False
                return evaluation
            elif answer is not None:
                evaluation.narrowed_by.append(plugin.name)
                evaluation.feasible &= answer
        if evaluation.narrowed_by:
            evaluation.narrowed = evaluation.feasible.copy()
        feasible = evaluation.feasible
        for plugin in self.profile.filter:
            name = plugin.name
            if name in skipped:
                continue
            self._now_at = (name, "Filter")
            mask = batch.filter(plugin, pod)
            rejected = feasible > mask  # feasible so far, and not here
            if np.count_nonzero(rejected):
                evaluation.rejected[name] = rejected
                feasible &= mask
                if not np.count_nonzero(feasible):
                    break
        return evaluation

    def _score(self, pod: PodInfo, evaluation: Evaluation, batch: Batch) -> None:
        nodes, feasible = self.nodes, evaluation.feasible
        skipped: set[str] = set()
        for plugin in self.profile.pre_score:
            self._now_at = (plugin.name, "PreScore")
            if plugin.pre_score(pod, nodes, feasible) is SKIP:
                skipped.add(plugin.name)
        parts = []
        for plugin, weight in self.profile.score:
            name = plugin.name
            if name in skipped:
                continue
            self._now_at = (name, "Score")
            scored = batch.score(plugin, weight, pod, feasible)
            evaluation.scores[name] = scored.weighted
            parts.append(scored)
        evaluation.total = batch.total(parts)

    def _choose(self, evaluation: Evaluation, count: int) -> tuple[int, tuple[Ranked, ...]]:
        feasible, total = evaluation.feasible, evaluation.total
        if total is None:
            row = int(feasible.argmax())
            return row, (Ranked(self.nodes.names[row], 0.0, {}),)
        totals = total if count == len(total) else np.where(feasible, total, -np.inf)
        best = totals.max()
        if np.isnan(best):
            raise _not_a_number(evaluation)
        equals = (totals == best).nonzero()[0]
        row = self._rotation.pick(equals)
        others = [r for r in equals[: _RUNNERS_UP + 1].tolist() if r != row][:_RUNNERS_UP]
        wanted = min(_RUNNERS_UP, count - 1)
        if len(others) < wanted:
            totals = totals.copy()
            totals[[row, *others]] = -np.inf
            while len(others) < wanted:
                others.append(int(totals.argmax()))
                totals[others[-1]] = -np.inf
        return row, tuple(self._ranked(evaluation, r) for r in (row, *others))

    @staticmethod
    def _at(evaluation: Evaluation, row: int) -> float:
        return evaluation.total.item(row) if evaluation.total is not None else 0.0

    def _ranked(self, evaluation: Evaluation, row: int) -> Ranked:
        scores = {name: values.item(row) for name, values in evaluation.scores.items()}
        return Ranked(self.nodes.names[row], self._at(evaluation, row), scores)

    def _failure(self, pod: PodInfo, evaluation: Evaluation, began: float) -> Decision:
        rejections = self.explain(pod, evaluation)
        answer = self._post_filter(pod, evaluation) if self.nodes.count else None
        return Decision(
            pod=pod.key,
            profile=self.profile.name,
            node=None,
            nodes=self.nodes.count,
            feasible=0,
            rejections=rejections,
            refused=evaluation.refused.reason if evaluation.refused else "",
            post_filter=answer,
            took_s=self._clock.monotonic() - began,
        )

    def _post_filter(self, pod: PodInfo, evaluation: Evaluation) -> Nomination | Reject | None:
        answer: Reject | None = None
        for plugin in self.profile.post_filter:
            self._now_at = (plugin.name, "PostFilter")
            trial = Trial(self.profile, self.nodes, pod, evaluation.skipped, self._nominations)
            try:
                said = plugin.post_filter(pod, self.nodes, evaluation.rejected, trial)
            except Exception as e:
                raise PluginError(*self._now_at, e) from e
            if isinstance(said, Nomination):
                return said
            if said is not None:
                answer = said if answer is None else answer.and_also(said)
        return answer

    def explain(self, pod: PodInfo, evaluation: Evaluation) -> Mapping[str, Mapping[str, int]]:
        """Per filter: its reasons, with the number of nodes each of them cost."""
        rejections: dict[str, Mapping[str, int]] = {}
        if evaluation.refused:
            rejections[evaluation.refused_by] = {}
        if evaluation.narrowed is not None:
            outside = int(np.count_nonzero(self.nodes.live & ~evaluation.narrowed))
            names = " ".join(evaluation.narrowed_by)
            reason = f"node(s) didn't satisfy plugin(s) [{names}]"
            for name in evaluation.narrowed_by:
                rejections[name] = {reason: outside} if outside else {}
                outside = 0
        by_name = {plugin.name: plugin for plugin in self.profile.filter}
        for name, mask in evaluation.rejected.items():
            plugin = by_name[name]
            self._now_at = (name, "Filter")
            if isinstance(plugin, ExplainsRejection):
                counts = plugin.explain(pod, self.nodes, mask)
            else:
                counts = {plugin.reason: int(np.count_nonzero(mask))}
            rejections[name] = {**rejections.get(name, {}), **counts}
        return rejections

    def _filters_reason(self, name: str) -> str:
        return next((p.reason for p in self.profile.filter if p.name == name), name)


def _not_a_number(evaluation: Evaluation) -> PluginError:
    """Whose score it is that makes a total that cannot be compared."""
    guilty = (n for n, s in evaluation.scores.items() if np.isnan(s[evaluation.feasible]).any())
    error = ValueError("the score of a feasible node is not a number")
    return PluginError(next(guilty, "several"), "Score", error)
