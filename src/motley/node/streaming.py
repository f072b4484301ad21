"""Exec, attach and port-forward: WebSockets between a client and containers.

The client's side is Kubernetes' channel protocol, v5 or v4: the first byte of a message names the
stream (0 stdin, 1 stdout, 2 stderr, 3 error, 4 resize); v5 adds 255, "this stream ends". The
runtime's side is containerd's streaming server, which speaks v4 only and has no word for the end
of stdin. So:

- exec with stdin and without a terminal runs through containerd's own task API, which has;
- everything else is handed through message by message, v5's ends of streams left out (with a
  terminal the end of input is a byte, ^D, and needs no word);
- attach cannot close stdin of a container's own process: the close is ignored.

Port-forward by SPDY-in-WebSocket (kubectl's way) is a pipe of bytes to containerd's SPDY server.
"""

import asyncio
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec
from aiohttp import web

from motley.lib import journal
from motley.node.cri.containerd import Process
from motley.node.cri.errors import RuntimeFailure
from motley.node.cri.runtime import Runtime

log = journal.get(__name__)

V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
SPDY_TUNNEL = "SPDY/3.1+portforward.k8s.io"
STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
_HEARTBEAT_S = 30.0
_CONNECT_S = 10.0
_CHUNK = 32 * 1024


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


async def _accept(request: web.Request, protocols: tuple[str, ...]) -> web.WebSocketResponse:
    socket = web.WebSocketResponse(protocols=protocols, heartbeat=_HEARTBEAT_S, max_msg_size=0)
    await socket.prepare(request)
    return socket


async def exec_native(
    request: web.Request,
    runtime: Runtime,
    container_id: str,
    command: list[str],
    directory: Path,
    rng: Random,
) -> web.WebSocketResponse:
    """Run a command with stdin that can end, without a terminal."""
    socket = await _accept(request, (V5, V4))
    try:
        exec_id = rng.randbytes(16).hex()
        async with Process(runtime, container_id, exec_id, command, directory) as process:
            code = await _converse(socket, process)
        if code is not None:
            await socket.send_bytes(bytes([ERROR]) + exit_status(code))
    except RuntimeFailure as error:
        if not socket.closed:
            await socket.send_bytes(bytes([ERROR]) + failure_status(str(error)))
    await socket.close()
    return socket


async def _converse(socket: web.WebSocketResponse, process: Process) -> int | None:
    """Carry bytes both ways until the command ends; None when the client went away first."""
    code: int | None = None

    async def outgoing(stream: str, channel: int) -> None:
        async for data in process.read(stream):
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
            streams.create_task(outgoing("stdout", STDOUT))
            streams.create_task(outgoing("stderr", STDERR))
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
        socket = await _accept(request, (V5, V4))

        async def to_runtime() -> None:
            async for message in socket:
                if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
                    continue
                if message.data[0] != CLOSE:
                    await upstream.send_bytes(message.data)

        async def to_client() -> None:
            async for message in upstream:
                if message.type is aiohttp.WSMsgType.BINARY and len(message.data) > 1:
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
    parts = urlsplit(url)
    async with asyncio.timeout(_CONNECT_S):
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        writer.write(
            f"POST {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: Upgrade\r\n"
            "Upgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: portforward.k8s.io\r\n"
            "Content-Length: 0\r\n\r\n".encode()
        )
        answer = await reader.readuntil(b"\r\n\r\n")
    try:
        if b" 101 " not in answer.split(b"\r\n", 1)[0]:
            raise RuntimeFailure(f"runtime refused to forward: {answer[:100]!r}")
        socket = await _accept(request, (SPDY_TUNNEL,))

        async def to_runtime() -> None:
            async for message in socket:
                if message.type is aiohttp.WSMsgType.BINARY:
                    writer.write(message.data)
                    await writer.drain()

        async def to_client() -> None:
            while data := await reader.read(_CHUNK):
                await socket.send_bytes(data)

        async with asyncio.TaskGroup() as group:
            up = group.create_task(_quietly(to_runtime()))
            down = group.create_task(_quietly(to_client()))
            await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
            up.cancel()
            down.cancel()
        await socket.close()
        return socket
    finally:
        writer.close()


async def _quietly(work: Any) -> None:
    """A peer that hangs up ends a tunnel, it does not fail it."""
    try:
        await work
    except (ConnectionError, asyncio.IncompleteReadError) as error:
        log.debug("tunnel ended", error=error)
