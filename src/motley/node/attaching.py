"""Attach: a client's WebSocket on one side, the runtime's streams on the other.

Whether the end of a client's input is the end of the container's is up to the container. With
`stdinOnce` it is, and the client is shown the rest of the output. Without, or with a terminal, the
input stays open for the next client, and the runtime lets this one go at once: we tell it a little
later, so that the answer to the last line still arrives. A client without input ends nothing.
"""

import asyncio

import aiohttp
from aiohttp import web

from motley.lib import journal
from motley.lib.clock import Clock
from motley.node import streaming
from motley.node.cri import spdy
from motley.node.streaming import CLOSE, ERROR, RESIZE, STDERR, STDIN, STDOUT, Streams

log = journal.get(__name__)

_PROTOCOL = streaming.V4
_LAST_ANSWER_S = 2.0  # generous for a line that is read and answered, short for who waits
_NAMES = {ERROR: "error", STDIN: "stdin", STDOUT: "stdout", STDERR: "stderr", RESIZE: "resize"}


def said(message: bytes) -> tuple[int, bytes | None]:
    """The stream that a client's message is about, and what it says; None: the stream ends."""
    if message[0] == CLOSE:
        return message[1] if len(message) > 1 else CLOSE, None
    return message[0], message[1:]


async def attach(
    request: web.Request, url: str, wanted: Streams, clock: Clock, *, is_once: bool
) -> web.WebSocketResponse:
    """Carry the streams that are wanted both ways, until the runtime or the client ends."""
    async with spdy.Session(*await spdy.upgrade(url, _PROTOCOL)) as session:
        asked = [ERROR]
        asked += [STDIN] * wanted.stdin + [STDOUT] * wanted.stdout + [STDERR] * wanted.stderr
        asked += [RESIZE] * wanted.tty
        streams = {
            channel: await session.open({"streamtype": _NAMES[channel]}) for channel in asked
        }
        channels = {stream: channel for channel, stream in streams.items()}
        socket = await streaming.accept(request)
        await socket.send_bytes(bytes([wanted.first]))

        async def to_runtime() -> None:
            ended: set[int] = set()
            async for message in socket:
                if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
                    continue
                channel, data = said(message.data)
                if channel not in (STDIN, RESIZE) or channel not in streams or channel in ended:
                    continue
                try:
                    if data is not None:
                        await session.send(streams[channel], data)
                        continue
                    ended.add(channel)
                    if channel == STDIN and (wanted.tty or not is_once):
                        await clock.sleep(_LAST_ANSWER_S)
                    await session.end(streams[channel])
                except ConnectionError as error:  # over; what it said last is still on its way
                    log.debug("runtime has ended", error=error)

        async def to_client() -> None:
            async for stream, data, _ in session.received():
                if data and stream in channels:
                    await socket.send_bytes(bytes([channels[stream]]) + data)

        async with asyncio.TaskGroup() as group:
            up = group.create_task(to_runtime())
            down = group.create_task(streaming.quietly(to_client()))
            await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
            up.cancel()
            down.cancel()
        await socket.close()
        return socket
