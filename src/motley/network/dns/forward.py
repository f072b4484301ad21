"""Names outside the cluster: asked of the host's name servers, remembered for their TTL.

Every question goes out with a fresh id from a fresh port, and only an answer with that id and
that question is believed. Invariant: memory is bounded, and every question ends within
`len(upstreams) * timeout_s`.
"""

import asyncio
import ipaddress
import struct
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random, SystemRandom
from typing import NamedTuple

from motley.lib import clock as clocks
from motley.lib import journal
from motley.network.dns import wire
from motley.network.dns.wire import Query

log = journal.get(__name__)

_LONGEST_S = 300  # an answer is asked for again after five minutes, whatever its TTL says
_LONGEST_NEGATIVE_S = 30


class Unanswered(Exception):
    """No upstream gave an answer; the message says why the last one did not."""


class Upstream(NamedTuple):
    """A name server to ask."""

    host: str
    port: int = 53


def parse_upstream(text: str) -> Upstream:
    """`10.0.0.53` or `10.0.0.53:5353`, `[fe80::1]:53`; ValueError for anything else."""
    host, port = text, 53
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = int(rest.removeprefix(":") or 53)
    elif text.count(":") == 1:
        host, _, number = text.partition(":")
        port = int(number)
    ipaddress.ip_address(host)
    if not 0 < port < 65536:
        raise ValueError(f"port {port} is out of range")
    return Upstream(host, port)


def from_resolv_conf(text: str, *, ourselves: str) -> list[Upstream]:
    """The name servers a resolv.conf lists, without ourselves."""
    found = []
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 2 and words[0] == "nameserver" and words[1] != ourselves:
            try:
                found.append(parse_upstream(words[1]))
            except ValueError:
                log.warning("nameserver line is not understood", line=line)
    return found


class HostUpstreams:
    """The host's own name servers, read again when its resolv.conf changes."""

    def __init__(self, ourselves: str, path: Path = Path("/etc/resolv.conf")) -> None:
        self._ourselves = ourselves
        self._path = path
        self._stamp: tuple[int, int] | None = None
        self._found: Sequence[Upstream] = ()

    def __call__(self) -> Sequence[Upstream]:
        """The servers to ask now."""
        try:
            status = self._path.stat()
            stamp = (status.st_mtime_ns, status.st_ino)
            if stamp != self._stamp:
                text = self._path.read_text(errors="replace")
                self._found = from_resolv_conf(text, ourselves=self._ourselves)
                self._stamp = stamp
        except FileNotFoundError:
            self._found = ()
        return self._found


class _Remembered(NamedTuple):
    packet: bytes
    ttl_offsets: tuple[int, ...]
    stored: float
    expires: float


class Cache:
    """Answers by question, the oldest dropped when there are too many."""

    def __init__(self, capacity: int, clock: clocks.Clock) -> None:
        self._capacity = capacity
        self._clock = clock
        self._entries: OrderedDict[tuple[object, ...], _Remembered] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, query: Query) -> bytes | None:
        """The answer as this query should see it: its id, its spelling, the TTL that is left."""
        entry = self._entries.get(_cache_key(query))
        if entry is None:
            return None
        now = self._clock.monotonic()
        if now >= entry.expires:
            del self._entries[_cache_key(query)]
            return None
        packet = bytearray(entry.packet)
        struct.pack_into("!H", packet, 0, query.id)
        packet[12 : 12 + len(query.question)] = query.question
        age = int(now - entry.stored)
        for offset in entry.ttl_offsets:
            (ttl,) = struct.unpack_from("!I", packet, offset)
            struct.pack_into("!I", packet, offset, max(0, ttl - age))
        return bytes(packet)

    def put(self, query: Query, packet: bytes) -> None:
        """Remember an answer that says how long it holds."""
        (flags,) = struct.unpack_from("!H", packet, 2)
        code = flags & 0xF
        if flags & wire.TC or code not in (wire.NOERROR, wire.NXDOMAIN):
            return
        try:
            offsets, smallest = wire.ttl_offsets(packet)
        except wire.FormatError:
            return
        if not smallest:
            return
        has_answers = code == wire.NOERROR and packet[6:8] != b"\0\0"
        ttl = min(smallest, _LONGEST_S if has_answers else _LONGEST_NEGATIVE_S)
        now = self._clock.monotonic()
        key = _cache_key(query)
        self._entries[key] = _Remembered(packet, tuple(offsets), now, now + ttl)
        self._entries.move_to_end(key)
        if len(self._entries) > self._capacity:
            self._entries.popitem(last=False)


