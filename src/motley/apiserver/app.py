"""The ASGI application: from bytes on a connection to a handler and back.

    who is it? → may they? → what is there? → the verb → the answer

Handlers raise `ApiError`s; here they become `Status` answers, once. Requests in flight are bounded
by class of user (`flowcontrol`): beyond its seats and queues a class is told when to come back.

Invariant: no exception of a handler ends a connection without an answer, and none is swallowed.
"""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from motley.api import names, scheme, status
from motley.apiserver import (
    answer,
    audit,
    dispatch,
    flowcontrol,
    framing,
    metrics,
    negotiate,
    pumping,
    request,
    warningheaders,
)
from motley.apiserver.aggregation import Aggregation
from motley.apiserver.answer import Answer, Blocks, Stream
from motley.apiserver.authn import subprotocol
from motley.apiserver.authn.user import REQUESTER, User
from motley.apiserver.compat import Compat
from motley.apiserver.core import Core
from motley.apiserver.crds import requests as custom
from motley.apiserver.flowcontrol import FlowControl
from motley.apiserver.nonresource import NonResource
from motley.apiserver.protocol import PEER, PUSHER
from motley.apiserver.request import RequestInfo
from motley.apiserver.subresources import connect, stream
from motley.apiserver.verbs.call import Call
from motley.lib import journal
from motley.store.contract import InDoubt, StoreError

log = journal.get(__name__)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Header = tuple[bytes, bytes]

# 3 MiB: kube-apiserver's limit for a request body.
BODY_LIMIT = 3 * 1024 * 1024
AUDIT_ID_LIMIT = 64  # characters of a client's own Audit-ID that are taken over
# kube-apiserver's --request-timeout; here only for the next 256 KiB of an answer.
SLOW_CLIENT_S = 60.0


