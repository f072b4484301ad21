"""The cluster's zone: names to answers, prebuilt as bytes when a Service changes.

Almost every query of a pod is the same few names again, so the answer is made when the Service
changes, not when it is asked for: a query is one dictionary lookup and a concatenation.
Invariant: `fast` and `resolve` give the same answer to the same query.
"""

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network

from motley.api.views.base import Key
from motley.api.views.core import EndpointSlice, Service
from motley.network.dns import hosts, records, wire
from motley.network.dns.records import TTL_S
from motley.network.dns.wire import POINTER_TO_QUESTION, Query, Record

_PLAIN = bytes.fromhex("0100 0001 0000 0000 0000")  # flags and counts of a stub resolver's query
_ROTATIONS = 8
_LONGEST_CHAIN = 8
_ZONE_ITSELF = Key("", "")
_REVERSE = wire.encode_name("in-addr.arpa")


@dataclass
class Resolution:
    """What the zone knows about a question."""

    code: int = wire.NOERROR
    answers: list[bytes] = field(default_factory=list)
    authorities: list[bytes] = field(default_factory=list)
    additionals: list[bytes] = field(default_factory=list)
    alias: bytes | None = None  # the answer ends in a CNAME to this name outside the zone


class Zone:
    """All names of the cluster."""

    def __init__(
        self,
        domain: str = "cluster.local",
        *,
        dns_address: str = "10.96.0.10",
        networks: Sequence[str] = ("10.96.0.0/16", "10.244.0.0/16"),
    ) -> None:
        self.domain = domain
        self._apex = wire.encode_name(domain)
        self._pods = wire.encode_name(f"pod.{domain}")
        self._networks = tuple(IPv4Network(n) for n in networks)
        self._owned: dict[Key, records.Records] = {}
        self._claims: dict[bytes, dict[Key, list[Record]]] = {}
        self._names: Counter[bytes] = Counter()  # every name and, for NODATA, every name above it
        self._prebuilt: dict[bytes, Iterator[tuple[bytes, bytes]]] = {}
        self._replace(_ZONE_ITSELF, records.of_zone(domain, dns_address))

    def put(self, key: Key, service: Service | None, slices: Sequence[EndpointSlice]) -> None:
        """Take in the current state of one Service; None when it is gone."""
        found = records.of_service(service, slices, self.domain) if service is not None else {}
        self._replace(key, found)

    def _replace(self, key: Key, found: records.Records) -> None:
        old = self._owned.pop(key, {})
        if old == found:
            if old:
                self._owned[key] = old
            return
        if found:
            self._owned[key] = found
        for name in old.keys() | found.keys():
            claims = self._claims.setdefault(name, {})
            if name in found:
                claims[key] = found[name]
            else:
                del claims[key]
            if (name in found) != (name in old):
                self._count(name, 1 if name in found else -1)
            if not claims:
                del self._claims[name]
        for name in old.keys() | found.keys():
            self._prebuild(name)

    def _count(self, name: bytes, step: int) -> None:
        while name.endswith((self._apex, _REVERSE)):
            self._names[name] += step
            if not self._names[name]:
                del self._names[name]
            name = _parent(name)

    def _prebuild(self, name: bytes) -> None:
        present = {record.type for record in self.records(name)}
        for type_ in (wire.A, wire.PTR, wire.SRV, wire.AAAA):
            key = name + type_.to_bytes(2, "big") + b"\0\1"
            self._prebuilt.pop(key, None)
            answerable = type_ in present or (type_ == wire.AAAA and wire.A in present)
            if answerable and wire.CNAME not in present:
                self._prebuild_type(key, name, type_)

    def _prebuild_type(self, key: bytes, name: bytes, type_: int) -> None:
        query = Query(0, wire.RD, name, type_, wire.IN, key, wire.MAX_UDP, False)
        found = self.resolve(query)
        assert found is not None
        variants = []
        for turn in range(min(max(len(found.answers), 1), _ROTATIONS)):
            turned = found.answers[turn:] + found.answers[:turn]
            packet = wire.response(
                query,
                answers=turned,
                authorities=found.authorities,
                additionals=found.additionals,
            )
            if len(packet) > wire.MAX_UDP:
                return
            variants.append((packet[2:12], packet[12 + len(key) :]))
        self._prebuilt[key] = itertools.cycle(variants)

    def records(self, name: bytes) -> list[Record]:
        """Every record of a name; a name in two Services (a pod's PTR) has both's."""
        merged: dict[Record, None] = {}
        for claim in self._claims.get(name, {}).values():
            merged.update(dict.fromkeys(claim))
        return list(merged)

    def is_ours(self, name: bytes) -> bool:
        """Is this name for us to answer, also when it does not exist?"""
        if name.endswith(self._apex) and _on_label(name, self._apex):
            return True
        if name in self._claims or hosts.wildcard(name) in self._claims:
            return True
        if not name.endswith(_REVERSE):
            return False
        octets = [label.decode("ascii", "replace") for label in wire.labels(name)[:-2]]
        try:
            address = IPv4Address(".".join(reversed(octets)))
        except ValueError:
            return False
        return any(address in network for network in self._networks)

    def fast(self, packet: bytes) -> bytes | None:
        """The answer to a plain query of a known name; None sends it the long way."""
        if packet[2:12] != _PLAIN:
            return None
        question = packet[12:]
        variants = self._prebuilt.get(question[:-4].lower() + question[-4:])
        if variants is None:
            return None
        header, tail = next(variants)
        return packet[:2] + header + question + tail

    def resolve(self, query: Query) -> Resolution | None:
        """What we know about the question; None when it is not ours to answer."""
        if not self.is_ours(query.name):
            return None
        result = Resolution()
        name, owner = query.name, POINTER_TO_QUESTION
        while (alias := self._alias(name, query.type)) is not None:
            if len(result.answers) == _LONGEST_CHAIN:
                return Resolution(wire.SERVFAIL)  # round and round
            result.answers.append(wire.encode_record(owner, alias))
            name = owner = alias.data
            if not self.is_ours(name):
                result.alias = name
                return result
        found = self._records_at(name)
        wanted = [r for r in found if query.type in (r.type, wire.ANY)]
        if name == self._apex and query.type in (wire.SOA, wire.ANY):
            wanted.append(self._soa())
        result.answers += [wire.encode_record(owner, record) for record in wanted]
        if not wanted:
            result.authorities.append(wire.encode_record(self._apex, self._soa()))
            if not found and not self._exists(name):
                result.code = wire.NXDOMAIN
        result.additionals = self._glue(wanted)
        return result

    def _alias(self, name: bytes, type_: int) -> Record | None:
        if type_ in (wire.CNAME, wire.ANY):
            return None
        return next((r for r in self.records(name) if r.type == wire.CNAME), None)

    def _glue(self, wanted: Sequence[Record]) -> list[bytes]:
        """The addresses of SRV targets, which save the client its next query."""
        targets = {r.data[6:]: None for r in wanted if r.type == wire.SRV}
        return [
            wire.encode_record(target, record)
            for target in targets
            for record in self.records(target)
            if record.type == wire.A
        ]

    def _records_at(self, name: bytes) -> list[Record]:
        found = self.records(name) or self._pod_records(name)
        return found or self.records(hosts.wildcard(name))

    def _pod_records(self, name: bytes) -> list[Record]:
        """`10-244-1-7.NAMESPACE.pod.cluster.local`: the address is in the name itself."""
        if not name.endswith(self._pods):
            return []
        parts = wire.labels(name[: -len(self._pods)] + b"\0")
        if len(parts) != 2:
            return []
        try:
            address = wire.a_data(parts[0].decode("ascii", "replace").replace("-", "."))
        except wire.FormatError:
            return []
        return [Record(wire.A, TTL_S, address)]

    def _exists(self, name: bytes) -> bool:
        return name in self._names or _parent(name) == self._pods

    def _soa(self) -> Record:
        primary = wire.encode_name(f"ns.dns.{self.domain}")
        mailbox = wire.encode_name(f"hostmaster.{self.domain}")
        return Record(wire.SOA, TTL_S, wire.soa_data(primary, mailbox, TTL_S))


def _parent(name: bytes) -> bytes:
    return name[1 + name[0] :] if name and name[0] else b""


def _on_label(name: bytes, suffix: bytes) -> bool:
    """Does the suffix begin where a label does? Bytes inside a label may look like one."""
    start = len(name) - len(suffix)
    at = 0
    while at < start:
        at += 1 + name[at]
    return at == start
