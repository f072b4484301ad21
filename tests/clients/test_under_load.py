"""A server under pressure: greedy users, huge bodies, slow clients, and a stop in the middle."""

import asyncio
import contextlib
import json
import signal
import socket
import ssl
import statistics
import subprocess

import aiohttp
import pytest

from motley.apiserver import tls
from motley.lib.clock import SYSTEM

MAPS = "/api/v1/namespaces/default/configmaps"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


def credentials(server, name, *groups):
    """A TLS context that shows who somebody is."""
    path = server.directory / f"{name.replace(':', '-')}.pem"
    path.write_bytes(b"".join(tls.issue_client(tls.load(server.directory), name, groups)))
    context = ssl.create_default_context(cafile=str(server.directory / "pki/ca.crt"))
    context.load_cert_chain(path)
    return context


class Client:
    """One user's connections, and how each request went."""

    def __init__(self, server, name, *groups):
        self._url = server.url
        connector = aiohttp.TCPConnector(ssl=credentials(server, name, *groups), limit=0)
        self._session = aiohttp.ClientSession(connector=connector)
        self.answers: list[tuple[int, float, str]] = []

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self._session.close()

    async def ask(self, method, path, **options):
        begun = SYSTEM.monotonic()
        async with self._session.request(method, self._url + path, **options) as reply:
            body = await reply.read()
            retry = reply.headers.get("Retry-After", "")
        self.answers.append((reply.status, SYSTEM.monotonic() - begun, retry))
        return reply.status, body

    def took(self, code):
        return [seconds for status, seconds, _ in self.answers if status == code]


@pytest.fixture
def busy(make_server, kubectl_on):
    """A server with few seats, short queues, and users who may read ConfigMaps."""
    server = make_server(
        "sqlite", "--max-requests-inflight", "6", "--max-mutating-requests-inflight", "6"
    )
    kubectl = kubectl_on(server)
    kubectl("create", "clusterrole", "reader", "--verb=get,list", "--resource=configmaps")
    for name in ("greedy", "modest"):
        kubectl("create", "clusterrolebinding", name, "--clusterrole=reader", f"--user={name}")
    items = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"m{number}"},
            "data": {"k": "x" * 2000},
        }
        for number in range(100)
    ]
    everything = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    kubectl("create", "-f", "-", stdin=everything)
    # An administrator's own settings: shorter queues for those who have no better class.
    kubectl(
        *("annotate", "--overwrite", "prioritylevelconfiguration", "global-default"),
        "apf.kubernetes.io/autoupdate-spec=false",
    )
    queuing = {"queuing": {"queues": 64, "handSize": 4, "queueLengthLimit": 3}}
    patch = {"spec": {"limited": {"limitResponse": queuing}}}
    kubectl(
        *("patch", "prioritylevelconfiguration", "global-default"),
        *("--type=merge", "-p", json.dumps(patch)),
    )
    return server


def test_a_greedy_user_is_told_to_come_back_and_nobody_else_is(busy, kubectl_on):
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "n1", "namespace": "kube-node-lease"},
        "spec": {"holderIdentity": "n1", "leaseDurationSeconds": 40},
    }

    async def press():
        async with (
            Client(busy, "greedy") as greedy,
            Client(busy, "modest") as modest,
            Client(busy, "system:node:n1", "system:nodes") as node,
        ):
            assert (await node.ask("POST", LEASES, json=lease))[0] == 201

            enough = asyncio.Event()

            async def grab():
                while not enough.is_set():
                    # Parsed and filtered one by one: a list that costs something.
                    code, _ = await greedy.ask("GET", f"{MAPS}?labelSelector=a!%3Db&limit=90")
                    if code == 429:
                        await SYSTEM.sleep(0.2)  # far from the second it was asked to wait

            async with asyncio.timeout(90), asyncio.TaskGroup() as group:
                for _ in range(200):
                    group.create_task(grab())
                while not greedy.took(429):
                    await SYSTEM.sleep(0.01)
                for _ in range(25):
                    await modest.ask("GET", f"{MAPS}/m1")
                    await node.ask("GET", f"{LEASES}/n1")
                enough.set()
            return greedy, modest, node

    greedy, modest, node = asyncio.run(press())

    assert greedy.took(200)
    assert {retry for code, _, retry in greedy.answers if code == 429} == {"1"}
    assert {code for code, _, _ in greedy.answers} == {200, 429}
    assert {code for code, _, _ in modest.answers} == {200}
    assert {code for code, _, _ in node.answers} == {200, 201}
    assert statistics.median(modest.took(200)) < statistics.median(greedy.took(200))
    numbers = kubectl_on(busy)("get", "--raw", "/metrics").out
    rejected = [
        line
        for line in numbers.splitlines()
        if line.startswith("apiserver_flowcontrol_rejected_requests_total{")
    ]
    assert len(rejected) == 1
    assert 'priority_level="global-default"' in rejected[0]
    assert 'reason="queue-full"' in rejected[0]
    for level in ("node-high", "global-default", "exempt"):
        idle = f'apiserver_flowcontrol_current_inqueue_requests{{priority_level="{level}"}} 0.0'
        assert idle in numbers


