"""A Slurm cluster as a Node, so that pods with a toleration can be scheduled to it.

The node's capacity is what `sinfo` shows of the default partition, its lease says that the bridge
has a connection, and its taint keeps away whoever has not asked for Slurm. Pods bound to it become
SlurmJobs (`podjobs`), which are brought to the cluster like any other, so that all that is true of
those is true of pods: exactly once, found again after a crash, stopped when deleted.
"""

import asyncio
import contextlib
from random import Random
from typing import Any, NamedTuple

from motley.api import status
from motley.api.views.base import Key
from motley.api.views.core import Lease, Node
from motley.api.views.pod import Pod
from motley.api.views.slurm import SlurmCluster, SlurmJob
from motley.client.informer import Change, Informer
from motley.client.workqueue import WorkQueue
from motley.controllers.manager import Context
from motley.controllers.reconciler import Requeue
from motley.lib import clock as clocks
from motley.lib import journal
from motley.slurm import podjobs
from motley.slurm.sessions import Session, Sessions

log = journal.get(__name__)

TAINT = "motley.io/slurm"
CLUSTER_LABEL = "motley.io/slurm-cluster"
_LEASES = "kube-node-lease"
_LEASE_S = 40  # kubelet's nodeLeaseDurationSeconds
_RENEW_S = 10.0
_MOST_NODES = 64
_ARCHITECTURE = "kubernetes.io/arch"


def node_name(cluster: SlurmCluster) -> str:
    """The Node that stands for a cluster."""
    given = cluster.spec.virtual_node
    return (given.name if given else "") or f"slurm-{cluster.metadata.name}"


def runtime_of(cluster: SlurmCluster, session: Session | None) -> str:
    """What runs containers there; empty when nothing does."""
    given = cluster.spec.virtual_node
    if given is not None and given.runtime != "Auto":
        return given.runtime.lower()
    return session.machine.runtime if session else ""


def node_document(cluster: SlurmCluster) -> dict[str, Any]:
    """The Node as it is first made."""
    name = node_name(cluster)
    labels = {
        **(cluster.spec.virtual_node.labels if cluster.spec.virtual_node else {}),
        CLUSTER_LABEL: cluster.metadata.name,
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "type": "virtual-kubelet",  # by which tools know nodes without a machine
    }
    taint = {"key": TAINT, "value": cluster.metadata.name, "effect": "NoSchedule"}
    # With its cluster it goes also when no bridge is there to see that.
    owner = owned_by(cluster)
    return {
        "metadata": {"name": name, "labels": labels, "ownerReferences": [owner]},
        "spec": {"taints": [taint]},
    }


def owned_by(owner: SlurmCluster | Node) -> dict[str, str]:
    """A reference to an owner without a namespace."""
    meta = owner.metadata
    kinds = {"apiVersion": owner.API_VERSION, "kind": owner.KIND}
    return {**kinds, "name": meta.name, "uid": meta.uid}


