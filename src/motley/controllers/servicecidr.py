"""ServiceCIDRs: ranges that Services get addresses from come and go without losing anybody's.

A new range gets a finalizer first and is called ready then; API servers give out addresses of ready
ranges only. A deleted one waits until no address is left that no other range has, and a little
longer, so that every server has noticed that it gives out no more.
Invariant: an address that a Service holds lies in a range that exists.
"""

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any, ClassVar

import msgspec

from motley.api import status
from motley.api.views.base import Condition, Key, Object, View
from motley.client.informer import Change
from motley.client.workqueue import WorkQueue
from motley.controllers.manager import Context
from motley.controllers.reconciler import Requeue
from motley.lib.clock import parse_rfc3339, rfc3339

FINALIZER = "networking.k8s.io/service-cidr-finalizer"
GRACE_S = 10.0  # until every server has seen the deletion; kube-controller-manager's
_MANAGED_BY = ("ipaddress.kubernetes.io/managed-by", "ipallocator.k8s.io")
_WAITING = (
    "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new "
    "ServiceCIDR"
)

Network = IPv4Network | IPv6Network


class _Spec(View):
    cidrs: list[str] = msgspec.field(default_factory=list)


class _Status(View):
    conditions: list[Condition] = msgspec.field(default_factory=list)


class ServiceCIDR(Object):
    """A range of addresses for Services."""

    API_VERSION: ClassVar[str] = "networking.k8s.io/v1"
    KIND: ClassVar[str] = "ServiceCIDR"
    PLURAL: ClassVar[str] = "servicecidrs"
    NAMESPACED: ClassVar[bool] = False

    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)

    @property
    def networks(self) -> list[Network]:
        """Its ranges."""
        return [ip_network(cidr) for cidr in self.spec.cidrs]

    def has(self, address: str) -> bool:
        """Whether an address lies in it."""
        return any(ip_address(address) in network for network in self.networks)


class IPAddress(Object):
    """An address that something holds; its name says which."""

    API_VERSION: ClassVar[str] = "networking.k8s.io/v1"
    KIND: ClassVar[str] = "IPAddress"
    PLURAL: ClassVar[str] = "ipaddresses"
    NAMESPACED: ClassVar[bool] = False

    @property
    def is_given_out(self) -> bool:
        """Whether an API server made it for a Service."""
        label, value = _MANAGED_BY
        return self.metadata.labels.get(label) == value


def is_needed(cidr: ServiceCIDR, others: Iterable[ServiceCIDR], held: Iterable[str]) -> bool:
    """Whether some held address would lie in no range without this one. Pure."""
    staying = [o for o in others if o.key != cidr.key and o.metadata.deletion_timestamp is None]
    return any(cidr.has(a) and not any(o.has(a) for o in staying) for a in held)


class ServiceCIDRController:
    """See the module's docstring."""

    name = "servicecidr"
    workers = 1

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._clock = context.clock
        self.queue: WorkQueue[Key] = WorkQueue(context.clock)
        self._cidrs = context.informers.of(ServiceCIDR)
        self._addresses = context.informers.of(IPAddress)
        self._cidrs.add_handler(self._cidr_changed)
        self._addresses.add_handler(self._address_changed)

    def _cidr_changed(self, change: Change[ServiceCIDR]) -> None:
        self.queue.add(change.key)
        for cidr in self._cidrs.items():  # what another range has now, this one can give up
            if cidr.metadata.deletion_timestamp is not None:
                self.queue.add(cidr.key)

    def _address_changed(self, change: Change[IPAddress]) -> None:
        if change.new is not None:
            return
        for cidr in self._cidrs.items():
            if cidr.metadata.deletion_timestamp is not None and cidr.has(change.key.name):
                self.queue.add(cidr.key)

    async def reconcile(self, key: Key) -> Requeue | None:
        """Make a range ready, or let go of a deleted one that nobody needs."""
        cidr = self._cidrs.get(key)
        if cidr is None:
            return None
        if cidr.metadata.deletion_timestamp is not None:
            return await self._release(cidr)
        if FINALIZER not in cidr.metadata.finalizers:
            cidr = await self._patch_finalizers(cidr, [*cidr.metadata.finalizers, FINALIZER])
        await self._say(cidr, "True", "", "Kubernetes Service CIDR is ready")
        return None

    async def _release(self, cidr: ServiceCIDR) -> Requeue | None:
        if FINALIZER not in cidr.metadata.finalizers:
            return None
        deleted = parse_rfc3339(cidr.metadata.deletion_timestamp or "")
        left_s = GRACE_S - (self._clock.now() - deleted)
        # The server is asked: an address may have been given out a moment ago.
        listing = await self._client.list(IPAddress)
        held = [a.metadata.name for a in listing.items if a.is_given_out]
        if is_needed(cidr, self._cidrs.items(), held):
            await self._say(cidr, "False", "Terminating", _WAITING)
            return None
        if left_s > 0:
            return Requeue(left_s)
        try:
            kept = [f for f in cidr.metadata.finalizers if f != FINALIZER]
            await self._patch_finalizers(cidr, kept)
        except status.NotFound:
            return None
        return None

    async def _patch_finalizers(self, cidr: ServiceCIDR, wanted: list[str]) -> ServiceCIDR:
        meta = cidr.metadata
        body = {
            "metadata": {"resourceVersion": meta.resource_version, "finalizers": wanted or None}
        }
        return await self._client.patch(ServiceCIDR, meta.name, "", body)

    async def _say(self, cidr: ServiceCIDR, ready: str, reason: str, message: str) -> None:
        """Set the condition `Ready`, unless it says so already."""
        for condition in cidr.status.conditions:
            if condition.type == "Ready" and (condition.status, condition.reason) == (
                ready,
                reason,
            ):
                return
        told: dict[str, Any] = {
            "type": "Ready",
            "status": ready,
            "reason": reason,
            "message": message,
            "lastTransitionTime": rfc3339(self._clock.now()),
        }
        body = {
            "metadata": {"resourceVersion": cidr.metadata.resource_version},
            "status": {"conditions": [told]},
        }
        name = cidr.metadata.name
        await self._client.patch(ServiceCIDR, name, "", body, subresource="status")
