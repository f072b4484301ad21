"""EndpointSlice: keeps, for every Service with a selector, slices of the pods it selects.

What goes where is decided in `endpoints`; this module watches, reads and writes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from motley.api import status
from motley.api.selectors import Selector
from motley.api.views.base import Key
from motley.api.views.core import Endpoint, EndpointSlice, Node, Service
from motley.api.views.pod import Pod
from motley.client.index import by_namespace
from motley.client.informer import Change
from motley.client.workqueue import WorkQueue
from motley.controllers import endpoints, hints
from motley.controllers.manager import Context
from motley.controllers.reconciler import Requeue
from motley.controllers.written import Written
from motley.lib import journal

log = journal.get(__name__)


class SliceWriter:
    """Performs plans; its own writes are seen at once through `written`."""

    def __init__(self, context: Context) -> None:
        self._client = context.client
        slices = context.informers.of(EndpointSlice)
        self.written: Written[EndpointSlice] = Written(slices, context.clock)

    async def perform(self, plan: endpoints.Plan, scope: str) -> None:
        """Create, change and delete slices."""
        for body in plan.create:
            self.written.put(await self._client.create(EndpointSlice, body), scope)
        for piece, body in plan.update:
            self.written.put(await self._update(piece, body), scope)
        for piece in plan.delete:
            await self.delete(piece)

    async def _update(self, piece: EndpointSlice, body: dict[str, Any]) -> EndpointSlice:
        meta = piece.metadata
        removed = {name: None for name in meta.labels if name not in body["metadata"]["labels"]}
        change = {
            "metadata": {
                "resourceVersion": meta.resource_version,
                "labels": {**removed, **body["metadata"]["labels"]},
            },
            "endpoints": body["endpoints"],
        }
        return await self._client.patch(EndpointSlice, meta.name, meta.namespace, change)

    async def delete(self, piece: EndpointSlice) -> None:
        """Delete one slice, this very one."""
        meta = piece.metadata
        try:
            await self._client.delete(EndpointSlice, meta.name, meta.namespace, uid=meta.uid)
        except (status.NotFound, status.Conflict):
            pass  # already gone
        self.written.delete(piece)


class EndpointSliceController:
    """See the module's docstring."""

    name = "endpointslice"
    workers = 5

    def __init__(self, context: Context) -> None:
        self.queue: WorkQueue[Key] = WorkQueue(context.clock)
        self._services = context.informers.of(Service)
        self._pods = context.informers.of(Pod)
        self._slices = context.informers.of(EndpointSlice)
        self._nodes = context.informers.of(Node)
        self._services.add_index("namespace", by_namespace)
        self._pods.add_index("namespace", by_namespace)
        self._slices.add_index("service", _service_of)
        self._writer = SliceWriter(context)
        self._services.add_handler(lambda change: self.queue.add(change.key))
        self._slices.add_handler(self._slice_changed)
        self._pods.add_handler(self._pod_changed)
        self._nodes.add_handler(self._node_changed)

    def _slice_changed(self, change: Change[EndpointSlice]) -> None:
        meta = change.object.metadata
        name = meta.labels.get(endpoints.SERVICE_NAME)
        if name and meta.labels.get(endpoints.MANAGED_BY) == endpoints.CONTROLLER:
            self.queue.add(Key(meta.namespace, name))

    def _pod_changed(self, change: Change[Pod]) -> None:
        old, new = change.old, change.new
        if old is not None and new is not None and facts(old) == facts(new):
            return
        for service in self._services.by_index("namespace", change.key.namespace):
            if not endpoints.has_endpoints(service):
                continue
            selector = Selector.of_map(service.spec.selector)
            if any(pod and selector.matches(pod.metadata.labels) for pod in (old, new)):
                self.queue.add(service.key)

    def _node_changed(self, change: Change[Node]) -> None:
        old, new = change.old, change.new
        if old is not None and new is not None and hints.node_facts(old) == hints.node_facts(new):
            return
        for service in self._services.items():
            if hints.is_auto(service):
                self.queue.add(service.key)

    async def reconcile(self, key: Key) -> Requeue | None:
        """Make the Service's slices hold its endpoints."""
        service = self._services.get(key)
        scope = str(key)
        slices = self._writer.written.over(self._slices.by_index("service", scope), scope)
        if service is None or service.metadata.deletion_timestamp:
            for piece in slices:
                await self._writer.delete(piece)
            return None
        if not endpoints.has_endpoints(service):
            return None
        selector = Selector.of_map(service.spec.selector)
        namespace = self._pods.by_index("namespace", key.namespace)
        pods = [pod for pod in namespace if selector.matches(pod.metadata.labels)]
        alive = [piece for piece in slices if piece.metadata.deletion_timestamp is None]
        desired = endpoints.wanted(service, pods, self._zones(pods))
        self._give_hints(service, desired)
        plan = endpoints.plan(endpoints.origin(service), desired, alive)
        try:
            await self._writer.perform(plan, scope)
        except status.NotFound as error:
            # A slice or the namespace went away under us; the next look is up to date.
            raise status.Conflict(error.message) from error
        return None

    def _give_hints(
        self, service: Service, desired: Mapping[endpoints.Shape, Sequence[Endpoint]]
    ) -> None:
        ratios = hints.zone_ratios(self._nodes.items()) if hints.is_auto(service) else {}
        for family in {family for family, _ in desired}:
            members = [e for shape, found in desired.items() if shape[0] == family for e in found]
            hints.give(service, members, ratios)

    def _zones(self, pods: list[Pod]) -> dict[str, str]:
        names = {pod.spec.node_name for pod in pods}
        nodes = (self._nodes.get(Key("", name)) for name in names)
        labelled = (node for node in nodes if node and hints.ZONE in node.metadata.labels)
        return {node.metadata.name: node.metadata.labels[hints.ZONE] for node in labelled}


def _service_of(piece: EndpointSlice) -> tuple[str, ...]:
    labels = piece.metadata.labels
    name = labels.get(endpoints.SERVICE_NAME)
    if not name or labels.get(endpoints.MANAGED_BY) != endpoints.CONTROLLER:
        return ()
    return (str(Key(piece.metadata.namespace, name)),)


def facts(pod: Pod) -> tuple[Any, ...]:
    """What of a pod its endpoints depend on."""
    return (
        pod.metadata.uid,
        pod.metadata.labels,
        pod.metadata.deletion_timestamp is None,
        pod.status.pod_ip,
        pod.is_ready,
        pod.is_terminal,
        pod.spec.node_name,
    )
