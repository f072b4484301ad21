"""Node lifecycle: notices nodes that fell silent and marks them, so that work moves away.

Renewals arrive by the hundred per second in a large cluster, so a lease's change only updates a
time stamp; a node is looked at when its object changes and once per grace period.
"""

from typing import Any

import msgspec

from motley.api import status
from motley.api.views.base import Key
from motley.api.views.core import Lease, Node
from motley.api.views.pod import Pod
from motley.client.informer import Change
from motley.client.workqueue import WorkQueue
from motley.controllers import nodehealth
from motley.controllers.manager import Context
from motley.controllers.reconciler import Requeue
from motley.lib import clock as clocks
from motley.lib import journal

log = journal.get(__name__)

LEASE_NAMESPACE = "kube-node-lease"


class NodeLifecycleController:
    """See the module's docstring."""

    name = "nodelifecycle"
    workers = 4

    def __init__(self, context: Context, *, grace_s: float = 40.0) -> None:
        self._client = context.client
        self._clock = context.clock
        self._recorder = context.recorder.source("node-controller")
        self._grace_s = grace_s
        self.queue: WorkQueue[Key] = WorkQueue(context.clock)
        self._nodes = context.informers.of(Node)
        self._leases = context.informers.of(Lease, LEASE_NAMESPACE)
        self._pods = context.informers.of(Pod)
        self._pods.add_index("node", by_node)
        self._beats: dict[str, nodehealth.Heartbeat] = {}
        self._nodes.add_handler(self._node_changed)
        self._leases.add_handler(self._lease_changed)

    def _node_changed(self, change: Change[Node]) -> None:
        if change.new is None:
            self._beats.pop(change.key.name, None)
            return
        self._observe(change.new)
        self.queue.add(change.key)

    def _lease_changed(self, change: Change[Lease]) -> None:
        node = self._nodes.get(Key("", change.key.name))
        if node is not None:
            self._observe(node)

    def _observe(self, node: Node) -> None:
        name = node.metadata.name
        lease = self._leases.get(Key(LEASE_NAMESPACE, name))
        now = self._clock.monotonic()
        self._beats[name] = nodehealth.observe(self._beats.get(name), node, lease, now)

    async def reconcile(self, key: Key) -> Requeue | None:
        """Mark a silent node, set the taints that follow from its conditions."""
        node = self._nodes.get(key)
        beat = self._beats.get(key.name)
        if node is None or beat is None:
            return None
        silent_s = self._clock.monotonic() - self._heard_until(beat)
        is_silent = silent_s >= self._grace_s
        if is_silent:
            node = await self._mark_unknown(node)
        await self._taint(node)
        if is_silent:
            await self._mark_pods(node)
        return Requeue(max(self._grace_s - silent_s, self._grace_s / 4))

    def _heard_until(self, beat: nodehealth.Heartbeat) -> float:
        """While the API server was away no node could be heard: that time is not held against
        them, or one restart of the server would condemn the whole cluster."""
        cut_off = max(self._leases.interrupted_at, self._nodes.interrupted_at)
        return max(beat.seen_at, cut_off)

    async def _mark_unknown(self, node: Node) -> Node:
        changes = nodehealth.unknown_conditions(node, self._clock.now())
        if not changes:
            return node
        name = node.metadata.name
        log.warning("node is silent", node=name, grace_s=self._grace_s)
        message = f"Node {name} status is now: NodeNotReady"
        self._recorder.event(node, "Normal", "NodeNotReady", message)
        return await self._client.patch(
            Node,
            name,
            "",
            {
                # Conditional: a node that spoke up meanwhile must not be overruled.
                "metadata": {"resourceVersion": node.metadata.resource_version},
                "status": {"conditions": changes},
            },
            type="strategic",
            subresource="status",
        )

    async def _taint(self, node: Node) -> None:
        wanted = nodehealth.taints(node, self._clock.now())
        if wanted is None:
            return
        meta = node.metadata
        body = {
            "metadata": {"resourceVersion": meta.resource_version},
            "spec": {"taints": [msgspec.to_builtins(taint) for taint in wanted] or None},
        }
        await self._client.patch(Node, meta.name, "", body)
        log.info("node taints changed", node=meta.name, taints=[t.key for t in wanted])

    async def _mark_pods(self, node: Node) -> None:
        """Services must not send to pods nobody reports on any more.

        Only a silent node's: an agent that says NotReady itself still knows its pods best.
        """
        for pod in self._pods.by_index("node", node.metadata.name):
            if pod.is_ready and not pod.is_terminal:
                await self._mark_pod(pod)

    async def _mark_pod(self, pod: Pod) -> None:
        change: dict[str, Any] = {
            "type": "Ready",
            "status": "False",
            "reason": "NodeNotReady",
            "message": "The node of this pod is not ready.",
            "lastTransitionTime": clocks.rfc3339(self._clock.now()),
        }
        meta = pod.metadata
        body = {
            "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
            "status": {"conditions": [change]},
        }
        try:
            await self._client.patch(
                Pod, meta.name, meta.namespace, body, type="strategic", subresource="status"
            )
        except status.NotFound:
            return
        self._recorder.event(pod, "Warning", "NodeNotReady", "Node is not ready")


def by_node(pod: Pod) -> tuple[str, ...]:
    """Find pods by the node they are bound to."""
    return (pod.spec.node_name,) if pod.spec.node_name else ()
