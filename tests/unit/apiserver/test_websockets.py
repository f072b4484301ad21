"""Terminals, forwarded ports, logs and watches over WebSocket, in every dialect there is.

The server listens on a real socket; the node agent is a stand-in that speaks v5 and v4 only.
"""

import asyncio
import base64
import contextlib
import json
import socket
from dataclasses import dataclass, field

import aiohttp
import pytest
import uvicorn
from aiohttp import WSMsgType, web

from motley.apiserver import framing
from motley.apiserver.authn import subprotocol
from motley.apiserver.protocol import HttpProtocol, WebSocketProtocol
from motley.lib import selfsigned

MAPS = "/api/v1/namespaces/demo/configmaps"
PODS = "/api/v1/namespaces/demo/pods"
AGENTS = ["v5.channel.k8s.io", "v4.channel.k8s.io", "SPDY/3.1+portforward.k8s.io"]
FAILED = {"status": "Failure", "message": "exit status 7", "reason": "NonZeroExitCode"}
EVERY_DIALECT = [
    # what is offered, what is answered, is it base64, has it a Status
    (["v5.channel.k8s.io"], "v5.channel.k8s.io", False, True),
    (["v4.channel.k8s.io"], "v4.channel.k8s.io", False, True),
    (["v4.base64.channel.k8s.io"], "v4.base64.channel.k8s.io", True, True),
    (["channel.k8s.io"], "channel.k8s.io", False, False),
    (["base64.channel.k8s.io"], "base64.channel.k8s.io", True, False),
    ([], None, False, False),
]


@dataclass
class Agent:
    """Says a little, repeats what it hears, and tells how it ended."""

    port: int = 0
    offered: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    outcome: dict = field(default_factory=lambda: FAILED)

    async def stream(self, request):
        self.asked.append(request.path_qs)
        self.offered = request.headers.get("Sec-WebSocket-Protocol", "").split(",")
        found = web.WebSocketResponse(protocols=AGENTS)
        await found.prepare(request)
        await found.send_bytes(b"\x01")
        await found.send_bytes(b"\x01out\n")
        if "stdin=true" in request.query_string:
            heard = await found.receive(timeout=20)
            assert heard.type is WSMsgType.BINARY
            await found.send_bytes(b"\x02" + heard.data)
        await found.send_bytes(b"\x03" + json.dumps(self.outcome).encode())
        await found.close()
        return found

    async def forward(self, request):
        self.asked.append(request.path_qs)
        found = web.WebSocketResponse(protocols=AGENTS)
        await found.prepare(request)
        for channel in (b"\x00", b"\x01"):
            await found.send_bytes(channel + (7000).to_bytes(2, "little"))
        heard = await found.receive(timeout=20)
        await found.send_bytes(heard.data.upper())
        await found.close()
        return found

    async def logs(self, request):
        return web.Response(text="one\ntwo\n")


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self):
        yield


class Client:
    """Opens WebSockets to the server under test."""

    def __init__(self, api, http, base) -> None:
        self.api = api
        self._http = http
        self._base = base
        self.address = ("127.0.0.1", int(base.rpartition(":")[2]))

    @contextlib.asynccontextmanager
    async def open(self, path, offered=(), *, token="admin"):
        headers = {"authorization": f"Bearer {token}"} if token else {}
        async with asyncio.timeout(10):
            async with self._http.ws_connect(
                self._base + path, protocols=offered, headers=headers
            ) as found:
                yield found

    async def messages(self, path, offered=(), typed=None):
        """All messages of a stream, and the subprotocol that was answered."""
        async with self.open(path, offered) as found:
            if isinstance(typed, str):
                await found.send_str(typed)
            elif typed is not None:
                await found.send_bytes(typed)
            return [message.data async for message in found], found.protocol

    async def refusal(self, path, offered=(), *, token="admin"):
        """The code of a refused handshake."""
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            async with self.open(path, offered, token=token):
                pass
        return caught.value.status


@pytest.fixture
async def client(api):
    settings = uvicorn.Config(
        api.app,
        http=HttpProtocol,
        ws=WebSocketProtocol,
        ws_ping_interval=None,
        lifespan="off",
        log_config=None,
        access_log=False,
    )
    server = _Server(settings)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        base = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with asyncio.TaskGroup() as group, aiohttp.ClientSession() as http:
            group.create_task(server.serve(sockets=[listener]))
            yield Client(api, http, base)
            api.app.end_streams()
            server.should_exit = True


