"""Nodes that do not exist: Ready at once, and every pod bound to them runs at once.

A pod runs until it is deleted, unless its annotations say when and how it ends (`fakescript`), and
has whatever it is resized to.
For load tests of the scheduler, the controllers and the API server, and for trying things without
a container runtime. One process plays thousands of nodes: one watch of pods, leases renewed in
an even stream.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from itertools import count
from typing import Any, Literal

from motley.api import status
from motley.api.views.base import Key
from motley.api.views.container import Container
from motley.api.views.core import Lease, Node
from motley.api.views.pod import Pod
from motley.client.informer import Change, Informer
from motley.client.rest import Client
from motley.client.workqueue import WorkQueue
from motley.controllers import fakescript
from motley.controllers.nodelifecycle import LEASE_NAMESPACE
from motley.controllers.reconciler import Requeue, work
from motley.lib import clock as clocks
from motley.lib import journal
from motley.lib.backoff import Backoff
from motley.lib.clock import SYSTEM, Clock

log = journal.get(__name__)

_LEASE_S = 40
_RENEW_S = 10.0  # kubelet's interval
_RENEW_MANY_S = 20.0  # half the lease: still safe, half the load
_MANY = 100
_AT_ONCE = 32
# Shared address space (RFC 6598): never routed, so a fake address cannot be mistaken for a pod's.
_NODE_RANGES = int(IPv4Address("100.64.0.0"))
_POD_ADDRESSES = int(IPv4Address("100.96.0.0"))


@dataclass(frozen=True)
class Shape:
    """What each node offers."""

    cpu: str = "4"
    memory: str = "32Gi"
    pods: int = 110
    labels: Mapping[str, str] = field(default_factory=dict)


class FakeNodes:
    """See the module's docstring; `run` it until it is no longer needed."""

    name = "fakenodes"

    def __init__(
        self,
        client: Client,
        count_: int,
        *,
        prefix: str = "fake-",
        shape: Shape | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        self._client = client
        self._clock = clock
        self._shape = shape or Shape()
        self._names = [f"{prefix}{i}" for i in range(count_)]
        self._mine = {name: i for i, name in enumerate(self._names)}
        self._addresses = count(1)
        self.queue: WorkQueue[Key] = WorkQueue(clock)
        self._pods = Informer(client, Pod, clock=clock)
        self._nodes = Informer(client, Node, clock=clock)
        self._pods.add_handler(self._pod_changed)
        self._nodes.add_handler(self._node_changed)
        self._registered = False

    def is_ready(self) -> bool:
        """Are all nodes registered and their pods watched?"""
        return self._registered and self._pods.has_synced

    async def run(self) -> None:
        """Register the nodes and play them until cancelled."""
        slots = asyncio.Semaphore(_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for name in self._names:
                group.create_task(self._register(name, slots))
        self._registered = True
        log.info("fake nodes registered", count=len(self._names))
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pods.run())
            group.create_task(self._nodes.run())
            group.create_task(self._renew())
            group.create_task(work(self, self.queue, _AT_ONCE))

    async def _register(self, name: str, slots: asyncio.Semaphore) -> None:
        backoff = Backoff(base_s=0.2, cap_s=5.0)
        async with slots:
            while True:
                try:
                    await self._register_one(name)
                except status.ApiError as error:
                    log.info("node not registered yet", node=name, error=error.message)
                    await self._clock.sleep(backoff.next())
                else:
                    return

    async def _register_one(self, name: str) -> None:
        body = node_document(name, self._mine[name], self._shape, self._clock.now())
        try:
            node = await self._client.create(Node, body)
        except status.AlreadyExists:
            node = await self._client.get(Node, name)
        if not node.is_ready:
            await self._post_status(name)
        await self._renew_one(name)

    async def _post_status(self, name: str) -> None:
        body = node_document(name, self._mine[name], self._shape, self._clock.now())
        change = {"status": body["status"]}
        await self._client.patch(Node, name, "", change, type="strategic", subresource="status")

    async def _renew(self) -> None:
        """Renew all leases once per period, evenly spread over it."""
        period_s = _RENEW_S if len(self._names) <= _MANY else _RENEW_MANY_S
        ticks = min(len(self._names), 100) or 1
        while True:
            for tick in range(ticks):
                started = self._clock.monotonic()
                for name in self._names[tick::ticks]:
                    try:
                        await self._renew_one(name)
                    except status.ApiError as error:
                        log.debug("lease not renewed", node=name, error=error.message)
                spent_s = self._clock.monotonic() - started
                await self._clock.sleep(max(0.0, period_s / ticks - spent_s))

    async def _renew_one(self, name: str) -> None:
        spec = {
            "holderIdentity": name,
            "leaseDurationSeconds": _LEASE_S,
            "renewTime": clocks.rfc3339_micro(self._clock.now()),
        }
        try:
            await self._client.patch(Lease, name, LEASE_NAMESPACE, {"spec": spec})
        except status.NotFound:
            body = {"metadata": {"name": name}, "spec": spec}
            await self._client.create(Lease, body, LEASE_NAMESPACE)

    def _node_changed(self, change: Change[Node]) -> None:
        node = change.new
        if node is not None and node.metadata.name in self._mine and not node.is_ready:
            self.queue.add(node.key)

    def _pod_changed(self, change: Change[Pod]) -> None:
        pod = change.new
        if pod is not None and pod.spec.node_name in self._mine:
            self.queue.add(pod.key)

    async def reconcile(self, key: Key) -> Requeue | None:
        """Run or end one pod; a key without a namespace is a node that must say it is Ready."""
        if not key.namespace:
            node = self._nodes.get(key)
            if node is not None and not node.is_ready:
                await self._post_status(key.name)
            return None
        pod = self._pods.get(key)
        if pod is None or pod.spec.node_name not in self._mine:
            return None
        try:
            if pod.metadata.deletion_timestamp is not None:
                return await self._stop(pod)
            if pod.is_terminal:
                return None
            if not (pod.status.phase == "Running" and pod.is_ready):
                await self._start(pod)
                return None
            if resized := other_resources(pod):
                await self._post_pod(pod, resized, type_="strategic")
            return await self._play(pod)
        except (status.NotFound, status.Conflict):
            return None  # gone meanwhile

    async def _stop(self, pod: Pod) -> Requeue | None:
        wait_s = fakescript.stops_in_s(pod, self._clock.now())
        if wait_s:
            return Requeue(wait_s)
        meta = pod.metadata
        # Someone's finalizer keeps the object: then its status must say that it is over.
        if meta.finalizers and not pod.is_terminal:
            await self._post_pod(pod, fakescript.final(pod, None, self._clock.now()))
        if not meta.finalizers or meta.deletion_grace_period_seconds != 0:
            await self._client.delete(
                Pod, meta.name, meta.namespace, grace_period_s=0, uid=meta.uid
            )
        return None

    async def _play(self, pod: Pod) -> Requeue | None:
        now = self._clock.now()
        wait_s = fakescript.ends_in_s(pod, now)
        if wait_s is None:
            return None
        if wait_s > 0:
            return Requeue(wait_s)
        await self._post_pod(pod, fakescript.ended(pod, now))
        return None

    async def _post_pod(
        self, pod: Pod, state: Mapping[str, Any], type_: Literal["merge", "strategic"] = "merge"
    ) -> None:
        meta = pod.metadata
        body = {"metadata": {"uid": meta.uid}, "status": state}
        await self._client.patch(
            Pod, meta.name, meta.namespace, body, type=type_, subresource="status"
        )

    async def _start(self, pod: Pod) -> None:
        address = pod.status.pod_ip or str(IPv4Address(_POD_ADDRESSES + next(self._addresses)))
        host = _host_address(self._mine[pod.spec.node_name])
        await self._post_pod(pod, running(pod, address, host, self._clock.now()))


def _host_address(index: int) -> str:
    return str(IPv4Address(_NODE_RANGES + index * 256 + 1))


def node_document(name: str, index: int, shape: Shape, now: float) -> dict[str, Any]:
    """A Ready node, as an agent would register it."""
    resources = {"cpu": shape.cpu, "memory": shape.memory, "pods": str(shape.pods)}
    resources["ephemeral-storage"] = "100Gi"
    cidr = f"{IPv4Address(_NODE_RANGES + index * 256)}/24"
    stamp = clocks.rfc3339(now)
    return {
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/os": "linux",
                **shape.labels,
            },
            "annotations": {"motley.io/fake": "true"},
        },
        "spec": {"podCIDR": cidr, "podCIDRs": [cidr]},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "addresses": [
                {"type": "InternalIP", "address": _host_address(index)},
                {"type": "Hostname", "address": name},
            ],
            "conditions": [
                _condition("Ready", "True", "KubeletReady", "fake node is ready", stamp),
                *(
                    _condition(type_, "False", "KubeletHasNoPressure", "", stamp)
                    for type_ in ("MemoryPressure", "DiskPressure", "PIDPressure")
                ),
            ],
            "nodeInfo": {
                "architecture": "amd64",
                "operatingSystem": "linux",
                "kubeletVersion": "v1.37.0+motley-fake",
                "kubeProxyVersion": "",
                "containerRuntimeVersion": "fake://1.0",
                "kernelVersion": "fake",
                "osImage": "fake",
                "machineID": name,
                "systemUUID": name,
                "bootID": name,
            },
        },
    }


