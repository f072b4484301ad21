"""Service addresses and node ports: chosen by the user or given out, never twice.

The pools are rebuilt from the stored Services at start. A request reserves first and is then
written; a write that fails gives back what it took, a write that succeeds gives back what the
old object had and the new one has not.

Invariant: what is taken in the pools is exactly what stored Services hold, plus what requests
in flight have reserved.
"""

import ipaddress
from collections.abc import Iterable
from typing import Any

from motley.api import scheme, status
from motley.api.status import FieldError
from motley.apiserver import document
from motley.apiserver.admission.change import Change, interest
from motley.apiserver.admission.pool import Exhausted, Pool
from motley.store.contract import Store

Document = dict[str, Any]
_WITH_NODE_PORTS = ("NodePort", "LoadBalancer")


class ServiceAllocator:
    """Gives Services their ClusterIP and node ports."""

    name = "ServiceAllocator"
    interests = (interest("create update delete", "services"),)

    def __init__(self, addresses: Pool, ports: Pool) -> None:
        self._addresses = addresses
        self._ports = ports

    async def rebuild(self, store: Store) -> None:
        """Take what stored Services hold; called once, before the first request."""
        kind = scheme.resource("", "v1", "services")
        assert kind is not None
        for record in (await store.range(kind.storage_prefix)).records:
            spec = document.decode(record.value).get("spec") or {}
            for address in _addresses(spec):
                self._addresses.take(address)
            for port in _node_ports(spec):
                self._ports.take(port)

    async def mutate(self, change: Change) -> None:
        """Complete a Service's spec with what the server gives out."""
        spec = change.spec
        if spec is None:
            return
        old = (change.old or {}).get("spec") or {}
        _drop_leftovers(spec, old)
        try:
            self._admit_address(change, spec, old)
            self._admit_ports(change, spec, old)
        except BaseException:
            self._give_back(change)
            raise

    def settle(self, change: Change, *, committed: bool) -> None:
        """Keep what the stored object now has; give back the rest."""
        if not committed:
            self._give_back(change)
            return
        old = (change.old or {}).get("spec") or {}
        new = (change.new or {}).get("spec") or {}
        for address in set(_addresses(old)) - set(_addresses(new)):
            self._addresses.release(address)
        for port in set(_node_ports(old)) - set(_node_ports(new)):
            self._ports.release(port)

    def _give_back(self, change: Change) -> None:
        for held in change.held:
            which, _, number = held.partition(":")
            pool = self._addresses if which == "address" else self._ports
            pool.release(int(number))
        change.held.clear()

    def _admit_address(self, change: Change, spec: Document, old: Document) -> None:
        if spec.get("type") == "ExternalName":
            return
        _align_addresses(spec, old)
        wanted = spec.get("clusterIP") or ""
        if not wanted:
            number = self._take_any_address(change)
            change.held.append(f"address:{number}")
            spec["clusterIP"] = str(ipaddress.IPv4Address(number))
            spec["clusterIPs"] = [spec["clusterIP"]]
        elif wanted != "None" and wanted != old.get("clusterIP"):
            self._take_address(change, wanted)
        _default_families(spec)

    def _take_any_address(self, change: Change) -> int:
        try:
            return self._addresses.take_any()
        except Exhausted:
            raise status.InternalError(
                "failed to allocate a serviceIP: range is full",
                details={"name": change.name, "kind": "services"},
            ) from None

    def _take_address(self, change: Change, wanted: str) -> None:
        try:
            number = int(ipaddress.IPv4Address(wanted))
        except ValueError:
            return  # validation refuses it
        problem = ""
        if number not in self._addresses:
            first = ipaddress.IPv4Address(self._addresses.first - 1)
            size = self._addresses.last - self._addresses.first + 3
            prefix = 32 - (size - 1).bit_length()
            problem = f"the provided network does not match the current range {first}/{prefix}"
        elif not self._addresses.take(number):
            problem = "provided IP is already allocated"
        if problem:
            raise _invalid(
                change,
                "spec.clusterIPs",
                f'Invalid value: ["{wanted}"]: failed to allocate IP {wanted}: {problem}',
            )
        change.held.append(f"address:{number}")

    def _admit_ports(self, change: Change, spec: Document, old: Document) -> None:
        ports = [p for p in spec.get("ports") or () if isinstance(p, dict)]
        if not _wants_node_ports(spec):
            held = set(_node_ports(old))
            for port in ports:
                if port.get("nodePort") in held:
                    del port["nodePort"]  # left over from another type
            return
        mine = set(_node_ports(old))
        before = {_port_id(p): p.get("nodePort") for p in old.get("ports") or ()}
        for index, port in enumerate(ports):
            number = port.get("nodePort") or before.get(_port_id(port))
            if not number:
                number = self._twin(ports, port) or self._take_any_port(change)
                mine.add(number)
            elif isinstance(number, int) and number not in mine:
                self._take_port(change, index, number)
                mine.add(number)
            port["nodePort"] = number

    @staticmethod
    def _twin(ports: Iterable[Document], port: Document) -> int | None:
        """The node port of the same port in the other protocol: DNS wants one for both."""
        for other in ports:
            same = other.get("port") == port.get("port")
            if same and other is not port and other.get("protocol") != port.get("protocol"):
                number: int | None = other.get("nodePort")
                return number
        return None

    def _take_any_port(self, change: Change) -> int:
        try:
            number = self._ports.take_any()
        except Exhausted:
            raise status.InternalError(
                "failed to allocate a nodePort: range is full",
                details={"name": change.name, "kind": "services"},
            ) from None
        change.held.append(f"port:{number}")
        return number

    def _take_port(self, change: Change, index: int, number: int) -> None:
        problem = ""
        if number not in self._ports:
            valid = f"{self._ports.first}-{self._ports.last}"
            problem = (
                f"provided port is not in the valid range. The range of valid ports is {valid}"
            )
        elif not self._ports.take(number):
            problem = "provided port is already allocated"
        if problem:
            field = f"spec.ports[{index}].nodePort"
            raise _invalid(change, field, f"Invalid value: {number}: {problem}")
        change.held.append(f"port:{number}")


