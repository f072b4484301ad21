"""The ASGI application: from bytes on a connection to a handler and back.

    who is it? → may they? → what is there? → the verb → the answer

Handlers raise `ApiError`s; here they become `Status` answers, once. Requests in flight are
bounded: beyond the bound a client is told when to come back instead of being queued.

Invariant: no exception of a handler ends a connection without an answer, and none is swallowed.
"""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from motley.api import scheme, status
from motley.apiserver import answer, dispatch, metrics, negotiate, request
from motley.apiserver.aggregation import Aggregation
from motley.apiserver.answer import Answer, Stream
from motley.apiserver.authn.user import REQUESTER
from motley.apiserver.core import Core
from motley.apiserver.crds import requests as custom
from motley.apiserver.nonresource import NonResource
from motley.apiserver.protocol import PEER
from motley.apiserver.request import RequestInfo
from motley.apiserver.subresources import stream
from motley.apiserver.verbs.call import Call
from motley.lib import journal
from motley.store.contract import StoreError

log = journal.get(__name__)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

# 3 MiB: kube-apiserver's limit for a request body.
BODY_LIMIT = 3 * 1024 * 1024
# kube-apiserver's sum of --max-requests-inflight and --max-mutating-requests-inflight.
MAX_IN_FLIGHT = 600


