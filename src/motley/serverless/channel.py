"""HTTP to instances: kept connections, answers as they come.

Invariant: `NotStarted` is raised only when no line of the function can have run.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httptools
import msgspec

from motley.lib import journal

log = journal.get(__name__)

_CONNECT_TIMEOUT_S = 2.0
_IDLE_PER_INSTANCE = 64
_HIGH_WATER = 1 << 20


class NotStarted(Exception):
    """The call did not begin there: another instance may have it."""


class Lost(Exception):
    """The instance went away in the middle: nobody knows how far the call came."""


class Answer:
    """An instance's answer; its body may still be on the way."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = bytearray()
        self.is_complete = False
        self.is_broken = False
        self._news = asyncio.Event()
        self._connection: Connection | None = None

    def arrived(self) -> None:
        """Wake whoever reads."""
        self._news.set()

    async def whole(self) -> bytes:
        """The whole body. Raises Lost."""
        return b"".join([part async for part in self.parts()])

    async def parts(self) -> AsyncIterator[bytes]:
        """The body as it comes. Raises Lost."""
        while True:
            if self.body:
                part = bytes(self.body)
                self.body.clear()
                if self._connection is not None:
                    self._connection.resume()
                yield part
            elif self.is_complete:
                return
            elif self.is_broken:
                raise Lost("the instance broke off its answer")
            else:
                self._news.clear()
                await self._news.wait()

    def json(self, body: bytes) -> Any:
        """The body as JSON, or as text where it is not."""
        try:
            return msgspec.json.decode(body)
        except msgspec.DecodeError:
            return body.decode(errors="replace")


class Connection(asyncio.Protocol):
    """One connection: one exchange at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._parser: Any = None
        self._answer: Answer | None = None
        self._head: asyncio.Future[Answer] | None = None
        self.is_closed = False
        self.got_bytes = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        """The instance closed it, or is gone."""
        self.is_closed = True
        if self._head is not None and not self._head.done():
            self._head.set_exception(Lost(str(exc or "the instance closed the connection")))
        if self._answer is not None and not self._answer.is_complete:
            self._answer.is_broken = True
            self._answer.arrived()

    def data_received(self, data: bytes) -> None:
        """A part of the answer."""
        self.got_bytes = True
        if self._parser is None:
            self.close()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.close()

    def request(self, data: bytes) -> asyncio.Future[Answer]:
        """Send a request; the answer's head."""
        self._answer = Answer()
        self._answer._connection = self
        self._parser = httptools.HttpResponseParser(self)
        self._head = asyncio.get_running_loop().create_future()
        self.got_bytes = False
        self._transport.write(data)
        return self._head

    def on_header(self, name: bytes, value: bytes) -> None:
        """The parser's."""
        assert self._answer is not None
        self._answer.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The parser's."""
        assert self._answer is not None
        assert self._head is not None
        self._answer.status = self._parser.get_status_code()
        if not self._head.done():
            self._head.set_result(self._answer)

    def on_body(self, data: bytes) -> None:
        """The parser's."""
        assert self._answer is not None
        self._answer.body += data
        if len(self._answer.body) > _HIGH_WATER:
            self._transport.pause_reading()
        self._answer.arrived()

    def on_message_complete(self) -> None:
        """The parser's."""
        assert self._answer is not None
        self._answer.is_complete = True
        self._answer.arrived()

    @property
    def is_idle(self) -> bool:
        """May another exchange begin?"""
        return not self.is_closed and (self._answer is None or self._answer.is_complete)

    def resume(self) -> None:
        """What came was read."""
        if not self.is_closed and not self._transport.is_reading():
            self._transport.resume_reading()

    def close(self) -> None:
        """Leave."""
        if not self.is_closed:
            self._transport.close()


class Channels:
    """Connections to instances, by address."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: dict[str, list[Connection]] = {}

    async def ask(
        self,
        address: str,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes = b"",
    ) -> tuple[Answer, Connection]:
        """Send and wait for the answer's head; give the connection back with `keep`.

        Raises NotStarted when nobody is there, Lost when somebody was.
        """
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        host = f"{address}:{self._port}"
        size = len(body)
        head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {size}\r\n{lines}\r\n"
        data = head.encode("latin-1", "replace") + body
        connection = self._kept(address)
        if connection is not None:
            try:
                return await connection.request(data), connection
            except Lost:
                # Kept connections are closed by instances that end, and by those that were idle
                # for long. The same id makes it safe to ask once more.
                log.debug("kept connection was closed", address=address)
            except asyncio.CancelledError:
                connection.close()
                raise
        connection = await self._connect(address)
        try:
            return await connection.request(data), connection
        except asyncio.CancelledError:
            connection.close()
            raise

    def keep(self, address: str, connection: Connection) -> None:
        """The exchange is over; the connection serves the next one."""
        idle = self._idle.setdefault(address, [])
        if connection.is_idle and len(idle) < _IDLE_PER_INSTANCE:
            idle.append(connection)
        else:
            connection.close()

    def forget(self, address: str) -> None:
        """The instance is gone."""
        for connection in self._idle.pop(address, ()):
            connection.close()

    def close(self) -> None:
        """Leave everybody."""
        for address in list(self._idle):
            self.forget(address)

    def _kept(self, address: str) -> Connection | None:
        idle = self._idle.get(address)
        while idle:
            connection = idle.pop()
            if connection.is_idle:
                return connection
        return None

    async def _connect(self, address: str) -> Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                _, connection = await loop.create_connection(Connection, address, self._port)
        except (OSError, TimeoutError) as error:
            raise NotStarted(f"{address}: {error or 'no answer'}") from error
        return connection
