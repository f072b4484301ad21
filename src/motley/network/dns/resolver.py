"""From a packet to an answer: our zone first, the world outside after it.

What can be answered at once is answered in the caller's turn of the event loop; only a question
for the outside waits. Invariant: every readable query gets exactly one answer.
"""

from dataclasses import dataclass

from motley.lib import journal
from motley.network.dns import wire
from motley.network.dns.forward import Forwarder, Unanswered
from motley.network.dns.wire import Query
from motley.network.dns.zone import Resolution, Zone

log = journal.get(__name__)


@dataclass(frozen=True)
class Waiting:
    """A query that needs an upstream: pass it to `finish`."""

    query: Query
    resolution: Resolution | None


class Resolver:
    """Answers packets; knows neither sockets nor the API."""

    def __init__(self, zone: Zone, forwarder: Forwarder) -> None:
        self._zone = zone
        self._forwarder = forwarder
        self.is_ready = False  # before the first Services are known, absence proves nothing

    def answer(self, packet: bytes, *, tcp: bool = False) -> bytes | Waiting | None:
        """The answer, a query that must wait, or None for a packet not worth one."""
        if self.is_ready and (quick := self._zone.fast(packet)) is not None:
            return quick
        try:
            query = wire.parse_query(packet)
        except wire.FormatError:
            return wire.failure(packet, wire.FORMERR)
        if query.flags & wire.QR:
            return None
        if query.flags & wire.OPCODE:
            return wire.response(query, code=wire.NOTIMP, authoritative=False)
        if query.class_ != wire.IN:
            return wire.response(query, code=wire.REFUSED, authoritative=False)
        resolution = self._zone.resolve(query)
        if resolution is not None and not self.is_ready:
            return wire.response(query, code=wire.SERVFAIL, authoritative=False)
        if resolution is not None and resolution.alias is None:
            return _write(query, resolution, tcp)
        if resolution is None and (known := self._forwarder.remembered(query)) is not None:
            return _fit(query, known, tcp)
        return Waiting(query, resolution)

    async def finish(self, waiting: Waiting, *, tcp: bool = False) -> bytes:
        """Ask upstream; SERVFAIL when nobody answers."""
        query, resolution = waiting.query, waiting.resolution
        try:
            if resolution is None:
                return _fit(query, await self._forwarder.ask(query, tcp=tcp), tcp)
            return await self._follow(query, resolution, tcp)
        except (Unanswered, wire.FormatError) as error:
            name = wire.decode_name(query.name)
            log.debug("name is not answered upstream", name=name, error=error)
            return wire.response(query, code=wire.SERVFAIL, authoritative=False)

    async def _follow(self, query: Query, resolution: Resolution, tcp: bool) -> bytes:
        """An ExternalName: our CNAME, and what the outside says about its target."""
        assert resolution.alias is not None
        question = resolution.alias + query.question[-4:]
        outside = query._replace(name=resolution.alias, question=question, edns=False)
        answer = self._forwarder.remembered(outside)
        if answer is None:
            answer = await self._forwarder.ask(outside)
        if wire.is_truncated(answer):
            answer = await self._forwarder.ask(outside, tcp=True)
        code, found = wire.addresses_of(answer)
        resolution.code = code
        resolution.answers += found
        return _write(query, resolution, tcp)

    def overloaded(self, waiting: Waiting) -> bytes:
        """The answer when too many queries wait already."""
        return wire.response(waiting.query, code=wire.SERVFAIL, authoritative=False)


def _write(query: Query, resolution: Resolution, tcp: bool) -> bytes:
    return wire.response(
        query,
        code=resolution.code,
        answers=resolution.answers,
        authorities=resolution.authorities,
        additionals=resolution.additionals,
        limit=None if tcp else query.udp_size,
    )


def _fit(query: Query, answer: bytes, tcp: bool) -> bytes:
    """An upstream's answer, or an empty one with TC where the client takes less by UDP."""
    if tcp or len(answer) <= query.udp_size:
        return answer
    return wire.response(query, authoritative=False, truncated=True)
