"""The dialects of Kubernetes' channel protocol, for clients that do not speak an agent's own.

The first byte of a WebSocket message names a stream: 0 stdin, 1 stdout, 2 stderr, 3 error, 4
resize; of a forwarded port, its data and its errors. Agents speak v5 and v4, and pass kubectl's
SPDY tunnel on. What older clients and browsers speak differs from v4 in two things only:

- base64: messages are text, the stream's number is a digit, and what follows is in base64;
- before v4: the error stream has the words of what went wrong, and nothing when all went well, in
  place of a `Status`. A client that offers no subprotocol means this one.

Invariant: an agent is never offered anything but v5, v4 and the tunnel.
"""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass, replace

from motley.api import codec, status

V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
# kubectl since 1.31 forwards ports as SPDY inside WebSocket messages.
TUNNEL = "SPDY/3.1+portforward.k8s.io"
_ERROR = 3
_ZERO = ord("0")


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a client's messages are read and written."""

    name: str
    """The subprotocol the client is told; empty when it offered none."""
    agents: tuple[str, ...] = (V4,)
    """What an agent is offered."""
    is_base64: bool = False
    is_worded: bool = False

    def told(self, chosen: str | None) -> str | None:
        """The subprotocol for the client's handshake, when the agent has chosen one."""
        return chosen if self.name in self.agents else self.name or None

    def to_agent(self, message: bytes) -> bytes | None:
        """A client's message in the agent's words; None when it says nothing an agent knows.

        Kubernetes takes text for bytes and skips what it cannot read, and so do we.
        """
        if not self.is_base64 or not message:
            return message or None
        try:
            data = base64.b64decode(message[1:].translate(None, b"\r\n"), validate=True)
        except binascii.Error:
            return None
        channel = message[0] - _ZERO
        return bytes([channel]) + data if channel in range(10) else None

    def to_client(self, frame: bytes) -> bytes | str | None:
        """An agent's message in the client's words; None when there are none for it."""
        if not frame:
            return frame
        if self.is_worded and frame[0] == _ERROR and len(frame) > 1:
            words = _words(frame[1:])
            if words is None:
                return None
            frame = frame[:1] + words
        if self.is_base64:
            return chr(_ZERO + frame[0]) + base64.b64encode(frame[1:]).decode()
        return frame


def _words(told: bytes) -> bytes | None:
    try:
        outcome = codec.decode(told)
    except status.BadRequest:
        return told
    if not isinstance(outcome, dict) or outcome.get("status") == "Success":
        return None
    return str(outcome.get("message") or outcome.get("reason") or "").encode()


_PORTS = {
    d.name: d
    for d in (
        Dialect(TUNNEL, (TUNNEL,)),
        Dialect(V4),
        Dialect("v4.base64.channel.k8s.io", is_base64=True),
        Dialect(""),
    )
}
_TERMINALS = {
    d.name: d
    for d in (
        Dialect(V5, (V5,)),
        Dialect(V4),
        Dialect("v4.base64.channel.k8s.io", is_base64=True),
        Dialect("channel.k8s.io", is_worded=True),
        Dialect("base64.channel.k8s.io", is_base64=True, is_worded=True),
        Dialect("", is_worded=True),
    )
}
_FIRST = (V5, TUNNEL)


def choose(subresource: str, offered: Sequence[str]) -> Dialect:
    """The dialect to speak: v5 or the tunnel if offered, else the first known; 400 for none."""
    known = _PORTS if subresource == "portforward" else _TERMINALS
    ordered = sorted(offered or ("",), key=lambda name: name not in _FIRST)
    chosen = next((known[name] for name in ordered if name in known), None)
    if chosen is None:
        raise status.BadRequest(
            f"unable to upgrade: none of the subprotocols {', '.join(offered)} is supported, "
            f"offer one of {', '.join(filter(None, known))}"
        )
    if chosen.name == V5 and V4 in offered:
        return replace(chosen, agents=(V5, V4))  # an older agent may know no better
    return chosen
