"""What the cluster is told about the gateway: its Services, endpoints, class, and statuses.

kube-system/motley-gateway            the gateway's own address, chosen by the API server
kube-system/motley-gateway-10-8-0-1   one per address that Routes chose; the API server checks it
  EndpointSlices NAME.NODE            where each machine's nginx listens; they go with the Node
IngressClass motley                   the default class, unless there is another

The first Service's annotation `motley.io/hosts` says every name with its address; cluster DNS reads
it there, and so needs to know neither Routes nor Ingresses. Documents are made by pure functions;
what is written already is not written again.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from motley.api import status
from motley.api.views.base import Key, Object
from motley.api.views.core import EndpointSlice, Node, Service
from motley.api.views.paths import Ingress, IngressClass, Route
from motley.client.rest import Client
from motley.lib import clock as clocks
from motley.lib import journal
from motley.network.dns.hosts import GATEWAY, HOSTS
from motley.network.paths import plan as plans
from motley.network.paths.sites import Problem

log = journal.get(__name__)

_LABEL = "app.kubernetes.io/managed-by"
_MANAGER = "motley-gateway"


def service(address: str = "") -> dict[str, Any]:
    """A Service in front of the gateways."""
    ports = [
        {"name": name, "port": port, "protocol": "TCP", "targetPort": port}
        for name, port in (("http", 80), ("https", 443))
    ]
    return {
        "metadata": {
            "name": plans.service_of(address).name,
            "namespace": GATEWAY.namespace,
            "labels": {_LABEL: _MANAGER},
        },
        "spec": {"ports": ports, **({"clusterIP": address} if address else {})},
    }


def endpoints(
    name: str, node: str, owner: Mapping[str, str] | None, address: str, http: int, https: int
) -> dict[str, Any]:
    """One machine's nginx behind a Service; without an address there is none."""
    ports = [
        {"name": label, "port": port, "protocol": "TCP"}
        for label, port in (("http", http), ("https", https))
    ]
    ready = [{"addresses": [address], "conditions": {"ready": True}, "nodeName": node}]
    return {
        "metadata": {
            "name": f"{name}.{node}",
            "namespace": GATEWAY.namespace,
            "labels": {
                "kubernetes.io/service-name": name,
                "endpointslice.kubernetes.io/managed-by": _MANAGER,
            },
            **({"ownerReferences": [dict(owner)]} if owner else {}),
        },
        "addressType": "IPv4",
        "endpoints": ready if address else [],
        "ports": ports,
    }


def ingress_class(others: Sequence[IngressClass]) -> dict[str, Any]:
    """Our class; the default one where no other is."""
    is_free = not any(c.metadata.annotations.get(plans.DEFAULT_CLASS) == "true" for c in others)
    marks = {"annotations": {plans.DEFAULT_CLASS: "true"}} if is_free else {}
    return {
        "metadata": {"name": plans.CLASS_NAME, "labels": {_LABEL: _MANAGER}, **marks},
        "spec": {"controller": plans.CONTROLLER},
    }


def route_status(
    route: Route, address: str, problems: Sequence[Problem], now: str
) -> dict[str, Any] | None:
    """The status a Route should have; None when it has it."""
    is_ready = bool(address) and not problems
    reason = problems[0].reason if problems else "Served" if address else "NotServed"
    message = "; ".join(problem.message for problem in problems)
    before = next((c for c in route.status.conditions if c.type == "Ready"), None)
    said = ("True" if is_ready else "False", reason, message)
    if (
        before is not None
        and (before.status, before.reason, before.message) == said
        and route.status.address == address
    ):
        return None
    is_same = before is not None and before.status == said[0]
    since = before.last_transition_time if before is not None and is_same else now
    condition = {
        "type": "Ready",
        "status": said[0],
        "reason": reason,
        "message": message,
        "lastTransitionTime": since or now,
    }
    return {"address": address or None, "conditions": [condition]}


def ingress_status(ingress: Ingress, address: str, ours: set[str]) -> dict[str, Any] | None:
    """The status an Ingress should have; None when it has it, or another's is none of ours."""
    present = [entry.ip for entry in ingress.status.load_balancer.ingress]
    wanted = [address] if address else []
    if present == wanted or (not wanted and not set(present) & ours):
        return None
    return {"loadBalancer": {"ingress": [{"ip": ip} for ip in wanted]}}


