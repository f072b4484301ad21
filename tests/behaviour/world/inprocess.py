"""A client whose server is an object in the same process: no sockets, no TLS, no real time.

Everything above the connection is the product's own: retries, errors, decoding, watches. A
request travels half the latency, is handled to its end in a task of the server's (also when who
asked is killed meanwhile), and the answer travels back.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any
from urllib.parse import unquote, urlencode

import msgspec

from motley.api import status
from motley.client import transport
from motley.client.kubeconfig import Config
from motley.client.rest import Client
from motley.lib.clock import Clock


class Before(Exception):
    """A fault: the request never reaches the server, the caller sees this error."""

    def __init__(self, error: status.ApiError) -> None:
        self.error = error


class After(Exception):
    """A fault: the server does what was asked, but the answer is lost."""


Fault = Callable[["Asked"], Before | After | None]


@dataclass(frozen=True)
class Asked:
    """One request: when, by whom, what."""

    at: float
    who: str
    method: str
    path: str
    params: Mapping[str, str]
    body: bytes | None = None


@dataclass(frozen=True)
class Answered:
    """One request and the code it was answered with."""

    asked: Asked
    code: int


@dataclass
class Wire:
    """What lies between the clients and the server, for the test to disturb."""

    clock: Clock
    latency_s: float = 0.0
    fault: Fault | None = None
    app: Any = None
    handlers: asyncio.TaskGroup | None = None
    log: list[Answered] = field(default_factory=list)
    streams: dict["Stream", None] = field(default_factory=dict)

    def cut_watches(self, who: str = "", path: str = "") -> int:
        """Break the watches of a client (and of a path); how many there were."""
        cut = [s for s in self.streams if s.who.startswith(who) and path in s.path]
        for stream in cut:
            stream.cut()
        return len(cut)

    async def travel(self) -> None:
        if self.latency_s:
            await self.clock.sleep(self.latency_s / 2)

    async def arrival(self, sent_at: float) -> None:
        """Wait until what was sent then is here."""
        left_s = sent_at + self.latency_s / 2 - self.clock.monotonic()
        if self.latency_s and left_s > 0:
            await self.clock.sleep(left_s)

    def faulted(self, asked: Asked) -> Before | After | None:
        return self.fault(asked) if self.fault is not None else None

    def serve(self, scope: dict[str, Any], receive: Any, send: Any) -> asyncio.Task[None]:
        if self.app is None or self.handlers is None:
            raise transport._Unreached("connection refused")
        return self.handlers.create_task(self.app(scope, receive, send))


class Stream:
    """One watch, seen by the client's side."""

    def __init__(self, who: str, path: str, clock: Clock) -> None:
        self.who = who
        self.path = path
        self.code = 0
        self._clock = clock
        # With the time they were sent at; unbounded: tests are small.
        self.chunks: asyncio.Queue[tuple[float, bytes] | None] = asyncio.Queue()
        self.left = asyncio.Event()
        self.broken = False

    async def receive(self) -> dict[str, Any]:
        if not self.code:
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.code = message["status"]
        else:
            if body := message.get("body"):
                self.chunks.put_nowait((self._clock.monotonic(), body))
            if not message.get("more_body"):
                self.chunks.put_nowait(None)

    def cut(self) -> None:
        self.broken = True
        self.left.set()
        self.chunks.put_nowait(None)


class InProcess(transport.Transport):
    """`Transport` without its sockets."""

    def __init__(self, config: Config, who: str, clock: Clock, rng: Random, wire: Wire) -> None:
        super().__init__(config, who, clock, rng)
        self._who = who
        self._wire = wire
        self.dead = False

    def open(self) -> None:
        """There is nothing to open."""

    async def close(self) -> None:
        """There is nothing to close."""

    def _scope(
        self, asked: Asked, params: Mapping[str, str] | None, kinds: Mapping[str, str]
    ) -> dict[str, Any]:
        if self.dead:
            raise transport._Unreached("this process was killed")
        headers = {**self._headers(), "User-Agent": self._who, **kinds}
        return {
            "type": "http",
            "method": asked.method,
            "path": unquote(asked.path),
            "query_string": urlencode(dict(params or {})).encode(),
            "headers": [(k.lower().encode(), v.encode()) for k, v in headers.items()],
            "state": {},
        }

    async def _once(
        self,
        server: str,
        method: str,
        path: str,
        data: bytes | None,
        params: Mapping[str, str] | None,
        kinds: Mapping[str, str],
        timeout_s: float,
    ) -> bytes:
        async with self._slots:
            wire = self._wire
            await wire.travel()
            asked = Asked(self._clock.monotonic(), self._who, method, path, params or {}, data)
            scope = self._scope(asked, params, kinds)
            fault = wire.faulted(asked)
            if isinstance(fault, Before):
                wire.log.append(Answered(asked, fault.error.code))
                raise fault.error
            parts: list[bytes] = []
            code = 0

            async def receive() -> dict[str, Any]:
                return {"type": "http.request", "body": data or b"", "more_body": False}

            async def send(message: Mapping[str, Any]) -> None:
                nonlocal code
                if message["type"] == "http.response.start":
                    code = message["status"]
                    wire.log.append(Answered(asked, code))
                else:
                    parts.append(message.get("body", b""))

            await asyncio.shield(wire.serve(scope, receive, send))
            if isinstance(fault, After):
                raise transport._Interrupted(f"{method} {path}: answer lost")
            await wire.travel()
            body = b"".join(parts)
            if code >= 400:
                raise _error(code, body)
            return body

    async def lines(
        self, path: str, params: Mapping[str, str], silence_s: float
    ) -> AsyncGenerator[bytes, None]:
        """The lines of a watch, until the server or the test ends it."""
        wire = self._wire
        await wire.travel()
        asked = Asked(self._clock.monotonic(), self._who, "WATCH", path, params)
        scope = self._scope(asked, params, {})
        scope["method"] = "GET"
        fault = wire.faulted(asked)
        if isinstance(fault, Before):
            raise fault.error
        stream = Stream(self._who, path, self._clock)
        wire.streams[stream] = None
        wire.serve(scope, stream.receive, stream.send)
        rest = b""
        try:
            while not stream.broken and (sent := await stream.chunks.get()) is not None:
                at, chunk = sent
                await wire.arrival(at)
                *whole, rest = (rest + chunk).split(b"\n")
                if stream.code != 200:
                    raise _error(stream.code, chunk)
                for line in whole:
                    if line and not stream.broken:
                        yield line
            if stream.broken:
                raise status.ServiceUnavailable(f"watch {path}: connection cut")
        finally:
            stream.left.set()
            wire.streams.pop(stream, None)


class InProcessClient(Client):
    """The product's client on an `InProcess` transport."""

    def __init__(self, wire: Wire, who: str, *, token: str, rng: Random) -> None:
        config = Config(server="http://in-process", token=token)
        super().__init__(config, user_agent=who, clock=wire.clock, rng=rng)
        self._transport = InProcess(config, who, wire.clock, rng, wire)
        self._call = self._transport.call

    def kill(self) -> None:
        """From now on nothing of this client's reaches the server, as after `kill -9`."""
        self._transport.dead = True


def _error(code: int, body: bytes) -> status.ApiError:
    try:
        document = msgspec.json.decode(body)
    except msgspec.DecodeError:
        document = {"message": body.decode(errors="replace")}
    error = status.from_status(document, code)
    return error
