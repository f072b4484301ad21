"""Exec, attach and port-forward: WebSockets between a client and containers.

The client's side is Kubernetes' channel protocol, v5 or v4: the first byte of a message names the
stream (0 stdin, 1 stdout, 2 stderr, 3 error, 4 resize); v5 adds 255, "this stream ends". The
runtime's side is containerd's streaming server, which speaks v4 only and has no word for the end
of stdin. So:

- exec with stdin and without a terminal runs through containerd's own task API, which has;
- everything else is handed through message by message, v5's ends of streams left out (with a
  terminal the end of input is a byte, ^D, and needs no word);
- attach is not for WebSockets (`attaching`).

The first message is empty, on the first stream that the client reads: it has begun.

Port-forward by SPDY-in-WebSocket (kubectl's way) is a pipe of bytes to containerd's SPDY server.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import aiohttp
import msgspec
from aiohttp import web

from motley.lib import journal
from motley.node.cri import spdy
from motley.node.cri.containerd import Process
from motley.node.cri.errors import RuntimeFailure
from motley.node.cri.runtime import Runtime

log = journal.get(__name__)

V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
SPDY_TUNNEL = "SPDY/3.1+portforward.k8s.io"
STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
_HEARTBEAT_S = 30.0
_CHUNK = 32 * 1024


class Streams(NamedTuple):
    """Which streams a client asks for."""

    stdin: bool
    stdout: bool
    stderr: bool
    tty: bool

    @property
    def first(self) -> int:
        """The lowest stream that the client reads; it always reads how things ended."""
        return STDOUT if self.stdout else STDERR if self.stderr else ERROR


def streams_of(query: Mapping[str, str]) -> Streams:
    """Read `stdin=true&tty=1`. Raises ValueError when none is asked for."""

    def is_set(*names: str) -> bool:
        return any(query.get(name, "").lower() in ("1", "true") for name in names)

    tty = is_set("tty")
    stderr = is_set("stderr", "error") and not tty  # a terminal has one stream for both
    found = Streams(is_set("stdin", "input"), is_set("stdout", "output"), stderr, tty)
    if not (found.stdin or found.stdout or found.stderr):
        raise ValueError("you must specify at least 1 of stdin, stdout, stderr")
    return found


def exit_status(code: int) -> bytes:
    """The `Status` that tells a client how its command ended."""
    if code == 0:
        return msgspec.json.encode({"metadata": {}, "status": "Success"})
    return msgspec.json.encode(
        {
            "metadata": {},
            "status": "Failure",
            "reason": "NonZeroExitCode",
            "message": f"command terminated with non-zero exit code: exit status {code}",
            "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
        }
    )


def failure_status(message: str) -> bytes:
    """The `Status` for a command that could not be run."""
    return msgspec.json.encode(
        {
            "metadata": {},
            "status": "Failure",
            "reason": "InternalError",
            "message": message,
            "code": 500,
        }
    )


async def accept(
    request: web.Request, protocols: tuple[str, ...] = (V5, V4)
) -> web.WebSocketResponse:
    """Take a client's WebSocket."""
    socket = web.WebSocketResponse(protocols=protocols, heartbeat=_HEARTBEAT_S, max_msg_size=0)
    await socket.prepare(request)
    return socket


async def exec_native(
    request: web.Request,
    runtime: Runtime,
    container_id: str,
    command: list[str],
    wanted: Streams,
    directory: Path,
    rng: Random,
) -> web.WebSocketResponse:
    """Run a command with stdin that can end, without a terminal."""
    socket = await accept(request)
    try:
        await socket.send_bytes(bytes([wanted.first]))
        exec_id = rng.randbytes(16).hex()
        async with Process(runtime, container_id, exec_id, command, directory) as process:
            code = await _converse(socket, process, wanted)
        if code is not None:
            await socket.send_bytes(bytes([ERROR]) + exit_status(code))
    except RuntimeFailure as error:
        if not socket.closed:
            await socket.send_bytes(bytes([ERROR]) + failure_status(str(error)))
    await socket.close()
    return socket


async def _converse(socket: web.WebSocketResponse, process: Process, wanted: Streams) -> int | None:
    """Carry bytes both ways until the command ends; None when the client went away first."""
    code: int | None = None

    async def outgoing(stream: str, channel: int, is_wanted: bool) -> None:
        async for data in process.read(stream):  # also what nobody wants, or the command would wait
            if is_wanted:
                await socket.send_bytes(bytes([channel]) + data)

    async def incoming() -> None:
        async for message in socket:
            if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
                continue
            channel, data = message.data[0], message.data[1:]
            if channel == STDIN:
                await process.write(data)
            elif channel == CLOSE and data[:1] == bytes([STDIN]):
                await process.close_stdin()

    async def finish() -> None:
        nonlocal code
        async with asyncio.TaskGroup() as streams:
            streams.create_task(outgoing("stdout", STDOUT, wanted.stdout))
            streams.create_task(outgoing("stderr", STDERR, wanted.stderr))
        code = await process.wait()

    async with asyncio.TaskGroup() as group:
        reader = group.create_task(incoming())
        ending = group.create_task(finish())
        await asyncio.wait({reader, ending}, return_when=asyncio.FIRST_COMPLETED)
        reader.cancel()
        ending.cancel()
    return code


async def bridge(
    request: web.Request, http: aiohttp.ClientSession, url: str
) -> web.WebSocketResponse:
    """Hand messages through between the client (v5 or v4) and the runtime (v4)."""
    parts = urlsplit(url)
    target = parts._replace(scheme="wss" if parts.scheme == "https" else "ws").geturl()
    async with http.ws_connect(target, protocols=(V4,), max_msg_size=0, ssl=False) as upstream:
        socket = await accept(request)

        async def to_runtime() -> None:
            async for message in socket:
                if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
                    continue
                if message.data[0] != CLOSE:
                    await upstream.send_bytes(message.data)

        async def to_client() -> None:
            async for message in upstream:
                if message.type is aiohttp.WSMsgType.BINARY and message.data:
                    await socket.send_bytes(message.data)

        async with asyncio.TaskGroup() as group:
            up = group.create_task(to_runtime())
            down = group.create_task(to_client())
            await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
            up.cancel()
            down.cancel()
        await socket.close()
        return socket


async def tunnel_spdy(request: web.Request, url: str) -> web.WebSocketResponse:
    """kubectl's port-forward: SPDY bytes inside WebSocket messages, to containerd's SPDY server."""
    reader, writer = await spdy.upgrade(url, "portforward.k8s.io")
    try:
        socket = await accept(request, (SPDY_TUNNEL,))

        async def to_runtime() -> None:
            async for message in socket:
                if message.type is aiohttp.WSMsgType.BINARY:
                    writer.write(message.data)
                    await writer.drain()

        async def to_client() -> None:
            while data := await reader.read(_CHUNK):
                await socket.send_bytes(data)

        async with asyncio.TaskGroup() as group:
            up = group.create_task(quietly(to_runtime()))
            down = group.create_task(quietly(to_client()))
            await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
            up.cancel()
            down.cancel()
        await socket.close()
        return socket
    finally:
        writer.close()


async def quietly(work: Any) -> None:
    """A peer that hangs up ends a tunnel, it does not fail it."""
    try:
        await work
    except (ConnectionError, asyncio.IncompleteReadError) as error:
        log.debug("tunnel ended", error=error)