class App:
    """Serves the API to uvicorn."""

    def __init__(
        self,
        core: Core,
        nonresource: NonResource,
        aggregation: Aggregation | None = None,
        *,
        max_in_flight: int = MAX_IN_FLIGHT,
    ) -> None:
        self._core = core
        self._nonresource = nonresource
        self._aggregation = aggregation
        self._max_in_flight = max_in_flight
        self._in_flight = 0

    def end_streams(self) -> None:
        """End every stream cleanly; the server is about to stop."""
        self._core.end_streams()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI's entry point."""
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._websocket(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        info = request.parse(scope["method"], scope["path"], scope["query_string"])
        headers = request.headers_of(scope["headers"])
        begun = self._core.clock.monotonic()
        warned = answer.begin_warnings()
        result = await self._answer(info, headers, scope, receive)
        if warned:
            result.warnings = list(dict.fromkeys([*warned, *result.warnings]))
        if isinstance(result, Stream):
            metrics.observe(info, result.code, None)
            try:
                await self._send_stream(result, receive, send)
            finally:
                result.close()
            return
        took_s = self._core.clock.monotonic() - begun
        metrics.observe(info, result.code, took_s)
        log.debug(
            "request",
            method=info.method,
            path=info.path,
            code=result.code,
            took_ms=round(took_s * 1000, 1),
        )
        if answer.is_for_people(info.query.text("pretty"), headers.get("user-agent", "")):
            result = answer.indented(result)
        if answer.is_compressible(result, headers.get("accept-encoding", "")):
            result = await asyncio.to_thread(answer.compressed, result)
        await send(_start(result, len(result.body)))
        await send({"type": "http.response.body", "body": result.body})

    async def _answer(
        self, info: RequestInfo, headers: Mapping[str, str], scope: Scope, receive: Receive
    ) -> Answer | Stream:
        if self._in_flight >= self._max_in_flight:
            metrics.REFUSED.inc()
            return answer.of_error(
                status.TooManyRequests("too many requests, please try again later", retry_after_s=1)
            )
        self._in_flight += 1
        try:
            return await self._handle(info, headers, scope, receive)
        except status.ApiError as error:
            return answer.of_error(error, negotiate.of_errors(headers.get("accept", "")))
        except StoreError as error:
            log.error("store failed a request", path=info.path, exc_info=error)
            return answer.of_error(status.ServiceUnavailable(f"store: {error}", retry_after_s=1))
        except Exception as error:
            log.error("request failed", method=info.method, path=info.path, exc_info=error)
            return answer.of_error(status.InternalError(f"Internal error occurred: {error!r}"))
        finally:
            self._in_flight -= 1

    async def _handle(
        self, info: RequestInfo, headers: Mapping[str, str], scope: Scope, receive: Receive
    ) -> Answer | Stream:
        user = await self._core.access.admit(headers, scope["state"].get(PEER), info)
        REQUESTER.set(user)

        async def body() -> bytes:
            return await read_body(headers, receive)

        if self._aggregation is not None and (remote := self._aggregation.remote(info)):
            query = scope["query_string"]
            return await self._aggregation.proxy(remote, info, headers, query, user, body)
        if not info.is_resource:
            return self._nonresource.handle(info, headers)
        if not _is_served(info):
            return answer.page_not_found()
        kind = find(info)
        custom.check(kind, info)
        handler = dispatch.handler(kind, info)
        if text := dispatch.deprecation(kind):
            answer.warn([text])
        wanted = negotiate.accept(headers.get("accept", ""))
        return await handler(self._core, Call(info, kind, user, headers, body, wanted))

    async def _send_stream(self, result: Stream, receive: Receive, send: Send) -> None:
        """Pass a stream on until it ends, the client leaves, or the server stops."""
        await send(_start(result, None))
        disconnected = False

        async def pump() -> None:
            async for chunk in result.chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})

        async def listen(pumping: asyncio.Task[None]) -> None:
            nonlocal disconnected
            while (await receive())["type"] != "http.disconnect":
                pass
            disconnected = True
            pumping.cancel()

        async with asyncio.TaskGroup() as group:
            pumping = group.create_task(pump())
            listening = group.create_task(listen(pumping))
            self._core.streams.add(pumping)
            pumping.add_done_callback(self._core.streams.discard)
            pumping.add_done_callback(lambda _: listening.cancel())
        if not disconnected:
            await send({"type": "http.response.body", "body": b""})

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Terminals and port forwards: checked like any request, then relayed to the agent."""
        info = request.parse("GET", scope["path"], scope["query_string"])
        headers = request.headers_of(scope["headers"])
        try:
            user = await self._core.access.admit(headers, scope["state"].get(PEER), info)
            # A handshake is a GET, but who may only look must not get a terminal by it.
            create = dataclasses.replace(info, verb="create")
            await self._core.access.authorizer.authorize(user, create)
            kind = find(info)
            if info.subresource not in stream.SUBRESOURCES or kind.plural != "pods":
                raise status.BadRequest("this resource cannot be upgraded to a WebSocket")
            await stream.relay(self._core, info, scope["subprotocols"], receive, send)
        except status.ApiError as error:
            await _refuse(answer.of_error(error), receive, send)


def _is_served(info: RequestInfo) -> bool:
    """Whether anything is served in the group and version of a path."""
    if not info.group or scheme.resource(info.group, info.version, info.resource) is not None:
        return True
    return info.version in scheme.groups().get(info.group, ())


def find(info: RequestInfo) -> scheme.Kind:
    """The kind a path names; 404 when nothing is served there."""
    kind = scheme.resource(info.group, info.version, info.resource)
    if kind is None:
        raise answer.unknown_resource()
    if kind.namespaced:
        if info.name and not info.namespace:
            raise answer.unknown_resource()
    elif info.namespace and info.resource != "namespaces":
        raise answer.unknown_resource()
    if info.resource == "namespaces" and info.namespace and info.name != info.namespace:
        raise answer.unknown_resource()
    if info.subresource and info.subresource not in kind.subresources:
        if kind.definition is not None:
            raise status.not_found(kind.group, kind.plural, info.name)
        raise answer.unknown_resource()
    return kind


async def read_body(headers: Mapping[str, str], receive: Receive) -> bytes:
    """The whole body, or 413 as soon as it is clear that it is too large."""
    too_large = status.TooLarge(f"Request entity too large: limit is {BODY_LIMIT}")
    declared = headers.get("content-length", "")
    if declared.isdigit() and int(declared) > BODY_LIMIT:
        raise too_large
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise status.BadRequest("the client went away before its request was complete")
        chunk: bytes = message.get("body", b"")
        size += len(chunk)
        if size > BODY_LIMIT:
            raise too_large
        chunks.append(chunk)
        if not message.get("more_body"):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _start(result: Answer | Stream, length: int | None) -> Message:
    headers = [(b"cache-control", b"no-cache, private")]
    if result.content_type:
        headers.append((b"content-type", result.content_type.encode()))
    if length is not None:
        headers.append((b"content-length", b"%d" % length))
    headers += [(k.encode(), v.encode()) for k, v in result.headers.items()]
    headers += [(b"warning", _warning(text)) for text in result.warnings]
    return {"type": "http.response.start", "status": result.code, "headers": headers}


def _warning(text: str) -> bytes:
    """RFC 7234's form with Kubernetes' code; header values are one line of ASCII."""
    quoted = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
    return b'299 - "%b"' % quoted.encode("ascii", "replace")


async def _refuse(result: Answer, receive: Receive, send: Send) -> None:
    """Answer a WebSocket handshake with an ordinary response."""
    await receive()  # websocket.connect
    await send(
        {
            "type": "websocket.http.response.start",
            "status": result.code,
            "headers": [
                (b"content-type", result.content_type.encode()),
                (b"content-length", b"%d" % len(result.body)),
            ],
        }
    )
    await send({"type": "websocket.http.response.body", "body": result.body})
