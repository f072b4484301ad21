"""EndpointSlice mirroring: hand-written Endpoints of a Service without a selector, as slices.

Proxies read slices only; a database outside the cluster is still often told of by Endpoints. The
mirror follows the Endpoints for as long as the Service has no selector of its own.
"""

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any

from motley.api.views.base import Key, ObjectReference
from motley.api.views.core import Endpoint, EndpointConditions, EndpointSlice, Service
from motley.client.informer import Change
from motley.client.workqueue import WorkQueue
from motley.controllers import endpoints
from motley.controllers.endpoints import Origin, Shape
from motley.controllers.endpointslice import SliceWriter
from motley.controllers.endpointsv1 import MANAGED_BY, Endpoints
from motley.controllers.manager import Context
from motley.controllers.reconciler import Requeue
from motley.controllers.workload import controller_reference

CONTROLLER = "endpointslicemirroring-controller.k8s.io"
SKIP = "endpointslice.kubernetes.io/skip-mirror"
_LEADER = "control-plane.alpha.kubernetes.io/leader"
_UNCOPIED = ("kubectl.kubernetes.io/last-applied-configuration",)


def is_mirrored(found: Endpoints, service: Service | None) -> bool:
    """Is this a Service's list, written by hand, and not a lock or the controller's own?"""
    meta = found.metadata
    return (
        service is not None
        and service.metadata.deletion_timestamp is None
        and not service.spec.selector
        and service.spec.type != "ExternalName"
        and meta.labels.get(SKIP) != "true"
        and MANAGED_BY not in meta.labels
        and _LEADER not in meta.annotations
    )


def mirrored(found: Endpoints) -> dict[Shape, list[Endpoint]]:
    """The same addresses by family and ports."""
    result: dict[Shape, list[Endpoint]] = {}
    for subset in found.subsets or ():
        ports = tuple(
            (p.get("name", ""), p.get("protocol", "TCP"), p["port"], p.get("appProtocol", ""))
            for p in subset.get("ports") or ()
        )
        for ready, member in ((True, "addresses"), (False, "notReadyAddresses")):
            for address in subset.get(member) or ():
                family = "IPv6" if ip_address(address["ip"]).version == 6 else "IPv4"
                result.setdefault((family, ports), []).append(_endpoint(address, ready))
    return result or {("IPv4", ()): []}


def _endpoint(address: Mapping[str, Any], ready: bool) -> Endpoint:
    named = address.get("targetRef")
    return Endpoint(
        addresses=[address["ip"]],
        conditions=EndpointConditions(ready=ready),
        hostname=address.get("hostname", ""),
        node_name=address.get("nodeName", ""),
        target_ref=ObjectReference(
            kind=named.get("kind", ""),
            namespace=named.get("namespace", ""),
            name=named.get("name", ""),
            uid=named.get("uid", ""),
        )
        if named
        else None,
    )


class EndpointSliceMirroringController:
    """See the module's docstring."""

    name = "endpointslicemirroring"
    workers = 1

    def __init__(self, context: Context) -> None:
        self.queue: WorkQueue[Key] = WorkQueue(context.clock)
        self._services = context.informers.of(Service)
        self._objects = context.informers.of(Endpoints)
        self._slices = context.informers.of(EndpointSlice)
        self._slices.add_index("mirror", _mirror_of)
        self._writer = SliceWriter(context)
        self._services.add_handler(lambda change: self.queue.add(change.key))
        self._objects.add_handler(lambda change: self.queue.add(change.key))
        self._slices.add_handler(self._slice_changed)

    def _slice_changed(self, change: Change[EndpointSlice]) -> None:
        for name in _mirror_of(change.object):
            namespace, _, service = name.partition("/")
            self.queue.add(Key(namespace, service))

    async def reconcile(self, key: Key) -> Requeue | None:
        """Make the slices equal to the Endpoints, or remove them."""
        found = self._objects.get(key)
        scope = str(key)
        slices = self._writer.written.over(self._slices.by_index("mirror", scope), scope)
        if found is None or not is_mirrored(found, self._services.get(key)):
            for piece in slices:
                await self._writer.delete(piece)
            return None
        meta = found.metadata
        labels = {**meta.labels, endpoints.SERVICE_NAME: meta.name}
        labels[endpoints.MANAGED_BY] = CONTROLLER
        kept = {n: v for n, v in meta.annotations.items() if n not in _UNCOPIED}
        source = Origin(meta.name, meta.namespace, labels, controller_reference(found), kept)
        await self._writer.perform(endpoints.plan(source, mirrored(found), slices), scope)
        return None


def _mirror_of(piece: EndpointSlice) -> tuple[str, ...]:
    labels = piece.metadata.labels
    name = labels.get(endpoints.SERVICE_NAME)
    if not name or labels.get(endpoints.MANAGED_BY) != CONTROLLER:
        return ()
    return (str(Key(piece.metadata.namespace, name)),)