def test_the_administrator_is_served_while_everybody_else_waits(busy, kubectl_on):
    names = kubectl_on(busy)("get", "flowschemas", "-o", "name").out.split()

    assert "flowschema.flowcontrol.apiserver.k8s.io/exempt" in names
    assert len(names) == 11
    shown = kubectl_on(busy)("get", "prioritylevelconfigurations").out
    assert "workload-low" in shown


def connect(server):
    context = ssl.create_default_context(cafile=str(server.directory / "pki/ca.crt"))
    plain = socket.create_connection(("127.0.0.1", server.port), timeout=30)
    return context.wrap_socket(plain, server_hostname="localhost")


def test_a_body_over_three_mebibytes_is_refused_before_it_is_read(server):
    with connect(server) as client:
        client.sendall(
            f"POST {MAPS} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer secret-alice\r\nContent-Length: {4 << 20}\r\n\r\n".encode()
        )
        # Alice may create nothing, and is told so without sending 4 MiB.
        assert b" 403 " in client.recv(4096).splitlines()[0]
    context = credentials(server, "root", "system:masters")
    with (
        socket.create_connection(("127.0.0.1", server.port), timeout=30) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as client,
    ):
        client.sendall(
            f"POST {MAPS} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Transfer-Encoding: chunked\r\n\r\n".encode()
        )
        piece = b"%x\r\n%s\r\n" % (1 << 20, b" " * (1 << 20))
        with contextlib.suppress(OSError):  # it may hang up before it has all of it
            for _ in range(4):
                client.sendall(piece)
        assert b" 413 " in client.recv(4096).splitlines()[0]


def test_watches_end_cleanly_when_the_server_stops(own_server, kubectl_on):
    kubectl = kubectl_on(own_server)
    kubectl("create", "configmap", "first")
    watching = subprocess.Popen(
        kubectl.command("get", "configmaps", "--watch", "-o", "name"),
        env=kubectl.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert watching.stdout is not None
        assert watching.stdout.readline() == b"configmap/first\n"
        context = credentials(own_server, "root", "system:masters")
        with (
            socket.create_connection(("127.0.0.1", own_server.port), timeout=30) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as client,
        ):
            path = f"{MAPS}?watch=true&resourceVersion=0"
            client.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            seen = client.recv(1 << 20)
            assert b" 200 " in seen.splitlines()[0]

            assert own_server.kill(signal.SIGTERM) == 0

            while piece := client.recv(1 << 20):
                seen += piece
        assert seen.endswith(b"0\r\n\r\n"), "the stream has a last chunk: it was ended, not cut"
        _, errors = watching.communicate(timeout=30)
        assert b"unexpected EOF" not in errors
    finally:
        watching.kill()
        watching.communicate()


def test_the_audit_log_tells_who_did_what(make_server, kubectl_on, tmp_path):
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  nonResourceURLs: ["*"]
- level: Request
  verbs: [create]
  resources: [{group: "", resources: [configmaps, secrets/none]}]
- level: Metadata
"""
    )
    path = tmp_path / "audit.log"
    options = ("--audit-log-path", str(path), "--audit-policy-file", str(policy))
    server = make_server("sqlite", *options)
    kubectl = kubectl_on(server)
    kubectl("create", "configmap", "a", "--from-literal=k=shown")
    kubectl("create", "secret", "generic", "s", "--from-literal=k=hunter2")
    kubectl("get", "pods", "--as", "bob", fails=True)
    assert server.kill(signal.SIGTERM) == 0

    text = path.read_text()
    events = [json.loads(line) for line in text.splitlines()]
    assert "hunter2" not in text
    assert "aHVudGVyMg" not in text
    (made,) = (
        e for e in events if e["verb"] == "create" and e["objectRef"]["resource"] == "configmaps"
    )
    assert made["requestObject"]["data"] == {"k": "shown"}
    assert made["user"]["username"] == "kubernetes-admin"
    assert made["userAgent"].startswith("kubectl/")
    assert made["sourceIPs"] == ["127.0.0.1"]
    (secret,) = (
        e for e in events if e["verb"] == "create" and e["objectRef"]["resource"] == "secrets"
    )
    assert (secret["level"], secret["responseStatus"]["code"]) == ("Metadata", 201)
    refused = [e for e in events if e.get("impersonatedUser")]
    assert refused[0]["impersonatedUser"]["username"] == "bob"
    assert refused[0]["annotations"]["authorization.k8s.io/decision"] == "forbid"
    assert len({e["auditID"] for e in events}) == len(events)
