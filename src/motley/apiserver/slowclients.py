"""Clients that keep a connection busy and do nothing with it are let go.

Three kinds: those that never finish a request's head, those that never finish its body, and those
that do not read their answer. Every few seconds all connections are looked at; nothing is counted
while requests are served.

Invariant: an idle connection between two requests, and a watch without news, are left alone.
"""

from collections.abc import Iterable
from typing import NamedTuple

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from motley.lib import journal
from motley.lib.clock import Clock

log = journal.get(__name__)

HEAD_S = 32.0  # kube-apiserver's ReadHeaderTimeout
BODY_S = 60.0  # its limit for a whole request
ANSWER_S = 60.0  # without a byte taken
SWEEP_S = 5.0


class _Stuck(NamedTuple):
    """What a connection is stuck with, since when, and how much was left to be read then."""

    what: str
    since: float
    unread: int


_PATIENCE_S = {"head": HEAD_S, "body": BODY_S, "answer": ANSWER_S}


class SlowClients:
    """Watches over the connections of one server."""

    def __init__(self, patience_s: dict[str, float] | None = None) -> None:
        self._patience_s = patience_s or _PATIENCE_S
        self._stuck: dict[HttpToolsProtocol, _Stuck] = {}

    def sweep(self, connections: Iterable[object], now: float) -> int:
        """Look at every connection once; how many were closed."""
        before, self._stuck = self._stuck, {}
        closed = 0
        for connection in list(connections):
            if not isinstance(connection, HttpToolsProtocol):
                continue  # a WebSocket: the node's agent, or `framing`, watches over it
            what, unread = stuck_with(connection)
            if not what:
                continue
            known = before.get(connection)
            if known is None or known.what != what or unread < known.unread:
                known = _Stuck(what, now, unread)
            if now - known.since >= self._patience_s[what]:
                log.info("slow client let go", client=connection.client, waited_for=what)
                connection.transport.abort()
                closed += 1
            else:
                self._stuck[connection] = known
        return closed


async def sweep_forever(connections: Iterable[object], clock: Clock) -> None:
    """Sweep until cancelled."""
    clients = SlowClients()
    while True:
        await clock.sleep(SWEEP_S)
        clients.sweep(connections, clock.monotonic())


def stuck_with(connection: HttpToolsProtocol) -> tuple[str, int]:
    """What the client has to do next, and how much of its answer it has not taken."""
    if unread := connection.transport.get_write_buffer_size():
        return "answer", unread
    cycle = connection.cycle
    if cycle is None or cycle.response_complete:
        # Between requests a timer runs; it is stopped by the first byte of the next one.
        return ("head", 0) if connection.timeout_keep_alive_task is None else ("", 0)
    return ("body", 0) if cycle.more_body else ("", 0)
