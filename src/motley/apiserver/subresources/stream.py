"""`pods/exec`, `attach` and `portforward`: WebSocket frames, relayed to the node agent and back.

The subprotocol (`v5.channel.k8s.io`, `v4.channel.k8s.io`, kubectl's SPDY tunnel) is agreed with
the agent first and then with the client, so both ends speak the same one and this process need not
understand the frames.

Invariant: when either side ends, the other is ended too, with the same code.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

import aiohttp

from motley.api import status
from motley.apiserver.answer import Answer
from motley.apiserver.core import Core
from motley.apiserver.request import RequestInfo
from motley.apiserver.subresources import connect
from motley.apiserver.verbs.call import Call
from motley.lib import journal

log = journal.get(__name__)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

SUBRESOURCES = {"exec": "exec", "attach": "attach", "portforward": "portForward"}
PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
# kubectl since 1.31 forwards ports as SPDY inside WebSocket messages.
TUNNEL = "SPDY/3.1+portforward.k8s.io"
_TERMINAL = ("command", "stdin", "stdout", "stderr", "tty")
# 64 MiB: a frame is a piece of a stream; nobody sends larger ones.
_FRAME_LIMIT = 64 * 1024 * 1024


async def plain(core: Core, call: Call) -> Answer:
    """A request that is no WebSocket: kubectl before 1.31 with SPDY, or a mistake.

    Also what a later kubectl tries when its WebSocket was refused, so the reason is told here too.
    """
    query = call.info.query
    await connect.admit(core, call.kind, call.info)
    await core.agents.target(call.namespace, call.info.name, query.text("container"))
    raise status.BadRequest(
        "unable to upgrade: only WebSocket is supported here (kubectl 1.31 or later uses it)"
    )


async def relay(
    core: Core, info: RequestInfo, offered: Sequence[str], receive: Receive, send: Send
) -> None:
    """Connect both sides and pass frames until one of them ends."""
    if info.subresource == "exec" and not info.query.get("command"):
        raise status.BadRequest("you must specify at least 1 command for the container")
    known = (TUNNEL, *PROTOCOLS) if info.subresource == "portforward" else PROTOCOLS
    common = [p for p in known if p in offered]
    if offered and not common:
        raise status.BadRequest(
            f"unable to upgrade: none of the subprotocols {', '.join(offered)} is supported, "
            f"offer one of {', '.join(known)}"
        )
    agent = await _connect(core, info, common)
    async with agent:
        await receive()  # websocket.connect
        await send({"type": "websocket.accept", "subprotocol": agent.protocol})
        await _pass_on(core, agent, receive, send)


async def _connect(
    core: Core, info: RequestInfo, protocols: Sequence[str]
) -> aiohttp.ClientWebSocketResponse:
    query = info.query
    target = await core.agents.target(info.namespace, info.name, query.text("container"))
    if info.subresource == "portforward":
        target = target._replace(container="")
        passed = [("port", port) for port in query.get("ports") or query.get("port") or ()]
    else:
        passed = [(key, value) for key in _TERMINAL for value in query.get(key) or ()]
    url = target.url(SUBRESOURCES[info.subresource], passed, "wss")
    try:
        return await core.agents.session().ws_connect(
            url, protocols=protocols, max_msg_size=_FRAME_LIMIT, autoping=True, heartbeat=30
        )
    except aiohttp.WSServerHandshakeError as error:
        raise status.from_status(
            {"message": f"node agent refused: {error.message}"}, error.status
        ) from None
    except (aiohttp.ClientError, TimeoutError) as error:
        log.warning("node agent unreachable", host=target.host, port=target.port, error=str(error))
        raise status.InternalError(f"error dialing node agent: {error}") from None


async def _pass_on(
    core: Core, agent: aiohttp.ClientWebSocketResponse, receive: Receive, send: Send
) -> None:
    code = 1000
    gone = False  # the client has left: there is nobody to say goodbye to

    async def to_client() -> None:
        nonlocal code
        async for frame in agent:
            if frame.type is aiohttp.WSMsgType.BINARY:
                await send({"type": "websocket.send", "bytes": frame.data})
            elif frame.type is aiohttp.WSMsgType.TEXT:
                await send({"type": "websocket.send", "text": frame.data})
        code = agent.close_code or 1000

    async def to_agent() -> None:
        nonlocal gone
        while True:
            message = await receive()
            if message["type"] == "websocket.disconnect":
                gone = True
                return
            if message.get("bytes") is not None:
                await agent.send_bytes(message["bytes"])
            else:
                await agent.send_str(message.get("text") or "")

    async with asyncio.TaskGroup() as group:
        upward = group.create_task(to_client())
        downward = group.create_task(to_agent())
        core.streams.add(upward)
        upward.add_done_callback(core.streams.discard)
        upward.add_done_callback(lambda _: downward.cancel())
        downward.add_done_callback(lambda _: upward.cancel())
    if not gone:
        # 1005 and 1006 are words about a connection, not codes to send.
        await send({"type": "websocket.close", "code": code if code not in (1005, 1006) else 1000})
