"""`/healthz` and `/metrics` of a component, on loopback.

A supervisor asks whether a process is up and ready; a full web framework for that would cost
more memory than some of the components. Any path but `/metrics` answers with readiness.
"""

import asyncio
from collections.abc import Callable

from motley.lib import journal

log = journal.get(__name__)

_REQUEST_TIMEOUT_S = 5.0
_PHRASE = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}
_READINESS = frozenset({"/healthz", "/readyz", "/livez"})


async def serve(port: int, ready: Callable[[], bool], *, host: str = "127.0.0.1") -> None:
    """Answer until cancelled: 200 "ok" once `ready()`, else 503. Port 0 serves nothing."""
    if port == 0:
        return

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                code, kind, body = answer(head, ready)
                writer.write(
                    f"HTTP/1.1 {code} {_PHRASE[code]}\r\nContent-Type: {kind}\r\n"
                    f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
                )
                writer.write(body)
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as e:
            log.debug("health request broken off", error=repr(e))
        finally:
            writer.close()

    server = await asyncio.start_server(handle, host, port)
    log.info("health endpoint listening", host=host, port=port)
    async with server:
        await server.serve_forever()


def answer(head: bytes, ready: Callable[[], bool]) -> tuple[int, str, bytes]:
    """Status code, content type and body for a request head."""
    method, _, rest = head.decode("latin-1").partition(" ")
    path = rest.split(" ", 1)[0].split("?", 1)[0]
    if method not in ("GET", "HEAD"):
        return 405, "text/plain", b"method not allowed\n"
    if path == "/metrics":
        return _metrics()
    if path not in _READINESS:
        return 404, "text/plain", b"not found\n"
    if path == "/livez" or ready():
        return 200, "text/plain", b"ok"
    return 503, "text/plain", b"not ready"


def _metrics() -> tuple[int, str, bytes]:
    try:
        import prometheus_client
    except ModuleNotFoundError:
        return 404, "text/plain", b"prometheus_client is not installed\n"
    return 200, prometheus_client.CONTENT_TYPE_LATEST, prometheus_client.generate_latest()
