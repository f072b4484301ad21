"""uvicorn's protocols, taught to hand over the TLS client certificate and to write at once.

ASGI has no agreed place for either: these subclasses put the DER bytes of the verified peer
certificate into `scope["state"]["peer_certificate"]`, taken once for each connection, and beside
it what makes a `Push`: a change that a hundred watchers get is written by the code that has it,
without waking a hundred tasks to do so. Everything else is uvicorn's.
"""

import asyncio
import dataclasses
import logging
import ssl
import sys
from collections.abc import MutableMapping
from typing import Any

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.datastructures import Headers
from websockets.http11 import Request
from websockets.server import ServerProtocol

from motley.apiserver import answer

PEER = "peer_certificate"
PUSHER = "pusher"
_TARGET = "target"


def _peer_certificate(transport: asyncio.BaseTransport) -> bytes | None:
    connection: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
    return connection.getpeercert(binary_form=True) if connection is not None else None


def _no_push(chunk: bytes) -> bool:
    return False


class HttpProtocol(HttpToolsProtocol):
    """HTTP/1.1 with the client certificate, and a way to push, in the scope's state."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Read the certificate once, when the handshake is over."""
        self.app_state: dict[str, Any] = {
            **self.app_state,
            PEER: _peer_certificate(transport),
            PUSHER: self.pusher,
        }
        super().connection_made(transport)

    def pusher(self, scope: MutableMapping[str, Any]) -> answer.Push:
        """How to write chunks of a request's answer, which must have begun, past its task.

        Nothing is written, and False said, once the client reads too slowly or is gone; the task
        then does what it does for any stream. It must not send anything meanwhile.
        """
        cycle, flow, transport = self.cycle, self.flow, self.transport
        # A request that was sent ahead of its turn has taken the cycle's place already.
        is_possible = cycle.scope is scope and cycle.chunked_encoding and scope["method"] != "HEAD"

        def push(chunk: bytes) -> bool:
            if flow.write_paused or cycle.disconnected or cycle.response_complete:
                return False
            if chunk:  # an empty one would end the answer
                transport.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
            return True

        return push if is_possible else _no_push

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over, and the path beside it.

        The command of a terminal is in the path, and may be long: the WebSocket library ends a
        connection whose request line is longer than 8 KiB.
        """
        if not self.url.isascii():
            self.send_400_response("Invalid HTTP request received.")
            return
        self.app_state[_TARGET] = self.url.decode("ascii")
        self.url = b"/"
        super().handle_websocket_upgrade()

    def send_400_response(self, msg: str) -> None:
        """A method that HTTP does not know is refused as one that the API does not know."""
        if not isinstance(sys.exception(), httptools.HttpParserInvalidMethodError):
            super().send_400_response(msg)
            return
        refusal = answer.of_error(answer.method_not_allowed())
        head = (
            f"HTTP/1.1 405 Method Not Allowed\r\ncontent-type: {refusal.content_type}\r\n"
            f"content-length: {len(refusal.body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + refusal.body)
        self.transport.close()


class _Handshake(ServerProtocol):
    """Leaves the subprotocol to the application.

    kubectl's port-forward offers `SPDY/3.1+portforward.k8s.io`, whose slash is not allowed in a
    subprotocol's name; the library would refuse the handshake for it.
    """

    def process_subprotocol(self, headers: Headers) -> None:
        """Choose nothing: the application's accept message names the subprotocol."""


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """WebSocket with the client certificate in the scope's state."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.conn = _Handshake(
            extensions=self.conn.available_extensions,
            max_size=config.ws_max_size,
            logger=logging.getLogger("uvicorn.error"),
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Read the certificate once, when the handshake is over."""
        self.app_state: dict[str, Any] = {
            **self.app_state,
            PEER: _peer_certificate(transport),
        }
        super().connection_made(transport)

    def handle_connect(self, event: Request) -> None:
        """Begin with the path as the client sent it."""
        super().handle_connect(dataclasses.replace(event, path=self.app_state.pop(_TARGET)))
