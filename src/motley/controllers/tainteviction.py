"""Taint eviction: deletes pods that a NoExecute taint of their node drives away.

Each pod has its own deadline (the taint's time plus what the pod tolerates); the queue's delay
is the timer, and the pod is judged anew when it fires, so a taint that went away saves it. From its
first sight on a taint's age is measured by our own steady clock: a wall clock that is put forward
or back neither evicts a pod early nor keeps it.
"""

from motley.api import status
from motley.api.views.base import Key
from motley.api.views.core import Node, Taint
from motley.api.views.pod import Pod
from motley.client.index import by_node_name
from motley.client.informer import Change
from motley.client.workqueue import WorkQueue
from motley.controllers import nodehealth
from motley.controllers.manager import Context
from motley.controllers.reconciler import Requeue
from motley.lib import clock as clocks
from motley.lib import journal

log = journal.get(__name__)


class TaintEvictionController:
    """See the module's docstring."""

    name = "tainteviction"
    workers = 4

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._clock = context.clock
        self._recorder = context.recorder.source("taint-eviction-controller")
        self.queue: WorkQueue[Key] = WorkQueue(context.clock)
        self._nodes = context.informers.of(Node)
        self._pods = context.informers.of(Pod)
        self._pods.add_index("node", by_node_name)
        # What the wall clock was ahead of the steady one when a node's taint was first seen.
        self._ahead: dict[str, dict[tuple[str, str, str | None], float]] = {}
        self._nodes.add_handler(self._node_changed)
        self._pods.add_handler(self._pod_changed)

    def _node_changed(self, change: Change[Node]) -> None:
        if change.new is None:
            self._ahead.pop(change.key.name, None)
            return
        self._note(change.new)
        before = change.old.spec.taints if change.old else []
        if before != change.new.spec.taints:
            for pod in self._pods.by_index("node", change.key.name):
                self.queue.add(pod.key)

    def _pod_changed(self, change: Change[Pod]) -> None:
        pod = change.new
        if pod is None or not pod.spec.node_name:
            return
        if change.old is not None and change.old.spec.node_name == pod.spec.node_name:
            return
        node = self._nodes.get(Key("", pod.spec.node_name))
        if node is not None and node.spec.taints:
            self.queue.add(pod.key)

    async def reconcile(self, key: Key) -> Requeue | None:
        """Delete the pod if its time has come, or come back then."""
        pod = self._pods.get(key)
        if pod is None or pod.metadata.deletion_timestamp or pod.is_terminal:
            return None
        node = self._nodes.get(Key("", pod.spec.node_name))
        if node is None:
            return None
        left_s = self._left_s(pod, node)
        if left_s is None:
            return None
        if left_s > 0:
            return Requeue(left_s)
        message = f"Marking for deletion Pod {key}"
        self._recorder.event(pod, "Normal", "TaintManagerEviction", message)
        log.info("evicting pod", pod=key, node=node.metadata.name)
        try:
            await self._explain(pod)
            await self._client.delete(Pod, key.name, key.namespace, uid=pod.metadata.uid)
        except (status.NotFound, status.Conflict):
            pass  # gone already, or another pod has its name
        return None

    def _note(self, node: Node) -> dict[tuple[str, str, str | None], float]:
        """Remember when taints came to be known, and forget those that are gone."""
        name = node.metadata.name
        evicting = [t for t in node.spec.taints if t.effect == "NoExecute"]
        if not evicting:
            return self._ahead.pop(name, {})
        known = self._ahead.get(name, {})
        found = {
            identity: known[identity] if identity in known else self._ahead_of(taint)
            for taint in evicting
            for identity in [_identity(taint)]
        }
        self._ahead[name] = found
        return found

    def _ahead_of(self, taint: Taint) -> float:
        now = self._clock.now()
        if taint.time_added:  # one of the future was set before the clock was put back
            now = max(now, clocks.parse_rfc3339(taint.time_added))
        return now - self._clock.monotonic()

    def _left_s(self, pod: Pod, node: Node) -> float | None:
        """Seconds until the pod must go; None: it may stay."""
        ahead, steady = self._note(node), self._clock.monotonic()
        left: list[float] = []
        for taint in node.spec.taints:
            if taint.effect == "NoExecute":
                now = steady + ahead[_identity(taint)]
                due = nodehealth.evict_at(pod.spec.tolerations, [taint], now)
                left += [] if due is None else [due - now]
        return min(left, default=None)

    async def _explain(self, pod: Pod) -> None:
        """Say in the pod's status why it ends: a Job's failure policy asks for that."""
        change = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByTaintManager",
            "message": "Taint manager: deleting due to NoExecute taint",
            "lastTransitionTime": clocks.rfc3339(self._clock.now()),
        }
        meta = pod.metadata
        body = {"metadata": {"uid": meta.uid}, "status": {"conditions": [change]}}
        await self._client.patch(
            Pod, meta.name, meta.namespace, body, type="strategic", subresource="status"
        )


def _identity(taint: Taint) -> tuple[str, str, str | None]:
    return taint.key, taint.value, taint.time_added
