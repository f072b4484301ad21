"""The router in front of instances that a test plays."""

import asyncio
import json
from random import Random

import pytest

from motley.api import status
from motley.api.views.base import Key
from motley.api.views.serverless import Function, Invocation
from motley.lib import clock
from motley.serverless import httpd
from motley.serverless.calls import Calls
from motley.serverless.channel import Channels
from motley.serverless.httpd import Server
from motley.serverless.instances import Instance, Table
from motley.serverless.metrics import NoMeters
from motley.serverless.router import Router

KEY = Key("ns", "f")


def http(body, code="200 OK", *headers):
    lines = "".join(f"{line}\r\n" for line in headers)
    head = (
        f"HTTP/1.1 {code}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n{lines}\r\n"
    )
    return head.encode() + body


NOT_STARTED = http(b'{"error": {"type": "Draining"}}', "503 X", "X-Motley-Started: no")


class Played:
    """An instance at an address of the loopback network, answering as a script says."""

    def __init__(self, address, *script):
        self.address = address
        self.script = list(script)
        self.requests = []

    async def serve(self, reader, writer):
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = int(head.lower().partition("content-length: ")[2].split("\r\n")[0])
                body = await reader.readexactly(length)
                self.requests.append((head, body))
                answer = self.script.pop(0)
                if isinstance(answer, asyncio.Event):
                    await answer.wait()
                    answer = http(b"late")
                if answer == b"":
                    return
                for part in answer if isinstance(answer, list) else [answer]:
                    if isinstance(part, asyncio.Event):
                        await part.wait()
                        continue
                    writer.write(part)
                    await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()


class Accepting:
    """Keeps what would be written."""

    def __init__(self):
        self.accepted = []
        self.fails = False

    def new_name(self, base):
        return f"{base}-1"

    async def accept(self, namespace, base, spec, *, labels=None, running=None, name=""):
        if self.fails:
            raise status.ServiceUnavailable("no store")
        self.accepted.append((spec, running))
        return Invocation.of({"metadata": {"name": name or "i1", "namespace": namespace}})

    async def ended(self, key, timeout_s):
        return None


class Gate:
    def __init__(self):
        self.answer = 200

    async def code(self, *_):
        return self.answer


class World:
    """A router on loopback, its instances, and a caller."""

    def __init__(self, port, functions):
        self.port = port
        self.table = Table(clock.SYSTEM)
        self.channels = Channels(port)
        calls = Calls(self.table, self.channels, clock.SYSTEM, NoMeters(), lambda *_: "token")
        self.accepting = Accepting()
        self.gate = Gate()

        async def fetch(key):
            raise status.NotFound("none")

        self.router = Router(
            calls,
            self.gate,
            self.accepting,
            lambda key: functions.get(key),
            fetch,
            NoMeters(),
            clock.SYSTEM,
            sync_wait_s=0.3,
        )
        self.server = Server(self.router.handle, 1000)
        self.router.start = self.server.start
        self.group = self.table.group(KEY)
        self.listeners = []

    async def play(self, *played):
        for one in played:
            listener = await asyncio.start_server(one.serve, one.address, self.port)
            self.listeners.append(listener)
            self.add(one.address)

    def add(self, address):
        self.group.put(Instance(Key("ns", address), address, "secret", "r", 4))

    async def ask(self, method="POST", path="/functions/ns/f", body=b"x", **headers):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        try:
            given = {"Content-Length": len(body), "Connection": "close", **headers}
            lines = "".join(f"{k.replace('_', '-')}: {v}\r\n" for k, v in given.items())
            writer.write(f"{method} {path} HTTP/1.1\r\nHost: r\r\n{lines}\r\n".encode() + body)
            answer = await reader.read()
        finally:
            writer.close()
        head, _, rest = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]), head.decode(), rest


def make(**spec):
    return Function.of({"metadata": {"name": "f", "namespace": "ns"}, "spec": {"code": "", **spec}})


@pytest.fixture
async def world(unused_tcp_port_factory, monkeypatch):
    monkeypatch.setattr(httpd, "_DRAIN_S", 0.1)  # calls that no instance answers are left waiting
    functions = {KEY: make()}
    made = World(unused_tcp_port_factory(), functions)
    made.functions = functions
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(made.server.run("127.0.0.1", 0, None))
        while not made.server.port:
            await clock.SYSTEM.sleep(0)
        try:
            yield made
        finally:
            made.channels.close()
            for listener in made.listeners:
                listener.close()
            serving.cancel()


async def test_a_call_is_passed_on_with_its_id_and_without_the_callers_credentials(world):
    played = Played("127.0.0.2", http(b"result", "200 OK", "X-Motley-Check: true"))
    await world.play(played)
    code, head, body = await world.ask(body=b"argument", Authorization="Bearer mine", X_Mine="1")
    assert (code, body) == (200, b"result")
    assert "X-Motley-Check: true" in head
    sent, argument = played.requests[0]
    assert argument == b"argument"
    assert "X-Motley-Call-Id: f-1" in sent
    assert "X-Motley-Instance-Token: secret" in sent
    assert "x-mine: 1" in sent
    assert "Bearer mine" not in sent


