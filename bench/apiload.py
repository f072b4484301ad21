"""The two load clients of `bench/api.py`: one in asyncio, and kload, a program in Go.

Both make the same requests on the same pods, so that figures of either can be compared between
servers (though not with each other: the one in Go is cheaper).
"""

import asyncio
import json
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import uvloop

TOKEN = "bench-token"
WRITES_PER_S = 50
# As many as kload names: p-000000 to p-000999.
KNOWN_PODS = 1000
POD = (
    '{"apiVersion":"v1","kind":"Pod","metadata":{"name":"@NAME@"},"spec":{"containers":[{"image":'
    '"registry.k8s.io/pause:3.10.2","name":"pause","ports":[{"containerPort":80}],"resources":'
    '{"limits":{"cpu":"100m","memory":"500Mi"},"requests":{"cpu":"100m","memory":"500Mi"}}}]}}'
)
MERGE = "application/merge-patch+json"
Request = tuple[str, str, bytes, str]


@dataclass
class Outcome:
    """What a client saw."""

    per_s: float
    p50_ms: float
    p99_ms: float


class Load(Protocol):
    """Makes requests on pods of a namespace; what reads or patches takes p-000000 to p-000999."""

    def create(self, namespace: str, prefix: str, count: int, clients: int) -> Outcome:
        """POST pods `PREFIX-000000` and so on."""

    def get(self, namespace: str, count: int, clients: int) -> Outcome:
        """GET one pod after the other."""

    def patch(self, namespace: str, count: int, clients: int) -> Outcome:
        """Set an annotation by merge patch."""

    def list(self, namespace: str, count: int, clients: int) -> Outcome:
        """GET all pods of the namespace, so many times."""

    def watch(self, namespace: str, count: int, watchers: int) -> Outcome:
        """Patch at a steady rate; the times are from sending one to its event's arrival."""


