"""Bursts of pods while things go wrong: schedulers die, connections break, others schedule beside.

A real API server, nodes that are only objects, schedulers as processes. A watch notes every node a
pod ever had: a binding must never change.
"""

import asyncio
import contextlib
import json
import random
import ssl
import subprocess
import sys
from collections import Counter, defaultdict

import aiohttp
import pytest
from aiohttp import web

from motley.api import quantity, status
from motley.api.views.core import Namespace, Node
from motley.api.views.pod import Pod
from motley.apiserver import tls
from motley.client import kubeconfig
from motley.client.rest import Client
from motley.lib.clock import SYSTEM

DEADLINE_S = 60.0
_names = iter(range(1000))


async def until(condition, what):
    """Poll until it holds."""
    deadline = SYSTEM.monotonic() + DEADLINE_S
    while not condition():
        assert SYSTEM.monotonic() < deadline, what
        await SYSTEM.sleep(0.01)


class Cluster:
    """A namespace of its own on nodes of its own, and all that was ever seen of its pods."""

    def __init__(self, client, namespace):
        self.client = client
        self.namespace = namespace
        self.nodes_of = defaultdict(set)  # pod → every node it was seen on

    @property
    def bound(self):
        return len(self.nodes_of)

    async def add_nodes(self, count, cpu):
        room = {"cpu": cpu, "memory": "64Gi", "pods": "110"}
        for number in range(count):
            name = f"{self.namespace}-{number}"
            ready = [{"type": "Ready", "status": "True"}]
            state = {"allocatable": room, "capacity": room, "conditions": ready}
            await self.client.create(Node, {"metadata": {"name": name}, "status": state})
            await self.client.patch(Node, name, "", {"spec": {"taints": None}})

    async def add_pods(self, count, cpu="100m", scheduler=lambda number: "default-scheduler"):
        waiting = iter(range(count))

        async def work():
            for number in waiting:
                resources = {"requests": {"cpu": cpu}}
                container = {"name": "c", "image": "app:1", "resources": resources}
                spec = {"containers": [container], "schedulerName": scheduler(number)}
                body = {"metadata": {"name": f"p{number}"}, "spec": spec}
                await self.client.create(Pod, body, self.namespace)

        async with asyncio.TaskGroup() as group:
            for _ in range(16):
                group.create_task(work())

    async def follow(self, version):
        """Note every node of every pod; the watch is begun again where it ends."""
        while True:
            watch = self.client.watch(Pod, namespace=self.namespace, resource_version=version)
            async with contextlib.aclosing(watch) as events:
                async for event in events:
                    version = event.resource_version or version
                    if event.type != "BOOKMARK" and event.object.spec.node_name:
                        self.nodes_of[event.object.metadata.uid].add(event.object.spec.node_name)

    async def check(self, count):
        """Everybody is bound, once, and nobody's node holds more than it can."""
        pods = (await self.client.list(Pod, namespace=self.namespace)).items
        assert len(pods) == count
        assert all(pod.spec.node_name for pod in pods), "forgotten"
        moved = {uid: nodes for uid, nodes in self.nodes_of.items() if len(nodes) > 1}
        assert not moved, "bound twice"
        used = Counter()
        for pod in pods:
            requests = pod.spec.containers[0].resources.requests
            used[pod.spec.node_name] += quantity.cpu_milli(requests["cpu"])
        for node in (await self.client.list(Node)).items:
            room = quantity.cpu_milli(node.status.allocatable["cpu"])
            assert used[node.metadata.name] <= room, f"{node.metadata.name} is overcommitted"

    async def told(self):
        """Who says of how many pods that they are scheduled, per pod."""
        path = f"/api/v1/namespaces/{self.namespace}/events"
        events = (await self.client.raw("GET", path))["items"]
        return Counter(
            (event["involvedObject"]["name"], event["source"]["component"])
            for event in events
            if event["reason"] == "Scheduled"
        )


