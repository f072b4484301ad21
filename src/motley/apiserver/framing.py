"""Logs and watches over a WebSocket: the stream that HTTP would carry, cut into messages.

A log comes as bytes (`binary.k8s.io`, or no subprotocol) or as text in base64
(`base64.binary.k8s.io`), after one empty message that says it has begun. A watch comes as text, one
event a message. What the client sends is not looked at.

Invariant: joined, the messages are what the same request gets without a WebSocket.
"""

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from motley.api import status
from motley.apiserver import answer, pumping
from motley.apiserver.answer import JSON, Answer, Stream
from motley.apiserver.core import Core
from motley.apiserver.request import RequestInfo
from motley.lib import journal

log = journal.get(__name__)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

BINARY, BASE64 = "binary.k8s.io", "base64.binary.k8s.io"
# As long as a client without a WebSocket may leave its answer unread.
SLOW_CLIENT_S = 60.0
_REFUSAL_LIMIT = 64 * 1024


def check(info: RequestInfo, offered: Sequence[str]) -> None:
    """400 for what is no stream, and for a log in a form that there is not."""
    if info.verb != "watch" and info.subresource != "log":
        raise status.BadRequest("this resource cannot be upgraded to a WebSocket")
    if info.subresource == "log" and offered and not {BINARY, BASE64} & set(offered):
        raise status.BadRequest(
            f"unable to upgrade: none of the subprotocols {', '.join(offered)} is supported, "
            f"offer one of {BINARY}, {BASE64}"
        )


def subprotocol(info: RequestInfo, offered: Sequence[str]) -> str | None:
    """The one to answer, the client's first that is good; a watch comes in one form by any name."""
    good = offered if info.verb == "watch" else [p for p in offered if p in (BINARY, BASE64)]
    return good[0] if good else None


async def serve(
    core: Core,
    info: RequestInfo,
    offered: Sequence[str],
    stream: Stream,
    receive: Receive,
    send: Send,
) -> None:
    """Send the stream until it ends, the client leaves, or the server stops."""
    chosen = subprotocol(info, offered)
    if info.verb == "watch":
        messages = _events(stream.chunks)
    else:
        messages = _pieces(stream.chunks, is_text=chosen == BASE64)
    await receive()  # websocket.connect
    await send({"type": "websocket.accept", "subprotocol": chosen})
    takes_messages = True

    async def pump() -> None:
        nonlocal takes_messages
        async for message in messages:
            try:
                async with asyncio.timeout(SLOW_CLIENT_S):
                    await send({"type": "websocket.send", **message})
            except TimeoutError:
                log.warning("client too slow for its messages", path=info.path)
                takes_messages = False
                return
            except OSError:  # the server's word for a client that is gone
                takes_messages = False
                return

    has_ended = await pumping.run(core, pump(), receive, "websocket.disconnect")
    if has_ended and takes_messages:
        await send({"type": "websocket.close", "code": 1000})


async def refuse(result: Answer, receive: Receive, send: Send) -> None:
    """Answer a WebSocket's handshake with an ordinary response."""
    await receive()  # websocket.connect
    head = {**result.headers, "content-type": result.content_type}
    head["content-length"] = str(result.length)
    await send(
        {
            "type": "websocket.http.response.start",
            "status": result.code,
            "headers": [(k.encode(), v.encode()) for k, v in head.items()],
        }
    )
    await send({"type": "websocket.http.response.body", "body": result.body})


async def refusal(info: RequestInfo, result: Answer | Stream) -> Answer | None:
    """What to refuse the handshake with; None when there is a stream to send."""
    if isinstance(result, Answer):
        return result
    if result.code != 200:  # another server's refusal, passed on
        body = b""
        async for chunk in result.chunks:
            body += chunk
            if len(body) >= _REFUSAL_LIMIT:
                break
        return Answer(body[:_REFUSAL_LIMIT], result.code, result.content_type)
    if info.verb == "watch" and not result.content_type.startswith(JSON):
        return answer.of_error(status.NotAcceptable("a watch over WebSocket is JSON"))
    return None


async def _pieces(chunks: AsyncIterator[bytes], *, is_text: bool) -> AsyncIterator[Message]:
    def message(piece: bytes) -> Message:
        return {"text": base64.b64encode(piece).decode()} if is_text else {"bytes": piece}

    yield message(b"")
    async for chunk in chunks:
        yield message(chunk)


async def _events(chunks: AsyncIterator[bytes]) -> AsyncIterator[Message]:
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield {"text": line.decode() + "\n"}
    if rest:
        yield {"text": rest.decode()}
