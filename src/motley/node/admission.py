"""What a node takes on: new pods, and more for those it has.

The scheduler has decided already, but it may have decided on old news: a node that takes more than
it has breaks its promises to everyone on it. So what is asked is checked once more against what
is there, and a pod that asks for other resources keeps those it has until there is room.
"""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

from motley.api import overcommit, quantity
from motley.api.views.core import Node
from motley.api.views.pod import Pod
from motley.lib import journal
from motley.node import allocation, placement, resources, sysctls
from motley.node.context import Context
from motley.node.eviction.evictor import Evictor
from motley.node.podworker import PodWorker
from motley.node.resources import Rejection

log = journal.get(__name__)


class Admission:
    """Decides for one node."""

    def __init__(
        self,
        context: Context,
        evictor: Evictor,
        workers: Callable[[], Sequence[PodWorker]],
        node: Callable[[], Node | None],
    ) -> None:
        self._context = context
        self._evictor = evictor
        self._workers = workers
        self._node = node

    def admit(self, pod: Pod) -> Rejection | None:
        """Why the node does not take a new pod; None: it does, and has given it its CPUs."""
        rejection = self._refusal(pod)
        if rejection is None:
            return None
        log.warning("pod rejected", pod=pod.key, reason=rejection.reason)
        self._context.recorder.event(pod, "Warning", rejection.reason, rejection.message)
        return rejection

    def _refusal(self, pod: Pod) -> Rejection | None:
        under_pressure = self._evictor.refusal(pod)
        if under_pressure:
            return Rejection("Evicted", under_pressure)
        if forbidden := sysctls.refusal(pod, self._context.settings.allowed_unsafe_sysctls):
            return Rejection(sysctls.FORBIDDEN, forbidden)
        present = self._present()
        node = self._node()
        if rejection := resources.admit(pod, present, self._allocatable(node), self._ratios()):
            return rejection
        if node is not None and (rejection := placement.refusal(pod, node, present)):
            return rejection
        said = self._context.cpus.admit(pod)
        return Rejection("UnexpectedAdmissionError", said) if said else None

    def _allocatable(self, node: Node | None) -> dict[str, int]:
        """What there is to give: our own figures, and what others announced on the Node."""
        announced = node.status.allocatable if node is not None else {}
        extended = {
            name: quantity.to_int(amount)
            for name, amount in announced.items()
            if resources.is_extended(name)
        }
        return {**extended, **self._context.resources.allocatable}

    def _ratios(self) -> Mapping[str, Fraction]:
        node = self._node()
        return overcommit.ratios(node.metadata.labels) if node is not None else {}

    def _present(self) -> list[Pod]:
        """The pods that take room here, with what they were granted."""
        return [
            self._context.allocations.of(w.pod)
            for w in self._workers()
            if w.pod is not None and not w.pod.is_terminal and w.notes.rejected is None
        ]

    def consider_resizes(self) -> None:
        """Grant what pods ask for by now, as far as there is room."""
        for worker in self._workers():
            pod = worker.pod
            if pod is None or pod.is_terminal or worker.notes.rejected is not None:
                continue
            pending = self._resize(pod)
            if pending != worker.notes.resize_pending:
                worker.notes.resize_pending = pending
                worker.wake()

    def _resize(self, pod: Pod) -> allocation.Pending | None:
        allocations = self._context.allocations
        if not allocations.wants_other(pod):
            return None
        allocations.keep(pod)
        pending = allocation.verdict(
            pod,
            self._present(),
            self._context.resources.allocatable,
            has_own_cpus=self._context.cpus.has_any(pod.metadata.uid),
        )
        if pending is None:
            log.info("resize granted", pod=pod.key)
            allocations.grant(pod)
        return pending