def _invalid(change: Change, field: str, message: str) -> status.Invalid:
    error = FieldError(field, "FieldValueInvalid", message)
    return status.invalid("", "Service", change.name, [error])


# Fields that mean something for some types only.
_OF_TYPES = {
    "clusterIP": ("ClusterIP", "NodePort", "LoadBalancer"),
    "clusterIPs": ("ClusterIP", "NodePort", "LoadBalancer"),
    "ipFamilies": ("ClusterIP", "NodePort", "LoadBalancer"),
    "ipFamilyPolicy": ("ClusterIP", "NodePort", "LoadBalancer"),
    "internalTrafficPolicy": ("ClusterIP", "NodePort", "LoadBalancer"),
    "externalTrafficPolicy": ("NodePort", "LoadBalancer"),
    "healthCheckNodePort": ("LoadBalancer",),
    "allocateLoadBalancerNodePorts": ("LoadBalancer",),
    "loadBalancerClass": ("LoadBalancer",),
}


def _drop_leftovers(spec: Document, old: Document) -> None:
    """Forget what an update carries over from the type the Service had before."""
    wanted = spec.get("type", "ClusterIP")
    if not old or wanted == old.get("type"):
        return
    for field, types in _OF_TYPES.items():
        if wanted not in types and spec.get(field) == old.get(field):
            spec.pop(field, None)


def _align_addresses(spec: Document, old: Document) -> None:
    """Make `clusterIP` and `clusterIPs` say the same; an update that names none keeps the old."""
    if not spec.get("clusterIP") and spec.get("clusterIPs"):
        spec["clusterIP"] = spec["clusterIPs"][0]
    if not spec.get("clusterIP") and old.get("clusterIP"):
        spec["clusterIP"] = old["clusterIP"]
    if spec.get("clusterIP") and not spec.get("clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"]]


def _default_families(spec: Document) -> None:
    if spec.get("clusterIP") == "None" and not spec.get("selector"):
        # Nobody knows which addresses the endpoints of such a Service will have.
        spec.setdefault("ipFamilyPolicy", "RequireDualStack")
        spec.setdefault("ipFamilies", ["IPv4", "IPv6"])
        return
    spec.setdefault("ipFamilyPolicy", "SingleStack")
    spec.setdefault("ipFamilies", ["IPv4"])


def _wants_node_ports(spec: Document) -> bool:
    if spec.get("type") == "LoadBalancer":
        return spec.get("allocateLoadBalancerNodePorts") is not False
    return spec.get("type") in _WITH_NODE_PORTS


def _port_id(port: Document) -> tuple[Any, Any]:
    return port.get("port"), port.get("protocol", "TCP")


def _addresses(spec: Document) -> list[int]:
    texts = spec.get("clusterIPs") or [spec.get("clusterIP")]
    return [int(ipaddress.ip_address(text)) for text in texts if text and text != "None"]


def _node_ports(spec: Document) -> list[int]:
    return [p["nodePort"] for p in spec.get("ports") or () if p.get("nodePort")]
