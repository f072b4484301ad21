"""The agent's HTTPS server: logs, exec, attach, port-forward, resource use, health.

The API server and administrators are known by their client certificates. Of anyone else (with
another certificate, or a bearer token) the API server is asked who it is, and whether they may
have what they ask for: `nodes/metrics`, `nodes/stats`, `nodes/log`, or `nodes/proxy` for all else.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import msgspec
import prometheus_client
from aiohttp import web

from motley.api.status import ApiError
from motley.api.views.base import Key
from motley.client.delegation import Delegation
from motley.lib import journal
from motley.lib.clock import Clock, parse_rfc3339
from motley.node import cadvisor, logs, stats, streaming, summary
from motley.node.cri.errors import RuntimeFailure, RuntimeNotFound
from motley.node.cri.runtime import Runtime
from motley.node.measuring import Measurements
from motley.node.model import RuntimeContainer, State
from motley.node.podworker import PodWorker

log = journal.get(__name__)

API_SERVER = "kube-apiserver-kubelet-client"
ADMINISTRATORS = "system:masters"
NODE_LOGS = Path("/var/log")

FindWorker = Callable[[Key], PodWorker | None]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def is_allowed(certificate: dict[str, Any] | None) -> bool:
    """May the holder of this certificate (as `ssl` describes it) use the server?"""
    subject = {(k, v) for part in (certificate or {}).get("subject", ()) for k, v in part}
    return ("commonName", API_SERVER) in subject or ("organizationName", ADMINISTRATORS) in subject


def tls_context(certificate: Path, key: Path, client_ca: Path) -> ssl.SSLContext:
    """TLS that asks for a client certificate; who has none must have a token."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(client_ca))
    context.load_cert_chain(certificate, key)
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


def attributes(node: str, method: str, path: str) -> dict[str, str]:
    """What a request is in the words of RBAC, as the kubelet puts it."""
    first = path.strip("/").partition("/")[0]
    part = {"stats": "stats", "metrics": "metrics", "logs": "log"}.get(first, "proxy")
    verb = {"GET": "get", "HEAD": "get", "POST": "create"}.get(method, method.lower())
    return {"verb": verb, "version": "v1", "resource": "nodes", "subresource": part, "name": node}


