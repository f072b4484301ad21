"""A real API server on loopback for tests of the components that talk to it.

The server is a process of its own, so that it can be killed; controllers, fake nodes and a
stand-in for the scheduler run in the test's own event loop.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from motley.api import status
from motley.api.views.core import Namespace, Node
from motley.api.views.pod import Pod
from motley.client import kubeconfig
from motley.client.informer import Informer
from motley.client.rest import Client
from motley.controllers import daemonpod, service
from motley.controllers.fakenodes import FakeNodes
from motley.lib.clock import SYSTEM
from motley.ops.freeports import free_port

# pytest-asyncio asks for the current loop before a file's first asynchronous test; without this
# Python 3.11 makes one that nobody closes, which is an error here.
asyncio.set_event_loop(None)

sys.path.insert(0, str(Path(__file__).parent))  # the package `world` beside this file


async def eventually(
    condition: Callable[[], Any], what: str = "", *, timeout_s: float = 60.0
) -> Any:
    """The condition's first true value; it may be a coroutine function."""
    deadline = SYSTEM.monotonic() + timeout_s
    while True:
        value = condition()
        if isinstance(value, Awaitable):
            value = await value
        if value:
            return value
        if SYSTEM.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s} s: {what or condition}")
        await SYSTEM.sleep(0.05)