def _cache_key(query: Query) -> tuple[object, ...]:
    return (query.name, query.type, query.class_, query.edns, query.flags & wire.CD)


class Forwarder:
    """Asks upstream servers, one after the other."""

    def __init__(
        self,
        upstreams: Callable[[], Sequence[Upstream]],
        *,
        timeout_s: float = 2.0,
        cache_size: int = 10_000,
        clock: clocks.Clock = clocks.SYSTEM,
        rng: Random | None = None,
    ) -> None:
        self._upstreams = upstreams
        self._timeout_s = timeout_s
        self._cache = Cache(cache_size, clock)
        self._rng = rng or SystemRandom()  # ids must not be guessable

    def remembered(self, query: Query) -> bytes | None:
        """The answer if it is in the cache."""
        return self._cache.get(query)

    async def ask(self, query: Query, *, tcp: bool = False) -> bytes:
        """The answer of the first upstream that gives one; raises Unanswered."""
        reason = "no upstream name server is configured"
        for upstream in self._upstreams():
            number = self._rng.randrange(0x10000)
            packet = _question(query, number)
            try:
                async with asyncio.timeout(self._timeout_s):
                    exchange = _exchange_tcp if tcp else _exchange_udp
                    answer = await exchange(upstream, packet, number, query)
            except (OSError, TimeoutError, EOFError) as error:
                reason = f"{upstream.host}: {str(error) or type(error).__name__}"
                continue
            self._cache.put(query, answer)
            return struct.pack("!H", query.id) + answer[2:]
        raise Unanswered(reason)


def _question(query: Query, number: int) -> bytes:
    flags = wire.RD | (query.flags & wire.CD)
    opt = wire.encode_opt() if query.edns else b""
    return struct.pack("!HHHHHH", number, flags, 1, 0, 0, 1 if opt else 0) + query.question + opt


def _matches(answer: bytes, number: int, query: Query) -> bool:
    if len(answer) < 12 + len(query.question):
        return False
    id_, flags, questions = struct.unpack_from("!HHH", answer)
    asked = answer[12 : 12 + len(query.question)]
    same = asked[:-4].lower() == query.name and asked[-4:] == query.question[-4:]
    return id_ == number and bool(flags & wire.QR) and questions == 1 and same


class _Answer(asyncio.DatagramProtocol):
    def __init__(self, number: int, query: Query) -> None:
        self._number = number
        self._query = query
        self.received: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def datagram_received(self, data: bytes, addr: object) -> None:
        if not self.received.done() and _matches(data, self._number, self._query):
            self.received.set_result(data)

    def error_received(self, exc: Exception) -> None:
        if not self.received.done():
            self.received.set_exception(exc)


async def _exchange_udp(upstream: Upstream, packet: bytes, number: int, query: Query) -> bytes:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.create_datagram_endpoint(
        lambda: _Answer(number, query), remote_addr=(upstream.host, upstream.port)
    )
    try:
        transport.sendto(packet)
        return await protocol.received
    finally:
        transport.close()


async def _exchange_tcp(upstream: Upstream, packet: bytes, number: int, query: Query) -> bytes:
    reader, writer = await asyncio.open_connection(upstream.host, upstream.port)
    try:
        writer.write(struct.pack("!H", len(packet)) + packet)
        (length,) = struct.unpack("!H", await reader.readexactly(2))
        answer = await reader.readexactly(length)
    finally:
        writer.close()
    if not _matches(answer, number, query):
        raise EOFError("answered another question")
    return answer