class Server:
    """Serves one agent's pods."""

    def __init__(
        self,
        runtime: Runtime,
        find: FindWorker,
        workers: Callable[[], list[PodWorker]],
        is_healthy: Callable[[], bool],
        directory: Path,
        clock: Clock,
        rng: Random,
        measurements: Measurements,
        delegation: Delegation,
        node: str,
        *,
        is_containerd: bool = True,
    ) -> None:
        self._measurements = measurements
        self._delegation = delegation
        self._node = node
        self._runtime = runtime
        self._find = find
        self._workers = workers
        self._is_healthy = is_healthy
        self._directory = directory
        self._clock = clock
        self._rng = rng
        self._is_containerd = is_containerd
        self._http: aiohttp.ClientSession

    async def run(self, host: str, port: int, tls: ssl.SSLContext) -> None:
        """Serve until cancelled."""
        async with aiohttp.ClientSession() as self._http:
            runner = web.AppRunner(self.app(), access_log=None, shutdown_timeout=1.0)
            await runner.setup()
            try:
                await web.TCPSite(runner, host, port, ssl_context=tls).start()
                log.info("node server listens", host=host, port=port)
                await asyncio.Event().wait()
            finally:
                await runner.cleanup()

    def app(self) -> web.Application:
        """The routes, with the kubelet's paths."""
        app = web.Application(middlewares=[self._guard])
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/pods", self._pods)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/metrics/resource", self._usage)
        app.router.add_get("/metrics/cadvisor", self._cadvisor)
        app.router.add_get("/stats/summary", self._summary)
        if NODE_LOGS.is_dir():
            app.router.add_static("/logs/", NODE_LOGS, show_index=True)
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._logs)
        for method in ("GET", "POST"):
            app.router.add_route(method, "/exec/{namespace}/{pod}/{container}", self._exec)
            app.router.add_route(method, "/attach/{namespace}/{pod}/{container}", self._attach)
            app.router.add_route(method, "/portForward/{namespace}/{pod}", self._port_forward)
            app.router.add_route(method, "/portforward/{namespace}/{pod}", self._port_forward)
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        transport = request.transport
        certificate = transport.get_extra_info("peercert") if transport else None
        if not is_allowed(certificate) and request.path != "/healthz":
            asked = attributes(self._node, request.method, request.path)
            code = await self._may(request, certificate, asked)
            if code != 200:
                what = f"{asked['verb']} nodes/{asked['subresource']}"
                return web.Response(status=code, text=f"not allowed to {what} of this node\n")
        try:
            return await handler(request)
        except RuntimeNotFound as error:
            return web.Response(status=404, text=f"{error}\n")
        except (RuntimeFailure, aiohttp.ClientError, TimeoutError) as error:
            log.warning("request failed", path=request.path, error=error)
            return web.Response(status=500, text=f"{error}\n")

    async def _may(
        self, request: web.Request, certificate: dict[str, Any] | None, asked: dict[str, str]
    ) -> int:
        """200, 401 or 403: ask the API server about a token, or about a certificate's user."""
        header = request.headers.get("Authorization", "")
        if not certificate or header:
            return await self._delegation.code(request.path, header, asked)
        subject = [(k, v) for part in certificate.get("subject", ()) for k, v in part]
        user = {
            "username": next((v for k, v in subject if k == "commonName"), ""),
            "groups": [v for k, v in subject if k == "organizationName"],
        }
        try:
            return 200 if await self._delegation.may(user, request.path, asked) else 403
        except ApiError as error:
            log.warning("cannot ask who is calling", error=error.message)
            return 403

    async def _healthz(self, request: web.Request) -> web.Response:
        is_well = self._is_healthy()
        return web.Response(status=200 if is_well else 503, text="ok" if is_well else "not ready")

    async def _pods(self, request: web.Request) -> web.Response:
        items = [
            {"apiVersion": "v1", "kind": "Pod", **msgspec.to_builtins(w.pod)}
            for w in self._workers()
            if w.pod is not None
        ]
        body = msgspec.json.encode({"apiVersion": "v1", "kind": "PodList", "items": items})
        return web.Response(body=body, content_type="application/json")

    async def _usage(self, request: web.Request) -> web.Response:
        self._measurements.look()
        text = stats.exposition(self._measurements.pods, stats.machine(self._clock.now()))
        return web.Response(text=text, content_type="text/plain", charset="utf-8")

    async def _cadvisor(self, request: web.Request) -> web.Response:
        self._measurements.look()
        text = cadvisor.exposition(self._measurements.node(), self._measurements.pods)
        return web.Response(text=text, content_type="text/plain", charset="utf-8")

    async def _summary(self, request: web.Request) -> web.Response:
        self._measurements.look()
        found = summary.document(
            self._measurements.node(), self._measurements.pods, self._clock.now()
        )
        return web.Response(body=msgspec.json.encode(found), content_type="application/json")

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=prometheus_client.generate_latest(), content_type="text/plain")

    # -- finding

    def _worker(self, request: web.Request) -> PodWorker:
        key = Key(request.match_info["namespace"], request.match_info["pod"])
        worker = self._find(key)
        if worker is None:
            raise RuntimeNotFound(f'pod "{key}" not found on this node')
        return worker

    async def _running(self, request: web.Request) -> RuntimeContainer:
        name = request.match_info["container"]
        observed = await self._runtime.pod(self._worker(request).uid)
        found = observed.latest(name)
        if found is None or not found.is_running:
            raise RuntimeNotFound(f'container "{name}" is not running')
        return found

    # -- logs

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        worker, name = self._worker(request), request.match_info["container"]
        observed = await self._runtime.pod(worker.uid)
        is_previous = _flag(request, "previous")
        found = observed.previous(name) if is_previous else observed.latest(name)
        if found is not None and found.state is State.CREATED:
            found = observed.previous(name) or found
        if found is None:
            known = worker.pod is not None and any(
                c.name == name
                for c in [
                    *worker.pod.spec.containers,
                    *worker.pod.spec.init_containers,
                    *worker.pod.spec.ephemeral_containers,
                ]
            )
            if is_previous and known:
                text = f'previous terminated container "{name}" in pod not found\n'
            elif known:
                text = f'container "{name}" in pod is waiting to start\n'
            else:
                return web.Response(status=404, text=f'container "{name}" not found\n')
            return web.Response(status=400, text=text)
        try:
            options = _log_options(request, self._clock)
        except ValueError as error:
            return web.Response(status=400, text=f"{error}\n")
        container_id = found.id

        def is_over() -> bool:
            now = next((c for c in worker.observed.containers if c.id == container_id), None)
            return now is None or not now.is_running

        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        async for piece in logs.read(Path(found.log_path), options, self._clock, is_over):
            await response.write(piece)
        await response.write_eof()
        return response

    # -- streams

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        container = await self._running(request)
        command = request.query.getall("command", [])
        if not command:
            return web.Response(status=400, text="you must specify at least 1 command\n")
        stdin = _flag(request, "stdin") or _flag(request, "input")
        tty = _flag(request, "tty")
        if stdin and not tty and self._is_containerd:
            return await streaming.exec_native(
                request, self._runtime, container.id, command, self._directory, self._rng
            )
        url = await self._runtime.exec_url(container.id, command, stdin=stdin, tty=tty)
        return await streaming.bridge(request, self._http, url)

    async def _attach(self, request: web.Request) -> web.StreamResponse:
        container = await self._running(request)
        stdin = _flag(request, "stdin") or _flag(request, "input")
        url = await self._runtime.attach_url(container.id, stdin=stdin, tty=_flag(request, "tty"))
        return await streaming.bridge(request, self._http, url)

    async def _port_forward(self, request: web.Request) -> web.StreamResponse:
        observed = await self._runtime.pod(self._worker(request).uid)
        sandbox = observed.sandbox
        if sandbox is None or not sandbox.is_ready:
            raise RuntimeNotFound("the pod is not running")
        listed = ",".join(request.query.getall("ports", []) + request.query.getall("port", []))
        ports = [int(p) for p in listed.split(",") if p.isdigit()]
        url = await self._runtime.port_forward_url(sandbox.id, ports)
        offered = request.headers.get("Sec-WebSocket-Protocol", "")
        if streaming.SPDY_TUNNEL in offered:
            return await streaming.tunnel_spdy(request, url)
        return await streaming.bridge(request, self._http, url)


def _flag(request: web.Request, name: str) -> bool:
    return request.query.get(name, "").lower() in ("1", "true")


def _log_options(request: web.Request, clock: Clock) -> logs.Options:
    query = request.query

    def number(name: str) -> int | None:
        text = query.get(name)
        if text is None:
            return None
        value = int(text)
        if value < 0:
            raise ValueError(f"{name} must not be negative")
        return value

    since: float | None = None
    if (seconds := number("sinceSeconds")) is not None:
        since = clock.now() - seconds
    elif "sinceTime" in query:
        since = parse_rfc3339(query["sinceTime"])
    return logs.Options(
        follow=_flag(request, "follow"),
        tail_lines=number("tailLines"),
        since=since,
        timestamps=_flag(request, "timestamps"),
        limit_bytes=number("limitBytes"),
        stream=query.get("stream", "All"),
    )