@pytest.fixture
async def cluster(server):
    namespace = f"burst{next(_names)}"
    async with Client(kubeconfig.load(server.kubeconfig)) as client:
        for node in (await client.list(Node)).items:  # of the test before
            await client.delete(Node, node.metadata.name)
        await client.create(Namespace, {"metadata": {"name": namespace}})
        account = {"metadata": {"name": "default"}}
        with contextlib.suppress(status.AlreadyExists):
            path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
            await client.raw("POST", path, body=account)
        made = Cluster(client, namespace)
        version = (await client.list(Pod, namespace=namespace)).resource_version
        async with asyncio.TaskGroup() as group:
            following = group.create_task(made.follow(version))
            yield made
            following.cancel()


@pytest.fixture
def start(server, tmp_path):
    """Starts schedulers; all of them are killed in the end."""
    started = []

    def begin(*, profile="default-scheduler", config=None, elect=False):
        settings = tmp_path / f"scheduler{len(started)}.json"
        election = {"leaderElect": elect, "leaseDuration": "2s", "renewDeadline": "1500ms"}
        election |= {"retryPeriod": "300ms", "resourceName": "scheduler-of-bursts"}
        document = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": election,
            "podMaxBackoffSeconds": 1,
            "profiles": [{"schedulerName": profile}],
        }
        settings.write_text(json.dumps(document))
        command = [sys.executable, "-m", "motley.cli.main", "scheduler"]
        command += ["--kubeconfig", str(config or server.kubeconfig), "--config", str(settings)]
        command += ["--health-port", "0", "--log-level", "warning"]
        with (tmp_path / "scheduler.log").open("ab") as log:
            started.append(subprocess.Popen(command, stdout=log, stderr=log))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.wait()


async def test_a_scheduler_killed_in_a_burst_leaves_nothing_bound_twice_or_forgotten(
    cluster, start
):
    await cluster.add_nodes(20, "8")
    first = start()
    async with asyncio.TaskGroup() as group:
        group.create_task(cluster.add_pods(600))
        await until(lambda: cluster.bound >= 100, "the first scheduler works")
        first.kill()
        first.wait()
        assert cluster.bound < 600
    start()
    await until(lambda: cluster.bound == 600, "the second scheduler goes on")
    await cluster.check(600)


async def test_when_the_leader_is_killed_the_other_scheduler_goes_on(cluster, start):
    await cluster.add_nodes(20, "8")
    leader = start(elect=True)
    await cluster.add_pods(1)
    await until(lambda: cluster.bound == 1, "the first scheduler leads")
    follower = start(elect=True)
    waiting = iter(range(1, 250))

    async def trickle():
        for number in waiting:
            container = {"name": "c", "image": "app:1", "resources": {"requests": {"cpu": "100m"}}}
            body = {"metadata": {"name": f"p{number}"}, "spec": {"containers": [container]}}
            await cluster.client.create(Pod, body, cluster.namespace)

    async with asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(trickle())
        await until(lambda: cluster.bound >= 50, "the leader works")
        leader.kill()
        leader.wait()
    await until(lambda: cluster.bound == 250, "the follower takes over")
    assert follower.poll() is None
    await cluster.check(250)


async def test_schedulers_side_by_side_take_their_own_pods_and_tell_of_each(
    cluster, start, kubectl
):
    await cluster.add_nodes(10, "16")
    start()
    start(profile="another-scheduler")
    names = ("default-scheduler", "another-scheduler")
    await cluster.add_pods(200, scheduler=lambda number: names[number % 2])
    await until(lambda: cluster.bound == 200, "both work")
    await cluster.check(200)
    wanted = {(f"p{number}", names[number % 2]): 1 for number in range(200)}
    told = {}
    deadline = SYSTEM.monotonic() + DEADLINE_S
    while told != wanted and SYSTEM.monotonic() < deadline:
        told = await cluster.told()
    assert told == wanted
    kubectl.namespace = cluster.namespace
    shown = await asyncio.to_thread(kubectl, "describe", "pod", "p1")
    node = (await cluster.client.get(Pod, "p1", cluster.namespace)).spec.node_name
    assert f"Successfully assigned {cluster.namespace}/p1 to {node}" in shown.out
    assert "another-scheduler" in shown.out


