"""Node lifecycle: notices nodes that fell silent and marks them, so that work moves away.

Renewals arrive by the hundred per second in a large cluster, so a lease's change only updates a
time stamp; a node is looked at when its object changes and once per grace period. The taint that
evicts is given to one node after the other (see `zones`). Where the operator wants it, a node that
stays silent for very long is deleted; its agent registers it anew when it comes back.
"""

from typing import Any

import msgspec

from motley.api import status
from motley.api.views.base import Key
from motley.api.views.core import Lease, Node
from motley.api.views.pod import Pod
from motley.client.index import by_node_name
from motley.client.informer import Change
from motley.client.workqueue import WorkQueue
from motley.controllers import nodehealth, zones
from motley.controllers.manager import Context
from motley.controllers.reconciler import Requeue
from motley.lib import clock as clocks
from motley.lib import journal

log = journal.get(__name__)

LEASE_NAMESPACE = "kube-node-lease"
# kube-controller-manager's nodeStartupGracePeriod, for a node that has never reported.
STARTUP_GRACE_S = 60.0


class NodeLifecycleController:
    """See the module's docstring."""

    name = "nodelifecycle"
    workers = 4

    def __init__(
        self,
        context: Context,
        *,
        grace_s: float = 40.0,
        rates: zones.Rates | None = None,
        delete_after_s: float = 0.0,
    ) -> None:
        self._client = context.client
        self._clock = context.clock
        self._recorder = context.recorder.source("node-controller")
        self._grace_s = grace_s
        self._delete_after_s = delete_after_s  # 0: never
        self.queue: WorkQueue[Key] = WorkQueue(context.clock)
        self._nodes = context.informers.of(Node)
        self._leases = context.informers.of(Lease, LEASE_NAMESPACE)
        self._pods = context.informers.of(Pod)
        self._pods.add_index("node", by_node_name)
        self._beats: dict[str, nodehealth.Heartbeat] = {}
        self._zones = zones.Zones(rates)
        self._nodes.add_handler(self._node_changed)
        self._leases.add_handler(self._lease_changed)

    def _node_changed(self, change: Change[Node]) -> None:
        if change.new is None:
            self._beats.pop(change.key.name, None)
            self._zones.forget(change.object)
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
        is_new = node.status.condition("Ready") is None
        grace_s = max(self._grace_s, STARTUP_GRACE_S) if is_new else self._grace_s
        is_silent = silent_s >= grace_s
        current = await self._mark_unknown(node) if is_silent else node
        # A node marked just now waits until those that fell silent with it are marked, too.
        turn_s = self._turn_s(current) if current is node else 0.1
        await self._taint(current, execute=turn_s == 0.0)
        if is_silent:
            await self._mark_pods(current)
            await self._give_up(current)
        again_s = max(grace_s - silent_s, self._grace_s / 4)
        return Requeue(min(turn_s or again_s, again_s))

    def _turn_s(self, node: Node) -> float | None:
        """Seconds until the node may be tainted so that its pods leave; None: it must not be."""
        now = self._clock.monotonic()
        if node.is_ready:
            self._zones.forget(node)
            return 0.0
        if self._zones.observe(self._nodes.items(), now):
            log.warning("all nodes are lost" if self._zones.is_cut_off else "nodes are back")
            for other in self._nodes.items():
                self.queue.add(other.key)
        if nodehealth.is_evicted(node) and not self._zones.is_cut_off:
            self._zones.forget(node)
            return 0.0
        return self._zones.wait_s(node, now)

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

    async def _give_up(self, node: Node) -> None:
        """Delete a node that has been silent for very long. Not while no node at all is heard: then
        it is more likely us who are cut off."""
        lost_s = nodehealth.lost_s(node, self._clock.now())
        if not self._delete_after_s or lost_s < self._delete_after_s or self._zones.is_cut_off:
            return
        name = node.metadata.name
        log.warning("deleting a node that is lost", node=name, lost_s=round(lost_s))
        message = f"Deleting node {name} because it has been silent for {lost_s:.0f} seconds"
        self._recorder.event(node, "Normal", "DeletingNode", message)
        try:
            await self._client.delete(Node, name, uid=node.metadata.uid)
        except status.NotFound:
            log.debug("node is gone already", node=name)

    async def _taint(self, node: Node, *, execute: bool) -> None:
        wanted = nodehealth.taints(node, self._clock.now(), execute=execute)
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
