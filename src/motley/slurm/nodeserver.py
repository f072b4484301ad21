"""The kubelet's doors of virtual nodes: what `kubectl logs` needs, and a clear no to the rest.

The API server reaches a pod's log through the node it runs on. Nodes that stand for Slurm clusters
have no machine: the bridge answers for them, at the address it writes into their status, to those
whom a node's server answers (`node.access`). A batch job has no terminal and no ports; who asks for
them is told so.
"""

import asyncio
import posixpath
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from aiohttp import web

from motley.api import status
from motley.api.views.base import Key
from motley.api.views.slurm import PENDING, SlurmJob
from motley.client.delegation import Delegation
from motley.lib import journal
from motley.lib.clock import Clock, parse_rfc3339
from motley.node import access, logs
from motley.slurm import podlogs, results, script
from motley.slurm.podlogs import Kept, Printed, Remote
from motley.slurm.sessions import Sessions
from motley.slurm.ssh import Unreachable
from motley.slurm.virtualnode import Bound, PodController

log = journal.get(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_TERMINALS = {
    "exec": "kubectl exec",
    "attach": "kubectl attach",
    "portForward": "kubectl port-forward",
    "portforward": "kubectl port-forward",
    "run": "running commands",
}


@dataclass(frozen=True)
class Serving:
    """Where virtual nodes are reached: the address their Nodes have, and ours behind it."""

    address: str
    port: int
    listen: str
    tls: ssl.SSLContext


class Refused(Exception):
    """There is no log to show; the code and words of the answer."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class NodeServer:
    """Answers for every virtual node of this bridge."""

    def __init__(
        self,
        serving: Serving,
        pods: PodController,
        sessions: Sessions,
        kept: results.Kept,
        delegation: Delegation,
        clock: Clock,
    ) -> None:
        self._serving = serving
        self._pods = pods
        self._sessions = sessions
        self._kept = kept
        self._delegation = delegation
        self._clock = clock

    async def run(self) -> None:
        """Serve until cancelled."""
        # Those who follow a silent job and leave are noticed at once.
        runner = web.AppRunner(
            self.app(), access_log=None, shutdown_timeout=1.0, handler_cancellation=True
        )
        await runner.setup()
        serving = self._serving
        try:
            site = web.TCPSite(runner, serving.listen, serving.port, ssl_context=serving.tls)
            await site.start()
            log.info("serves virtual nodes", host=serving.listen, port=serving.port)
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()

    def app(self) -> web.Application:
        """The routes, with the kubelet's paths."""
        app = web.Application(middlewares=[self._guard])
        app.router.add_get("/healthz", _healthz)
        app.router.add_get("/metrics/resource", _usage)
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._logs)
        app.router.add_route("*", "/{path:.*}", _other)
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        bound = self._bound(request)
        refused = await access.refusal(request, bound.node if bound else "", self._delegation)
        if refused is not None:
            return refused
        try:
            return await handler(request)
        except Refused as refusal:
            return web.Response(status=refusal.code, text=f"{refusal}\n")
        except Unreachable as failure:
            words = f"the Slurm cluster cannot be reached: {failure.message}"
            return web.Response(status=503, text=f"{words}\n")

    def _bound(self, request: web.Request) -> Bound | None:
        """The pod that a path names: `/WHAT/NAMESPACE/POD…`."""
        _, _, *rest = request.path.split("/")
        return self._pods.bound(Key(rest[0], rest[1])) if len(rest) > 1 else None

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        bound = self._bound(request)
        if bound is None:
            name = f'pod "{request.match_info["pod"]}"'
            if not self._pods.is_ready:
                raise Refused(503, f"{name}: the bridge is only just starting, try again")
            raise Refused(404, f"{name} not found on a node of this bridge")
        try:
            options = logs.options_of(request.query, self._clock.now())
        except ValueError as error:
            raise Refused(400, str(error)) from None
        is_previous = request.query.get("previous", "").lower() in ("1", "true")
        job = which_job(bound, request.match_info["container"])
        attempt = which_attempt(bound, job, is_previous=is_previous)
        found = await self._printed(job, attempt, bound.cluster)
        pieces = podlogs.read(found, options, self._clock, lambda: self._is_over(bound, attempt))
        # Before the answer begins: what cannot be read is an error, not an empty log.
        await anext(pieces)
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        async for piece in pieces:
            await response.write(piece)
        await response.write_eof()
        return response

    def _is_over(self, bound: Bound, attempt: int) -> bool:
        """Will this attempt print nothing more?"""
        now = self._pods.bound(bound.pod.key)
        if now is None or now.job is None or now.pod.metadata.uid != bound.pod.metadata.uid:
            return True
        return now.job.is_finished or now.job.status.attempt != attempt

    async def _printed(self, job: SlurmJob, attempt: int, cluster: str) -> Sequence[Printed]:
        """The files of an attempt: on the cluster, or what is kept of them while that is away."""

        def remote(*parts: str) -> Remote:
            return Remote(lambda: self._sessions.get(cluster).connection, posixpath.join(*parts))

        last = job.status.attempt
        folder = script.attempt_directory(job, attempt)
        out, err = script.streams(job)
        notes = remote(folder, script.TIMES)
        there = [
            Printed("Stdout", remote(folder, out), notes),
            Printed("Stderr", remote(folder, err)),
        ]
        if attempt == last and job.has("Downloaded"):
            try:
                await there[0].file.stat()
            except Unreachable as failure:
                place = self._kept.place(job)
                if not (place / out).is_file():
                    raise
                log.info("log from the kept copy", job=job.key, error=failure.message)
                ended = parse_rfc3339(job.status.completion_time or "1970-01-01T00:00:00Z")
                return [
                    Printed("Stdout", Kept(place / out, ended)),
                    Printed("Stderr", Kept(place / err, ended)),
                ]
        return there