@pytest.fixture
async def agent(api, a_pod):
    """A stand-in, its node, and the pod `p` of two containers on it."""
    found = Agent()
    app = web.Application()
    app.router.add_get("/{what:exec|attach}/{rest:.*}", found.stream)
    app.router.add_get("/portForward/{rest:.*}", found.forward)
    app.router.add_get("/containerLogs/{rest:.*}", found.logs)
    runner = web.AppRunner(app, max_line_size=100_000)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=selfsigned.context("stand-in"))
    await site.start()
    found.port = site._server.sockets[0].getsockname()[1]
    await api.create("/api/v1/nodes", {"metadata": {"name": "n"}})
    state = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": found.port}},
    }
    await api.patch("/api/v1/nodes/n/status", {"status": state})
    pod = a_pod(nodeName="n")
    pod["spec"]["containers"].append({"name": "d", "image": "x"})
    await api.create(PODS, pod)
    yield found
    await runner.cleanup()


def _shown(channel, data, *, is_base64):
    if is_base64:
        return f"{channel}{base64.b64encode(data).decode()}"
    return bytes([channel]) + data


@pytest.mark.parametrize(("offered", "told", "is_base64", "has_status"), EVERY_DIALECT)
async def test_a_command_runs_in_every_dialect(client, agent, offered, told, is_base64, has_status):
    path = f"{PODS}/p/exec?container=c&command=ls&stdin=1&stdout=1&stderr=1"
    typed = _shown(0, b"typed", is_base64=is_base64)

    messages, protocol = await client.messages(path, offered, typed)

    ending = json.dumps(FAILED).encode() if has_status else b"exit status 7"
    said = [(1, b""), (1, b"out\n"), (2, b"\x00typed"), (3, ending)]
    assert messages == [_shown(*one, is_base64=is_base64) for one in said]
    assert protocol == told
    assert agent.offered == (offered if told == AGENTS[0] else ["v4.channel.k8s.io"])
    assert agent.asked == [
        "/exec/demo/p/c?command=ls&stdin=true&stdout=true&stderr=true",
    ]


async def test_a_success_needs_no_words_before_v4(client, agent):
    agent.outcome = {"status": "Success"}
    path = f"{PODS}/p/attach?container=c&stdout=1"

    assert await client.messages(path, ["channel.k8s.io"]) == (
        [b"\x01", b"\x01out\n"],
        "channel.k8s.io",
    )


async def test_what_is_typed_as_text_arrives(client, agent):
    path = f"{PODS}/p/exec?container=c&command=sh&stdin=1&stdout=1"

    messages, _ = await client.messages(path, ["v4.channel.k8s.io"], "\0é")

    assert b"\x02\x00" + "é".encode() in messages


async def test_a_command_may_be_long(client, agent):
    path = f"{PODS}/p/exec?container=c&command=echo&command={'a' * 30_000}&stdout=1"

    messages, _ = await client.messages(path, ["v5.channel.k8s.io"])

    assert messages[1] == b"\x01out\n"
    assert f"command={'a' * 30_000}&" in agent.asked[0]


async def test_a_path_that_is_not_ascii_is_refused(client):
    reader, writer = await asyncio.open_connection(*client.address)
    upgrade = "connection: upgrade\r\nupgrade: websocket"
    writer.write(f"GET /é HTTP/1.1\r\nhost: x\r\n{upgrade}\r\n\r\n".encode())
    async with asyncio.timeout(20):
        assert await reader.readline() == b"HTTP/1.1 400 Bad Request\r\n"
    writer.close()


async def test_a_message_that_is_no_base64_is_skipped(client, agent):
    path = f"{PODS}/p/exec?container=c&command=sh&stdin=1&stdout=1"
    async with client.open(path, ["base64.channel.k8s.io"]) as found:
        for typed in ("0!!", "", "0b2s="):
            await found.send_str(typed)
        messages = [message.data async for message in found]

    assert "2" + base64.b64encode(b"\x00ok").decode() in messages


@pytest.mark.parametrize(
    ("subresource", "offered", "chosen"),
    [
        ("exec", ["v4.channel.k8s.io", "v5.channel.k8s.io"], "v5.channel.k8s.io"),
        ("exec", ["base64.channel.k8s.io", "v4.channel.k8s.io"], "base64.channel.k8s.io"),
        ("exec", ["x", "channel.k8s.io"], "channel.k8s.io"),
        ("portforward", ["v4.channel.k8s.io", AGENTS[2]], AGENTS[2]),
    ],
)
async def test_the_newest_is_chosen_else_the_client_s_first(
    client, agent, subresource, offered, chosen
):
    path = f"{PODS}/p/{subresource}?container=c&command=ls&stdout=1&ports=1"
    async with client.open(path, offered) as found:
        assert found.protocol == chosen


