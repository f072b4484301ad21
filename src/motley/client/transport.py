"""HTTP to a cluster's API servers: connections, credentials, retries, errors. Bytes in, bytes out.

A server that says "later" (429, 5xx with Retry-After) or cannot be reached is asked again a few
times, with jitter; so is one that fails to answer a question (GET). Where the cluster has several
servers, requests go round them, and what one could not answer the next is asked at once.
A credential the server refuses is fetched anew, once: it may have been rotated.
Invariant: a request that may have reached the server is repeated only when repeating it cannot do
harm (GET).
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import replace
from random import Random
from typing import Any
from weakref import WeakSet

import aiohttp
import msgspec
from multidict import CIMultiDict

from motley.api import status
from motley.client.endpoints import Endpoints
from motley.client.execplugin import Credential, Plugin, PluginError
from motley.client.kubeconfig import Config
from motley.lib import journal
from motley.lib.backoff import Backoff
from motley.lib.clock import Clock

log = journal.get(__name__)

REQUEST_TIMEOUT_S = 30.0
_CONNECT_TIMEOUT_S = 5.0
_CONNECT_ELSEWHERE_S = 2.0  # a machine that is gone refuses nothing: where there are others, go on
_SILENT_S = 3.0  # a request given up after this long tells against the server
_ATTEMPTS = 5
_RETRY_AFTER_CAP_S = 30.0
_IN_FLIGHT = 64  # requests at once; watches are not counted, they last
_TOKEN_MAX_AGE_S = 60.0
_CLOSE_STEPS, _CLOSE_STEP_S = 100, 0.01  # a peer that does not answer is left after a second


class Transport:
    """One aiohttp session; `open` and `close` it."""

    def __init__(self, config: Config, user_agent: str, clock: Clock, rng: Random) -> None:
        self._config = config
        self._user_agent = user_agent
        self._clock = clock
        self._rng = rng
        self._http: aiohttp.ClientSession | None = None
        self._slots = asyncio.Semaphore(_IN_FLIGHT)
        self._sockets: WeakSet[socket.socket] = WeakSet()
        self._left: list[aiohttp.ClientSession] = []  # of certificates before: one per renewal
        self._token = ""
        self._token_read = float("-inf")
        self._plugin = Plugin(config.exec, clock) if config.exec else None
        self._credential: Credential | None = None
        self._endpoints = Endpoints(config.servers, clock, rng)

    def open(self) -> None:
        """Make the session; raises ConfigError when its certificates are not usable."""
        self._http = self._connect(self._config)

    def _connect(self, config: Config) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            ssl=config.ssl_context() or False, limit=0, socket_factory=self._socket
        )
        return aiohttp.ClientSession(
            proxy=config.proxy_url,
            connector=connector,
            # Compression costs more than the loopback or a rack's network does.
            headers={"User-Agent": self._user_agent, "Accept-Encoding": "identity"},
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def close(self) -> None:
        """Close every connection and wait until they are: TLS says goodbye before it goes."""
        if self._http is None:
            return
        for session in (*self._left, self._http):
            await session.close()
        self._left.clear()
        self._http = None
        for _ in range(_CLOSE_STEPS):
            if all(sock.fileno() == -1 for sock in self._sockets):
                break
            await self._clock.sleep(_CLOSE_STEP_S)

    def recertify(self, config: Config) -> None:
        """Show another certificate on connections made from now on.

        Watches under way go on with the connections they have, and end in their own time.
        """
        self._left.append(self._session)
        self._http, self._config = self._connect(config), config
        self._endpoints.replace(config.servers)

    async def call(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        headers: Mapping[str, str] | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> bytes:
        """The answer's bytes; raises the ApiError the server answered with."""
        data = None if body is None else msgspec.json.encode(body)
        kinds = {"Accept": accept, **(headers or {})}
        if data is not None:
            kinds["Content-Type"] = content_type
        backoff = Backoff(base_s=0.1, cap_s=5.0, rng=self._rng)
        may_refresh = True
        server = ""
        while True:
            server = self._endpoints.choose(avoid=server)
            try:
                return await self._once(server, method, path, data, params, kinds, timeout_s)
            except status.ApiError as error:
                if isinstance(error, status.Unauthorized) and may_refresh and self._refresh():
                    may_refresh = False
                    continue
                wait_s = _retry_wait_s(error, method, backoff)
                if wait_s is None:
                    raise
                log.debug("request retried", method=method, path=path, error=error.message)
                if error.code == 429 or not self._endpoints.has_other:
                    await self._clock.sleep(wait_s)

    async def lines(
        self, path: str, params: Mapping[str, str], silence_s: float
    ) -> AsyncGenerator[bytes, None]:
        """The lines of a GET that lasts, until the server ends it or is silent for `silence_s`.

        Raises ServiceUnavailable when the connection breaks.
        """
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=self._connect_s, sock_read=silence_s
        )
        await self._renew_credential()
        headers = self._headers()
        server = self._endpoints.choose()
        try:
            async with self._session.request(
                "GET",
                server + path,
                params=params,
                headers=headers,
                timeout=timeout,
                server_hostname=self._config.tls_server_name,
            ) as response:
                self._endpoints.answered(server)
                if response.status != 200:
                    raise _error(response, await response.read())
                async for line in _lines(response.content):
                    yield line
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._endpoints.failed(server)
            raise status.ServiceUnavailable(f"watch {path}: {_reason(error)}") from error

    async def _once(
        self,
        server: str,
        method: str,
        path: str,
        data: bytes | None,
        params: Mapping[str, str] | None,
        kinds: Mapping[str, str],
        timeout_s: float,
    ) -> bytes:
        await self._renew_credential()
        headers = self._headers()
        headers.update(kinds)
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=self._connect_s)
        async with self._slots:
            begun = self._clock.monotonic()
            try:
                async with self._session.request(
                    method,
                    server + path,
                    params=params,
                    data=data,
                    headers=headers,
                    timeout=timeout,
                    server_hostname=self._config.tls_server_name,
                ) as response:
                    answer = await response.read()
                    self._endpoints.answered(server)
                    if response.status >= 400:
                        raise _error(response, answer)
                    return answer
            except aiohttp.ClientConnectorError as error:
                self._endpoints.failed(server)
                raise _Unreached(f"{server}: {_reason(error)}") from error
            except asyncio.CancelledError:
                if self._clock.monotonic() - begun >= _SILENT_S:
                    self._endpoints.failed(server)  # whoever asked could not wait any longer
                raise
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                self._endpoints.failed(server)
                raise _Interrupted(f"{method} {path}: {_reason(error)}") from error

    @property
    def _connect_s(self) -> float:
        return _CONNECT_TIMEOUT_S if len(self._endpoints) == 1 else _CONNECT_ELSEWHERE_S

    @property
    def _session(self) -> aiohttp.ClientSession:
        if self._http is None:
            raise RuntimeError("the client is used outside its `async with` block")
        return self._http

    def _headers(self) -> CIMultiDict[str]:
        headers: CIMultiDict[str] = CIMultiDict(Accept="application/json")
        authorization = self._authorization()
        if authorization:
            headers["Authorization"] = authorization
        if self._config.impersonate is not None:
            headers.extend(self._config.impersonate.headers())
        return headers

    def _authorization(self) -> str:
        config = self._config
        if self._credential is not None:
            return f"Bearer {self._credential.token}" if self._credential.token else ""
        if config.token_file is not None:
            now = self._clock.monotonic()
            if now - self._token_read > _TOKEN_MAX_AGE_S:
                self._token, self._token_read = config.token_file.read_text().strip(), now
            return f"Bearer {self._token}"
        return config.authorization

    async def _renew_credential(self) -> None:
        """Ask the plugin, if there is one; another certificate needs other connections."""
        if self._plugin is None:
            return
        try:
            credential = await self._plugin.credential()
        except PluginError as error:
            raise status.Unauthorized(str(error)) from error
        before, self._credential = self._credential, credential
        if credential.client_cert != (before.client_cert if before else None):
            certified = replace(
                self._config,
                client_cert=credential.client_cert,
                client_key=credential.client_key,
            )
            old, self._http = self._session, self._connect(certified)
            await old.close()

    def _refresh(self) -> bool:
        """Forget a credential the server refused; False when there is no other to be had."""
        if self._plugin is not None and self._credential is not None:
            self._plugin.forget(self._credential)
            return True
        if self._config.token_file is not None:
            self._token_read = float("-inf")
            return True
        return False

    def _socket(self, address: Any) -> socket.socket:
        sock = _keepalive_socket(address)
        self._sockets.add(sock)
        return sock


