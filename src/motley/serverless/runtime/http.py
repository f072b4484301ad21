"""As much of HTTP/1.1 as an instance needs: sized bodies, kept connections, chunked answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

_MOST_HEAD = 64 << 10
_PHRASES = {
    200: "OK",
    202: "Accepted",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    409: "Conflict",
    411: "Length Required",
    413: "Content Too Large",
    422: "Unprocessable Content",
    500: "Internal Server Error",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}


class Request:
    """One request, whole."""

    def __init__(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        self.method = method
        self.path = path
        self.headers = headers
        self.body = body


Handle = Callable[[Request, "Connection"], Awaitable[None]]


class Connection(asyncio.Protocol):
    """One caller; requests are answered one after the other."""

    def __init__(self, handle: Handle, most_bytes: int, open_: set[Connection]) -> None:
        self._handle = handle
        self._most_bytes = most_bytes
        self._open = open_
        self._buffer = bytearray()
        self._head: Request | None = None
        self._missing = 0
        self._is_busy = False
        self._keep = True
        self._writable = asyncio.Event()
        self._writable.set()
        self._transport: asyncio.Transport
        self._tasks: set[Any] = set()
        self.is_closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody called."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """They went; what was begun for them goes on."""
        self.is_closed = True
        self._writable.set()
        self._open.discard(self)

    def pause_writing(self) -> None:
        """They read slowly."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """They read again."""
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        """Collect until a request is whole."""
        self._buffer += data
        if not self._is_busy:
            self._next()
        elif len(self._buffer) > self._most_bytes + _MOST_HEAD:
            self._transport.close()

    def _next(self) -> None:
        if self._head is None and not self._parse():
            return
        head = self._head
        if head is None or len(self._buffer) < self._missing:
            return
        head.body = bytes(self._buffer[: self._missing])
        del self._buffer[: self._missing]
        self._head = None
        self._is_busy = True
        task = asyncio.get_running_loop().create_task(self._answered(head))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _parse(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > _MOST_HEAD:
                self._refuse(400, "the request's head is too long")
            return False
        lines = bytes(self._buffer[:end]).decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        try:
            method, path, version = lines[0].split(" ")
            headers = {}
            for line in lines[1:]:
                name, _, value = line.partition(":")
                headers[name.strip().lower()] = value.strip()
            self._missing = int(headers.get("content-length", "0"))
        except ValueError:
            self._refuse(400, "this is not HTTP")
            return False
        if "transfer-encoding" in headers:
            self._refuse(411, "a body needs a Content-Length")
            return False
        if self._missing > self._most_bytes or self._missing < 0:
            self._refuse(413, f"the body is larger than {self._most_bytes} bytes")
            return False
        self._keep = version == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
        self._head = Request(method, path, headers, b"")
        if headers.get("expect", "").lower() == "100-continue":
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return True

    async def _answered(self, request: Request) -> None:
        try:
            await self._handle(request, self)
        finally:
            self._is_busy = False
            if not self._keep:
                self._transport.close()
            elif self._buffer and not self.is_closed:
                self._next()

    def _refuse(self, code: int, message: str) -> None:
        self._keep = False
        self.send_error(code, {"type": _PHRASES[code], "message": message})
        self._transport.close()

    def send(
        self, code: int, kind: str, body: bytes, headers: dict[str, str] | None = None
    ) -> None:
        """A whole answer."""
        if not self.is_closed:
            more = f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
            self._transport.write(_head(code, more, headers) + body)

    def send_json(self, code: int, value: Any, headers: dict[str, str] | None = None) -> None:
        """A whole answer, as JSON."""
        self.send(code, "application/json", json.dumps(value).encode(), headers)

    def send_error(
        self, code: int, error: dict[str, Any], headers: dict[str, str] | None = None
    ) -> None:
        """What went wrong, for a program and for a person."""
        self.send_json(code, {"error": error}, headers)

    def begin(self, kind: str, headers: dict[str, str]) -> None:
        """An answer whose end is not known yet."""
        if not self.is_closed:
            more = f"Content-Type: {kind}\r\nTransfer-Encoding: chunked\r\n"
            self._transport.write(_head(200, more, headers))

    async def chunk(self, data: bytes) -> None:
        """A part of it, as fast as the caller reads; an empty one is left out."""
        if data and not self.is_closed:
            self._transport.write(b"%x\r\n%b\r\n" % (len(data), data))
            await self._writable.wait()

    def end(self) -> None:
        """Its end."""
        if not self.is_closed:
            self._transport.write(b"0\r\n\r\n")

    def abort(self) -> None:
        """It broke off, and the caller shall see that it did."""
        self._keep = False
        self._transport.close()


def _head(code: int, more: str, headers: dict[str, str] | None) -> bytes:
    extra = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    return f"HTTP/1.1 {code} {_PHRASES[code]}\r\n{more}{extra}\r\n".encode("latin-1")