class FaultyProxy:
    """Between a scheduler and the server: refuses, forgets to answer, and hangs up."""

    def __init__(self, server, rng, *, has_batches):
        self._server = server
        self._rng = rng
        self._has_batches = has_batches
        self.faults = Counter()
        self.requests = Counter()

    @contextlib.asynccontextmanager
    async def running(self, directory):
        pem = directory / "proxy.pem"
        pki = tls.load(self._server.directory)
        pem.write_bytes(b"".join(tls.issue_client(pki, "system:kube-scheduler", ())))
        context = ssl.create_default_context(cafile=str(self._server.directory / "pki/ca.crt"))
        context.load_cert_chain(pem)
        connector = aiohttp.TCPConnector(ssl=context, limit=0)
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", self._pass_on)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        async with aiohttp.ClientSession(connector=connector) as self._session:
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            port = runner.addresses[0][1]
            config = directory / "proxy.kubeconfig"
            config.write_text(json.dumps(_through(port)))
            try:
                yield config
            finally:
                await runner.cleanup()

    async def _pass_on(self, request):
        if request.path.startswith("/apis/motley.io") and not self._has_batches:
            return web.json_response({"kind": "Status", "code": 404}, status=404)
        self.requests[request.path.rpartition("/")[2]] += 1
        fault = self._fault(request)
        self.faults[fault] += 1
        if isinstance(fault, int):
            shown = {"kind": "Status", "status": "Failure", "code": fault, "message": "injected"}
            return web.json_response(shown, status=fault)
        if fault == "cut before":
            request.transport.abort()
            return web.Response()
        headers = {k: v for k, v in request.headers.items() if k in ("Accept", "Content-Type")}
        async with self._session.request(
            request.method,
            self._server.url + request.path_qs,
            data=await request.read(),
            headers=headers,
        ) as reply:
            if "watch" in request.query:
                return await self._stream(request, reply)
            body = await reply.read()
            if fault == "cut after":
                request.transport.abort()
                return web.Response()
            return web.Response(
                body=body, status=reply.status, headers={"Content-Type": "application/json"}
            )

    def _fault(self, request):
        if request.method == "GET" or request.path.endswith("/events"):
            return "none"
        faults = [500, 429, 409, "cut before", "cut after", "cut after"]
        return self._rng.choice([*faults, *["none"] * (4 if self._has_batches else 12)])

    async def _stream(self, request, reply):
        response = web.StreamResponse(status=reply.status)
        response.content_type = "application/json"
        await response.prepare(request)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._rng.uniform(0.3, 1.5)):
                async for chunk in reply.content.iter_any():
                    await response.write(chunk)
        request.transport.abort()
        return response


def _through(port):
    cluster = {"server": f"http://127.0.0.1:{port}"}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }


@pytest.mark.parametrize("has_batches", [True, False], ids=["batches", "one by one"])
async def test_errors_of_the_api_delay_pods_but_lose_none_and_overcommit_no_node(
    server, cluster, start, tmp_path, has_batches
):
    await cluster.add_nodes(10, "4")
    proxy = FaultyProxy(server, random.Random(7), has_batches=has_batches)
    async with proxy.running(tmp_path) as config:
        start(config=config)
        await cluster.add_pods(100, cpu="380m")  # ten to a node, and no room for more
        await until(lambda: cluster.bound == 100, f"all are bound in the end: {proxy.faults}")
    await cluster.check(100)
    assert proxy.requests["bindings" if has_batches else "binding"]
    assert sum(proxy.faults.values()) > proxy.faults["none"]
