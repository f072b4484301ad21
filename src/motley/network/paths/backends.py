"""From what an object names to an address: Services by name, by address, by port; pure.

The gateway forwards to a Service's cluster address, so endpoints come and go without it. Only where
a Service has no address (headless) are its endpoints the servers. An address that is given instead
of a name must be one of a Service's: the gateway sits in the host's network, and a Route must not
become a way to the host's own ports.
"""

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from motley.api.views.base import Key
from motley.api.views.core import EndpointSlice, Service, ServicePort
from motley.network.paths.annotations import ROUTES_FROM


class Unserved(Exception):
    """There is nobody to forward to; the reason and the sentence for an event."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


@dataclass
class Backends:
    """Services and, of headless ones, their slices."""

    services: Mapping[Key, Service]
    slices: Mapping[Key, Sequence[EndpointSlice]]
    domain: str = "cluster.local"
    _by_address: dict[str, Service] = field(init=False)

    def __post_init__(self) -> None:
        self._by_address = {
            address: service
            for service in self.services.values()
            for address in (service.spec.cluster_ip, *service.spec.external_ips)
            if address and address != "None"
        }

    def owner_of(self, address: str) -> Service | None:
        """The Service that has an address."""
        return self._by_address.get(address)

    def of_ingress(self, namespace: str, name: str, port: int | str) -> tuple[str, ...]:
        """The servers of a Service in the Ingress' namespace."""
        return self._servers(self._named(Key(namespace, name)), port)

    def of_route(self, namespace: str, said: str, port: int) -> tuple[str, ...]:
        """The servers a Route's path names: `web`, `web.shop`, `web.shop.svc…`, `10.96.0.7`."""
        said = said.lower().rstrip(".")
        try:
            address = str(ipaddress.IPv4Address(said))
        except ValueError:
            service = self._named(self._key(namespace, said))
        else:
            found = self._by_address.get(address)
            if found is None:
                raise Unserved("ServiceNotFound", f"no Service has the address {address}")
            service = found
        if service.metadata.namespace != namespace and not _admits(service, namespace):
            raise Unserved(
                "NotAllowed",
                f"Service {service.key} is in another namespace; its annotation {ROUTES_FROM} "
                f"would have to name {namespace}",
            )
        return self._servers(service, port)

    def _key(self, namespace: str, said: str) -> Key:
        parts = said.removesuffix(f".{self.domain}").removesuffix(".svc").split(".")
        if len(parts) > 2 or not all(parts):
            raise Unserved("ServiceNotFound", f"{said} is not the name of a Service")
        return Key(parts[1] if len(parts) == 2 else namespace, parts[0])

    def _named(self, key: Key) -> Service:
        service = self.services.get(key)
        if service is None:
            raise Unserved("ServiceNotFound", f"there is no Service {key}")
        return service

    def _servers(self, service: Service, wanted: int | str) -> tuple[str, ...]:
        if service.spec.type == "ExternalName":
            raise Unserved("NotSupported", f"Service {service.key} is an ExternalName")
        port = _port(service, wanted)
        if service.spec.cluster_ip != "None":
            if not service.spec.cluster_ip:
                raise Unserved("ServiceNotFound", f"Service {service.key} has no address yet")
            return (f"{service.spec.cluster_ip}:{port.port}",)
        servers = tuple(sorted(_endpoints(self.slices.get(service.key, ()), port)))
        if not servers:
            raise Unserved("NoEndpoints", f"headless Service {service.key} has no ready endpoints")
        return servers


def _admits(service: Service, namespace: str) -> bool:
    admitted = service.metadata.annotations.get(ROUTES_FROM, "")
    return bool({"*", namespace} & {part.strip() for part in admitted.split(",")})


def _port(service: Service, wanted: int | str) -> ServicePort:
    for port in service.spec.ports:
        if port.protocol == "TCP" and wanted in (port.port, port.name):
            return port
    raise Unserved("PortNotFound", f"Service {service.key} has no TCP port {wanted}")


def _endpoints(slices: Sequence[EndpointSlice], port: ServicePort) -> Iterable[str]:
    for piece in slices:
        numbers = [p.port for p in piece.ports if p.name == port.name and p.port]
        if piece.address_type != "IPv4" or not numbers:
            continue
        for endpoint in piece.endpoints:
            if endpoint.addresses and endpoint.conditions.ready is not False:
                yield f"{endpoint.addresses[0]}:{numbers[0]}"