def which_job(bound: Bound, container: str) -> SlurmJob:
    """The job that runs a pod's container. Raises Refused, in the kubelet's words where it has
    some."""
    pod, name = bound.pod, bound.pod.metadata.name
    if container not in [c.name for c in pod.spec.containers]:
        raise Refused(404, f'container "{container}" not found in pod "{name}"')
    if bound.job is None:
        if pod.is_terminal:
            why = pod.status.message or pod.status.reason
            raise Refused(400, f'container "{container}" in pod "{name}" did not run: {why}')
        raise Refused(400, _waits(container, name, "SlurmJobCreating"))
    state = bound.job.status
    if bound.job.is_finished and not state.job_id:
        why = state.message or state.reason
        raise Refused(400, f'container "{container}" in pod "{name}" did not run: {why}')
    return bound.job


def which_attempt(bound: Bound, job: SlurmJob, *, is_previous: bool) -> int:
    """The attempt whose log is meant: the last that has begun, or the one before. Raises
    Refused."""
    name, container = bound.pod.metadata.name, bound.pod.spec.containers[0].name
    attempt, waits = job.status.attempt, job.status.phase in ("", PENDING)
    if is_previous:
        if attempt < 2:
            words = f'previous terminated container "{container}" in pod "{name}" not found'
            raise Refused(400, words)
        return attempt - 1
    if waits and attempt < 2:
        raise Refused(400, _waits(container, name, job.status.reason or PENDING))
    return attempt - 1 if waits else attempt


def _waits(container: str, pod: str, why: str) -> str:
    return f'container "{container}" in pod "{pod}" is waiting to start: {why}'


async def _healthz(request: web.Request) -> web.Response:
    return web.Response(text="ok")


async def _usage(request: web.Request) -> web.Response:
    """Asked of every node all the time: no figures, rather than an error each time."""
    return web.Response(text="# What jobs use is in Slurm's own accounts: sacct, sstat.\n")


async def _other(request: web.Request) -> web.Response:
    first = request.path.strip("/").partition("/")[0]
    if first in _TERMINALS:
        words = (
            f"{_TERMINALS[first]} is not possible here: the pod is a batch job of a Slurm cluster."
            " kubectl logs shows what it prints"
        )
        # A Status, because that is what kubectl shows of whichever way it came.
        refused = status.to_status(status.MethodNotAllowed(words))
        return web.json_response(refused, status=501)
    if request.method != "GET" and first in ("containerLogs", "healthz", "metrics"):
        words = f"{request.method} {request.path} is not possible here, only GET is"
        return web.Response(status=405, text=f"{words}\n", headers={"Allow": "GET"})
    served = "a node that stands for a Slurm cluster has only logs of containers and /healthz"
    return web.Response(status=404, text=f"{request.path} is not here: {served}\n")
