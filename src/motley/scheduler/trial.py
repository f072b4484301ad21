"""What the filters would say of a pod if other pods were not where they are.

Preemption takes pods out of the columns, asks here, and puts them back. Every filter of the profile
is asked again, so one that is added later counts too. Filters differ in how far they look, which
decides how many nodes can be tried out at once:

- `static` ones, and those with `removal_helps = False`, look at nodes only: they are asked once.
- `scope = "requests"`: at the node and at the sum of requests on it (the columns' `requested`).
- `scope = "node"`: at the node and the pods on it.
- any other: at pods anywhere, so that nodes must be tried one by one; unless they can tell in
  columns what would be if pods left (`filter_vacated`).
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from motley.scheduler.columns import Columns, Mask
from motley.scheduler.contract import (
    SKIP,
    ExplainsRejection,
    PodInfo,
    Reject,
    TriesOutInColumns,
)
from motley.scheduler.lineup import Gone
from motley.scheduler.nominations import Nominations
from motley.scheduler.profiles import Profile


def is_fixed(plugin: Any) -> bool:
    """Does the filter's answer stay the same whatever pods go?"""
    return bool(getattr(plugin, "static", False)) or not getattr(plugin, "removal_helps", True)


def scope(plugin: Any) -> str:
    """How far a filter looks: `nodes`, `requests`, `node` or `cluster`."""
    return "nodes" if is_fixed(plugin) else str(getattr(plugin, "scope", "cluster"))


def _can_tell(plugin: Any) -> bool:
    """Can it be asked about many nodes with pods thought away?"""
    return scope(plugin) in ("nodes", "requests") or isinstance(plugin, TriesOutInColumns)


