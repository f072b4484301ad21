"""Asking a component whether it is ready, with nothing but sockets.

The supervisor is alive as long as the cluster is, so it stays small: no HTTP library for requests
of one line.
"""

import asyncio
import ssl
from functools import lru_cache
from urllib.parse import urlsplit

from motley.ops.supervision import Outcome

TIMEOUT_S = 3.0


async def ask(target: str, timeout_s: float = TIMEOUT_S) -> Outcome:
    """Ask `unix:/path` (does it take a connection?) or an http(s) address (does it say 200?)."""
    try:
        async with asyncio.timeout(timeout_s):
            if target.startswith("unix:"):
                _, writer = await asyncio.open_unix_connection(target.removeprefix("unix:"))
                writer.close()
                return Outcome.READY
            return Outcome.READY if await _status(target) == 200 else Outcome.NOT_READY
    except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
        return Outcome.SILENT


async def _status(url: str) -> int:
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    host, port = parts.hostname or "127.0.0.1", parts.port or (443 if secure else 80)
    context = _encrypted() if secure else None
    reader, writer = await asyncio.open_connection(host, port, ssl=context)
    try:
        request = f"GET {parts.path or '/'} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        writer.write(request.encode())
        await writer.drain()
        line = await reader.readuntil(b"\r\n")
        return int(line.split()[1])
    except IndexError:
        raise ValueError("not HTTP") from None
    finally:
        writer.close()


@lru_cache(maxsize=1)
def _encrypted() -> ssl.SSLContext:
    """The probe goes to our own child on loopback and carries no secret: nothing to verify."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
