"""DNS by UDP and TCP on the cluster's DNS address.

The address may not exist yet when the server starts (the node agent makes the bridge), so sockets
are bound with IP_FREEBIND. Invariant: no packet, however broken, ends the server, and what waits
for an upstream is bounded.
"""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from motley.lib import clock as clocks
from motley.lib import journal
from motley.lib.backoff import Backoff
from motley.network.dns.resolver import Resolver, Waiting

log = journal.get(__name__)

_IP_FREEBIND = 15
_MOST_WAITING = 1000
_MOST_CONNECTIONS = 200
_IDLE_S = 10.0  # RFC 7766: a few seconds
_RECEIVE_BUFFER = 1 << 20


class DnsServer:
    """Serves a resolver on one address until cancelled."""

    def __init__(
        self,
        resolver: Resolver,
        address: str,
        port: int = 53,
        *,
        clock: clocks.Clock = clocks.SYSTEM,
    ) -> None:
        self._resolver = resolver
        self._address = address
        self._port = port
        self._clock = clock
        self._waiting = 0
        self._connections = 0
        self.is_listening = asyncio.Event()

    async def run(self) -> None:
        """Serve for ever; a port that is taken is tried again, with the reason in the log."""
        backoff = Backoff(base_s=0.2, cap_s=10.0)
        while True:
            try:
                udp, tcp = self._sockets()
            except OSError as error:
                log.warning("DNS cannot listen", address=self._address, error=error)
                await self._clock.sleep(backoff.next())
                continue
            async with asyncio.TaskGroup() as tasks, self._listening(tasks, udp, tcp):
                log.info("DNS listens", address=self._address, port=self._port)
                await asyncio.Event().wait()

    def _sockets(self) -> tuple[socket.socket, socket.socket]:
        udp = _bound(socket.SOCK_DGRAM, self._address, self._port)
        try:
            # With port 0 the kernel chooses one: TCP must have the same.
            self._port = udp.getsockname()[1]
            tcp = _bound(socket.SOCK_STREAM, self._address, self._port)
        except OSError:
            udp.close()
            raise
        udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
        return udp, tcp

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return self._port

    @asynccontextmanager
    async def _listening(
        self, tasks: asyncio.TaskGroup, udp: socket.socket, tcp: socket.socket
    ) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(lambda: _Udp(self, tasks), sock=udp)
        server = await asyncio.start_server(self._serve_connection, sock=tcp)
        self.is_listening.set()
        try:
            yield
        finally:
            self.is_listening.clear()
            transport.close()
            server.close()

    async def answer_later(self, waiting: Waiting, *, tcp: bool) -> bytes:
        """Finish a query that needs an upstream, within the bound on how many may."""
        if self._waiting >= _MOST_WAITING:
            return self._resolver.overloaded(waiting)
        self._waiting += 1
        try:
            return await self._resolver.finish(waiting, tcp=tcp)
        except Exception as error:
            # One name that breaks us must not take the names of all pods with it.
            log.error("DNS query failed", exc_info=error)
            return self._resolver.overloaded(waiting)
        finally:
            self._waiting -= 1

    def answer_now(self, packet: bytes, *, tcp: bool) -> bytes | Waiting | None:
        """Answer at once what can be."""
        try:
            return self._resolver.answer(packet, tcp=tcp)
        except Exception as error:
            log.error("DNS packet failed", exc_info=error, packet=packet[:64].hex())
            return None

    async def _serve_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if self._connections >= _MOST_CONNECTIONS:
            writer.close()
            return
        self._connections += 1
        try:
            while True:
                async with asyncio.timeout(_IDLE_S):
                    (length,) = struct.unpack("!H", await reader.readexactly(2))
                    packet = await reader.readexactly(length)
                    answer = self.answer_now(packet, tcp=True)
                    if isinstance(answer, Waiting):
                        answer = await self.answer_later(answer, tcp=True)
                    if answer is None:
                        return
                    writer.write(struct.pack("!H", len(answer)) + answer)
                    await writer.drain()
        except (asyncio.IncompleteReadError, TimeoutError, ConnectionError):
            pass  # the client is done, silent or gone
        finally:
            self._connections -= 1
            writer.close()


class _Udp(asyncio.DatagramProtocol):
    def __init__(self, server: DnsServer, tasks: asyncio.TaskGroup) -> None:
        self._server = server
        self._tasks = tasks
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        answer = self._server.answer_now(data, tcp=False)
        if isinstance(answer, Waiting):
            self._tasks.create_task(self._later(answer, addr))
        elif answer is not None:
            self._send(answer, addr)

    async def _later(self, waiting: Waiting, addr: tuple[str | Any, int]) -> None:
        self._send(await self._server.answer_later(waiting, tcp=False), addr)

    def _send(self, answer: bytes, addr: tuple[str | Any, int]) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.sendto(answer, addr)

    def error_received(self, exc: Exception) -> None:
        log.debug("DNS client is gone", error=exc)


def _bound(kind: int, address: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET, kind)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_IP, _IP_FREEBIND, 1)
        if kind == socket.SOCK_STREAM:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address, port))
    except OSError:
        sock.close()
        raise
    return sock
