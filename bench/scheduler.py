"""The scheduler on the workloads of scheduler_perf: its core alone, and end to end.

`core` is deciding and counting in memory, nothing else. The rest runs as separate processes:
Motley's API server (SQLite on disk, TLS), nodes and Leases that are only objects, pods.

  drain   pods are pending first, then the scheduler starts: pods bound per second between the
          first and the last (preemption: since the start), as a watch sees it; CPU of scheduler and
          API server per pod, with what trails behind (events), and the scheduler's peak of memory
  paced   pods created at 20 and 100 a second on the `basic` cluster: milliseconds from sending
          the request to seeing the pod bound

  --only NAME      only this workload (bench/scheduler_workloads.py has them) or `paced`; repeatable
  --nodes N        only this cluster size; may be repeated (default 500, 1,000 and 5,000)
  --peer-bin DIR   also kube-scheduler from this directory against Motley's API server in the same
                   run, its limit of 50 requests a second lifted, and the ratios
  --peer-api       with kube-apiserver and etcd from there instead
  --no-core        leave the core alone out;  --no-drain: only the core
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

import api
import figures
import scheduler_workloads as workloads
from apiload import MERGE, Connection, until
from motley.api.views.core import Node
from motley.api.views.pod import Pod
from motley.lib.clock import SYSTEM
from motley.scheduler import profiles
from motley.scheduler.columns import Columns
from motley.scheduler.contract import Handle
from motley.scheduler.cycle import Cycle
from motley.scheduler.images import ImageTable
from motley.scheduler.podinfo import PodInfos
from scheduler_workloads import NAMESPACE, WORKLOADS, Document, Workload

CLIENTS = 16
STALLED_S = 120.0  # without a new pod bound; preemption may take long to bind the first
SIZES = (500, 1000, 5000)
RATES = (20, 100)
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_PRIORITY = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "bench-high"},
    "value": 1000,
}


# -- the core alone --------------------------------------------------------------------------


def core(workload: Workload, size: int, most: int) -> float:
    """Pods per second of CPU: each decided and counted, one after the other."""
    columns = Columns()
    count = workload.only_nodes or size
    for number in range(count):
        document = workloads.node(number, workload.zones, workload.node_pods)
        columns.set_node(Node.of(document))
    handle = Handle(columns, SYSTEM, ImageTable())
    cycle = Cycle(profiles.default(handle)["default-scheduler"], columns)
    infos = PodInfos()

    def view(document: Document) -> Pod:
        pod = Pod.of(document)
        pod.metadata.uid = pod.metadata.name
        if document["spec"].get("priorityClassName"):
            pod.spec.priority = _PRIORITY["value"]
        return pod

    for document in workload.placed(count):
        columns.add_pod(infos.of(view(document)), document["spec"]["nodeName"])
    pending = [infos.of(view(d)) for d in itertools.islice(workload.pending(size), most)]
    with figures.measured() as spent:
        for pod in pending:
            decision = cycle.schedule(pod)
            if decision.node is not None:
                columns.add_pod(pod, decision.node, assumed=True)
            elif decision.nomination is not None:
                for victim in decision.nomination.victims:
                    columns.remove_pod(victim.uid)
                columns.add_pod(pod, decision.nomination.node, assumed=True)
    return len(pending) / spent.cpu_s


# -- processes -------------------------------------------------------------------------------


@dataclass
class Started:
    """A scheduler as a process."""

    name: str
    process: "subprocess.Popen[bytes]"
    log: Path

    def last_words(self) -> str:
        """The end of its log."""
        return self.log.read_text()[-1500:]

    def cpu_s(self) -> float:
        """Processor time since its start."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_mib(self) -> float:
        """The most memory it had."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
        raise SystemExit("the kernel does not tell the peak of memory")


def kubeconfig(server: api.Server, directory: Path) -> Path:
    """For whoever is measured: an administrator with a token."""
    path = directory / "bench.kubeconfig"
    cluster = {"server": server.url, "insecure-skip-tls-verify": True}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "bench", "cluster": cluster}],
        "users": [{"name": "bench", "user": {"token": api.TOKEN}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
        "current-context": "bench",
    }
    path.write_text(json.dumps(document))
    return path


@contextmanager
def scheduler(name: str, config: Path, options: argparse.Namespace) -> Iterator[Started]:
    """Start a scheduler, and end it."""
    directory = config.parent
    if name == "motley":
        command = [sys.executable, "-m", "motley.cli.main", "scheduler"]
        command += ["--kubeconfig", str(config), "--no-leader-elect", "--health-port", "0"]
        command += ["--log-level", "warning"]
    else:
        settings = directory / "kube-scheduler.json"
        connection = {"kubeconfig": str(config), "qps": 5000, "burst": 5000}
        settings.write_text(
            json.dumps(
                {
                    "apiVersion": "kubescheduler.config.k8s.io/v1",
                    "kind": "KubeSchedulerConfiguration",
                    "leaderElection": {"leaderElect": False},
                    "clientConnection": connection,
                }
            )
        )
        command = [str(options.peer_bin / "kube-scheduler"), f"--config={settings}"]
        command += ["--secure-port=0", "--v=0"]
    log_file = directory / f"{name}-scheduler.log"
    with log_file.open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield Started(name, process, log_file)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


# -- a cluster of objects --------------------------------------------------------------------


def path_of(document: Document) -> str:
    """Where an object of the workloads is created."""
    kind, namespace = document["kind"], document["metadata"].get("namespace", "")
    if kind == "Lease":
        return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    if kind == "PriorityClass":
        return "/apis/scheduling.k8s.io/v1/priorityclasses"
    plural = f"{kind.lower()}s"
    return f"/api/v1/namespaces/{namespace}/{plural}" if namespace else f"/api/v1/{plural}"


Request = tuple[str, str, bytes, str]


def posted(document: Document) -> Request:
    return "POST", path_of(document), json.dumps(document).encode(), ""


def untainted(number: int) -> Request:
    """A new node is tainted as not ready until somebody says otherwise."""
    return "PATCH", f"/api/v1/nodes/node-{number}", b'{"spec":{"taints":null}}', MERGE


async def create(port: int, documents: Iterable[Document]) -> int:
    """POST them all; how many there were."""
    return await send(port, map(posted, documents))


async def send(port: int, requests: Iterable[Request]) -> int:
    """Send them all over several connections; how many there were."""
    waiting = iter(requests)
    count = 0

    async def work() -> None:
        nonlocal count
        connection = await Connection.open(port)
        for request in waiting:
            code, answer = await connection.call(*request)
            if code not in (200, 201, 409):
                raise SystemExit(f"{request[0]} {request[1]}: {code} {answer[:300]!r}")
            count += 1
        connection.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(CLIENTS):
            group.create_task(work())
    return count


async def prepare(port: int, workload: Workload, size: int) -> None:
    """Namespace, account, nodes, and the pods that are there first."""
    base: list[Document] = [
        {"kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"kind": "Namespace", "metadata": {"name": "kube-node-lease"}},
    ]
    for document in base:
        await create(port, [document])
    account = {"kind": "ServiceAccount", "metadata": {"name": "default", "namespace": NAMESPACE}}
    await create(port, [account, _PRIORITY])
    count = workload.only_nodes or size
    nodes = (workloads.node(i, workload.zones, workload.node_pods) for i in range(count))
    await create(port, itertools.chain(nodes, map(workloads.lease, range(count))))
    await send(port, map(untainted, range(count)))
    await create(port, itertools.chain(workload.placed(count), workload.idle(size)))


@dataclass
class Seen:
    """What a watch on the pods says: when each pod had a node."""

    prefix: bytes = b"p-"
    bound_at: dict[bytes, float] = field(default_factory=dict)
    moved: int = 0  # pods whose node changed: never
    _nodes: dict[bytes, bytes] = field(default_factory=dict)

    def line(self, line: bytes, now: float) -> None:
        """One event."""
        at = line.find(b'"nodeName":"')
        if at < 0:
            return
        start = line.index(b'"name":"') + 8
        name = line[start : line.index(b'"', start)]
        if not name.startswith(self.prefix):
            return
        node = line[at + 12 : line.index(b'"', at + 12)]
        if self._nodes.setdefault(name, node) != node:
            self.moved += 1
        self.bound_at.setdefault(name, now)

    async def follow(self, port: int, ready: asyncio.Event) -> None:
        """Watch until cancelled."""
        connection = await Connection.open(port)
        _, body = await connection.call("GET", f"{PODS}?limit=1")
        revision = json.loads(body)["metadata"]["resourceVersion"]
        await connection.send("GET", f"{PODS}?watch=true&resourceVersion={revision}")
        ready.set()
        rest = b""
        async for chunk in connection.chunks():
            now = time.perf_counter()
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self.line(line, now)

    async def bound(self, count: int, started: Started) -> None:
        """Wait until so many pods are bound."""
        loop = asyncio.get_running_loop()
        seen, moved_at = 0, loop.time()
        while len(self.bound_at) < count:
            if len(self.bound_at) != seen:
                seen, moved_at = len(self.bound_at), loop.time()
            if started.process.poll() is not None or loop.time() - moved_at > STALLED_S:
                raise SystemExit(f"only {seen} of {count} pods were bound: {started.last_words()}")
            await until(loop.time() + 0.02)


# -- end to end ------------------------------------------------------------------------------


@dataclass
class Drain:
    """What one scheduler did with a workload."""

    per_s: float
    first_s: float
    cpu_ms: float
    server_ms: float
    peak_mib: float


class EndToEnd:
    """One API server, one scheduler, one workload."""

    def __init__(self, server: api.Server, config: Path, options: argparse.Namespace) -> None:
        self.server = server
        self.config = config
        self.options = options

    async def drain(self, name: str, workload: Workload, size: int) -> Drain:
        """Pods first, then the scheduler."""
        port = self.server.port
        await prepare(port, workload, size)
        count = await create(port, workload.pending(size))
        seen, ready = Seen(), asyncio.Event()
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(seen.follow(port, ready))
            await ready.wait()
            server_s, begun = self.server.cpu_s(), time.perf_counter()
            with scheduler(name, self.config, self.options) as started:
                beside = group.create_task(self._beside(workload.beside))
                await seen.bound(count, started)
                beside.cancel()
                await self._quiet(started)
                cpu_s, peak = started.cpu_s(), started.peak_mib()
            watching.cancel()
        times = sorted(seen.bound_at.values())
        if seen.moved:
            raise SystemExit(f"{name} moved {seen.moved} pods from one node to another")
        since = begun if workload.from_start else times[0]
        return Drain(
            (count - 1) / (times[-1] - since),
            times[0] - begun,
            cpu_s / count * 1e3,
            (self.server.cpu_s() - server_s) / count * 1e3,
            peak,
        )

    async def _quiet(self, started: Started) -> None:
        """Until the scheduler has nothing left to do: events trail behind the bindings."""
        loop = asyncio.get_running_loop()
        before, calm = started.cpu_s(), 0
        while calm < 3:
            await until(loop.time() + 0.3)
            now = started.cpu_s()
            calm = calm + 1 if now - before <= 0.03 else 0
            before = now

    async def _beside(self, what: str) -> None:
        """What goes on while the pods are scheduled."""
        if not what:
            return
        connection = await Connection.open(self.server.port)
        loop = asyncio.get_running_loop()
        for number in itertools.count():
            await until(loop.time() + (0.2 if what == "unschedulable" else 1.0))
            if what == "unschedulable":
                await self._post(connection, workloads.hopeless(f"more-{number}"))
                continue
            churned = [
                workloads.node(1_000_000),
                workloads.hopeless("churn"),
                {
                    "kind": "Service",
                    "metadata": {"name": "churn", "namespace": NAMESPACE},
                    "spec": {"ports": [{"port": 80}]},
                },
            ]
            for document in churned:
                where = f"{path_of(document)}/{document['metadata']['name']}"
                await connection.call("DELETE", where)
                await self._post(connection, document)

    async def _post(self, connection: Connection, document: Document) -> None:
        await connection.call("POST", path_of(document), json.dumps(document).encode())

    async def paced(self, name: str, rate: int, seconds: float) -> tuple[list[float], float]:
        """Seconds from creation to bound of each pod; CPU milliseconds of the scheduler per pod."""
        port, loop = self.server.port, asyncio.get_running_loop()
        count = int(rate * seconds)
        seen, ready = Seen(b"paced"), asyncio.Event()
        sent: dict[bytes, float] = {}
        with scheduler(name, self.config, self.options) as started:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(seen.follow(port, ready))
                await ready.wait()
                await create(port, [workloads.plain(f"paced-{name}-{rate}-warm")])
                await seen.bound(1, started)
                await self._quiet(started)
                connections = [await Connection.open(port) for _ in range(8)]
                cpu_s, begun = started.cpu_s(), loop.time()

                async def work(which: int) -> None:
                    for number in range(which, count, len(connections)):
                        await until(begun + number / rate)
                        pod = workloads.plain(f"paced-{name}-{rate}-{number}")
                        sent[pod["metadata"]["name"].encode()] = time.perf_counter()
                        await self._post(connections[which], pod)

                async with asyncio.TaskGroup() as load:
                    for which in range(len(connections)):
                        load.create_task(work(which))
                await seen.bound(count + 1, started)
                cpu_s = started.cpu_s() - cpu_s
                watching.cancel()
        return sorted(seen.bound_at[key] - at for key, at in sent.items()), cpu_s / count * 1e3


class Bench:
    """All figures of one run."""

    def __init__(self, options: argparse.Namespace, report: figures.Report) -> None:
        self.options = options
        self.report = report
        self._numbers = itertools.count()
        self._scratch = Path()

    def run(self) -> None:
        """Everything that was asked for."""
        chosen = [w for w in WORKLOADS if self._wanted(w.name)]
        sizes = self.options.nodes or ((500,) if self.report.quick else SIZES)
        if self.options.core:
            for workload, size in itertools.product(chosen, sizes):
                if size in workload.sizes:
                    self._core(workload, size)
        if not self.options.drain:
            return
        with tempfile.TemporaryDirectory(prefix="motley-bench-") as scratch:
            self._scratch = Path(scratch)
            for workload, size in itertools.product(chosen, sizes):
                if size in workload.sizes and (not self.report.quick or self._is_quick(workload)):
                    self._drain(workload, size)
            if self._wanted("paced"):
                for size in sizes:
                    self._paced(size)

    def _wanted(self, name: str) -> bool:
        return not self.options.only or name in self.options.only

    def _is_quick(self, workload: Workload) -> bool:
        names = ("basic", "anti-affinity", "spread", "preemption")
        return bool(self.options.only) or workload.name in names

    @property
    def _names(self) -> list[str]:
        return ["motley", *(["peer"] if self.options.peer_bin else [])]

    def _core(self, workload: Workload, size: int) -> None:
        per_s = core(workload, size, 500 if self.report.quick else 2000)
        self.report.add(f"scheduler.core.{workload.name}.{size}", per_s, "pods/s", "per CPU second")

    def _server(self, name: str) -> tuple[AbstractContextManager[api.Server], Path]:
        directory = self._scratch / str(next(self._numbers))
        directory.mkdir()
        if name == "peer" and self.options.peer_api:
            return api.peer(directory, self.options.peer_bin), directory
        return api.motley(directory), directory

    def _drain(self, workload: Workload, size: int) -> None:
        results: dict[str, Drain] = {}
        for name in self._names:
            manager, directory = self._server(name)
            with manager as server:
                run = EndToEnd(server, kubeconfig(server, directory), self.options)
                results[name] = uvloop.run(run.drain(name, workload, size))
            prefix = "" if name == "motley" else f"{name}."
            base, found = f"scheduler.{prefix}drain.{workload.name}.{size}", results[name]
            detail = f"{workload.scaled(workload.measured, size)} pods"
            self.report.add(base, found.per_s, "pods/s", detail)
            self.report.add(
                f"{base}.cpu", found.cpu_ms, "ms/pod", "the whole process, its start too"
            )
            self.report.add(f"{base}.server-cpu", found.server_ms, "ms/pod")
            self.report.add(f"{base}.first", found.first_s, "s", "from start to the first binding")
            self.report.add(f"{base}.rss", found.peak_mib, "MiB", "peak")
        if "peer" in results:
            ours, theirs = results["motley"], results["peer"]
            base = f"scheduler.drain.{workload.name}.{size}"
            self.report.add(f"{base}.ratio", ours.per_s / theirs.per_s, "x", "more is better")
            self.report.add(f"{base}.cpu.ratio", ours.cpu_ms / theirs.cpu_ms, "x", "less is better")

    def _paced(self, size: int) -> None:
        seconds = 3.0 if self.report.quick else 15.0
        workload = next(w for w in WORKLOADS if w.name == "basic")
        for name in self._names:
            manager, directory = self._server(name)
            with manager as server:
                uvloop.run(prepare(server.port, workload, size))
                run = EndToEnd(server, kubeconfig(server, directory), self.options)
                for rate in RATES:
                    times, cpu_ms = uvloop.run(run.paced(name, rate, seconds))
                    self._latency(name, size, rate, times, cpu_ms)

    def _latency(
        self, name: str, size: int, rate: int, times: Sequence[float], cpu_ms: float
    ) -> None:
        prefix = "" if name == "motley" else f"{name}."
        base = f"scheduler.{prefix}paced.{rate}.{size}"
        detail = f"creation to bound, {rate}/s, {len(times)} pods"
        self.report.add(f"{base}.p50", times[len(times) // 2] * 1e3, "ms", detail)
        self.report.add(f"{base}.p99", times[int(len(times) * 0.99)] * 1e3, "ms", detail)
        self.report.add(f"{base}.cpu", cpu_ms, "ms/pod")


def arguments(given: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """This script's own options, and the ones every benchmark has."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--only", action="append", default=[], metavar="NAME")
    parser.add_argument("--nodes", action="append", default=[], type=int, metavar="N")
    parser.add_argument("--peer-bin", type=Path, metavar="DIR")
    parser.add_argument("--peer-api", action="store_true")
    parser.add_argument("--no-core", dest="core", action="store_false")
    parser.add_argument("--no-drain", dest="drain", action="store_false")
    options, rest = parser.parse_known_args(given)
    known = {w.name for w in WORKLOADS} | {"paced"}
    for name in options.only:
        if name not in known:
            parser.error(f"--only {name}: one of {', '.join(sorted(known))}")
    return options, rest


def main() -> None:
    options, rest = arguments(sys.argv[1:])
    report = figures.Report.from_arguments(__doc__ or "", rest)
    with contextlib.suppress(KeyboardInterrupt):
        Bench(options, report).run()
    report.finish()


if __name__ == "__main__":
    main()