@dataclass
class ApiServer:
    """One API server process; `start` after `kill` serves the same data on the same port."""

    directory: Path
    store: str = "memory"
    port: int = 0
    flags: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = None

    @property
    def kubeconfig(self) -> Path:
        return self.directory / "admin.kubeconfig"

    def launch(self) -> None:
        if not self.port:
            self.port = free_port()
        command = [sys.executable, "-m", "motley.cli.main", "apiserver"]
        command += ["--data-dir", str(self.directory), "--port", str(self.port)]
        command += ["--store", self.store, "--log-level", "warning", *self.flags]
        with (self.directory / "server.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    async def start(self) -> None:
        self.launch()
        await eventually(self.kubeconfig.exists, "kubeconfig written")
        async with Client(kubeconfig.load(self.kubeconfig)) as client:

            async def ready() -> bool:
                assert self.process is not None
                if self.process.poll() is not None:
                    raise AssertionError((self.directory / "server.log").read_text()[-4000:])
                try:
                    return bool(await client.raw("GET", "/readyz"))
                except status.ApiError:
                    return False

            await eventually(ready, "server ready")

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
        if self.process is not None:
            self.process.wait(30)

    def client(self) -> Client:
        return Client(kubeconfig.load(self.kubeconfig), user_agent="tests")


class LaggingClient(Client):
    """A client whose watch of pods falls behind, as it may under load."""

    def __init__(self, config: kubeconfig.Config, lag_s: float) -> None:
        super().__init__(config)
        self._lag_s = lag_s

    async def watch(self, cls, **options):
        async with aclosing(super().watch(cls, **options)) as events:
            async for event in events:
                if self._lag_s and cls is Pod:
                    await SYSTEM.sleep(self._lag_s)
                yield event


@pytest.fixture(scope="module")
def shared_server(request, tmp_path_factory):
    """One server for a module; each test uses a namespace of its own. A module's `SERVER_FLAGS`
    are given to it."""
    flags = getattr(request.module, "SERVER_FLAGS", ())
    server = ApiServer(tmp_path_factory.mktemp("apiserver"), flags=flags)
    yield server
    server.kill()


@pytest.fixture(name="eventually")
def eventually_fixture():
    """Poll a condition with a deadline."""
    return eventually


@pytest.fixture
def golden():
    """Compares a text with `golden/<name>.txt`; with UPDATE_GOLDEN=1 in the environment writes
    it, for the author to read in the diff."""

    def compare(name: str, text: object) -> None:
        path = Path(__file__).parent / "golden" / f"{name}.txt"
        if os.environ.get("UPDATE_GOLDEN"):
            path.write_text(str(text))
        wanted = path.read_text() if path.exists() else ""
        assert str(text).splitlines() == wanted.splitlines(), f"{path.name} differs"

    return compare


@pytest.fixture
def durable_server(tmp_path):
    """A server of the test's own whose data survive a kill."""
    server = ApiServer(tmp_path, store="sqlite")
    yield server
    server.kill()


@dataclass
class Cluster:
    """What a test of controllers works with."""

    client: Client
    namespace: str
    pods: Informer[Pod]
    stops: dict[str, Callable[[], None]] = field(default_factory=dict)

    eventually = staticmethod(eventually)

    async def create(self, cls, body):
        return await self.client.create(cls, body, self.namespace)

    async def get(self, cls, name):
        return await self.client.get(cls, name, self.namespace)

    async def patch(self, cls, name, body, **options):
        return await self.client.patch(cls, name, self.namespace, body, **options)

    async def delete(self, cls, name, **options):
        await self.client.delete(cls, name, self.namespace, **options)

    async def list(self, cls, **options):
        return (await self.client.list(cls, namespace=self.namespace, **options)).items

    async def exists(self, cls, name):
        try:
            await self.get(cls, name)
        except status.NotFound:
            return False
        return True

    def living(self, **labels):
        """Pods of the test's namespace with these labels that are not being deleted."""
        return [
            p
            for p in self.pods.items()
            if p.metadata.namespace == self.namespace
            and p.metadata.deletion_timestamp is None
            and labels.items() <= p.metadata.labels.items()
        ]


async def bind_pods(client: Client, pods: Informer[Pod], nodes: Informer[Node]) -> None:
    """The scheduler's stand-in: every pod without a node gets the next Ready one, or the one its
    affinity names; a gated one gets none."""
    turn = cycle(range(1_000_000))
    while True:
        for pod in pods.items():
            named = daemonpod.node_of(pod)
            ready = [
                n
                for n in nodes.items()
                if n.is_ready
                and (n.metadata.name == named if named else not n.spec.unschedulable)
                and not pod.spec.scheduling_gates
            ]
            if not pod.spec.node_name and not pod.metadata.deletion_timestamp and ready:
                node = ready[next(turn) % len(ready)].metadata.name
                body = {
                    "metadata": {"name": pod.metadata.name},
                    "target": {"kind": "Node", "name": node},
                }
                try:
                    await client.create_subresource(
                        Pod, pod.metadata.name, pod.metadata.namespace, "binding", body
                    )
                except (status.NotFound, status.Conflict):
                    pass
        await SYSTEM.sleep(0.03)


@pytest.fixture
def cluster(shared_server):
    """A factory of clusters: `async with cluster() as c:` runs all controllers on fake nodes."""

    @asynccontextmanager
    async def run(
        *,
        node_count: int = 3,
        options: service.Options | None = None,
        pod_lag_s: float = 0.0,
    ) -> AsyncIterator[Cluster]:
        if shared_server.process is None:
            await shared_server.start()
        options = options or service.Options(leader_elect=False, orphan_quarantine_s=0.5)
        slow = LaggingClient(kubeconfig.load(shared_server.kubeconfig), pod_lag_s)
        async with shared_server.client() as client, slow, asyncio.TaskGroup() as group:
            manager = service.build(slow, options)
            fakes = FakeNodes(client, node_count)
            pods, nodes = Informer(client, Pod), Informer(client, Node)
            tasks = {
                "manager": group.create_task(manager.run()),
                "fakes": group.create_task(fakes.run()),
                "pods": group.create_task(pods.run()),
                "nodes": group.create_task(nodes.run()),
                "binder": group.create_task(bind_pods(client, pods, nodes)),
            }
            namespace = f"t-{uuid4().hex[:10]}"
            try:
                await client.create(Namespace, {"metadata": {"name": namespace}})
                await eventually(manager.is_ready, "controllers ready")
                await eventually(fakes.is_ready, "fake nodes ready")
                stops = {name: task.cancel for name, task in tasks.items()}
                yield Cluster(client, namespace, pods, stops)
                try:
                    await client.delete(Namespace, namespace)
                except (status.NotFound, status.Conflict):
                    pass
            finally:
                for task in tasks.values():
                    task.cancel()

    return run
