"""The records of one Service, after Kubernetes' DNS specification (version 1.1.0); pure.

web.shop.svc.cluster.local            A      the ClusterIP, or every endpoint when headless
_http._tcp.web.shop.svc.…             SRV    named ports
db-0.db.shop.svc.…                    A      an endpoint of a headless Service by its hostname
10-244-1-7.db.shop.svc.…              A      … or by its address, when it has none
5.0.96.10.in-addr.arpa                PTR    the way back
shop-db.shop.svc.…                    CNAME  an ExternalName
hello.example                         A      names of Routes and Ingresses (`hosts`)
"""

from collections.abc import Iterator, Sequence

from motley.api.views.core import Endpoint, EndpointSlice, Service
from motley.network.dns import hosts, wire
from motley.network.dns.wire import Record

TTL_S = 5  # CoreDNS' default for cluster names: a moved Service is found again soon

Records = dict[bytes, list[Record]]


def of_service(service: Service, slices: Sequence[EndpointSlice], domain: str) -> Records:
    """Everything this Service's names answer, by owner name in wire form."""
    found: Records = {}
    meta, spec = service.metadata, service.spec
    own = f"{meta.name}.{meta.namespace}.svc.{domain}"
    try:
        if spec.type == "ExternalName":
            if spec.external_name:
                _add(found, own, wire.CNAME, wire.encode_name(spec.external_name))
        elif spec.cluster_ip == "None":
            for piece in slices:
                if piece.address_type == "IPv4":
                    _add_headless(found, service, piece, own)
        elif spec.cluster_ip:
            _add_cluster_ip(found, service, own)
        for name, address in hosts.of_gateway(service, domain).items():
            found[name] = [Record(wire.A, TTL_S, address)]
    except wire.FormatError:
        # The API server checks names and addresses; what slips through has no DNS name.
        return {}
    return found


def _add(found: Records, owner: str, type_: int, data: bytes) -> None:
    records = found.setdefault(wire.encode_name(owner), [])
    record = Record(type_, TTL_S, data)
    if record not in records:
        records.append(record)


def _add_cluster_ip(found: Records, service: Service, own: str) -> None:
    address, target = service.spec.cluster_ip, wire.encode_name(own)
    _add(found, own, wire.A, wire.a_data(address))
    found[wire.reverse_name(address)] = [Record(wire.PTR, TTL_S, target)]
    for port in service.spec.ports:
        if port.name:
            owner = f"_{port.name}._{port.protocol.lower()}.{own}"
            _add(found, owner, wire.SRV, wire.srv_data(0, 100, port.port, target))


def _add_headless(found: Records, service: Service, piece: EndpointSlice, own: str) -> None:
    for endpoint in _published(service, piece):
        address = endpoint.addresses[0]
        name = f"{endpoint.hostname or address.replace('.', '-')}.{own}"
        _add(found, own, wire.A, wire.a_data(address))
        _add(found, name, wire.A, wire.a_data(address))
        target = wire.encode_name(name)
        reverse = found.setdefault(wire.reverse_name(address), [])
        if (record := Record(wire.PTR, TTL_S, target)) not in reverse:
            reverse.append(record)
        for port in piece.ports:
            if port.name:
                owner = f"_{port.name}._{port.protocol.lower()}.{own}"
                _add(found, owner, wire.SRV, wire.srv_data(0, 100, port.port, target))


def _published(service: Service, piece: EndpointSlice) -> Iterator[Endpoint]:
    for endpoint in piece.endpoints:
        ready = endpoint.conditions.ready is not False
        if endpoint.addresses and (ready or service.spec.publish_not_ready_addresses):
            yield endpoint


def of_zone(domain: str, dns_address: str) -> Records:
    """What the zone itself answers: its authority, and where that is."""
    server = f"ns.dns.{domain}"
    return {
        wire.encode_name(domain): [Record(wire.NS, TTL_S, wire.encode_name(server))],
        wire.encode_name(server): [Record(wire.A, TTL_S, wire.a_data(dns_address))],
        wire.encode_name(f"svc.{domain}"): [],
        wire.encode_name(f"pod.{domain}"): [],
    }
