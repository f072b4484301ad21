"""Taint eviction: deletes pods that a NoExecute taint of their node drives away.

Each pod has its own deadline (the taint's time plus what the pod tolerates); the queue's delay
is the timer, and the pod is judged anew when it fires, so a taint that went away saves it.
"""

from motley.api import status
from motley.api.views.base import Key
from motley.api.views.core import Node
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
        self._nodes.add_handler(self._node_changed)
        self._pods.add_handler(self._pod_changed)

    def _node_changed(self, change: Change[Node]) -> None:
        if change.new is None:
            return
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
        now = self._clock.now()
        due = nodehealth.evict_at(pod.spec.tolerations, node.spec.taints, now)
        if due is None:
            return None
        if due > now:
            return Requeue(due - now)
        message = f"Marking for deletion Pod {key}"
        self._recorder.event(pod, "Normal", "TaintManagerEviction", message)
        log.info("evicting pod", pod=key, node=node.metadata.name)
        try:
            await self._explain(pod)
            await self._client.delete(Pod, key.name, key.namespace, uid=pod.metadata.uid)
        except (status.NotFound, status.Conflict):
            pass  # gone already, or another pod has its name
        return None

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
