"""The API without sockets: the ASGI application over a memory store, called directly."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from motley.apiserver import document, server
from motley.apiserver.app import App
from motley.apiserver.authn import TokenFile, User
from motley.lib.clock import SYSTEM
from motley.store.contract import Store
from motley.store.memory import MemoryStore

# pytest-asyncio asks for the current loop before a file's first asynchronous test; without this
# Python 3.11 makes one that nobody closes, which is an error here.
asyncio.set_event_loop(None)


@dataclass
class Reply:
    """An answer, as a client sees it."""

    code: int
    headers: dict[str, str]
    body: bytes
    warnings: list[str] = field(default_factory=list)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def message(self) -> str:
        return str(self.json.get("message"))


class Watching:
    """A stream in progress."""

    def __init__(self, lines: "asyncio.Queue[bytes | None]", stop: asyncio.Event) -> None:
        self._lines = lines
        self._stop = stop

    async def event(self) -> dict[str, Any] | None:
        """The next event; None when the stream has ended."""
        async with asyncio.timeout(20):
            line = await self._lines.get()
        return None if line is None else json.loads(line)

    async def events(self, count: int) -> list[tuple[str, str]]:
        """The next events as (type, name)."""
        found = [await self.event() for _ in range(count)]
        return [(e["type"], e["object"]["metadata"].get("name", "")) for e in found if e]

    def leave(self) -> None:
        self._stop.set()


class Api:
    """Calls the application as uvicorn would."""

    def __init__(self, app: App, store: Store) -> None:
        self.app = app
        self.store = store

    async def call(
        self,
        method: str,
        url: str,
        body: Any = None,
        *,
        token: str = "admin",
        content_type: str = "application/json",
        accept: str = "application/json",
        headers: dict[str, str] | None = None,
    ) -> Reply:
        raw = body if isinstance(body, bytes) else b"" if body is None else _encode(body)
        messages = iter([{"type": "http.request", "body": raw, "more_body": False}])
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return next(messages, {"type": "http.disconnect"})

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await self.app(_scope(method, url, token, content_type, accept, headers), receive, send)
        names = [(k.decode(), v.decode()) for k, v in sent[0]["headers"]]
        return Reply(
            sent[0]["status"],
            dict(names),
            b"".join(m.get("body", b"") for m in sent[1:]),
            [v for k, v in names if k == "warning"],
        )

    async def get(self, url: str, **options: Any) -> Reply:
        return await self.call("GET", url, **options)

    async def create(self, url: str, body: Any, **options: Any) -> Reply:
        return await self.call("POST", url, body, **options)

    async def put(self, url: str, body: Any, **options: Any) -> Reply:
        return await self.call("PUT", url, body, **options)

    async def patch(self, url: str, body: Any, kind: str = "merge", **options: Any) -> Reply:
        suffix = {"merge": "merge-", "json": "json-", "strategic": "strategic-merge-"}[kind]
        return await self.call(
            "PATCH", url, body, content_type=f"application/{suffix}patch+json", **options
        )

    async def delete(self, url: str, body: Any = None, **options: Any) -> Reply:
        return await self.call("DELETE", url, body, **options)

    @asynccontextmanager
    async def watch(
        self, url: str, *, token: str = "admin", accept: str = "application/json"
    ) -> AsyncIterator[Watching]:
        lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        stop = asyncio.Event()
        started = asyncio.Event()
        asked = False

        async def receive() -> dict[str, Any]:
            nonlocal asked
            if not asked:
                asked = True
                return {"type": "http.request", "body": b"", "more_body": False}
            await stop.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                assert message["status"] == 200
                started.set()
                return
            for line in message["body"].splitlines():
                lines.put_nowait(line)
            if not message.get("more_body"):
                lines.put_nowait(None)

        async with asyncio.TaskGroup() as group:
            scope = _scope("GET", url, token, "", accept, None)
            serving = group.create_task(self.app(scope, receive, send))
            async with asyncio.timeout(20):
                await started.wait()
            try:
                yield Watching(lines, stop)
            finally:
                stop.set()
                async with asyncio.timeout(20):
                    await serving


def _encode(body: Any) -> bytes:
    return json.dumps(body).encode()


def _scope(
    method: str,
    url: str,
    token: str,
    content_type: str,
    accept: str,
    headers: dict[str, str] | None,
) -> dict[str, Any]:
    path, _, query = url.partition("?")
    sent = {"accept": accept, **(headers or {})}
    if content_type:
        sent["content-type"] = content_type
    if token:
        sent["authorization"] = f"Bearer {token}"
    return {
        "type": "http",
        "method": method,
        "path": unquote(path),
        "query_string": query.encode(),
        "headers": [(k.encode(), v.encode()) for k, v in sent.items()],
        "state": {},
    }


USERS = {
    "admin": User("admin", frozenset({"system:masters", "system:authenticated"})),
    "alice": User("alice", frozenset({"developers", "system:authenticated"})),
    "scheduler": User("system:kube-scheduler", frozenset({"system:authenticated"})),
    "proxy": User("system:kube-proxy", frozenset({"system:authenticated"})),
    "node-1": User("system:node:node-1", frozenset({"system:nodes", "system:authenticated"})),
}


@asynccontextmanager
async def serving(store: Store, **options: Any) -> AsyncIterator[Api]:
    config = server.Config(Path("/nonexistent"), bind="10.0.0.1", store="memory", **options)
    async with server.assemble(config, store, None, TokenFile(USERS), SYSTEM) as app:
        yield Api(app, store)


@pytest.fixture
def serve():
    """Serves an API over a store, with options: `async with serve(store, ...) as api`."""
    return serving


@pytest.fixture
async def api():
    """An API with the namespace `demo`."""
    async with serving(MemoryStore(document.stamp)) as found:
        await found.create("/api/v1/namespaces", {"metadata": {"name": "demo"}})
        yield found


def pod(name: str = "p", **spec: Any) -> dict[str, Any]:
    """A small pod."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "nginx"}], **spec},
    }


@pytest.fixture
def a_pod():
    return pod
