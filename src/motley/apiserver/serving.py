"""The TLS socket: uvicorn, and new certificates while it serves.

Certificates are files that others replace (`motley certs`, an operator). When they change, a second
listener with the new ones takes over the same socket and the first is closed: no connection is
refused meanwhile, and those that are open go on. When an authority is no longer trusted, those that
were let in by it must not go on: every connection is asked to close after its present answer, and
watches end, so that their clients come back and show who they are.

Invariant: a handshake sees the old set of files or the new one, never a mixture.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import uvicorn
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from motley.apiserver import slowclients, tls
from motley.apiserver.protocol import HttpProtocol, WebSocketProtocol
from motley.lib import journal
from motley.lib.clock import Clock

log = journal.get(__name__)

LOOK_EVERY_S = 1.0
DRAIN_S = 1  # for requests in flight; whoever has not taken its answer by then is slow
KEEP_ALIVE_S = 90  # longer than Go's idle timeout of 90 s would cut connections it still uses
BACKLOG = 1024

Renewed = Callable[[bytes], Awaitable[None]]
"""Called with the PEM of the trusted authorities after the server has taken new files over."""


class Application(Protocol):
    """What is served."""

    def end_streams(self) -> None:
        """End every stream; the server is about to stop."""

    def renew_streams(self) -> None:
        """End every stream; its client is to come back at once."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """ASGI's entry point."""


class HttpsServer(uvicorn.Server):
    """uvicorn without its signal handlers, which `motley.lib.tasks` owns; it can change its
    certificates."""

    def __init__(self, settings: uvicorn.Config, pki: tls.Pki, listener: socket.socket) -> None:
        super().__init__(settings)
        self._pki = pki
        self._listener = listener  # each asyncio server has a copy, and closes it

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen with the certificates of now."""
        await self.lifespan.startup()
        self.servers = [await self._listen()]
        self.started = True

    async def reload(self) -> None:
        """Listen with the certificates of now instead of those before. Raises SSLError, OSError."""
        fresh = await self._listen()
        before, self.servers = self.servers, [fresh]
        for server in before:
            server.close()

    def let_go(self) -> None:
        """Ask every connection to close, after the answer it is waiting for."""
        for connection in list(self.server_state.connections):
            connection.shutdown()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, then let requests in flight end."""
        self.close()
        await super().shutdown(sockets)

    def close(self) -> None:
        """Let go of the socket."""
        self._listener.close()

    async def _listen(self) -> asyncio.Server:
        context = server_context(self._pki)
        self.config.ssl = context
        loop = asyncio.get_running_loop()

        def protocol() -> asyncio.Protocol:
            made: asyncio.Protocol = HttpProtocol(
                config=self.config,
                server_state=self.server_state,
                app_state=self.lifespan.state,
                _loop=loop,
            )
            return made

        return await loop.create_server(
            protocol, sock=self._listener.dup(), ssl=context, backlog=BACKLOG
        )


def server_context(pki: tls.Pki) -> ssl.SSLContext:
    """Serve with our certificate; a client may show one of our authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki.cert_file, pki.key_file)
    context.load_verify_locations(cafile=str(pki.ca_file))
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


def agent_context(pki: tls.Pki) -> ssl.SSLContext:
    """What the server shows to node agents, and whom it takes for one.

    An agent's certificate must be good for the address it is called by: the authority alone would
    let any node answer in another's place.
    """
    context = ssl.create_default_context(cafile=str(pki.ca_file))
    context.load_cert_chain(pki.kubelet_client_cert_file, pki.kubelet_client_key_file)
    return context


async def serve(
    host: str,
    port: int,
    app: Application,
    pki: tls.Pki,
    listener: socket.socket,
    clock: Clock,
    renewed: Renewed | None = None,
) -> None:
    """Serve until cancelled, then close the listener; `renewed` is told of changed files."""
    settings = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=HttpProtocol,
        ws=WebSocketProtocol,
        ws_ping_interval=None,
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=DRAIN_S,
        backlog=BACKLOG,
    )
    server = HttpsServer(settings, pki, listener)
    connections: Any = server.server_state.connections
    try:
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(server.serve(), name="https")
            beside = [
                group.create_task(follow(server, app, pki, clock, renewed), name="certificates"),
                group.create_task(slowclients.sweep_forever(connections, clock), name="patience"),
            ]
            try:
                await asyncio.shield(serving)
            except asyncio.CancelledError:
                app.end_streams()
                server.should_exit = True
                await serving
                raise
            finally:
                for task in beside:
                    task.cancel()
    finally:
        server.close()


async def follow(
    server: HttpsServer,
    app: Application,
    pki: tls.Pki,
    clock: Clock,
    renewed: Renewed | None,
) -> None:
    """Take over every change of the certificates' files."""
    files = (pki.ca_file, pki.cert_file, pki.key_file)
    trusted = authorities(pki.ca_file.read_bytes())
    seen = state_of(files)
    complained: object = None
    while True:
        await clock.sleep(LOOK_EVERY_S)
        found = state_of(files)
        if found == seen:
            continue
        try:
            ca_pem = pki.ca_file.read_bytes()
            now_trusted = authorities(ca_pem)
            await server.reload()
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            if complained != found:  # half written, perhaps: the next look tells
                log.warning("new certificates not taken yet", error=str(error))
                complained = found
            continue
        seen = found
        if renewed is not None:
            await renewed(ca_pem)
        log.info("certificates taken over", authorities=len(now_trusted))
        if trusted - now_trusted:
            app.renew_streams()
            server.let_go()
        trusted = now_trusted


def authorities(pem: bytes) -> frozenset[bytes]:
    """The certificates in a bundle, by their bytes."""
    return frozenset(
        one.fingerprint(hashes.SHA256()) for one in x509.load_pem_x509_certificates(pem)
    )


def state_of(files: tuple[Path, ...]) -> tuple[tuple[int, int, int], ...]:
    """What tells one version of the files from the next."""
    found = []
    for path in files:
        try:
            about = path.stat()
        except FileNotFoundError:
            found.append((0, 0, 0))
        else:
            found.append((about.st_ino, about.st_mtime_ns, about.st_size))
    return tuple(found)
