"""Minik8s: its scheduler's rules, one after another, as a plugin.

1. A pod that names its node is there already, and moves nothing.
2. A pod with required anti-affinity goes to the first node in the queue without a pod that its
   selectors match. Where every node has one it is ignored: the rule is a wish.
3. Any other pod goes to the first node in the queue.

Whoever is chosen by 2 or 3 goes to the end of the queue. Only nodes that run (are Ready) are
chosen; one that does not keeps its place. New nodes come in at the end. Which nodes come into
question at all is a matter of the profile's filters: taints keep pods off the control plane.

The queue is a number per node, the lowest being first: moving a node to the end gives it the next
number, and taking a binding back that failed gives it the old one again.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from motley.scheduler import contract, events, surroundings
from motley.scheduler.contract import MAX_SCORE, Columns, Mask, NoArgs, PodInfo, Scores
from motley.scheduler.feed import Feed
from motley.scheduler.podsets import PodSet

_NAME_FIELD = "metadata.name"


class _Move(NamedTuple):
    before: int
    after: int


class Minik8s:
    """Take turns among nodes that run, away from pods that are not wanted near."""

    name = "Minik8s"
    reason = "node(s) were not running"
    wakes_on = (events.NodeAdded, events.NodeConditionsChanged)
    removal_helps = False
    Args = NoArgs

    def __init__(self, args: NoArgs, handle: contract.Handle) -> None:
        self._nodes = handle.nodes
        self._directory = handle.directory
        self._turns: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self._names: list[str] = []
        self._seating = -1
        self._last = 0
        self._moves: dict[str, _Move] = {}  # by pod uid, until the pod is bound

    def follow(self, feed: Feed) -> None:
        """Anti-affinity may choose namespaces by their labels."""
        surroundings.follow_namespaces(feed, self._directory)

    def filter(self, pod: PodInfo, nodes: Columns) -> Mask:
        """True where the node runs."""
        return nodes.ready

    def pre_score(self, pod: PodInfo, nodes: Columns, feasible: Mask) -> None:
        """Find the node whose turn it is among the feasible ones."""
        self._follow()
        allowed = feasible & ~self._unwanted(pod)
        if not allowed.any():
            allowed = feasible
        rows = np.flatnonzero(allowed)
        pod.state[self.name] = int(rows[np.argmin(self._turns[rows])])

    def score(self, pod: PodInfo, nodes: Columns) -> Scores:
        """100 for the node whose turn it is, 0 for all others."""
        chosen = np.zeros(nodes.size)
        chosen[pod.state[self.name]] = MAX_SCORE
        return chosen

    def reserve(self, pod: PodInfo, node: str) -> None:
        """The node is chosen: it goes to the end, unless the pod came for this node alone."""
        self._follow()
        row = self._nodes.rows.get(node)
        if row is None or _names_its_node(pod):
            return
        self._last += 1
        self._moves[pod.uid] = _Move(int(self._turns[row]), self._last)
        self._turns[row] = self._last

    def unreserve(self, pod: PodInfo, node: str) -> None:
        """It is not, after all: it gets its place back, if it was not chosen again meanwhile."""
        self._follow()
        move, row = self._moves.pop(pod.uid, None), self._nodes.rows.get(node)
        if move is not None and row is not None and self._turns[row] == move.after:
            self._turns[row] = move.before

    def post_bind(self, pod: PodInfo, node: str) -> None:
        """Nothing is taken back any more."""
        self._moves.pop(pod.uid, None)

    def _unwanted(self, pod: PodInfo) -> Mask:
        """By row: does a pod run there, or in the same domain, that this one wants to be away
        from? What other pods want to be away from is their business."""
        nodes = self._nodes
        mask = np.zeros(nodes.size, np.bool_)
        for term in pod.terms.away:
            pods = PodSet((term.condition(self._directory.namespaces),))
            counts = nodes.tallies.of(pods, nodes.size)
            mask |= nodes.domains(term.topology_key).touched(counts)
        return mask

    def _follow(self) -> None:
        """Put new nodes at the end, in the order they came."""
        nodes = self._nodes
        if self._seating == nodes.seating:
            return
        self._seating = nodes.seating
        known = dict(zip(self._names, self._turns.tolist(), strict=True))
        turns = np.zeros(nodes.size, np.int64)
        for name, row in nodes.rows.items():
            if name not in known:
                self._last += 1
            turns[row] = known.get(name, self._last)
        self._turns, self._names = turns, list(nodes.names)


def _names_its_node(pod: PodInfo) -> bool:
    """By `matchFields`, which is how a pod that is yet to be placed names a node."""
    affinity = pod.pod.spec.affinity
    node = affinity.node_affinity if affinity is not None else None
    terms = node.required.node_selector_terms if node and node.required else []
    return bool(terms) and all(
        any(f.key == _NAME_FIELD and f.operator == "In" for f in term.match_fields)
        for term in terms
    )


_f: contract.Made[contract.FilterPlugin] = Minik8s
_e: contract.Made[contract.PreScorePlugin] = Minik8s
_s: contract.Made[contract.ScorePlugin] = Minik8s
_r: contract.Made[contract.ReservePlugin] = Minik8s
_p: contract.Made[contract.PostBindPlugin] = Minik8s