async def test_an_unknown_dialect_and_a_terminal_without_streams_are_refused(client, agent):
    assert await client.refusal(f"{PODS}/p/exec?container=c&command=ls&stdout=1", ["x"]) == 400
    assert await client.refusal(f"{PODS}/p/portforward?ports=1", ["channel.k8s.io"]) == 400
    assert await client.refusal(f"{PODS}/p/attach?container=c&tty=1") == 400
    for ports in ("", "ports=", "ports=70000", "ports=80,x", "ports=80&ports=0"):
        assert await client.refusal(f"{PODS}/p/portforward?{ports}", ["v4.channel.k8s.io"]) == 400
    assert await client.refusal(f"{PODS}/p/log?container=c", ["channel.k8s.io"]) == 400
    assert agent.asked == []


@pytest.mark.parametrize(
    ("offered", "is_base64"),
    [([], False), (["v4.channel.k8s.io"], False), (["v4.base64.channel.k8s.io"], True)],
)
async def test_a_port_of_a_pod_with_several_containers_is_forwarded(
    client, agent, offered, is_base64
):
    typed = _shown(0, b"hello", is_base64=is_base64)

    messages, protocol = await client.messages(f"{PODS}/p/portforward?ports=7000", offered, typed)

    port = (7000).to_bytes(2, "little")
    said = [(0, port), (1, port), (0, b"HELLO")]
    assert messages == [_shown(*one, is_base64=is_base64) for one in said]
    assert protocol == (offered[0] if offered else None)
    assert agent.asked == ["/portForward/demo/p?port=7000"]


@pytest.mark.parametrize(
    ("offered", "messages"),
    [
        ([], [b"", b"one\ntwo\n"]),
        (["binary.k8s.io"], [b"", b"one\ntwo\n"]),
        (["x", "base64.binary.k8s.io"], ["", base64.b64encode(b"one\ntwo\n").decode()]),
    ],
)
async def test_a_log_comes_in_messages(client, agent, offered, messages):
    found = await client.messages(f"{PODS}/p/log?container=c", offered)

    assert found == (messages, offered[-1] if offered else None)


async def test_a_watch_comes_as_one_message_for_each_event(client):
    for name in "ab":
        await client.api.create(MAPS, {"metadata": {"name": name}})
    async with client.open(f"{MAPS}?watch=1&fieldSelector=metadata.name!=c", ["any"]) as found:
        assert found.protocol == "any"
        first = [json.loads(await found.receive_str()) for _ in "ab"]
        await client.api.create(MAPS, {"metadata": {"name": "c"}})
        await client.api.delete(f"{MAPS}/a")
        then = await found.receive_str()
        client.api.app.renew_streams()
        ended = await found.receive()

    assert [(e["type"], e["object"]["metadata"]["name"]) for e in first] == [
        ("ADDED", "a"),
        ("ADDED", "b"),
    ]
    assert then.endswith("}\n")
    assert json.loads(then)["type"] == "DELETED"
    assert (ended.type, found.close_code) == (WSMsgType.CLOSE, 1000)


async def test_a_watcher_that_leaves_is_forgotten(client):
    streams = client.api.app._core.streams
    async with client.open(f"{MAPS}?watch=1"):
        assert len(streams) == 1
    async with asyncio.timeout(20):
        while streams:
            await asyncio.wait(streams, timeout=0.1)


async def test_an_event_in_two_pieces_is_one_message():
    async def chunks():
        for chunk in (b'{"a":1}\n{"b"', b':"\xc3', b'\xa9"}\n', b'{"c":3}'):
            yield chunk

    messages = [message["text"] async for message in framing._events(chunks())]

    assert messages == ['{"a":1}\n', '{"b":"é"}\n', '{"c":3}']


async def test_what_cannot_be_had_without_a_websocket_cannot_be_had_with_one(client, agent):
    assert await client.refusal(f"{MAPS}?watch=1", token="alice") == 403
    assert await client.refusal(f"{MAPS}?watch=1", token="wrong") == 401
    assert await client.refusal(f"{PODS}/nope/log") == 404
    assert await client.refusal(f"{PODS}/p/log?container=z") == 400
    assert await client.refusal(MAPS) == 400


async def test_a_browser_shows_its_token_as_a_subprotocol(client):
    def shown(token):
        encoded = base64.urlsafe_b64encode(token).decode().rstrip("=")
        return f"{subprotocol.PREFIX}{encoded}"

    watch = f"{MAPS}?watch=1"
    async with client.open(watch, [shown(b"admin"), "base64.binary.k8s.io"], token="") as found:
        assert found.protocol == "base64.binary.k8s.io"

    assert await client.refusal(watch, [shown(b"alice"), "x"], token="") == 403
    for wrong in (
        [shown(b"nobody's"), "x"],
        [shown(b"admin")],
        [shown(b"admin"), shown(b"admin"), "x"],
        [subprotocol.PREFIX + "a", "x"],
        [shown(b"\xff"), "x"],
    ):
        assert await client.refusal(watch, wrong, token="") == 401
