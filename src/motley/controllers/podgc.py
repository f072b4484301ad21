"""Pod garbage collection: pods nobody will ever finish.

A pod on a node that no longer exists has no agent to confirm its end, nor has a deleted one on a
node that an administrator has declared out of service, or one that never got to any node: they are
said to have failed and removed by force. So are the oldest ended pods once there are too many.
"""

import heapq
from typing import Any

from motley.api import status
from motley.api.views.base import Key
from motley.api.views.core import Node
from motley.api.views.pod import Pod
from motley.client.index import by_node_name
from motley.client.informer import Change
from motley.client.workqueue import WorkQueue
from motley.controllers.manager import Context
from motley.controllers.reconciler import Requeue
from motley.lib import clock as clocks
from motley.lib import journal

log = journal.get(__name__)

# The key under which the number of ended pods is looked at; no pod has an empty name.
_ENDED = Key("", "")
_LOOK_S = 20.0  # kube-controller-manager's period
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


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
        self._pods.add_index("node", by_node_name)
        self._missing: dict[str, float] = {}  # node -> since when it is known to be missing
        self._nodes.add_handler(self._node_changed)
        self._pods.add_handler(self._pod_changed)
        self.queue.add(_ENDED)

    def _node_changed(self, change: Change[Node]) -> None:
        if change.new is not None:
            self._missing.pop(change.key.name, None)
            if not _is_out_of_service(change.new):
                return
        for pod in self._pods.by_index("node", change.key.name):
            self.queue.add(pod.key)

    def _pod_changed(self, change: Change[Pod]) -> None:
        pod = change.new
        if pod is None:
            return
        node = self._nodes.get(Key("", pod.spec.node_name)) if pod.spec.node_name else None
        is_leaving = pod.metadata.deletion_timestamp is not None
        if (pod.spec.node_name and node is None) or (is_leaving and self._is_stuck(pod, node)):
            self.queue.add(pod.key)

    def _is_stuck(self, pod: Pod, node: Node | None) -> bool:
        """Will nobody confirm the end of this pod, although it is being deleted?"""
        return not pod.spec.node_name or (node is not None and _is_out_of_service(node))

    async def reconcile(self, key: Key) -> Requeue | None:
        """Remove one pod that nobody else will, or the oldest ended ones."""
        if key == _ENDED:
            return await self._trim()
        pod = self._pods.get(key)
        if pod is None:
            return None
        name = pod.spec.node_name
        node = self._nodes.get(Key("", name)) if name else None
        if not name or node is not None:
            if pod.metadata.deletion_timestamp is not None and self._is_stuck(pod, node):
                log.info("removing deleted pod that no agent ends", pod=key, node=name)
                await self._fail(pod)
                await self._remove(pod)
            return None
        now = self._clock.monotonic()
        waited_s = now - self._missing.setdefault(name, now)
        if waited_s < self._quarantine_s:
            return Requeue(self._quarantine_s - waited_s)
        try:
            await self._client.get(Node, name)
        except status.NotFound:
            log.info("removing pod of a missing node", pod=key, node=name)
            await self._fail(pod, "PodGC: node no longer exists")
            await self._remove(pod)
        return None

    async def _fail(self, pod: Pod, why: str = "") -> None:
        """Without an agent the pod would say Running to its end, and a Job could not count it."""
        if pod.is_terminal:
            return
        state: dict[str, Any] = {"phase": "Failed"}
        if why:
            state["conditions"] = [
                {
                    "type": "DisruptionTarget",
                    "status": "True",
                    "reason": "DeletionByPodGC",
                    "message": why,
                    "lastTransitionTime": clocks.rfc3339(self._clock.now()),
                }
            ]
        meta = pod.metadata
        body = {"metadata": {"uid": meta.uid}, "status": state}
        try:
            await self._client.patch(
                Pod, meta.name, meta.namespace, body, type="strategic", subresource="status"
            )
        except (status.NotFound, status.Conflict):
            log.debug("pod is gone already", pod=pod.key)

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


def _is_out_of_service(node: Node) -> bool:
    return not node.is_ready and any(t.key == OUT_OF_SERVICE for t in node.spec.taints)


def _created(pod: Pod) -> str:
    return pod.metadata.creation_timestamp or ""