class Trial:
    """One pod that found no node; the filters as they stand after its PreFilter."""

    def __init__(
        self,
        profile: Profile,
        nodes: Columns,
        pod: PodInfo,
        skipped: Iterable[str],
        nominations: Nominations,
    ) -> None:
        self.nodes = nodes
        self.pod = pod
        self._nominations = nominations
        skip = frozenset(skipped)
        self._filters = [plugin for plugin in profile.filter if plugin.name not in skip]
        far = {plugin.name for plugin in self._filters if scope(plugin) == "cluster"}
        self._prepare = [plugin for plugin in profile.pre_filter if plugin.name in far]
        self.is_local = not far
        # In the profile's order, up to one that cannot tell: a node counts under the first filter
        # that rejects it.
        self._tellable = list(itertools.takewhile(_can_tell, self._filters))
        self._movable = {p.name for p in self._tellable if hasattr(p, "filter_vacated")}
        self.in_columns = len(self._tellable) == len(self._filters)
        self.is_simple = all(scope(plugin) in ("nodes", "requests") for plugin in self._filters)
        self.is_lasting = self.is_simple and all(
            is_fixed(plugin) or hasattr(plugin, "filter_rows") for plugin in self._filters
        )
        self._fixed: dict[str, Mask] = {}

    def hopeless(self, rejected_by: Mapping[str, Mask]) -> Mask:
        """Rows whose first rejection no removal of pods can lift."""
        lost = np.zeros(self.nodes.size, np.bool_)
        for plugin in self._filters:
            rejected = rejected_by.get(plugin.name)
            if rejected is None:
                continue
            if is_fixed(plugin):
                lost |= rejected
            elif hasattr(plugin, "hopeless"):
                lost |= rejected & plugin.hopeless(self.pod, self.nodes, rejected)
        return lost

    def unsuited(self, rows: Mask) -> dict[str, Mask]:
        """Per filter that looks at nodes only, which of these rows it was the first to reject."""
        rejected: dict[str, Mask] = {}
        left = rows.copy()
        for plugin in self._filters:
            if is_fixed(plugin):
                rejected[plugin.name] = left & ~self._answer(plugin)
                left &= ~rejected[plugin.name]
        return rejected

    def has_room(self) -> Mask:
        """What the filters that look at sums of requests say, the columns being as they are."""
        mask = np.ones(self.nodes.size, np.bool_)
        for plugin in self._filters:
            if scope(plugin) == "requests":
                mask &= plugin.filter(self.pod, self.nodes)
        return mask

    def explain_room(self, rows: Mask) -> Counter[str]:
        """Why `has_room` says no for these rows, counted."""
        rejected: dict[str, Mask] = {}
        left = rows.copy()
        for plugin in self._filters:
            if scope(plugin) == "requests":
                refused = left & ~plugin.filter(self.pod, self.nodes)
            elif hasattr(plugin, "stays_taken"):  # a node counts under the first that rejects it
                refused = plugin.stays_taken(self.pod, self.nodes, left)
            else:
                continue
            rejected[plugin.name] = refused
            left &= ~refused
        return self.explain(rejected)

    def ask_vacated(self, gone: Gone) -> tuple[Mask, dict[str, Mask]]:
        """The filters that can tell in columns, as if pods had left, each row its own.

        Sums of requests are looked at as they are: who asks has changed them.
        """
        mask, rejected = self._ask_vacated(gone)
        if self._movable and len(self._nominations):
            with self._nominations.hidden():
                without, more = self._ask_vacated(gone)
            for name, rows in more.items():
                rejected[name] = rejected.get(name, np.zeros_like(rows)) | (rows & mask)
            mask &= without
        return mask, rejected

    def _ask_vacated(self, gone: Gone) -> tuple[Mask, dict[str, Mask]]:
        mask: Mask = self.nodes.live.copy()
        rejected: dict[str, Mask] = {}
        for plugin in self._tellable:
            if plugin.name in self._movable:
                answer = plugin.filter_vacated(self.pod, self.nodes, gone)
            else:
                answer = self._answer(plugin)
            refused = mask > answer
            if np.count_nonzero(refused):
                rejected[plugin.name] = refused
                mask &= answer
        return mask, rejected

    def explain_vacated(self, rejected: Mapping[str, Mask], gone: Gone) -> Counter[str]:
        """Reasons with counts, the requests being as they were when the filters were asked."""
        counts = self.explain({n: m for n, m in rejected.items() if n not in self._movable})
        for plugin in self._tellable:
            rows = rejected.get(plugin.name)
            if plugin.name in self._movable and rows is not None and rows.any():
                counts.update(plugin.explain_vacated(self.pod, self.nodes, rows, gone))
        return counts

    def ask(self) -> tuple[Mask, dict[str, Mask]]:
        """All filters: where the pod fits, and per filter the rows it was the first to reject."""
        mask, rejected = self._ask()
        if not self.is_local and len(self._nominations):
            # It must fit whether or not the nominated pods come: affinity may rest on them.
            with self._nominations.hidden():
                without, more = self._ask()
            for name, rows in more.items():
                rejected[name] = rejected.get(name, np.zeros_like(rows)) | (rows & mask)
            mask &= without
        return mask, rejected

    def _ask(self) -> tuple[Mask, dict[str, Mask]]:
        nodes, pod = self.nodes, self.pod
        mask: Mask = nodes.live.copy()
        rejected: dict[str, Mask] = {}
        idle: set[str] = set()
        for plugin in self._prepare:
            answer = plugin.pre_filter(pod, nodes)
            if answer is SKIP:
                idle.add(plugin.name)
            elif isinstance(answer, Reject):
                return np.zeros_like(mask), {plugin.name: mask}
            elif answer is not None:
                mask &= answer
        for plugin in self._filters:
            if plugin.name in idle:
                continue
            answer = self._answer(plugin)
            refused = mask & ~answer
            if refused.any():
                rejected[plugin.name] = refused
                mask &= answer
        return mask, rejected

    def _answer(self, plugin: Any) -> Mask:
        if not is_fixed(plugin):
            fresh: Mask = plugin.filter(self.pod, self.nodes)
            return fresh
        kept = self._fixed.get(plugin.name)
        if kept is None:
            kept = self._fixed[plugin.name] = plugin.filter(self.pod, self.nodes)
        return kept

    def explain(self, rejected: Mapping[str, Mask]) -> Counter[str]:
        """Reasons with counts, the columns being as they were when the filters were asked."""
        counts: Counter[str] = Counter()
        for plugin in self._filters:
            rows = rejected.get(plugin.name)
            if rows is None or not rows.any():
                continue
            if isinstance(plugin, ExplainsRejection):
                counts.update(plugin.explain(self.pod, self.nodes, rows))
            else:
                counts[plugin.reason] += int(np.count_nonzero(rows))
        return counts
