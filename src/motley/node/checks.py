"""One check of a container: HTTP, TCP, gRPC or a command. Used by probes and lifecycle hooks.

Checks go from the node to the pod's address, as a client would.
"""

import asyncio
import ssl
from dataclasses import dataclass
from typing import NamedTuple

import aiohttp
import grpc.aio

from motley.api.views.pod import (
    Container,
    ExecAction,
    GRPCAction,
    HTTPGetAction,
    LifecycleHandler,
    Probe,
    TCPSocketAction,
)
from motley.lib.clock import Clock
from motley.node.cri.errors import RuntimeFailure
from motley.node.cri.runtime import Runtime

_BODY_SHOWN = 512


class Verdict(NamedTuple):
    """Did it pass, and what was seen."""

    is_good: bool
    output: str


class CheckError(Exception):
    """The check could not even be made: it names a port the container does not have."""


@dataclass(frozen=True, slots=True)
class Target:
    """What is checked."""

    container_id: str
    container: Container
    address: str


def resolve_port(port: int | str, container: Container) -> int:
    """A port number, or the number of a named port."""
    if isinstance(port, int) or port.isdigit():
        return int(port)
    for known in container.ports:
        if known.name == port:
            return known.container_port
    raise CheckError(f'container {container.name} has no port named "{port}"')


class Checker:
    """Makes checks; holds one HTTP session for all of them."""

    def __init__(self, runtime: Runtime, http: aiohttp.ClientSession, clock: Clock) -> None:
        self._runtime = runtime
        self._http = http
        self._clock = clock

    async def probe(self, probe: Probe, target: Target) -> Verdict:
        """Make a probe's check once, within its timeout."""
        timeout = float(probe.timeout_seconds)
        try:
            if probe.exec is not None:
                return await self._exec(probe.exec, target, timeout)
            async with asyncio.timeout(timeout):
                if probe.http_get is not None:
                    return await self._http_get(probe.http_get, target, timeout)
                if probe.tcp_socket is not None:
                    return await self._tcp(probe.tcp_socket, target)
                if probe.grpc is not None:
                    return await self._grpc(probe.grpc, target, timeout)
        except TimeoutError:
            return Verdict(False, f"no answer within {probe.timeout_seconds} s")
        except (OSError, aiohttp.ClientError, RuntimeFailure, CheckError) as error:
            return Verdict(False, str(error) or type(error).__name__)
        return Verdict(True, "nothing to check")

    async def hook(self, handler: LifecycleHandler, target: Target, timeout_s: float) -> Verdict:
        """Run a lifecycle hook to its end, or until its time is over."""
        try:
            async with asyncio.timeout(timeout_s):
                if handler.exec is not None:
                    return await self._exec(handler.exec, target, timeout_s)
                if handler.http_get is not None:
                    return await self._http_get(handler.http_get, target, timeout_s)
                if handler.sleep is not None:
                    await self._clock.sleep(handler.sleep.seconds)
        except TimeoutError:
            return Verdict(False, f"did not end within {timeout_s:g} s")
        except (OSError, aiohttp.ClientError, RuntimeFailure, CheckError) as error:
            return Verdict(False, str(error) or type(error).__name__)
        return Verdict(True, "")

    async def _exec(self, action: ExecAction, target: Target, timeout_s: float) -> Verdict:
        result = await self._runtime.exec_sync(target.container_id, action.command, timeout_s)
        output = (result.stdout + result.stderr)[:_BODY_SHOWN].decode("utf-8", "replace")
        return Verdict(result.exit_code == 0, output.strip() or f"exit code {result.exit_code}")

    async def _http_get(self, action: HTTPGetAction, target: Target, timeout_s: float) -> Verdict:
        port = resolve_port(action.port, target.container)
        host = action.host or target.address
        bracketed = f"[{host}]" if ":" in host else host
        path = action.path if action.path.startswith("/") else f"/{action.path}"
        headers = {h.name: h.value for h in action.http_headers}
        headers.setdefault("User-Agent", "kube-probe/1.37")
        headers.setdefault("Accept", "*/*")
        async with self._http.get(
            f"{action.scheme.lower()}://{bracketed}:{port}{path}",
            headers=headers,
            ssl=False,  # a probe asks whether it answers, not who it is
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=timeout_s),
        ) as response:
            body = (await response.content.read(_BODY_SHOWN)).decode("utf-8", "replace")
        if 200 <= response.status < 400:
            return Verdict(True, body)
        return Verdict(False, f"HTTP probe failed with statuscode: {response.status}")

    async def _tcp(self, action: TCPSocketAction, target: Target) -> Verdict:
        port = resolve_port(action.port, target.container)
        _, writer = await asyncio.open_connection(action.host or target.address, port)
        writer.close()
        try:
            await writer.wait_closed()
        except (OSError, ssl.SSLError):
            return Verdict(True, "")  # it accepted; how it ends is not asked
        return Verdict(True, "")

    async def _grpc(self, action: GRPCAction, target: Target, timeout_s: float) -> Verdict:
        """`grpc.health.v1.Health/Check`, whose two messages are small enough to write by hand."""
        name = action.service.encode()
        request = bytes([0x0A, len(name)]) + name if name else b""
        async with grpc.aio.insecure_channel(f"{target.address}:{action.port}") as channel:
            call = channel.unary_unary("/grpc.health.v1.Health/Check")
            try:
                answer: bytes = await call(request, timeout=timeout_s)
            except grpc.aio.AioRpcError as error:
                return Verdict(False, error.details() or error.code().name)
        # field 1, varint: 1 is SERVING
        is_serving = answer[:2] == b"\x08\x01"
        return Verdict(is_serving, "" if is_serving else "service is not SERVING")