class Publisher:
    """Writes what has changed."""

    def __init__(
        self,
        client: Client,
        node_name: str,
        *,
        clock: clocks.Clock = clocks.SYSTEM,
    ) -> None:
        self._client = client
        self._node_name = node_name
        self._clock = clock
        self._slices: dict[str, dict[str, Any]] = {}  # as we wrote them last

    async def services(
        self, present: Mapping[Key, Service], addresses: Sequence[str]
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Have the Services of these addresses (the empty one is our own) and no others.

        Returns each address that is ours now, the empty one with what it was given, and for the
        others why not.
        """
        found: dict[str, str] = {}
        refused: dict[str, str] = {}
        for address in addresses:
            key = plans.service_of(address)
            known = present.get(key)
            if known is not None and known.spec.cluster_ip:
                found[address] = known.spec.cluster_ip
                continue
            try:
                made = await self._client.create(Service, service(address))
                found[address] = made.spec.cluster_ip
                log.info("gateway Service made", service=key, address=made.spec.cluster_ip)
            except status.AlreadyExists:
                there = await self._client.get(Service, key.name, key.namespace)
                found[address] = there.spec.cluster_ip
            except status.Invalid as error:
                refused[address] = str(error)
        wanted = {plans.service_of(address) for address in ("", *addresses)}
        for key, known in present.items():
            is_ours = known.metadata.labels.get(_LABEL) == _MANAGER
            if key.namespace == GATEWAY.namespace and is_ours and key not in wanted:
                await self._delete(key)
        return found, refused

    async def _delete(self, key: Key) -> None:
        behind = await self._client.list(
            EndpointSlice,
            namespace=key.namespace,
            label_selector=f"kubernetes.io/service-name={key.name}",
        )
        goners: list[tuple[type[Object], str]] = [(Service, key.name)]
        goners += [(EndpointSlice, piece.metadata.name) for piece in behind.items]
        for cls, name in goners:
            try:
                await self._client.delete(cls, name, key.namespace)
            except status.NotFound:
                log.debug("gone already", kind=cls.KIND, name=name)
        log.info("gateway Service removed", service=key)

    async def endpoints(
        self, names: Sequence[str], address: str, http_port: int, https_port: int
    ) -> None:
        """Be behind these Services; with an empty address behind none."""
        if not names:
            return
        owner = await self._owner()
        for name in names:
            body = endpoints(name, self._node_name, owner, address, http_port, https_port)
            if self._slices.get(name) != body:
                await self._client.apply(EndpointSlice, body, field_manager=_MANAGER, force=True)
                self._slices[name] = body
        for gone in self._slices.keys() - set(names):
            del self._slices[gone]  # its Service is gone, and the slice with it

    async def _owner(self) -> dict[str, str] | None:
        try:
            node = await self._client.get(Node, self._node_name)
        except status.NotFound:
            return None
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "name": node.metadata.name,
            "uid": node.metadata.uid,
        }

    async def hosts(self, present: Mapping[Key, Service], hosts: Mapping[str, str]) -> None:
        """Tell cluster DNS every name."""
        text = msgspec.json.encode(dict(sorted(hosts.items()))).decode()
        known = present.get(GATEWAY)
        before = known.metadata.annotations.get(HOSTS) if known is not None else None
        if text != before and (hosts or before is not None):
            change = {"metadata": {"annotations": {HOSTS: text}}}
            await self._client.patch(Service, GATEWAY.name, GATEWAY.namespace, change)

    async def ingress_class(self, present: Sequence[IngressClass]) -> None:
        """Have our class."""
        if any(one.metadata.name == plans.CLASS_NAME for one in present):
            return
        try:
            await self._client.create(IngressClass, ingress_class(present))
        except status.AlreadyExists:
            log.debug("ingress class exists already")

    async def route(self, route: Route, address: str, problems: Sequence[Problem]) -> None:
        """Write a Route's status, if it changed."""
        wanted = route_status(route, address, problems, clocks.rfc3339(self._clock.now()))
        if wanted is not None:
            await self._status(Route, route.key, wanted)

    async def ingress(self, ingress: Ingress, address: str, ours: set[str]) -> None:
        """Write an Ingress' status, if it changed."""
        wanted = ingress_status(ingress, address, ours)
        if wanted is not None:
            await self._status(Ingress, ingress.key, wanted)

    async def _status(
        self, cls: type[Route] | type[Ingress], key: Key, wanted: dict[str, Any]
    ) -> None:
        body = {"status": wanted}
        try:
            await self._client.patch(cls, key.name, key.namespace, body, subresource="status")
        except status.NotFound:
            log.debug("object is gone", kind=cls.KIND, object=key)
