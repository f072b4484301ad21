"""`pods/exec`, `attach` and `portforward`: WebSocket frames, relayed to the node agent and back.

What a client may speak, and what that is in an agent's words, is in `channels`. The agent is
connected first, so that its refusal is the client's.

Invariant: when either side ends, the other is ended too, with the same code.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

import aiohttp

from motley.api import status
from motley.apiserver import agents
from motley.apiserver.answer import Answer
from motley.apiserver.core import Core
from motley.apiserver.request import Query, RequestInfo
from motley.apiserver.subresources import channels, connect
from motley.apiserver.verbs.call import Call
from motley.lib import journal

log = journal.get(__name__)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

SUBRESOURCES = {"exec": "exec", "attach": "attach", "portforward": "portForward"}
_STREAMS = ("stdin", "stdout", "stderr", "tty")
# 64 MiB: a frame is a piece of a stream; nobody sends larger ones.
_FRAME_LIMIT = 64 * 1024 * 1024
_IMPOSSIBLE = 501
_ASKING = aiohttp.ClientTimeout(total=5)


async def plain(core: Core, call: Call) -> Answer:
    """A request that is no WebSocket: kubectl before 1.31 with SPDY, or a mistake.

    Also what a later kubectl tries when its WebSocket was refused, so the reason is told here too.
    """
    await connect.admit(core, call.kind, call.info)
    target = await _target(core, call.info)
    await _refuse_where_impossible(core, target, SUBRESOURCES[call.info.subresource])
    raise status.BadRequest(
        "unable to upgrade: only WebSocket is supported here (kubectl 1.31 or later uses it)"
    )


async def relay(
    core: Core, info: RequestInfo, offered: Sequence[str], receive: Receive, send: Send
) -> None:
    """Connect both sides and pass frames until one of them ends."""
    if info.subresource == "exec" and not info.query.get("command"):
        raise status.BadRequest("you must specify at least 1 command for the container")
    if info.subresource != "portforward" and not any(map(info.query.flag, _STREAMS[:3])):
        raise status.BadRequest("you must specify at least 1 of stdin, stdout, stderr")
    dialect = channels.choose(info.subresource, offered)
    if info.subresource == "portforward" and dialect.name != channels.TUNNEL:
        _check_ports(info.query)  # in the tunnel each stream names its own
    agent = await _connect(core, info, dialect.agents)
    async with agent:
        await receive()  # websocket.connect
        chosen = dialect.told(agent.protocol)
        await send({"type": "websocket.accept", "subprotocol": chosen})
        await _pass_on(core, agent, dialect, receive, send)


def _check_ports(query: Query) -> None:
    given = ",".join(query.get("ports") or query.get("port") or ())
    if not given:
        raise status.BadRequest('query parameter "ports" is required')
    for port in given.split(","):
        if not (port.isascii() and port.isdigit() and 1 <= int(port[:6]) <= 65535):
            raise status.BadRequest(f'unable to parse "{port}" as a port')


async def _target(core: Core, info: RequestInfo) -> agents.Target:
    """Ports belong to the pod, whatever containers it has."""
    container = None if info.subresource == "portforward" else info.query.text("container")
    return await core.agents.target(info.namespace, info.name, container)


async def _connect(
    core: Core, info: RequestInfo, protocols: Sequence[str]
) -> aiohttp.ClientWebSocketResponse:
    query = info.query
    target = await _target(core, info)
    if info.subresource == "portforward":
        passed = [("port", port) for port in query.get("ports") or query.get("port") or ()]
    else:
        passed = [("command", word) for word in query.get("command") or ()]
        passed += [(name, "true") for name in _STREAMS if query.flag(name)]
    what = SUBRESOURCES[info.subresource]
    url = target.url(what, passed, "wss")
    try:
        return await core.agents.session().ws_connect(
            url, protocols=protocols, max_msg_size=_FRAME_LIMIT, autoping=True, heartbeat=30
        )
    except aiohttp.WSServerHandshakeError as error:
        if error.status == _IMPOSSIBLE:
            await _refuse_where_impossible(core, target, what)
        raise status.from_status(
            {"message": f"node agent refused: {error.message}"}, error.status
        ) from None
    except (aiohttp.ClientError, TimeoutError) as error:
        log.warning("node agent unreachable", host=target.host, port=target.port, error=str(error))
        raise status.InternalError(f"error dialing node agent: {error}") from None


async def _refuse_where_impossible(core: Core, target: agents.Target, what: str) -> None:
    """Raise the words of an agent whose pods have no such thing as terminals or ports.

    An answer to a WebSocket has none, so it is asked again, in a way that starts nothing."""
    try:
        async with core.agents.session().options(target.url(what, []), timeout=_ASKING) as answer:
            if answer.status == _IMPOSSIBLE:
                raise await agents.refusal(answer)
    except (aiohttp.ClientError, TimeoutError) as error:
        log.info("node agent not asked", host=target.host, port=target.port, error=str(error))


async def _pass_on(
    core: Core,
    agent: aiohttp.ClientWebSocketResponse,
    dialect: channels.Dialect,
    receive: Receive,
    send: Send,
) -> None:
    code = 1000
    gone = False  # the client has left: there is nobody to say goodbye to

    async def to_client() -> None:
        nonlocal code, gone
        async for frame in agent:
            if frame.type is not aiohttp.WSMsgType.BINARY:
                continue
            message = dialect.to_client(frame.data)
            if message is None:
                continue
            form = "text" if isinstance(message, str) else "bytes"
            try:
                await send({"type": "websocket.send", form: message})
            except OSError:  # the server's word for a client that is gone
                gone = True
                return
        code = agent.close_code or 1000

    async def to_agent() -> None:
        nonlocal gone
        while True:
            message = await receive()
            if message["type"] == "websocket.disconnect":
                gone = True
                return
            said = message.get("bytes")
            if said is None:  # many clients type in text: the same to Kubernetes
                said = (message.get("text") or "").encode()
            frame = dialect.to_agent(said)
            if frame is None:
                continue
            try:
                await agent.send_bytes(frame)
            except ConnectionError as error:  # over; what it said last is still on its way up
                log.debug("agent has ended", error=str(error))

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
