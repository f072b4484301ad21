"""Requests exactly as recorded: nothing added, nothing decoded, every one bounded in time."""

import asyncio
import io
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import msgspec
from yarl import URL

from .answer import HEADERS, Answer

_SKIP = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
_TIMEOUT_S = 30.0
_LINE_LIMIT = 16 * 1024 * 1024
_LARGE = 1 << 20


@dataclass(frozen=True)
class Target:
    """A server and how its users show who they are."""

    url: str
    ca: bytes | None = None  # None: any certificate will do
    tokens: Mapping[str, str] = field(
        default_factory=lambda: {"admin": "admintoken", "alice": "alicetoken", "bad": "nosuchtoken"}
    )
    compact: Callable[[], Awaitable[None]] | None = None  # None: its store is out of reach

    def context(self) -> ssl.SSLContext | bool:
        """What the server's certificate is checked against."""
        if self.url.startswith("http:"):
            return True
        context = ssl.create_default_context(cadata=self.ca.decode() if self.ca else None)
        if self.ca is None:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


class Transport:
    """One pool of connections to one server."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "Transport":
        connector = aiohttp.TCPConnector(ssl=self.target.context(), limit=0)
        self._session = aiohttp.ClientSession(
            connector=connector,
            auto_decompress=False,
            skip_auto_headers=_SKIP,
            read_bufsize=_LINE_LIMIT,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10.0),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()

    async def send(
        self, method: str, path: str, headers: Mapping[str, str], user: str, body: bytes | None
    ) -> Answer:
        """One request and its whole answer."""
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                async with self._request(method, path, headers, user, body) as response:
                    return _answer(response, await response.read())
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return Answer(0, raw=f"no answer: {error!r}".encode())

    def _request(
        self, method: str, path: str, headers: Mapping[str, str], user: str, body: bytes | None
    ) -> Any:
        assert self._session is not None
        return self._session.request(
            method,
            URL(self.target.url.rstrip("/") + path, encoded=True),
            headers=self._headers(headers, user),
            # aiohttp warns of large bytes; a file of them it sends in pieces.
            data=io.BytesIO(body) if body is not None and len(body) >= _LARGE else body,
            allow_redirects=False,
        )

    def _headers(self, headers: Mapping[str, str], user: str) -> dict[str, str]:
        given = {"User-Agent": "golden/1.0", **headers}
        token = self.target.tokens.get(user)
        if token and not any(name.lower() == "authorization" for name in headers):
            given["Authorization"] = f"Bearer {token}"
        return given

    async def open_watch(
        self, path: str, headers: Mapping[str, str], user: str
    ) -> "Watch | Answer":
        """A stream on a connection of its own, once its headers are there."""
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                response = await self._request("GET", path, headers, user, None)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return Answer(0, raw=f"no answer: {error!r}".encode())
        return Watch(response)


class Watch:
    """An open stream of events."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def collect(self, enough: Any, timeout_s: float) -> Answer:
        """Read until `enough(events)`, the end of the stream or the timeout; then close it."""
        answer = _answer(self._response, b"")
        is_stream = answer.status == 200
        events: list[dict[str, Any]] = []
        raw = b""
        answer.server_ended = False
        try:
            async with asyncio.timeout(timeout_s):
                while not (is_stream and enough(events)):
                    line = await self._response.content.readline()
                    if not line:
                        answer.server_ended = True
                        break
                    raw += line
                    if is_stream and line.strip():
                        events.append(_event(line))
        except TimeoutError:
            pass
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raw += f"broken stream: {error!r}".encode()
            answer.server_ended = True
        self.close()
        answer.raw = raw
        answer.events = events if is_stream else None
        return answer

    def close(self) -> None:
        """Let go of the connection."""
        self._response.close()


def _event(line: bytes) -> dict[str, Any]:
    try:
        event = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        event = None
    return event if isinstance(event, dict) else {"type": "?", "text": line.decode("latin-1")}


def _answer(response: aiohttp.ClientResponse, raw: bytes) -> Answer:
    headers = {name: ", ".join(response.headers.getall(name, [])) for name in HEADERS}
    return Answer(
        status=response.status,
        content_type=response.headers.get("Content-Type"),
        warnings=tuple(response.headers.getall("Warning", [])),
        headers={name: value for name, value in headers.items() if value},
        raw=raw,
    )
