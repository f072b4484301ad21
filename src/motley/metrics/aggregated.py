"""An aggregated API server: groups served beside any Kubernetes, reached through its API server.

    kube-apiserver ── TLS, front-proxy certificate, X-Remote-User ──┐
    a Prometheus   ── TLS, bearer token ────────────────────────────┴─► who? → may they? → the group

Who calls is what the front proxy says, or what TokenReview says of a token; what they may,
SubjectAccessReview says. Only how the server fares is for everybody.

Invariant: nothing of a group is answered before the API server has said that its caller may have
it; where it cannot be asked, nobody gets in.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aiohttp import web

from motley.api import status
from motley.api.views.registration import APIService
from motley.apiserver import answer, refusal, request
from motley.apiserver.answer import Answer
from motley.apiserver.extension import Extension
from motley.apiserver.request import RequestInfo
from motley.client import frontproxy, servingca
from motley.client.delegation import Delegation
from motley.client.frontproxy import FrontProxy
from motley.client.rest import Client
from motley.client.servingca import GivenFiles, Serving
from motley.lib import journal
from motley.lib.clock import SYSTEM, Clock
from motley.metrics import aggregated_docs

log = journal.get(__name__)

_HEALTH = frozenset({"/healthz", "/livez", "/readyz"})
_MASTERS = "system:masters"  # whom Kubernetes, too, asks nobody about
_MOST_AT_ONCE = 64
_TIMEOUT_S = 30.0
_KEEP_ALIVE_S = 120.0  # longer than Go's 90 s: the one who calls decides when it ends
_BACKLOG = 128
_DRAIN_S = 2.0  # for requests in flight when the server ends

Page = Callable[[], Answer]


class AggregatedServer:
    """The server; `run` it until it is no longer needed."""

    def __init__(
        self,
        client: Client,
        groups: Sequence[Extension],
        serving: Serving | GivenFiles,
        *,
        pages: Mapping[str, Page] | None = None,
        is_ready: Callable[[], bool] = lambda: True,
        clock: Clock = SYSTEM,
    ) -> None:
        """`pages` are further paths, for those who may GET them. With a certificate of its own the
        server keeps its APIServices' CA bundles true (`v1.GROUP` and the like)."""
        self._client, self._clock = client, clock
        self._groups = {(one.group, one.version): one for one in groups}
        self._serving = serving
        self._pages = dict(pages or {})
        self._is_ready = is_ready
        self._delegation = Delegation(client, client, clock=clock)
        self._front = FrontProxy(client, clock)
        self._context = serving.context
        self._busy: set[asyncio.Transport | None] = set()

    async def run(self, host: str, port: int) -> None:
        """Serve, with the groups' own work beside it, until cancelled. Raises OSError."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._listen(host, port), name="https")
            group.create_task(self._front.run(), name="front proxy")
            group.create_task(self._serving.run(), name="certificate")
            for name, version in self._groups:
                extension = self._groups[name, version]
                group.create_task(extension.run(), name=name)
                if isinstance(self._serving, Serving):
                    telling = servingca.keep_told(
                        self._client,
                        APIService,
                        f"{version}.{name}",
                        "/spec/caBundle",
                        self._serving,
                        clock=self._clock,
                    )
                    group.create_task(telling, name=f"CA bundle of {name}")

    async def _listen(self, host: str, port: int) -> None:
        """Listen, each time anew when other authorities are to be believed.

        The second listener takes over the first one's socket: nobody is refused meanwhile. Who was
        let in by the authorities of before has to come again.
        """
        listener = _bound(host, port)
        server = web.Server(self._respond, access_log=None, keepalive_timeout=_KEEP_ALIVE_S)
        runner = web.ServerRunner(server, shutdown_timeout=_DRAIN_S)
        await runner.setup()
        try:
            site = await self._opened(runner, listener)
            log.info("aggregated API listening", host=host, port=port)
            while True:
                await self._front.changed.wait()
                self._front.changed.clear()
                self._context = self._believing()
                before, site = site, await self._opened(runner, listener)
                await before.stop()
                for connection in list(server.connections):
                    if connection.transport not in self._busy:
                        connection.force_close()
        finally:
            listener.close()
            await runner.cleanup()

    async def _opened(self, runner: web.ServerRunner, listener: socket.socket) -> web.SockSite:
        context = self._context
        site = web.SockSite(runner, listener.dup(), ssl_context=context, backlog=_BACKLOG)
        await site.start()
        return site

    def _believing(self) -> ssl.SSLContext:
        try:
            return self._serving.believing(self._front.trust.ca_pem)
        except OSError as error:
            log.error("front proxy's authority not understood", error=str(error))
            return self._serving.context

    async def _respond(self, asked: web.BaseRequest) -> web.Response:
        transport = asked.transport
        context = transport.get_extra_info("sslcontext") if transport else None
        self._busy.add(transport)
        try:
            made = await self._response(asked)
        finally:
            self._busy.discard(transport)
        if context is not self._context:  # other authorities are believed by now
            made.force_close()
        return made

    async def _response(self, asked: web.BaseRequest) -> web.Response:
        headers = {name.lower(): value for name, value in asked.headers.items()}
        query = asked.rel_url.raw_query_string.encode()
        info = request.parse(asked.method, asked.path, query)
        result = await self._answered(asked, info, headers)
        if answer.is_compressible(result, headers.get("accept-encoding", "")):
            result = await asyncio.to_thread(answer.compressed, result)
        shown = {"cache-control": "no-cache, private", **result.headers}
        if result.content_type:
            shown["content-type"] = result.content_type
        return web.Response(body=result.body, status=result.code, headers=shown)

    async def _answered(
        self, asked: web.BaseRequest, info: RequestInfo, headers: Mapping[str, str]
    ) -> Answer:
        if info.path in _HEALTH:
            return self._health(info.path)
        if len(self._busy) > _MOST_AT_ONCE:
            return answer.of_error(
                status.TooManyRequests("too many requests, please try again", retry_after_s=1)
            )
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                await self._admit(asked, info)
                return await self._handle(info, headers)
        except status.ApiError as error:
            return answer.of_error(error)
        except TimeoutError:
            return answer.of_error(status.GatewayTimeout("the request took too long"))
        except Exception as error:
            log.error("request failed", method=info.method, path=info.path, exc_info=error)
            return answer.of_error(status.InternalError(f"Internal error occurred: {error!r}"))

    def _health(self, path: str) -> Answer:
        is_well = path != "/readyz" or (self._front.has_synced and self._is_ready())
        return answer.text("ok" if is_well else "not ready\n", 200 if is_well else 503)

    async def _admit(self, asked: web.BaseRequest, info: RequestInfo) -> None:
        """Raises Unauthorized, Forbidden."""
        try:
            user = self._told(asked)
            if user is None:
                user = await self._delegation.user(asked.headers.get("Authorization", ""))
            if user is None:
                raise status.Unauthorized("Unauthorized")
            groups = list(dict.fromkeys([*(user.get("groups") or ()), frontproxy.AUTHENTICATED]))
            user = {**user, "groups": groups}
            if _MASTERS in groups:
                return
            is_allowed = await self._delegation.allowed(
                user, info.path, _attributes(info), info.verb
            )
        except (status.Unauthorized, status.TooManyRequests):
            raise
        except status.ApiError as error:
            log.warning("cannot ask who is calling", error=error.message)
            raise status.ServiceUnavailable(
                "the API server cannot be asked who is calling", retry_after_s=1
            ) from None
        if not is_allowed:
            raise refusal.forbidden(str(user.get("username", "")), info, info.name)

    def _told(self, asked: web.BaseRequest) -> Mapping[str, Any] | None:
        """For whom the front proxy asks; None where it is not the one who asks."""
        transport = asked.transport
        certificate = transport.get_extra_info("peercert") if transport else None
        if not certificate or transport is None:
            return None
        if transport.get_extra_info("sslcontext") is not self._context:
            return None  # verified by authorities that are no longer to be believed
        trust = self._front.trust
        return frontproxy.caller(trust, certificate, asked.headers.items(), self._clock.now())

    async def _handle(self, info: RequestInfo, headers: Mapping[str, str]) -> Answer:
        if page := self._pages.get(info.path):
            if info.method != "GET":
                raise answer.method_not_allowed()
            return page()
        parts = info.path.strip("/").split("/")
        if parts[0] == "apis" and len(parts) >= 3:
            extension = self._groups.get((parts[1], parts[2]))
            if extension is not None:
                return await extension.handle(info, headers)
        found = aggregated_docs.document(info.path, headers, list(self._groups.values()))
        return found or answer.page_not_found()


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=_BACKLOG)


def _attributes(info: RequestInfo) -> dict[str, str] | None:
    """What a request is in the words of RBAC; None: only a path."""
    if not info.is_resource:
        return None
    found = {
        "verb": info.verb,
        "group": info.group,
        "version": info.version,
        "resource": info.resource,
        "subresource": info.subresource,
        "namespace": info.namespace,
        "name": info.name,
    }
    return {name: value for name, value in found.items() if value}