class App:
    """Serves the API to uvicorn."""

    def __init__(
        self,
        core: Core,
        nonresource: NonResource,
        aggregation: Aggregation | None = None,
        *,
        flow: FlowControl | None = None,
        auditor: audit.Auditor | None = None,
        renewed: Callable[[bytes], Awaitable[None]] | None = None,
        compat: Compat | None = None,
        catch_up: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`renewed` is called with the trusted authorities when certificates have changed,
        `catch_up` before a kind is said not to be served: another server may have been told of it.
        """
        self._catch_up = catch_up
        self.renewed = renewed
        self._core = core
        self._nonresource = nonresource
        self._aggregation = aggregation
        self.flow = flow or FlowControl()
        self._auditor = auditor
        self._compat = compat

    def end_streams(self) -> None:
        """End every stream cleanly; the server is about to stop."""
        self._core.end_streams()

    def renew_streams(self) -> None:
        """End every stream cleanly; their clients are to show again who they are."""
        self._core.renew_streams()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI's entry point."""
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._websocket(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        info = request.parse(scope["method"], scope["path"], scope["query_string"])
        if self._compat is not None:
            info = self._compat.redirected(info)
        headers = request.headers_of(scope["headers"])
        begun = self._core.clock.monotonic()
        warned = answer.begin_warnings()
        extra = [(b"audit-id", self._audit_id(headers).encode())]
        trail = self._trail(extra, info, headers, scope)
        result = await self._answer(info, headers, scope, receive, extra)
        if warned:
            result.warnings = list(dict.fromkeys([*warned, *result.warnings]))
        if isinstance(result, Stream):
            metrics.observe(info, result.code, None)
            if trail is not None:
                trail.started(result.code)
            try:
                await self._send_stream(result, scope, receive, send, extra)
            finally:
                result.close()
                if trail is not None:
                    trail.completed(result.code, b"", "")
            return
        if trail is not None:
            is_read = trail.recording.has_response or result.code >= 400
            body = answer.whole(result).body if is_read else b""
            trail.completed(result.code, body, result.content_type)
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
        await send(_start(result, result.length, extra))
        if result.blocks is not None:
            try:
                await self._send_blocks(result.blocks, send)
            except TimeoutError:
                log.warning("client too slow for its answer", path=info.path)
                return  # the server hangs up, since the answer is not complete
        await send({"type": "http.response.body", "body": result.body})

    def _audit_id(self, headers: Mapping[str, str]) -> str:
        """What the answer and the audit log name the request by; a client may give its own."""
        given = headers.get("audit-id", "")
        is_good = given.isascii() and given.isprintable() and len(given) <= AUDIT_ID_LIMIT
        return given if given and is_good else names.new_uid(self._core.rng)

    def _trail(
        self, extra: list[Header], info: RequestInfo, headers: Mapping[str, str], scope: Scope
    ) -> audit.Trail | None:
        if self._auditor is None:
            return None
        return self._auditor.begin(extra[0][1].decode(), info, headers, scope)

    async def _answer(
        self,
        info: RequestInfo,
        headers: Mapping[str, str],
        scope: Scope,
        receive: Receive,
        extra: list[Header],
    ) -> Answer | Stream:
        if request.is_broken(scope.get("raw_path", b"")):
            return answer.text("400 Bad Request", 400)
        try:
            user = await self._core.access.admit(headers, scope["state"].get(PEER), info)
            REQUESTER.set(user)
            if not flowcontrol.is_limited(info):
                return await self._handle(user, info, headers, scope, receive)
            grant = self.flow.classify(user, info)
            extra += grant.headers
            if not self.flow.enter(grant):
                await self.flow.wait(grant, user, info)
            try:
                if not grant.level.limits.is_exempt:
                    # Most requests are served without waiting for anything, so that they would
                    # never be seen side by side: those that came together take their seats first.
                    await self._core.clock.sleep(0)
                return await self._handle(user, info, headers, scope, receive)
            finally:
                self.flow.leave(grant)
        except flowcontrol.Refused as error:
            metrics.REFUSED.inc()
            return answer.of_error(error, negotiate.of_errors(headers.get("accept", "")))
        except status.ApiError as error:
            return answer.of_error(error, negotiate.of_errors(headers.get("accept", "")))
        except InDoubt as error:
            # No Retry-After: only the client knows what it means to ask for the same again.
            log.error("outcome of a request unknown", path=info.path, exc_info=error)
            return answer.of_error(status.GatewayTimeout(f"store: {error}"))
        except StoreError as error:
            log.error("store failed a request", path=info.path, exc_info=error)
            return answer.of_error(status.ServiceUnavailable(f"store: {error}", retry_after_s=1))
        except Exception as error:
            log.error("request failed", method=info.method, path=info.path, exc_info=error)
            audit.panicked()
            return answer.of_error(status.InternalError(f"Internal error occurred: {error!r}"))

    async def _handle(
        self,
        user: User,
        info: RequestInfo,
        headers: Mapping[str, str],
        scope: Scope,
        receive: Receive,
    ) -> Answer | Stream:
        async def body() -> bytes:
            read = await read_body(headers, receive)
            audit.requested(read)
            if self._compat is not None:
                return self._compat.read(info, headers.get("content-type", ""), read)
            return read

        if self._aggregation is not None and (remote := self._aggregation.remote(info)):
            query = scope["query_string"]
            return await self._aggregation.proxy(remote, info, headers, query, user, body)
        if self._aggregation is not None and (own := self._aggregation.extension(info)):
            return await own.handle(info, headers)
        if not info.is_resource:
            return self._nonresource.handle(info, headers)
        if self._catch_up is not None and _is_unknown(info):
            await self._catch_up()
        if not _is_served(info):
            return answer.page_not_found()
        kind = find(info)
        if self._compat is not None:
            info = await self._compat.by_name(self._core, kind, user, info)
        custom.check(kind, info)
        handler = dispatch.handler(kind, info)
        if text := dispatch.deprecation(kind):
            answer.warn([text])
        wanted = dispatch.wanted(kind, info, headers.get("accept", ""))
        return await handler(self._core, Call(info, kind, user, headers, body, wanted))

    async def _send_blocks(self, blocks: Blocks, send: Send) -> None:
        """Send a long body while it is made, at the client's pace; others have their turn too.

        A client that does not take the next block in time is left with what it has.
        """
        for block in blocks:
            async with asyncio.timeout(SLOW_CLIENT_S):
                await send({"type": "http.response.body", "body": block, "more_body": True})
            await self._core.clock.sleep(0)

    async def _send_stream(
        self, result: Stream, scope: Scope, receive: Receive, send: Send, extra: list[Header]
    ) -> None:
        """Pass a stream on until it ends, the client leaves, or the server stops."""
        await send(_start(result, None, extra))
        if result.shortcut is not None and PUSHER in scope["state"]:
            result.shortcut(scope["state"][PUSHER](scope))

        async def pump() -> None:
            async for chunk in result.chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})

        if await pumping.run(self._core, pump(), receive, "http.disconnect"):
            await send({"type": "http.response.body", "body": b""})

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Terminals and port forwards, relayed to the agent; logs and watches, in messages."""
        info = request.parse("GET", scope["path"], scope["query_string"])
        headers = request.headers_of(scope["headers"])
        audit_id = [(b"audit-id", self._audit_id(headers).encode())]
        trail = self._trail(audit_id, info, headers, scope)
        code, body = 101, b""
        result: Answer | Stream | None = None
        try:
            headers, offered = subprotocol.credentials(headers, scope["subprotocols"])
            if info.subresource in stream.SUBRESOURCES:
                await self._admit_to_node(info, headers, scope)
            else:
                framing.check(info, offered)
                result = await self._answer(info, headers, scope, _no_body, audit_id)
                if refusal := await framing.refusal(info, result):
                    code, body = refusal.code, refusal.body
                    await framing.refuse(refusal, receive, send)
                    return
            if trail is not None:
                trail.started(code)
            if isinstance(result, Stream):
                metrics.observe(info, code, None)
                await framing.serve(self._core, info, offered, result, receive, send)
            else:
                await stream.relay(self._core, info, offered, receive, send)
        except status.ApiError as error:
            refusal = answer.of_error(error)
            code, body = refusal.code, refusal.body
            await framing.refuse(refusal, receive, send)
        finally:
            if isinstance(result, Stream):
                result.close()
            if trail is not None:
                trail.completed(code, body, answer.JSON)

    async def _admit_to_node(
        self, info: RequestInfo, headers: Mapping[str, str], scope: Scope
    ) -> None:
        user = await self._core.access.admit(headers, scope["state"].get(PEER), info)
        # A handshake is a GET, but who may only look must not get a terminal by it.
        create = dataclasses.replace(info, verb="create")
        await self._core.access.authorizer.authorize(user, create)
        kind = find(info)
        if kind.plural != "pods":
            raise status.BadRequest("this resource cannot be upgraded to a WebSocket")
        REQUESTER.set(user)
        await connect.admit(self._core, kind, info)


async def _no_body() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


def _is_unknown(info: RequestInfo) -> bool:
    return scheme.resource(info.group, info.version, info.resource) is None


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


def _start(result: Answer | Stream, length: int | None, extra: list[Header]) -> Message:
    headers = [*extra, (b"cache-control", b"no-cache, private")]
    if result.content_type:
        headers.append((b"content-type", result.content_type.encode()))
    if length is not None:
        headers.append((b"content-length", b"%d" % length))
    headers += [(k.encode(), v.encode()) for k, v in result.headers.items()]
    headers += [(b"warning", value) for value in warningheaders.values(result.warnings)]
    return {"type": "http.response.start", "status": result.code, "headers": headers}