def doors(address: str, port: int) -> dict[str, Any]:
    """Where a Node's logs are asked for, as part of its status. A Hostname beside the address would
    be tried first by some API servers, and the Node's name is nobody's."""
    return {
        "addresses": [{"type": "InternalIP", "address": address}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }


def node_status(
    cluster: SlurmCluster, session: Session | None, node: Node, now: str
) -> dict[str, Any]:
    """What the Node says of itself."""
    machine = session.machine if session else None
    # Not before it is known what there is: a node without processors is of no use to anybody.
    is_asked = machine is not None and bool(machine.version)
    is_up = session is not None and session.connection.failure is None and is_asked
    amounts = {
        "cpu": str(machine.cpus if machine else 0),
        "memory": f"{machine.memory_mib if machine else 0}Mi",
        podjobs.GPU: str(machine.gpus if machine else 0),
        "pods": str(cluster.spec.virtual_node.pods if cluster.spec.virtual_node else 0),
    }
    failure = session.connection.failure if session else None
    said = "connected to Slurm" if is_up else failure.message if failure else "not connected"
    before = node.status.condition("Ready")
    value = "True" if is_up else "False"
    since = before.last_transition_time if before and before.status == value else now
    ready = {
        "type": "Ready",
        "status": value,
        "reason": "SlurmReachable" if is_up else "SlurmUnreachable",
        "message": said,
        "lastHeartbeatTime": now,
        "lastTransitionTime": since or now,
    }
    information = {
        "kubeletVersion": "motley-slurm",
        "operatingSystem": "linux",
        "osImage": f"Slurm {machine.version}" if machine else "Slurm",
        "containerRuntimeVersion": runtime_of(cluster, session) or "none",
        **dict.fromkeys(("machineID", "systemUUID", "bootID", "kernelVersion"), ""),
        "kubeProxyVersion": "",
        "architecture": machine.architecture if machine else "",
    }
    return {
        "capacity": amounts,
        "allocatable": amounts,
        "conditions": [ready],
        "nodeInfo": information,
    }


class NodeController:
    """Keeps Nodes and their leases, and follows the pods bound to them."""

    name = "slurm-nodes"
    workers = 2

    def __init__(
        self,
        context: Context,
        sessions: Sessions,
        pods: "PodController",
        rng: Random,
        served_at: tuple[str, int] | None = None,
    ) -> None:
        """`served_at`: address and port of the nodes' server, if there is one."""
        self._context = context
        self._doors = doors(*served_at) if served_at else {}
        self._client = context.client
        self._sessions = sessions
        self._pods = pods
        self._clusters = context.informers.of(SlurmCluster)
        self.queue: WorkQueue[Key] = WorkQueue(context.clock, rng=rng)
        self._clusters.add_handler(lambda change: self.queue.add(change.key))
        self._nodes: dict[str, str] = {}  # cluster → its Node, if it has one; others are gone

    async def reconcile(self, key: Key) -> Requeue | None:
        """Bring one cluster's Node to what it should be."""
        cluster = self._clusters.get(key)
        is_wanted = cluster is not None and cluster.spec.virtual_node is not None
        name = node_name(cluster) if cluster is not None and is_wanted else ""
        if self._nodes.get(key.name) != name:
            await self._remove_others(key.name, name)
            self._nodes[key.name] = name
        if cluster is None:
            self._nodes.pop(key.name, None)
        if cluster is None or not name:
            return None
        session = self._sessions.find(key.name)
        try:
            node = await self._client.get(Node, name)
        except status.NotFound:
            node = await self._client.create(Node, node_document(cluster))
        if node.metadata.labels.get(CLUSTER_LABEL) != key.name:
            log.error("a node of that name is somebody else's", node=name, cluster=key.name)
            return Requeue(60.0)
        now = clocks.rfc3339(self._context.clock.now())
        wanted = {"status": {**node_status(cluster, session, node, now), **self._doors}}
        await self._client.patch(Node, name, "", wanted, type="strategic", subresource="status")
        if session is not None and session.connection.failure is None:
            await self._renew(node)
        await self._label(node, session)
        self._pods.follow(name, key.name)
        return Requeue(_RENEW_S)

    async def _label(self, node: Node, session: Session | None) -> None:
        """Images are for one architecture, and the scheduler goes by this label."""
        found = session.machine.architecture if session else ""
        if found and node.metadata.labels.get(_ARCHITECTURE) != found:
            change = {"metadata": {"labels": {_ARCHITECTURE: found}}}
            await self._client.patch(Node, node.metadata.name, "", change)

    async def _renew(self, node: Node) -> None:
        name = node.metadata.name
        spec = {
            "holderIdentity": name,
            "leaseDurationSeconds": _LEASE_S,
            "renewTime": clocks.rfc3339_micro(self._context.clock.now()),
        }
        try:
            await self._client.patch(Lease, name, _LEASES, {"spec": spec})
        except status.NotFound:
            meta = {"name": name, "namespace": _LEASES, "ownerReferences": [owned_by(node)]}
            await self._client.create(Lease, {"metadata": meta, "spec": spec})

    async def _remove_others(self, cluster: str, name: str) -> None:
        """Remove Nodes that stand for the cluster under other names, whoever made them."""
        selector = f"{CLUSTER_LABEL}={cluster}"
        for node in (await self._client.list(Node, label_selector=selector)).items:
            if node.metadata.name != name:
                self._pods.unfollow(node.metadata.name)
                with contextlib.suppress(status.NotFound):
                    await self._client.delete(Node, node.metadata.name, uid=node.metadata.uid)


class Bound(NamedTuple):
    """A pod of a virtual node, and the job that runs it once there is one."""

    pod: Pod
    node: str
    cluster: str
    job: SlurmJob | None


class PodController:
    """Runs pods of virtual nodes as SlurmJobs."""

    name = "slurm-pods"
    workers = 4

    def __init__(self, context: Context, sessions: Sessions, rng: Random) -> None:
        self._context = context
        self._client = context.client
        self._sessions = sessions
        self._clusters = context.informers.of(SlurmCluster)
        self._jobs = context.informers.of(SlurmJob)
        self._recorder = context.recorder.source("motley-slurm")
        self._pods: dict[str, Informer[Pod]] = {}
        self._followed: dict[str, str] = {}  # node → cluster
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._asked: asyncio.Queue[str] = asyncio.Queue(_MOST_NODES)
        self.queue: WorkQueue[Key] = WorkQueue(context.clock, rng=rng)
        self._jobs.add_handler(self._job_changed)

    def _job_changed(self, change: Change[SlurmJob]) -> None:
        if podjobs.POD_LABEL in change.object.metadata.labels:
            self.queue.add(change.key)

    def follow(self, node: str, cluster: str) -> None:
        """Take care of the pods of a node."""
        if node not in self._followed:
            self._followed[node] = cluster
            self._asked.put_nowait(node)

    def unfollow(self, node: str) -> None:
        """The node is no longer ours."""
        self._followed.pop(node, None)
        self._pods.pop(node, None)
        if task := self._tasks.pop(node, None):
            task.cancel()

    async def run(self) -> None:
        """Watch the pods of every node that is followed."""
        async with asyncio.TaskGroup() as group:
            while True:
                node = await self._asked.get()
                if node not in self._followed:
                    continue  # not any more
                selector = f"spec.nodeName={node}"
                clock = self._context.clock
                pods = Informer(self._client, Pod, field_selector=selector, clock=clock)
                pods.add_handler(lambda change: self.queue.add(change.key))
                self._pods[node] = pods
                self._tasks[node] = group.create_task(pods.run())

    @property
    def is_ready(self) -> bool:
        """Are the pods of all nodes known?"""
        known = [pods for pods in self._pods.values() if pods.has_synced]
        virtual = [c for c in self._clusters.items() if c.spec.virtual_node is not None]
        return len(known) >= len(virtual)

    def bound(self, key: Key) -> Bound | None:
        """A pod of ours."""
        for node, pods in self._pods.items():
            pod = pods.get(key)
            if pod is not None:
                job = self._jobs.get(key)
                if job and job.metadata.labels.get(podjobs.POD_LABEL) != pod.metadata.uid:
                    job = None  # of another pod that had this name
                return Bound(pod, node, self._followed[node], job)
        return None

    async def reconcile(self, key: Key) -> Requeue | None:
        """Bring one pod's job, or its job's pod, to what it should be."""
        found = self.bound(key)
        if found is None:
            return None
        pod, _, name, job = found
        if pod.metadata.deletion_timestamp:
            return await self._delete(pod, job)
        if pod.is_terminal:
            return None
        if job is None:
            return await self._start(pod, name)
        wanted = podjobs.pod_status(pod, job, clocks.rfc3339(self._context.clock.now()))
        await self._write(pod, wanted)
        return None

    async def _start(self, pod: Pod, name: str) -> Requeue | None:
        cluster, session = self._clusters.get(Key("", name)), self._sessions.find(name)
        if cluster is None or session is None or not session.machine.version:
            return Requeue(1.0)  # nothing is known of the cluster yet
        runtime = runtime_of(cluster, session)
        refusal = podjobs.refusal(pod, runtime)
        if refusal is not None:
            reason, message = refusal
            self._recorder.event(pod, "Warning", reason, message)
            now = clocks.rfc3339(self._context.clock.now())
            await self._write(pod, podjobs.refused(pod, reason, message, now))
            return None
        try:
            await self._client.create(SlurmJob, podjobs.job_of(pod, name, runtime))
        except status.AlreadyExists:
            found = self._jobs.get(pod.key)
            if found and not found.metadata.deletion_timestamp:  # else it goes, or is ours
                message = f"there is a SlurmJob {pod.metadata.name} that is not the pod's"
                await self._write(pod, podjobs.waiting(pod, "NameTaken", message))
                return Requeue(10.0)
            return Requeue(1.0)
        where = {"motley.io/log": f"configmap/{pod.metadata.name}-slurm-log"}
        await self._client.patch(
            Pod, pod.metadata.name, pod.metadata.namespace, {"metadata": {"annotations": where}}
        )
        return None

    async def _delete(self, pod: Pod, job: SlurmJob | None) -> Requeue | None:
        meta = pod.metadata
        if job is not None:
            if not job.metadata.deletion_timestamp:
                await self._client.delete(SlurmJob, meta.name, meta.namespace, uid=job.metadata.uid)
            return Requeue(1.0)  # until it is stopped there
        await self._client.delete(Pod, meta.name, meta.namespace, grace_period_s=0, uid=meta.uid)
        return None

    async def _write(self, pod: Pod, wanted: dict[str, Any]) -> None:
        meta = pod.metadata
        change = {"metadata": {"uid": meta.uid}, "status": wanted}
        await self._client.patch(Pod, meta.name, meta.namespace, change, subresource="status")
