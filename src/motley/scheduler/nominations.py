"""Pods that wait for room made for them on a certain node.

Between the end of the victims and the binding, nobody else may take the place. So a nominated pod
is counted on its node as if it were there already, under a uid of its own, for every pod of the
same or a lower priority; a more important pod does not see it, and may take the place.

Invariant: outside `seen_by` and `hidden` every nominated pod is counted exactly once.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace

from motley.scheduler.columns import Columns
from motley.scheduler.podinfo import PodInfo

_PREFIX = "nominated/"


def is_stand_in(uid: str) -> bool:
    """Does this uid in the columns stand for a pod that is only nominated?"""
    return uid.startswith(_PREFIX)


@dataclass(slots=True, eq=False)
class Nominee:
    """A pod and the node it waits for."""

    info: PodInfo
    node: str
    stand_in: PodInfo


class Nominations:
    """All of them. Changed by the scheduler's loop and handlers, on one event loop."""

    def __init__(self, nodes: Columns) -> None:
        self._nodes = nodes
        self._nominees: dict[str, Nominee] = {}  # by the pod's own uid
        self._by_node: dict[str, dict[str, Nominee]] = {}
        self._priorities: Counter[int] = Counter()  # of the pods
        self.preempting: set[str] = set()  # pods whose victims are being told to end

    def __len__(self) -> int:
        return len(self._nominees)

    def __iter__(self) -> Iterator[PodInfo]:
        """The pods that wait for a node."""
        return (nominee.info for nominee in self._nominees.values())

    def node_of(self, uid: str) -> str:
        """Where a pod is nominated to run; empty: nowhere."""
        nominee = self._nominees.get(uid)
        return nominee.node if nominee else ""

    def on(self, node: str) -> list[PodInfo]:
        """The pods that wait for this node."""
        return [nominee.info for nominee in self._by_node.get(node, {}).values()]

    def set(self, info: PodInfo, node: str, as_placed: PodInfo | None = None) -> None:
        """Nominate a pod, or nominate it elsewhere; `as_placed`: as it is to be counted there."""
        self.drop(info.uid)
        stand_in = replace(as_placed or info, uid=_PREFIX + info.uid, state={})
        nominee = Nominee(info, node, stand_in)
        self._nominees[info.uid] = nominee
        self._by_node.setdefault(node, {})[info.uid] = nominee
        self._priorities[info.priority] += 1
        self._nodes.add_pod(nominee.stand_in, node)

    def drop(self, uid: str) -> Nominee | None:
        """The pod is bound, gone, or waits for no node any more; None: it did not."""
        nominee = self._nominees.pop(uid, None)
        if nominee is None:
            return None
        self._priorities[nominee.info.priority] -= 1
        if not self._priorities[nominee.info.priority]:
            del self._priorities[nominee.info.priority]
        there = self._by_node[nominee.node]
        del there[uid]
        if not there:
            del self._by_node[nominee.node]
        self._nodes.remove_pod(nominee.stand_in.uid)
        return nominee

    def seen_by(self, pod: PodInfo) -> AbstractContextManager[None]:
        """Inside, only the others of at least the pod's priority are counted."""
        if not self._nominees:
            return nullcontext()
        if min(self._priorities) >= pod.priority:  # as nearly always: at most its own
            own = self._nominees.get(pod.uid)
            return nullcontext() if own is None else self._without((own,))
        return self._without(
            nominee
            for uid, nominee in self._nominees.items()
            if uid == pod.uid or nominee.info.priority < pod.priority
        )

    def hidden(self) -> AbstractContextManager[None]:
        """Inside, no nominated pod is counted."""
        return self._without(self._nominees.values())

    @contextmanager
    def _without(self, nominees: Iterable[Nominee]) -> Iterator[None]:
        taken = [n for n in nominees if self._nodes.remove_pod(n.stand_in.uid) is not None]
        try:
            yield
        finally:
            for nominee in taken:
                self._nodes.add_pod(nominee.stand_in, nominee.node)
