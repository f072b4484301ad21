"""Endpoints (v1): the older form of what EndpointSlices say, still read by many tools.

One object per Service holds all its addresses, so it is cut off at a thousand; EndpointSlices have
no such limit. Packing is pure (`subsets`); the controller watches, reads and writes.
"""

from collections.abc import Iterable
from typing import Any, ClassVar

from motley.api import status
from motley.api.selectors import Selector
from motley.api.views.base import Key, Object
from motley.api.views.core import Endpoint, Service
from motley.api.views.pod import Pod
from motley.client.index import by_namespace
from motley.client.informer import Change
from motley.client.workqueue import WorkQueue
from motley.controllers import endpoints
from motley.controllers.endpointslice import facts
from motley.controllers.manager import Context
from motley.controllers.reconciler import Requeue

MANAGED_BY = "endpoints.kubernetes.io/managed-by"
CONTROLLER = "endpoint-controller"
OVER_CAPACITY = "endpoints.kubernetes.io/over-capacity"
CAPACITY = 1000

Subset = dict[str, Any]


class Endpoints(Object):
    """The addresses of a Service; the subsets are compared and written as they are."""

    API_VERSION: ClassVar[str] = "v1"
    KIND: ClassVar[str] = "Endpoints"
    PLURAL: ClassVar[str] = "endpoints"

    subsets: list[Subset] | None = None


def subsets(service: Service, pods: Iterable[Pod]) -> tuple[list[Subset], bool]:
    """The addresses by the ports they share, and whether some had to be left out."""
    found: dict[tuple[Any, ...], tuple[list[Subset], list[Subset]]] = {}
    left = CAPACITY
    ordered = sorted(pods, key=lambda p: (not p.is_ready, p.status.pod_ip, p.metadata.uid))
    cut = False
    for pod in ordered:
        target = endpoints.endpoint(service, pod)
        if target is None or (
            target.conditions.terminating and not service.spec.publish_not_ready_addresses
        ):
            continue
        if not left:
            cut = True
            break
        left -= 1
        _, ports = endpoints.shape(service, pod)
        if not ports and service.spec.ports:
            continue  # none of the named ports is one of this pod's
        ready, unready = found.setdefault(ports, ([], []))
        (ready if target.conditions.ready else unready).append(_address(target))
    return [_subset(ports, *addresses) for ports, addresses in sorted(found.items())], cut


def _address(target: Endpoint) -> Subset:
    address: Subset = {"ip": target.addresses[0]}
    if target.hostname:
        address["hostname"] = target.hostname
    if target.node_name:
        address["nodeName"] = target.node_name
    if target.target_ref is not None:
        named = target.target_ref
        address["targetRef"] = {
            "kind": named.kind,
            "namespace": named.namespace,
            "name": named.name,
            "uid": named.uid,
        }
    return address


def _subset(ports: tuple[Any, ...], ready: list[Subset], unready: list[Subset]) -> Subset:
    subset: Subset = {}
    if ready:
        subset["addresses"] = ready
    if unready:
        subset["notReadyAddresses"] = unready
    if ports:
        subset["ports"] = [_port(*port) for port in ports]
    return subset


def _port(name: str, protocol: str, number: int, app_protocol: str) -> Subset:
    port: Subset = {"port": number, "protocol": protocol}
    if name:
        port["name"] = name
    if app_protocol:
        port["appProtocol"] = app_protocol
    return port


class EndpointsController:
    """Keeps one Endpoints object for every Service with a selector."""

    name = "endpoints"
    workers = 5

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self.queue: WorkQueue[Key] = WorkQueue(context.clock)
        self._services = context.informers.of(Service)
        self._pods = context.informers.of(Pod)
        self._objects = context.informers.of(Endpoints)
        self._services.add_index("namespace", by_namespace)
        self._pods.add_index("namespace", by_namespace)
        self._services.add_handler(lambda change: self.queue.add(change.key))
        self._objects.add_handler(lambda change: self.queue.add(change.key))
        self._pods.add_handler(self._pod_changed)

    def _pod_changed(self, change: Change[Pod]) -> None:
        old, new = change.old, change.new
        if old is not None and new is not None and facts(old) == facts(new):
            return
        for service in self._services.by_index("namespace", change.key.namespace):
            if endpoints.has_endpoints(service):
                selector = Selector.of_map(service.spec.selector)
                if any(pod and selector.matches(pod.metadata.labels) for pod in (old, new)):
                    self.queue.add(service.key)

    async def reconcile(self, key: Key) -> Requeue | None:
        """Make the object say what the pods do."""
        service, current = self._services.get(key), self._objects.get(key)
        if service is None or service.metadata.deletion_timestamp is not None:
            await self._remove(current)
            return None
        if not endpoints.has_endpoints(service):
            return None
        selector = Selector.of_map(service.spec.selector)
        namespace = self._pods.by_index("namespace", key.namespace)
        pods = [pod for pod in namespace if selector.matches(pod.metadata.labels)]
        found, cut = subsets(service, pods)
        labels = {**service.metadata.labels, MANAGED_BY: CONTROLLER}
        if service.spec.cluster_ip == "None":
            labels[endpoints.HEADLESS] = ""
        annotations = {OVER_CAPACITY: "truncated"} if cut else {}
        if current is None:
            await self._create(key, labels, annotations, found)
        elif (
            (current.subsets or []) != found
            or current.metadata.labels != labels
            or (OVER_CAPACITY in current.metadata.annotations) != cut
        ):
            await self._change(current, labels, cut, found)
        return None

    async def _create(
        self, key: Key, labels: dict[str, str], annotations: dict[str, str], found: list[Subset]
    ) -> None:
        meta = {"name": key.name, "namespace": key.namespace, "labels": labels}
        if annotations:
            meta["annotations"] = annotations
        body = {"metadata": meta, "subsets": found}
        try:
            await self._client.create(Endpoints, body)
        except status.AlreadyExists as error:
            raise status.Conflict(error.message) from error  # the cache will know soon

    async def _change(
        self, current: Endpoints, labels: dict[str, str], cut: bool, found: list[Subset]
    ) -> None:
        meta = current.metadata
        removed = {name: None for name in meta.labels if name not in labels}
        change = {
            "metadata": {
                "resourceVersion": meta.resource_version,
                "labels": {**removed, **labels},
                "annotations": {OVER_CAPACITY: "truncated" if cut else None},
            },
            "subsets": found,
        }
        await self._client.patch(Endpoints, meta.name, meta.namespace, change)

    async def _remove(self, current: Endpoints | None) -> None:
        """Only what was ours: Endpoints without a Service may be someone's own."""
        if current is None or current.metadata.labels.get(MANAGED_BY) != CONTROLLER:
            return
        meta = current.metadata
        try:
            await self._client.delete(Endpoints, meta.name, meta.namespace, uid=meta.uid)
        except (status.NotFound, status.Conflict):
            pass  # already gone
