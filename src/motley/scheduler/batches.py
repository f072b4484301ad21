"""Pods of one template as a batch: what the plugins said of the first serves the others, too.

Pods of one template are the same to every plugin, so the second pod needs to know only what
has changed since the first was looked at. How much that is depends on how far a plugin looks:

    static                     at the pod and at node facts: nothing, until a node changes
    filter_rows, score_rows    at the pods on the node, too: the rows where a pod came or went
    anything else              as far as it likes: everything, it is asked about all nodes again

Nobody says where a batch begins or ends. Pods of other templates, deletions, nominations and
bindings that fail may come between; all of them go through the columns, which note the row
(`Columns.touched`) or the change of a node (`Columns.generation`).

Invariant: an answer that is given out equals the one the plugin would give now; to the last bit,
as every row is computed by the same operations, alone or among all.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from operator import is_
from typing import Any

import numpy as np

from motley.scheduler.columns import Columns, Mask, Rows, Scores
from motley.scheduler.contract import PluginError
from motley.scheduler.podinfo import PodInfo

_TEMPLATES = 128  # kept; some 250 kB each at 5,000 nodes
_FEW = 8  # up to one row in so many is asked about alone
_NO_ROWS = slice(0, 0)


@dataclass(slots=True, eq=False)
class _Verdict:
    """What a filter said."""

    plugin: Any
    version: int  # of the pods
    mask: Mask


@dataclass(slots=True, eq=False)
class Scored:
    """What a scorer said; `weighted` is what counts, and is not to be written to.

    As long as the batch gives out the same object, the scores differ from those given out before
    only in rows whose pods have changed.
    """

    plugin: Any
    weight: int
    version: int  # of the pods
    raw: Scores
    weighted: Scores
    among: bytes | None = None  # the feasible rows it was normalised for; None: it was not


class Batch:
    """The answers about one template."""

    def __init__(self, nodes: Columns) -> None:
        self._nodes = nodes
        self._verdicts: dict[str, _Verdict] = {}
        self._scored: dict[str, Scored] = {}
        self._total: Scores = np.zeros(0)
        self._total_of: list[Scored] = []
        self._total_version = -1
        self._asked = (-1, -1)
        self._rows: Rows | None = None

    def filter(self, plugin: Any, pod: PodInfo) -> Mask:
        """The filter's answer for all rows; not to be written to."""
        nodes, kept = self._nodes, self._verdicts.get(plugin.name)
        if kept is not None and kept.plugin is plugin:
            if is_static(plugin):
                return kept.mask
            rows = self._changed(kept.version)
            if rows is not None:
                if rows is not _NO_ROWS:
                    kept.mask[rows] = plugin.filter_rows(pod, nodes, rows)
                kept.version = nodes.pods_version
                return kept.mask
        mask: Mask = plugin.filter(pod, nodes)
        if is_static(plugin) or hasattr(plugin, "filter_rows"):
            mask = mask.copy()
            self._verdicts[plugin.name] = _Verdict(plugin, nodes.pods_version, mask)
        return mask

    def score(self, plugin: Any, weight: int, pod: PodInfo, feasible: Mask) -> Scored:
        """The scorer's answer for all rows, normalised and weighted. Raises what it raises, or
        PluginError where that was while normalising."""
        kept = self._scored.get(plugin.name)
        if kept is None or kept.plugin is not plugin or kept.weight != weight:
            return self._score_all(plugin, weight, pod, feasible)
        if not is_static(plugin):
            rows = self._changed(kept.version)
            if rows is None:
                return self._score_all(plugin, weight, pod, feasible)
            if rows is not _NO_ROWS:
                fresh = plugin.score_rows(pod, self._nodes, rows)
                kept.raw[rows] = fresh
                if kept.among is None and weight != 1:
                    kept.weighted[rows] = fresh * weight
            kept.version = self._nodes.pods_version
            if kept.among is None:
                return kept
        # What is normalised may change everywhere: with the rows that are compared, or with raw
        # scores. Where neither did, nothing did.
        elif kept.among is None or kept.among == feasible.tobytes():
            return kept
        return self._keep(plugin, weight, kept.raw, pod, feasible)

    def _score_all(self, plugin: Any, weight: int, pod: PodInfo, feasible: Mask) -> Scored:
        raw: Scores = plugin.score(pod, self._nodes)
        if is_static(plugin) or hasattr(plugin, "score_rows"):
            return self._keep(plugin, weight, raw.copy(), pod, feasible)
        return self._made(plugin, weight, raw, pod, feasible)

    def _keep(self, plugin: Any, weight: int, raw: Scores, pod: PodInfo, feasible: Mask) -> Scored:
        kept = self._scored[plugin.name] = self._made(plugin, weight, raw, pod, feasible)
        return kept

    def _made(self, plugin: Any, weight: int, raw: Scores, pod: PodInfo, feasible: Mask) -> Scored:
        scores, among = raw, None
        normalize = getattr(plugin, "normalize", None)
        if normalize is not None:
            try:
                scores, among = normalize(pod, raw, feasible), feasible.tobytes()
            except Exception as e:
                raise PluginError(plugin.name, "NormalizeScore", e) from e
        weighted = scores if weight == 1 else scores * weight
        return Scored(plugin, weight, self._nodes.pods_version, raw, weighted, among)

    def total(self, parts: list[Scored]) -> Scores:
        """The sum of what was scored, in order; not to be written to."""
        nodes = self._nodes
        if not parts:
            return np.zeros(nodes.size)
        if len(parts) == len(self._total_of) and all(map(is_, parts, self._total_of)):
            rows = self._changed(self._total_version)
            if rows is not None:
                if rows is not _NO_ROWS:
                    self._total[rows] = _sum([part.weighted[rows] for part in parts])
                self._total_version = nodes.pods_version
                return self._total
        self._total = _sum([part.weighted for part in parts])
        self._total_of, self._total_version = parts, nodes.pods_version
        return self._total

    def _changed(self, version: int) -> Rows | None:
        """The rows to be asked about again; None: too many for that to be quicker."""
        asked = (version, self._nodes.pods_version)
        if asked != self._asked:
            self._asked, self._rows = asked, self._changed_rows(version)
        return self._rows

    def _changed_rows(self, version: int) -> Rows | None:
        rows = self._nodes.touched_since(version)
        if len(rows) * _FEW > self._nodes.size:
            return None
        if len(rows) == 1:  # as nearly always; views are made quicker than copies
            return slice(int(rows[0]), int(rows[0]) + 1)
        return rows if len(rows) else _NO_ROWS


def is_static(plugin: Any) -> bool:
    """Does the plugin's answer stay the same until a node changes?"""
    return bool(getattr(plugin, "static", False))


def _sum(parts: Sequence[Scores]) -> Scores:
    total = np.zeros_like(parts[0])
    for part in parts:
        total += part
    return total


class Batches:
    """The batches of one profile, by template: those used last."""

    def __init__(self, nodes: Columns) -> None:
        self._nodes = nodes
        self._batches: OrderedDict[int, Batch] = OrderedDict()
        self._generation = -1

    def of(self, pod: PodInfo) -> Batch:
        """The batch that a pod belongs to."""
        if self._generation != self._nodes.generation:
            self._batches.clear()
            self._generation = self._nodes.generation
        batch = self._batches.get(pod.template)
        if batch is None:
            batch = self._batches[pod.template] = Batch(self._nodes)
            if len(self._batches) > _TEMPLATES:
                self._batches.popitem(last=False)
        else:
            self._batches.move_to_end(pod.template)
        return batch