class _Unreached(status.ServiceUnavailable):
    """No connection was made, so nothing happened: any request may be repeated."""


class _Interrupted(status.GatewayTimeout):
    """The connection broke or timed out after the request left: only a GET may be repeated."""


def _retry_wait_s(error: status.ApiError, method: str, backoff: Backoff) -> float | None:
    """Seconds to wait before trying again, or None when the caller must decide."""
    if backoff.attempt >= _ATTEMPTS - 1:
        return None
    if isinstance(error, _Unreached) or (isinstance(error, _Interrupted) and method == "GET"):
        return backoff.next()
    if error.retry_after_s is not None and (error.code == 429 or error.code >= 500):
        return min(float(error.retry_after_s), _RETRY_AFTER_CAP_S) + backoff.next()
    if method == "GET" and (error.code == 429 or error.code >= 500):
        return backoff.next()
    return None


def _error(response: aiohttp.ClientResponse, body: bytes) -> status.ApiError:
    try:
        document = msgspec.json.decode(body)
    except msgspec.DecodeError:
        document = None
    if not isinstance(document, dict) or document.get("kind") != "Status":
        text = body[:500].decode(errors="replace").strip()
        document = {"message": f"{response.method} {response.url.path}: {response.status} {text}"}
    error = status.from_status(document, response.status)
    header = response.headers.get("Retry-After", "")
    if error.retry_after_s is None and header.isdigit():
        error.retry_after_s = int(header)
    return error


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Whole lines of any length; what remains after the last newline is a broken line."""
    rest = b""
    async for chunk in content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line:
                yield line


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _keepalive_socket(address: Any) -> socket.socket:
    """A silent peer is noticed within half a minute, although a watch may be quiet for ten."""
    family, kind, protocol, _, _ = address
    sock = socket.socket(family=family, type=kind, proto=protocol)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    sock.setblocking(False)
    return sock
