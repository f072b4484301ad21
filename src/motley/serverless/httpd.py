"""The router's HTTP server: as little as possible between a caller and an instance.

One coroutine per request, bodies collected up to a limit, answers whole or in chunks. A web
framework here would cost more than the routing itself.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any

import httptools
import msgspec

from motley.lib import journal

log = journal.get(__name__)

_MOST_HEAD = 32 << 10
_DRAIN_S = 10.0


class Request(msgspec.Struct, gc=False):
    """One request, whole."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    certificate: dict[str, Any] | None = None


Handle = Callable[[Request, "Caller"], Awaitable[None]]


class Caller(asyncio.Protocol):
    """One connection; requests are answered one after the other."""

    def __init__(self, server: "Server") -> None:
        self._server = server
        self._transport: Any = None
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._headers: dict[str, str] = {}
        self._body = bytearray()
        self._is_too_large = False
        self._head_size = 0
        self._ready: list[Request] = []
        self._is_busy = False
        self._keep = True
        self._can_write = asyncio.Event()
        self._can_write.set()
        self.is_closed = False
        self.began = False  # an answer's head has left

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody called."""
        self._transport = transport
        self._server.callers.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """They went."""
        self.is_closed = True
        self._can_write.set()
        self._server.callers.discard(self)

    def pause_writing(self) -> None:
        """They read slowly."""
        self._can_write.clear()

    def resume_writing(self) -> None:
        """They read again."""
        self._can_write.set()

    def data_received(self, data: bytes) -> None:
        """Bytes of a request."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse(400, "upgrades are not served here")
        except httptools.HttpParserError:
            self._refuse(400, "this is not HTTP")

    def on_url(self, url: bytes) -> None:
        """The parser's."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """The parser's."""
        self._head_size += len(name) + len(value)
        if self._head_size > _MOST_HEAD:
            self._refuse(431, "the headers are too long")
            return
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The parser's."""
        try:
            length = int(self._headers.get("content-length", "0"))
        except ValueError:
            length = 0
        if length > self._server.most_bytes:
            self._too_large()
        elif self._headers.get("expect", "").lower() == "100-continue":
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, data: bytes) -> None:
        """The parser's."""
        if self._is_too_large:
            return
        self._body += data
        if len(self._body) > self._server.most_bytes:
            self._too_large()

    def _too_large(self) -> None:
        self._is_too_large = True
        most = self._server.most_bytes
        self._refuse(413, f"the body is larger than {most} bytes; pass a reference to it instead")

    def on_message_complete(self) -> None:
        """The parser's."""
        if self._is_too_large or self.is_closed:
            return
        method = self._parser.get_method().decode()
        certificate = self._transport.get_extra_info("peercert")
        request = Request(
            method, self._url.decode("latin-1"), self._headers, bytes(self._body), certificate
        )
        self._keep = self._parser.should_keep_alive()
        self._url, self._headers, self._head_size = b"", {}, 0
        self._body = bytearray()
        self._ready.append(request)
        if self._is_busy:
            self._transport.pause_reading()  # one after the other
        else:
            self._begin()

    def _begin(self) -> None:
        self._is_busy = True
        self.began = False
        self._server.start(self._answer(self._ready.pop(0)))

    async def _answer(self, request: Request) -> None:
        try:
            await self._server.handle(request, self)
        except asyncio.CancelledError:
            self.close()
            raise
        except Exception as error:
            log.error("request failed", exc_info=error, path=request.path)
            if not self.began:
                self.error(500, "InternalError", "the router failed; its log says how")
            self.close()
        self._is_busy = False
        if not self._keep or self._server.is_draining:
            self.close()
        elif self._ready and not self.is_closed:
            self._transport.resume_reading()
            self._begin()

    def _refuse(self, code: int, message: str) -> None:
        if not self.is_closed and not self._is_busy:
            self._keep = False
            self.error(code, HTTPStatus(code).phrase.replace(" ", ""), message)
            self._linger()

    def _linger(self) -> None:
        """Read on for a moment: a caller that still sends would not see the answer otherwise."""
        asyncio.get_running_loop().call_later(2.0, self.close)

    def send(
        self, code: int, kind: str, body: bytes, headers: Mapping[str, str] | None = None
    ) -> None:
        """A whole answer."""
        if not self.is_closed:
            self.began = True
            more = f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
            self._transport.write(self._head(code, more, headers) + body)

    def json(self, code: int, value: Any, headers: Mapping[str, str] | None = None) -> None:
        """A whole answer, as JSON."""
        self.send(code, "application/json", msgspec.json.encode(value), headers)

    def error(
        self, code: int, kind: str, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        """What went wrong, for a program and for a person."""
        self.json(code, {"error": {"type": kind, "message": message}}, headers)

    def begin(self, code: int, kind: str, headers: Mapping[str, str]) -> None:
        """An answer whose end is not known yet."""
        if not self.is_closed:
            self.began = True
            more = f"Content-Type: {kind}\r\nTransfer-Encoding: chunked\r\n"
            self._transport.write(self._head(code, more, headers))

    async def chunk(self, data: bytes) -> None:
        """A part of it, as fast as the caller reads."""
        if data and not self.is_closed:
            self._transport.write(b"%x\r\n%b\r\n" % (len(data), data))
            await self._can_write.wait()

    def end(self) -> None:
        """Its end."""
        if not self.is_closed:
            self._transport.write(b"0\r\n\r\n")

    def close(self) -> None:
        """Leave; what was written still goes out."""
        if not self.is_closed and self._transport is not None:
            self._transport.close()

    def _head(self, code: int, more: str, headers: Mapping[str, str] | None) -> bytes:
        extra = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        last = "" if self._keep else "Connection: close\r\n"
        phrase = HTTPStatus(code).phrase
        return f"HTTP/1.1 {code} {phrase}\r\n{more}{extra}{last}\r\n".encode("latin-1", "replace")


class Server:
    """Listens; requests are coroutines of its task group."""

    def __init__(self, handle: Handle, most_bytes: int) -> None:
        self.handle = handle
        self.most_bytes = most_bytes
        self.callers: set[Caller] = set()
        self.is_draining = False
        self._group: asyncio.TaskGroup
        self._requests: set[asyncio.Task[None]] = set()
        self.port = 0

    def start(self, request: Any) -> None:
        """Run a request's coroutine."""
        task = self._group.create_task(request)
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)

    async def run(self, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        """Serve until cancelled; then requests under way get a few seconds to end."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as self._group:
            listener = await loop.create_server(
                lambda: Caller(self), host, port, ssl=tls, backlog=1024
            )
            self.port = listener.sockets[0].getsockname()[1]
            log.info("router listens", host=host, port=self.port, tls=tls is not None)
            try:
                await asyncio.Event().wait()
            finally:
                self.is_draining = True
                listener.close()
                if self._requests:
                    await asyncio.wait(self._requests, timeout=_DRAIN_S)
                for caller in list(self.callers):
                    caller.close()
                for task in list(self._requests):
                    task.cancel()