def _condition(type_: str, value: str, reason: str, message: str, stamp: str) -> dict[str, str]:
    return {
        "type": type_,
        "status": value,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": stamp,
        "lastTransitionTime": stamp,
    }


def running(pod: Pod, address: str, host: str, now: float) -> dict[str, Any]:
    """The status of a pod whose containers all run and are ready."""
    stamp = clocks.rfc3339(now)
    kinds = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    return {
        "phase": "Running",
        "startTime": pod.status.start_time or stamp,
        "hostIP": host,
        "hostIPs": [{"ip": host}],
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [
            {"type": kind, "status": "True", "lastTransitionTime": stamp} for kind in kinds
        ],
        "containerStatuses": [
            {
                "name": container.name,
                "image": container.image,
                "imageID": f"fake://{container.image}",
                "containerID": f"fake://{pod.metadata.uid}/{container.name}",
                "ready": True,
                "started": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": stamp}},
                "lastState": {},
                "resources": _resources(container),
            }
            for container in pod.spec.containers
        ],
    }


def other_resources(pod: Pod) -> dict[str, Any]:
    """What of a running pod's status is no longer so after a resize; empty: nothing."""
    told = {s.name: s.resources for s in pod.status.container_statuses}
    changed = [
        {"name": container.name, "resources": _resources(container)}
        for container in pod.spec.containers
        if told.get(container.name) not in (None, container.resources)
    ]
    return {"containerStatuses": changed} if changed else {}


def _resources(container: Container) -> dict[str, Any]:
    requests, limits = container.resources.requests, container.resources.limits
    return ({"requests": requests} if requests else {}) | ({"limits": limits} if limits else {})
