"""kubectl logs, exec and port-forward through the server to a node agent.

The agent is a stand-in that speaks the agent's protocol over real TLS; node agents have tests
of their own.
"""

import asyncio
import json
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from aiohttp import WSMsgType, web

from motley.apiserver import tls
from motley.lib import clock
from motley.ops.freeports import free_port

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {"nodeName": "stand-in", "containers": [{"name": "c", "image": "nginx"}]},
}


@dataclass
class Agent:
    """Answers as a node agent does, and remembers what it was asked."""

    port: int = 0
    asked: list[tuple[str, dict[str, list[str]]]] = field(default_factory=list)
    clients: set[str] = field(default_factory=set)

    def note(self, request: web.Request) -> None:
        query = {key: request.query.getall(key) for key in request.query}
        self.asked.append((request.path, query))
        certificate = request.transport.get_extra_info("peercert")
        subject = dict(pair[0] for pair in certificate["subject"])
        self.clients.add(subject["commonName"])

    async def logs(self, request: web.Request) -> web.StreamResponse:
        self.note(request)
        if request.match_info["pod"] == "broken":
            return web.Response(status=500, text="the log is gone")
        response = web.StreamResponse()
        await response.prepare(request)
        for number in range(3):
            await response.write(f"line {number}\n".encode())
        await response.write_eof()
        return response

    async def exec(self, request: web.Request) -> web.WebSocketResponse:
        self.note(request)
        socket_ = web.WebSocketResponse(protocols=["v5.channel.k8s.io", "v4.channel.k8s.io"])
        await socket_.prepare(request)
        command = request.query.getall("command")
        if command[0] == "cat":
            async for frame in socket_:
                # v5: channel 255 says which stream is closed; 0 is standard input.
                if frame.type is not WSMsgType.BINARY or frame.data[0] == 255:
                    break
                await socket_.send_bytes(b"\x01" + frame.data[1:])
        else:
            await socket_.send_bytes(b"\x01hello " + " ".join(command).encode() + b"\n")
            await socket_.send_bytes(b"\x02a warning\n")
        await socket_.send_bytes(b"\x03" + json.dumps(self.outcome(command)).encode())
        await socket_.close()
        return socket_

    @staticmethod
    def outcome(command: list[str]) -> dict:
        if command[0] != "false":
            return {"metadata": {}, "status": "Success"}
        causes = [{"reason": "ExitCode", "message": "7"}]
        return {
            "metadata": {},
            "status": "Failure",
            "reason": "NonZeroExitCode",
            "message": "command terminated with non-zero exit code",
            "details": {"causes": causes},
        }


@pytest.fixture
def agent(server) -> Iterator[Agent]:
    found = Agent()
    pki = tls.load(server.directory)
    files = server.directory / "agent.pem"
    files.write_bytes(b"".join(tls.issue_server(pki, "stand-in", ["127.0.0.1"])))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(pki.ca_file))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(files)
    listener = socket.create_server(("127.0.0.1", 0))
    found.port = listener.getsockname()[1]
    started, loop = threading.Event(), asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        app = web.Application()
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", found.logs)
        app.router.add_get("/exec/{namespace}/{pod}/{container}", found.exec)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.SockSite(runner, listener, ssl_context=context).start()
        started.set()
        await stop.wait()
        # The API server keeps its connections open; over TLS, closing would wait for its answer.
        transports = [handler.transport for handler in runner.server.connections]
        await runner.cleanup()
        for transport in filter(None, transports):
            transport.abort()
        await clock.SYSTEM.sleep(0.01)

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert started.wait(10)
    yield found
    loop.call_soon_threadsafe(stop.set)
    thread.join(10)
    loop.close()


@pytest.fixture
def pod(kubectl, agent):
    """A pod on the stand-in's node."""
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "stand-in"},
    }
    state = {
        "status": {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": agent.port}},
        }
    }
    kubectl("apply", "-f", "-", stdin=json.dumps(node))
    kubectl("patch", "node", "stand-in", "--subresource=status", "-p", json.dumps(state))
    kubectl("create", "-f", "-", stdin=json.dumps(POD))
    return kubectl


def test_logs_come_from_the_agent_with_the_options_given(pod, agent):
    out = pod("logs", "p", "--tail=5", "--timestamps", "--since=10s").out

    assert out == "line 0\nline 1\nline 2\n"
    path, query = agent.asked[-1]
    assert path == f"/containerLogs/{pod.namespace}/p/c"
    assert (query["tailLines"], query["timestamps"], query["sinceSeconds"]) == (
        ["5"],
        ["true"],
        ["10"],
    )
    assert agent.clients == {"kube-apiserver-kubelet-client"}


def test_followed_logs_end_when_the_agent_ends_them(pod):
    assert pod("logs", "-f", "p").out == "line 0\nline 1\nline 2\n"


def test_what_the_agent_refuses_is_told_to_the_client(pod):
    broken = json.dumps({**POD, "metadata": {"name": "broken"}})
    pod("create", "-f", "-", stdin=broken)

    assert "the log is gone" in pod("logs", "broken", fails=True).err


def test_exec_passes_output_and_the_exit_code(pod, agent):
    done = pod("exec", "p", "--", "ls", "-l", "a b")
    failed = pod("exec", "p", "--", "false", fails=True)

    assert done.out == "hello ls -l a b\n"
    assert done.err == "a warning\n"
    assert agent.asked[0][1]["command"] == ["ls", "-l", "a b"]
    assert failed.code == 7


def test_exec_passes_input(pod):
    assert pod("exec", "-i", "p", "--", "cat", stdin="one\ntwo\n").out == "one\ntwo\n"


def test_a_policy_decides_who_gets_a_terminal(pod, agent):
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CONNECT"],
        "resources": ["pods/exec"],
    }
    only_ls = f"request.namespace != '{pod.namespace}' || object.command[0] == 'ls'"
    policy = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": only_ls, "message": "ls is enough"}],
    }
    binding = {"policyName": "terminals", "validationActions": ["Deny"]}
    kinds = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    for kind, spec in zip(kinds, (policy, binding), strict=True):
        head = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind}
        new = {**head, "metadata": {"name": "terminals"}, "spec": spec}
        pod("create", "-f", "-", stdin=json.dumps(new))

    assert pod("exec", "p", "--", "ls").out == "hello ls\n"
    assert "ls is enough" in pod("exec", "p", "--", "sh", fails=True).err
    assert agent.asked[-1][1]["command"] == ["ls"]

    pod("delete", *(f"{kind}/terminals" for kind in kinds))


def test_exec_into_nothing_says_what_is_missing(pod):
    missing = pod("exec", "nope", "--", "ls", fails=True)
    wrong = pod("exec", "p", "-c", "z", "--", "ls", fails=True)

    assert 'pods "nope" not found' in missing.err
    assert "container z is not valid for pod p" in wrong.err or "container not found" in wrong.err


def test_an_unreachable_agent_is_told_as_such(pod, agent):
    port = free_port()
    state = {"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}}
    pod("patch", "node", "stand-in", "--subresource=status", "-p", json.dumps(state))

    logs = pod("logs", "p", fails=True)
    terminal = subprocess.run(
        pod.command("exec", "p", "--", "ls"),
        env=pod.environment(),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert "cannot reach the node agent" in logs.err
    assert terminal.returncode != 0
