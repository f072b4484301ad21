"""Pod garbage collection: pods nobody will ever finish.

A pod on a node that no longer exists has no agent to confirm its end, so it is removed by force;
so are the oldest ended pods once there are too many of them.
"""

import heapq

from motley.api import status
from motley.api.views.base import Key
from motley.api.views.core import Node
from motley.api.views.pod import Pod
from motley.client.informer import Change
from motley.client.workqueue import WorkQueue
from motley.controllers.manager import Context
from motley.controllers.nodelifecycle import by_node
from motley.controllers.reconciler import Requeue
from motley.lib import journal

log = journal.get(__name__)

# The key under which the number of ended pods is looked at; no pod has an empty name.
_ENDED = Key("", "")
_LOOK_S = 20.0  # kube-controller-manager's period


class PodGCController:
    """See the module's docstring."""

    name = "podgc"
    workers = 2

    def __init__(
        self,
        context: Context,
        *,
        quarantine_s: float = 40.0,  # kube-controller-manager: a node may come back at once
        ended_limit: int = 12_500,
    ) -> None:
        self._client = context.client
        self._clock = context.clock
        self._quarantine_s = quarantine_s
        self._ended_limit = ended_limit
        self.queue: WorkQueue[Key] = WorkQueue(context.clock)
        self._nodes = context.informers.of(Node)
        self._pods = context.informers.of(Pod)
        self._pods.add_index("node", by_node)
        self._missing: dict[str, float] = {}  # node -> since when it is known to be missing
        self._nodes.add_handler(self._node_changed)
        self._pods.add_handler(self._pod_changed)
        self.queue.add(_ENDED)

    def _node_changed(self, change: Change[Node]) -> None:
        if change.new is not None:
            self._missing.pop(change.key.name, None)
            return
        for pod in self._pods.by_index("node", change.key.name):
            self.queue.add(pod.key)

    def _pod_changed(self, change: Change[Pod]) -> None:
        pod = change.new
        if pod is None or not pod.spec.node_name:
            return
        if self._nodes.get(Key("", pod.spec.node_name)) is None:
            self.queue.add(pod.key)

    async def reconcile(self, key: Key) -> Requeue | None:
        """Remove one orphaned pod, or the oldest ended ones."""
        if key == _ENDED:
            return await self._trim()
        pod = self._pods.get(key)
        if pod is None or not pod.spec.node_name:
            return None
        node = pod.spec.node_name
        if self._nodes.get(Key("", node)) is not None:
            return None
        now = self._clock.monotonic()
        waited_s = now - self._missing.setdefault(node, now)
        if waited_s < self._quarantine_s:
            return Requeue(self._quarantine_s - waited_s)
        try:
            await self._client.get(Node, node)
        except status.NotFound:
            log.info("removing pod of a missing node", pod=key, node=node)
            await self._remove(pod)
        return None

    async def _trim(self) -> Requeue:
        ended = [pod for pod in self._pods.items() if pod.is_terminal]
        excess = len(ended) - self._ended_limit
        if excess > 0:
            for pod in heapq.nsmallest(excess, ended, key=_created):
                await self._remove(pod)
        return Requeue(_LOOK_S)

    async def _remove(self, pod: Pod) -> None:
        meta = pod.metadata
        try:
            await self._client.delete(
                Pod, meta.name, meta.namespace, uid=meta.uid, grace_period_s=0
            )
        except (status.NotFound, status.Conflict):
            pass  # gone already, or another pod has its name


def _created(pod: Pod) -> str:
    return pod.metadata.creation_timestamp or ""
