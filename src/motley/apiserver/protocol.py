"""uvicorn's protocols, taught to hand over the TLS client certificate.

ASGI has no agreed place for it, and uvicorn passes none: these subclasses put the DER bytes of
the verified peer certificate into `scope["state"]["peer_certificate"]`, taken once for each
connection. Everything else is uvicorn's.
"""

import asyncio
import ssl
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

PEER = "peer_certificate"


def _peer_certificate(transport: asyncio.BaseTransport) -> bytes | None:
    connection: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
    return connection.getpeercert(binary_form=True) if connection is not None else None


class HttpProtocol(HttpToolsProtocol):
    """HTTP/1.1 with the client certificate in the scope's state."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Read the certificate once, when the handshake is over."""
        self.app_state: dict[str, Any] = {
            **self.app_state,
            PEER: _peer_certificate(transport),
        }
        super().connection_made(transport)


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """WebSocket with the client certificate in the scope's state."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Read the certificate once, when the handshake is over."""
        self.app_state: dict[str, Any] = {
            **self.app_state,
            PEER: _peer_certificate(transport),
        }
        super().connection_made(transport)