def _trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class Connection:
    """One kept-alive connection; just as much HTTP as the two servers speak."""

    context = _trusting()

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int) -> "Connection":
        """Connect to a server of this machine, whoever signed its certificate."""
        return cls(
            *await asyncio.open_connection(
                "127.0.0.1", port, ssl=cls.context, server_hostname="", limit=2**26
            )
        )

    def close(self) -> None:
        """Hang up."""
        self._writer.close()

    async def send(self, method: str, path: str, body: bytes = b"", kind: str = "") -> int:
        """Send a request and wait for the head of its answer; the status code."""
        head = (
            f"{method} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\n"
            "accept: application/json\r\nuser-agent: bench\r\n"
            f"content-type: {kind or 'application/json'}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)
        self._head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        return int(self._head[9:12])

    async def call(
        self, method: str, path: str, body: bytes = b"", kind: str = ""
    ) -> tuple[int, bytes]:
        """Send a request and wait for its whole answer."""
        code = await self.send(method, path, body, kind)
        at = self._head.find(b"content-length:")
        if at >= 0:
            length = int(self._head[at + 15 : self._head.index(b"\r\n", at)])
            return code, await self._reader.readexactly(length)
        return code, b"".join([chunk async for chunk in self.chunks()])

    async def chunks(self) -> AsyncIterator[bytes]:
        """The pieces of a chunked answer, as they come."""
        while size := int(await self._reader.readline(), 16):
            yield await self._reader.readexactly(size)
            await self._reader.readexactly(2)
        await self._reader.readline()


def outcome(spent_s: Sequence[float], wall_s: float) -> Outcome:
    ordered = sorted(spent_s)
    return Outcome(
        len(ordered) / wall_s,
        ordered[len(ordered) // 2] * 1e3,
        ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] * 1e3,
    )


class OwnLoad:
    """The client built in: asyncio in this process."""

    def __init__(self, port: int) -> None:
        self._port = port

    def create(self, namespace: str, prefix: str, count: int, clients: int) -> Outcome:
        """See `Load`."""

        def one(i: int) -> Request:
            body = POD.replace("@NAME@", f"{prefix}-{i:06d}").encode()
            return "POST", pods(namespace), body, ""

        return self._fan(count, clients, one)

    def get(self, namespace: str, count: int, clients: int) -> Outcome:
        """See `Load`."""
        return self._fan(count, clients, lambda i: ("GET", pod(namespace, i), b"", ""))

    def patch(self, namespace: str, count: int, clients: int) -> Outcome:
        """See `Load`."""
        return self._fan(count, clients, lambda i: stamped(namespace, i))

    def list(self, namespace: str, count: int, clients: int) -> Outcome:
        """See `Load`."""
        return self._fan(count, clients, lambda i: ("GET", pods(namespace), b"", ""))

    def _fan(self, count: int, clients: int, make: Callable[[int], Request]) -> Outcome:
        seen: Outcome = uvloop.run(self._fanned(count, clients, make))
        return seen

    async def _fanned(self, count: int, clients: int, make: Callable[[int], Request]) -> Outcome:
        numbers = iter(range(count))
        spent: list[float] = []

        async def work(connection: Connection) -> None:
            for number in numbers:
                request = make(number)
                begun = time.perf_counter()
                code, body = await connection.call(*request)
                spent.append(time.perf_counter() - begun)
                if code >= 300:
                    raise SystemExit(f"{request[0]} {request[1]}: {code} {body[:300]!r}")

        connections = [await Connection.open(self._port) for _ in range(clients)]
        for connection in connections:
            await connection.call("GET", "/version")
        begun = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for connection in connections:
                group.create_task(work(connection))
        wall_s = time.perf_counter() - begun
        for connection in connections:
            connection.close()
        return outcome(spent, wall_s)

    def watch(self, namespace: str, count: int, watchers: int) -> Outcome:
        """See `Load`."""
        seen: Outcome = uvloop.run(self._watched(namespace, count, watchers))
        return seen

    async def _watched(self, namespace: str, count: int, watchers: int) -> Outcome:
        writer = await Connection.open(self._port)
        _, body = await writer.call("GET", f"{pods(namespace)}?limit=1")
        revision = json.loads(body)["metadata"]["resourceVersion"]
        delays: list[float] = []

        async def follow(connection: Connection) -> None:
            seen = 0
            async for chunk in connection.chunks():
                now = time.perf_counter_ns()
                for line in chunk.splitlines():
                    at = line.find(b'"bench/t":"')
                    if at >= 0:
                        delays.append((now - int(line[at + 11 : line.index(b'"', at + 11)])) / 1e9)
                        seen += 1
                if seen >= count:
                    return

        path = f"{pods(namespace)}?watch=true&resourceVersion={revision}"
        followers = [await Connection.open(self._port) for _ in range(watchers)]
        for follower in followers:
            await follower.send("GET", path)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(count / WRITES_PER_S + 30), asyncio.TaskGroup() as group:
            for follower in followers:
                group.create_task(follow(follower))
            begun = loop.time()
            for number in range(count):
                await until(begun + number / WRITES_PER_S)
                await writer.call(*stamped(namespace, number))
        for connection in (writer, *followers):
            connection.close()
        return outcome(delays, count / WRITES_PER_S)


async def until(moment: float) -> None:
    """Wait for a moment of the loop's clock."""
    loop = asyncio.get_running_loop()
    reached = loop.create_future()
    loop.call_at(moment, reached.set_result, None)
    await reached


def pods(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


def pod(namespace: str, number: int) -> str:
    return f"{pods(namespace)}/p-{number % KNOWN_PODS:06d}"


def stamped(namespace: str, number: int) -> Request:
    body = b'{"metadata":{"annotations":{"bench/t":"%d"}}}' % time.perf_counter_ns()
    return "PATCH", pod(namespace, number), body, MERGE


class Kload:
    """The client in Go, one process per measurement."""

    def __init__(self, url: str, binary: Path) -> None:
        self._base = [str(binary)]
        self._options = ["-server", url, "-token", TOKEN, "-h1"]

    def _run(self, op: str, namespace: str, *options: str) -> dict[str, Any]:
        command = [*self._base, op, *self._options, "-ns", namespace, *options]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        result: dict[str, Any] = json.loads(done.stdout)
        if result["errors"]:
            raise SystemExit(f"kload {op}: {result['errors']} errors, {result['first_error']}")
        return result

    def _many(self, op: str, namespace: str, count: int, clients: int, *options: str) -> Outcome:
        found = self._run(op, namespace, "-n", str(count), "-c", str(clients), *options)
        return Outcome(found["per_s"], found["p50_ms"], found["p99_ms"])

    def create(self, namespace: str, prefix: str, count: int, clients: int) -> Outcome:
        """See `Load`."""
        return self._many("create", namespace, count, clients, "-prefix", prefix)

    def get(self, namespace: str, count: int, clients: int) -> Outcome:
        """See `Load`."""
        return self._many("get", namespace, count, clients)

    def patch(self, namespace: str, count: int, clients: int) -> Outcome:
        """See `Load`."""
        return self._many("patch", namespace, count, clients)

    def list(self, namespace: str, count: int, clients: int) -> Outcome:
        """See `Load`."""
        return self._many("list", namespace, count, clients)

    def watch(self, namespace: str, count: int, watchers: int) -> Outcome:
        """See `Load`."""
        rate = ("-rate", str(WRITES_PER_S))
        found = self._run("watch", namespace, "-n", str(count), "-watchers", str(watchers), *rate)
        return Outcome(found["per_s"], found["deliver_p50_ms"], found["deliver_p99_ms"])
