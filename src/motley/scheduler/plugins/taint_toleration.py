"""TaintToleration: pods stay away from taints they do not tolerate.

NoSchedule and NoExecute filter; PreferNoSchedule only costs score.
"""

import numpy as np
import numpy.typing as npt

from motley.scheduler import contract, events
from motley.scheduler.contract import Columns, Mask, PodInfo, Scores
from motley.scheduler.facts import TaintKey
from motley.scheduler.plugins import normalize

_HARD = ("NoSchedule", "NoExecute")
_SOFT = ("PreferNoSchedule",)


def tolerates(pod: PodInfo, taint: TaintKey) -> bool:
    """Does one of the pod's tolerations match the taint?"""
    return any(
        (not t.effect or t.effect == taint.effect)
        and (t.key == taint.key if t.key else t.operator == "Exists")
        and (t.operator == "Exists" or (t.operator in ("", "Equal") and t.value == taint.value))
        for t in pod.tolerations
    )


def intolerable(
    pod: PodInfo, nodes: Columns, effects: tuple[str, ...]
) -> npt.NDArray[np.uint64] | None:
    """The bits of the taints of these effects that the pod does not tolerate; None: no such."""
    words = np.zeros((nodes.taints.shape[0], 1), np.uint64)
    for number, taint in enumerate(nodes.taint_kinds):
        if taint.effect in effects and not tolerates(pod, taint):
            words[number // 64, 0] |= np.uint64(1 << number % 64)
    return words if words.any() else None


def tolerated(pod: PodInfo, nodes: Columns) -> Mask:
    """Where every hard taint is tolerated."""
    bad = intolerable(pod, nodes, _HARD)
    if bad is None:
        return np.ones(nodes.size, np.bool_)
    allowed: Mask = ((nodes.taints & bad) == 0).all(axis=0)
    return allowed


class TaintToleration:
    """Keep nodes whose taints the pod tolerates, prefer those with fewer soft ones."""

    name = "TaintToleration"
    reason = "node(s) had untolerated taint(s)"
    wakes_on = (events.NodeAdded, events.NodeTaintsChanged)
    static = True
    Args = contract.NoArgs

    def __init__(self, args: contract.NoArgs, handle: contract.Handle) -> None: ...

    def filter(self, pod: PodInfo, nodes: Columns) -> Mask:
        """True where every hard taint is tolerated."""
        return tolerated(pod, nodes)

    def score(self, pod: PodInfo, nodes: Columns) -> Scores:
        """How many soft taints are not tolerated; fewer is better after normalising."""
        bad = intolerable(pod, nodes, _SOFT)
        if bad is None:
            return np.zeros(nodes.size)
        counts: Scores = np.bitwise_count(nodes.taints & bad).sum(axis=0, dtype=np.float64)
        return counts

    def normalize(self, pod: PodInfo, scores: Scores, feasible: Mask) -> Scores:
        """None untolerated is 100, the most is 0."""
        return normalize.by_maximum(scores, feasible, reverse=True)


_f: contract.Made[contract.FilterPlugin] = TaintToleration
_s: contract.Made[contract.ScorePlugin] = TaintToleration
