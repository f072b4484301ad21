"""`/healthz` and `/metrics` of a component, on loopback.

A supervisor asks whether a process is up and ready; a full web framework for that would cost
more memory than some of the components. A component may add pages of its own; they are for
those who are on the same machine (or come through `kubectl port-forward`), because nobody here
asks who is calling; unless there is a guard who does, for all but readiness.
"""

import asyncio
import ipaddress
import ssl
from collections.abc import Awaitable, Callable, Mapping

from motley.lib import journal

log = journal.get(__name__)

_REQUEST_TIMEOUT_S = 5.0
_PHRASE = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}
_READINESS = frozenset({"/healthz", "/readyz", "/livez"})

Answer = tuple[int, str, bytes]  # status code, content type, body
Page = Callable[[str], Answer]  # given the query string
# Given the path and the Authorization header: 200, or 401 or 403 and nothing is shown.
Guard = Callable[[str, str], Awaitable[int]]


async def serve(
    port: int,
    ready: Callable[[], bool],
    *,
    host: str = "127.0.0.1",
    pages: Mapping[str, Page] | None = None,
    tls: ssl.SSLContext | None = None,
    guard: Guard | None = None,
) -> None:
    """Answer until cancelled: 200 "ok" once `ready()`, else 503. Port 0 serves nothing.

    `pages`: what else there is, by path, for callers on this machine only, or for whom the guard
    lets in.
    """
    if port == 0:
        return

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                refusal = await _refusal(head, guard) if guard else 0
                if refusal:
                    code, kind, body = refusal, "text/plain", b"not allowed\n"
                else:
                    page = _own_page(head, writer, pages or {}, anybody=guard is not None)
                    code, kind, body = page or answer(head, ready)
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

    server = await asyncio.start_server(handle, host, port, ssl=tls)
    log.info("health endpoint listening", host=host, port=port, tls=tls is not None)
    async with server:
        await server.serve_forever()


async def _refusal(head: bytes, guard: Guard) -> int:
    """401 or 403; 0: the caller may see what they ask for."""
    lines = head.decode("latin-1").split("\r\n")
    path = [*lines[0].split(" "), ""][1].partition("?")[0]
    if path in _READINESS:
        return 0
    headers = {name.strip().lower(): value for name, _, value in (x.partition(":") for x in lines)}
    code = await guard(path, headers.get("authorization", "").strip())
    return 0 if code == 200 else code


def _own_page(
    head: bytes, writer: asyncio.StreamWriter, pages: Mapping[str, Page], *, anybody: bool = False
) -> Answer | None:
    method, _, rest = head.decode("latin-1").partition(" ")
    path, _, query = rest.split(" ", 1)[0].partition("?")
    if method != "GET" or path not in pages:
        return None
    peer = writer.get_extra_info("peername")
    if not anybody and (not peer or not _is_loopback(peer[0])):
        return 403, "text/plain", b"only for callers on this machine\n"
    return pages[path](query)


def _is_loopback(address: str) -> bool:
    found = ipaddress.ip_address(address.partition("%")[0])
    return (getattr(found, "ipv4_mapped", None) or found).is_loopback


def answer(head: bytes, ready: Callable[[], bool]) -> Answer:
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


def _metrics() -> Answer:
    try:
        import prometheus_client
    except ModuleNotFoundError:
        return 404, "text/plain", b"prometheus_client is not installed\n"
    return 200, prometheus_client.CONTENT_TYPE_LATEST, prometheus_client.generate_latest()
