"""Health check node ports: a load balancer asks each node whether it has endpoints itself.

A Service of type LoadBalancer with `externalTrafficPolicy: Local` drops what reaches a node without
endpoints, so the load balancer must learn which nodes have some: 200 there, 503 elsewhere.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec

from motley.api.views.base import Key
from motley.api.views.core import EndpointSlice, Service
from motley.lib import journal

log = journal.get(__name__)

_REQUEST_TIMEOUT_S = 5.0
_AGAIN_S = 10.0


class Check(NamedTuple):
    """One Service's question: on which port, and how many endpoints to tell."""

    port: int
    endpoints: int


def check(service: Service | None, slices: Iterable[EndpointSlice], node_name: str) -> Check | None:
    """What to serve for a Service; None for nearly all of them."""
    if service is None:
        return None
    spec = service.spec
    local = spec.type == "LoadBalancer" and spec.external_traffic_policy == "Local"
    if not local or not spec.health_check_node_port:
        return None
    ready = {
        address
        for piece in slices
        for endpoint in piece.endpoints
        if endpoint.node_name == node_name and endpoint.conditions.ready is not False
        for address in endpoint.addresses[:1]
    }
    return Check(spec.health_check_node_port, len(ready))


def answer(key: Key, endpoints: int, healthy: bool) -> bytes:
    """The whole HTTP answer."""
    body = msgspec.json.encode(
        {
            "service": {"namespace": key.namespace, "name": key.name},
            "localEndpoints": endpoints,
            "serviceProxyHealthy": healthy,
        }
    )
    code = "200 OK" if endpoints and healthy else "503 Service Unavailable"
    return (
        f"HTTP/1.1 {code}\r\nContent-Type: application/json\r\nX-Content-Type-Options: nosniff\r\n"
        f"X-Load-Balancing-Endpoint-Weight: {endpoints}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    ).encode() + body


class HealthChecks:
    """Serves every check on its port, on all addresses of the node."""

    def __init__(self, is_healthy: Callable[[], bool]) -> None:
        self._is_healthy = is_healthy
        self._checks: dict[Key, Check] = {}
        self._servers: dict[int, asyncio.Server] = {}
        self._wake = asyncio.Event()

    def put(self, key: Key, wanted: Check | None) -> None:
        """What to serve for this Service from now on."""
        before = self._checks.get(key)
        if wanted is not None:
            self._checks[key] = wanted
        else:
            self._checks.pop(key, None)
        if (before and before.port) != (wanted and wanted.port):
            self._wake.set()

    async def run(self) -> None:
        """Keep the right ports open until cancelled; a port that is taken is tried again."""
        try:
            while True:
                self._wake.clear()
                complete = await self._listen({c.port: key for key, c in self._checks.items()})
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(None if complete else _AGAIN_S):
                        await self._wake.wait()
        finally:
            for server in self._servers.values():
                server.close()

    async def _listen(self, wanted: Mapping[int, Key]) -> bool:
        for port in self._servers.keys() - wanted.keys():
            self._servers.pop(port).close()
        for port in wanted.keys() - self._servers.keys():
            try:
                self._servers[port] = await asyncio.start_server(self._serve, None, port)
            except OSError as error:
                log.warning("health check port cannot be opened", port=port, error=error)
        return self._servers.keys() == wanted.keys()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = writer.get_extra_info("sockname")[1]
        try:
            async with asyncio.timeout(_REQUEST_TIMEOUT_S):
                await reader.readuntil(b"\r\n\r\n")
                for key, wanted in self._checks.items():
                    if wanted.port == port:
                        writer.write(answer(key, wanted.endpoints, self._is_healthy()))
                        break
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as e:
            log.debug("health check broken off", error=repr(e))
        finally:
            writer.close()