async def test_a_call_that_did_not_start_goes_to_another_instance(world):
    first, second = Played("127.0.0.2", NOT_STARTED), Played("127.0.0.3", http(b"ok"))
    await world.play(first, second)
    assert (await world.ask())[::2] == (200, b"ok")
    assert len(first.requests) == 1


async def test_an_instance_that_is_not_there_is_passed_over(world):
    world.add("127.0.0.2")
    await world.play(Played("127.0.0.3", http(b"ok")))
    assert (await world.ask())[::2] == (200, b"ok")
    assert list(world.group.instances) == [Key("ns", "127.0.0.3")]


async def test_a_broken_connection_is_asked_again_at_the_same_instance_only(world):
    first = Played("127.0.0.2", b"", http(b"ok"))
    second = Played("127.0.0.3", http(b"wrong"))
    await world.play(first)
    world.router.start(world.play(second))
    code, _, body = await world.ask()
    assert (code, body) == (200, b"ok")
    ids = {head.partition("X-Motley-Call-Id: ")[2].split("\r\n")[0] for head, _ in first.requests}
    assert len(first.requests) == 2
    assert ids == {"f-1"}
    assert second.requests == []


async def test_an_instance_that_ends_during_the_call_is_an_error_not_another_call(world):
    first = Played("127.0.0.2", *[b""] * 9)
    await world.play(first)
    code, _, body = await world.ask(Prefer="wait=5")
    assert code == 502
    assert json.loads(body)["error"]["type"] == "InstanceLost"


async def test_a_stream_is_passed_on_as_it_comes(world):
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
    gate = asyncio.Event()
    parts = [head, b"1\r\na\r\n", gate, b"1\r\nb\r\n", b"0\r\n\r\n"]
    await world.play(Played("127.0.0.2", parts))
    asyncio.get_running_loop().call_later(0.1, gate.set)
    code, sent, body = await world.ask()
    assert code == 200
    assert "chunked" in sent
    assert body.replace(b"1\r\n", b"").replace(b"\r\n", b"") == b"ab0"


async def test_a_body_that_is_too_large_is_refused_with_the_limit(world):
    code, _, body = await world.ask(body=b"x" * 1001)
    assert code == 413
    assert "1000 bytes" in json.loads(body)["error"]["message"]


async def test_a_slow_call_is_handed_over_with_its_instance_and_its_id(world):
    gate = asyncio.Event()
    await world.play(Played("127.0.0.2", gate))
    code, head, body = await world.ask(body=b"x")
    ((spec, running),) = world.accepting.accepted
    gate.set()
    assert code == 202
    assert json.loads(body)["id"] == "f-1"
    assert "Location: /invocations/ns/f-1" in head
    assert spec == {"function": "f", "arg": "x"}
    assert (running["callID"], running["instance"]) == ("f-1", "127.0.0.2")


async def test_a_call_that_never_began_is_handed_over_and_does_not_begin_here(world):
    code, _, _ = await world.ask()
    ((_, running),) = world.accepting.accepted
    assert (code, running) == (202, None)
    late = Played("127.0.0.2", http(b"twice"))
    await world.play(late)
    await clock.SYSTEM.sleep(0.05)
    assert late.requests == []
    assert world.group.in_flight == 0


async def test_no_id_is_given_when_nothing_was_written(world):
    world.accepting.fails = True
    code, head, body = await world.ask()
    assert (code, "Retry-After" in head) == (503, True)
    assert "id" not in json.loads(body)


async def test_a_function_with_branches_is_accepted_before_it_is_called(world):
    world.functions[KEY] = make(left="g")
    code, _, _ = await world.ask(Prefer="respond-async", Idempotency_Key="k")
    ((spec, running),) = world.accepting.accepted
    assert (code, spec["idempotencyKey"], running) == (202, "k", None)


@pytest.mark.parametrize(("answer", "code"), [(401, 401), (403, 403)])
async def test_those_who_may_not_call_do_not(world, answer, code):
    world.gate.answer = answer
    played = Played("127.0.0.2", http(b"secret"))
    await world.play(played)
    assert (await world.ask())[0] == code
    assert (await world.ask("GET", "/invocations/ns/i"))[0] == code
    assert played.requests == []


async def test_a_public_function_asks_nobody(world):
    world.gate.answer = 401
    world.functions[KEY] = make(public=True)
    await world.play(Played("127.0.0.2", http(b"hi")))
    assert (await world.ask())[0] == 200


async def test_what_is_not_there_is_not_found(world):
    assert (await world.ask(path="/functions/ns/other"))[0] == 404
    assert (await world.ask(path="/nothing"))[0] == 404
    assert (await world.ask("GET"))[0] == 405


async def test_the_documents_paths_can_be_answered_by_somebody_else(world):
    async def further(request, caller):
        caller.send(200, "text/plain", request.path.encode())
        return True

    world.router.further = further
    assert (await world.ask("GET", "/api/funcs/x"))[::2] == (200, b"/api/funcs/x")


def test_names_are_not_guessable():
    from motley.serverless.accepting import Acceptance

    acceptance = Acceptance(None, None, Random(1))  # type: ignore[arg-type]
    assert len({acceptance.new_name("f") for _ in range(100)}) == 100
