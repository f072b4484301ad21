"""The agent's HTTPS server: logs, exec, attach, port-forward, resource use, health.

Who may ask for what is decided in `access`.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

import aiohttp
import msgspec
import prometheus_client
from aiohttp import web

from motley.api.views.base import Key
from motley.api.views.container import Container
from motley.client.delegation import Delegation
from motley.lib import journal
from motley.lib.clock import Clock
from motley.node import access, attaching, cadvisor, logs, stats, streaming, summary
from motley.node.cri.errors import RuntimeFailure, RuntimeNotFound
from motley.node.cri.runtime import Runtime
from motley.node.measuring import Measurements
from motley.node.model import RuntimeContainer, State
from motley.node.podworker import PodWorker

log = journal.get(__name__)

NODE_LOGS = Path("/var/log")
_LINE_LIMIT = 1024 * 1024  # Go's limit for a request's head: commands are in its first line

FindWorker = Callable[[Key], PodWorker | None]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


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
            runner = web.AppRunner(
                self.app(), access_log=None, shutdown_timeout=1.0, max_line_size=_LINE_LIMIT
            )
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
        refused = await access.refusal(request, self._node, self._delegation)
        if refused is not None:
            return refused
        try:
            return await handler(request)
        except RuntimeNotFound as error:
            return web.Response(status=404, text=f"{error}\n")
        except (RuntimeFailure, aiohttp.ClientError, TimeoutError) as error:
            log.warning("request failed", path=request.path, error=error)
            return web.Response(status=500, text=f"{error}\n")

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
            known = _spec(worker, name) is not None
            if is_previous and known:
                text = f'previous terminated container "{name}" in pod not found\n'
            elif known:
                text = f'container "{name}" in pod is waiting to start\n'
            else:
                return web.Response(status=404, text=f'container "{name}" not found\n')
            return web.Response(status=400, text=text)
        try:
            options = logs.options_of(request.query, self._clock.now())
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
        wanted = _streams(request)
        if wanted.stdin and not wanted.tty and self._is_containerd:
            return await streaming.exec_native(
                request, self._runtime, container.id, command, wanted, self._directory, self._rng
            )
        url = await self._runtime.exec_url(container.id, command, **wanted._asdict())
        return await streaming.bridge(request, self._http, url)

    async def _attach(self, request: web.Request) -> web.StreamResponse:
        container = await self._running(request)
        wanted = _streams(request)
        url = await self._runtime.attach_url(container.id, **wanted._asdict())
        spec = _spec(self._worker(request), request.match_info["container"])
        is_once = spec is not None and spec.stdin_once
        return await attaching.attach(request, url, wanted, self._clock, is_once=is_once)

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


def _spec(worker: PodWorker, name: str) -> Container | None:
    """A container as its pod has it."""
    if worker.pod is None:
        return None
    spec = worker.pod.spec
    every = [*spec.containers, *spec.init_containers, *spec.ephemeral_containers]
    return next((c for c in every if c.name == name), None)


def _streams(request: web.Request) -> streaming.Streams:
    try:
        return streaming.streams_of(request.query)
    except ValueError as error:
        raise web.HTTPBadRequest(text=f"{error}\n") from None


def _flag(request: web.Request, name: str) -> bool:
    return request.query.get(name, "").lower() in ("1", "true")
