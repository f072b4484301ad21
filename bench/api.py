"""The API server under load, alone or beside kube-apiserver with etcd in the same run.

Pods of one container over TLS, JSON, HTTP/1.1, one connection per client, each write durable
before it is answered. `.cpu` figures are CPU time of the server's processes per operation, read
from /proc: what the load client costs does not count, and they repeat better than wall time.

  --kload FILE     let kload, a load client in Go, make the load: it can drive both servers harder
                   than the client built in here, and costs them less of the machine
  --peer-bin DIR   also measure kube-apiserver and etcd from this directory, and say how many times
                   the peer's each figure is (`.ratio`)
  --server NAME    only `motley` or only `peer`
"""

import argparse
import asyncio
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import uvloop
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

import figures
from apiload import TOKEN, Connection, Kload, Load, Outcome, OwnLoad, until
from motley.ops.freeports import free_ports

TOKENS = f'{TOKEN},bench,1,"system:masters"\n'
READY_S = 60.0
CLIENTS = (1, 8, 32)
WATCHERS = (1, 10, 100)


@dataclass
class Server:
    """Processes that serve the API, and what they cost."""

    name: str
    url: str
    processes: list["subprocess.Popen[bytes]"] = field(default_factory=list)
    ready_s: float = 0.0

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.url.rpartition(":")[2])

    def cpu_s(self) -> float:
        """Processor time since the start."""
        ticks = 0
        for process in self.processes:
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def rss_mib(self) -> float:
        """Resident memory now."""
        pages = sum(
            int(Path(f"/proc/{p.pid}/statm").read_text().split()[1]) for p in self.processes
        )
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@contextmanager
def running(
    name: str, port: int, commands: Sequence[Sequence[str]], logs: Path
) -> Iterator[Server]:
    """Start the commands, wait until the last of them is ready, and end them all."""
    server = Server(name, f"https://127.0.0.1:{port}")
    with ExitStack() as stack:
        log = stack.enter_context((logs / f"{name}.log").open("ab"))
        begun = time.perf_counter()
        for command in commands:
            server.processes.append(subprocess.Popen(command, stdout=log, stderr=log))
        try:
            uvloop.run(until_ready(server, begun, logs / f"{name}.log"))
            server.ready_s = time.perf_counter() - begun
            yield server
        finally:
            for process in reversed(server.processes):
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


async def until_ready(server: Server, begun: float, log: Path) -> None:
    while True:
        if any(process.poll() is not None for process in server.processes):
            raise SystemExit(f"{server.name} ended:\n{log.read_text()[-2000:]}")
        try:
            async with asyncio.timeout(2):
                client = await Connection.open(server.port)
                code, _ = await client.call("GET", "/readyz")
            client.close()
            if code == 200:
                return
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass
        if time.perf_counter() - begun > READY_S:
            raise SystemExit(f"{server.name} is not ready after {READY_S} s: see {log}")
        await until(asyncio.get_running_loop().time() + 0.01)


def motley(directory: Path) -> AbstractContextManager[Server]:
    (directory / "tokens.csv").write_text(TOKENS)
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "motley.cli.main", "apiserver", "--port", str(port)]
    command += ["--data-dir", str(directory / "data"), "--log-level", "warning"]
    command += ["--token-auth-file", str(directory / "tokens.csv")]
    return running("motley", port, [command], directory)


def peer(directory: Path, binaries: Path) -> AbstractContextManager[Server]:
    """etcd and kube-apiserver, with what they have by default."""
    (directory / "tokens.csv").write_text(TOKENS)
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    (directory / "sa.key").write_bytes(pem)
    port, clients, peers = free_ports(3)
    etcd = [str(binaries / "etcd"), "--data-dir", str(directory / "etcd"), "--log-level", "error"]
    etcd += ["--listen-client-urls", f"http://127.0.0.1:{clients}"]
    etcd += ["--advertise-client-urls", f"http://127.0.0.1:{clients}"]
    etcd += ["--listen-peer-urls", f"http://127.0.0.1:{peers}"]
    etcd += ["--initial-advertise-peer-urls", f"http://127.0.0.1:{peers}"]
    etcd += ["--initial-cluster", f"default=http://127.0.0.1:{peers}"]
    apiserver = [str(binaries / "kube-apiserver"), f"--etcd-servers=http://127.0.0.1:{clients}"]
    apiserver += [f"--secure-port={port}", "--bind-address=127.0.0.1", "--v=0"]
    apiserver += [f"--cert-dir={directory / 'certs'}", "--authorization-mode=Node,RBAC"]
    apiserver += [f"--token-auth-file={directory / 'tokens.csv'}"]
    apiserver += ["--service-cluster-ip-range=10.96.0.0/16"]
    apiserver += ["--service-account-issuer=https://kubernetes.default.svc"]
    apiserver += [f"--service-account-key-file={directory / 'sa.key'}"]
    apiserver += [f"--service-account-signing-key-file={directory / 'sa.key'}"]
    return running("peer", port, [etcd, apiserver], directory)


# -- measurements ----------------------------------------------------------------------------


@dataclass
class Bench:
    """The figures of one server."""

    report: figures.Report
    server: Server
    load: Load

    def add(self, name: str, value: float, unit: str, detail: str = "") -> None:
        """Report a figure of this server."""
        prefix = "api" if self.server.name == "motley" else f"api.{self.server.name}"
        self.report.add(f"{prefix}.{name}", value, unit, detail)

    def namespace(self, name: str) -> str:
        """A namespace in which pods can be made: no controllers run here."""
        uvloop.run(self._namespace(name))
        return name

    async def _namespace(self, name: str) -> None:
        connection = await Connection.open(self.server.port)
        for path, named in (
            ("/api/v1/namespaces", name),
            (f"/api/v1/namespaces/{name}/serviceaccounts", "default"),
        ):
            code, body = await connection.call(
                "POST", path, b'{"metadata":{"name":"%s"}}' % named.encode()
            )
            if code not in (201, 409):
                raise SystemExit(f"POST {path}: {code} {body[:300]!r}")
        connection.close()

    def rates(self) -> None:
        """Creates, reads and patches of single pods."""
        scale = 1 if self.report.quick else 5
        namespace = self.namespace("bench")
        for clients in CLIENTS:
            count = {1: 300, 8: 600, 32: 1200}[clients] * scale
            with self.charged(f"create.{clients}", count):
                seen = self.load.create(namespace, f"c{clients}", count, clients)
            self.rate(f"create.{clients}", seen, clients)
        known = self.namespace("list1000")
        self.load.create(known, "p", 1000, 32)
        for clients in CLIENTS:
            count = {1: 500, 8: 1000, 32: 2000}[clients] * scale
            with self.charged(f"get.{clients}", count):
                seen = self.load.get(known, count, clients)
            self.rate(f"get.{clients}", seen, clients)
        for clients in CLIENTS:
            count = {1: 200, 8: 500, 32: 1000}[clients] * scale
            with self.charged(f"patch.{clients}", count):
                seen = self.load.patch(known, count, clients)
            self.rate(f"patch.{clients}", seen, clients)

    def rate(self, name: str, seen: Outcome, clients: int) -> None:
        """Report how many went through in a second, and how long each took."""
        latency = f"p50 {seen.p50_ms:.1f} ms, p99 {seen.p99_ms:.1f} ms"
        self.add(name, seen.per_s, "/s", f"{clients} clients, {latency}")

    @contextmanager
    def charged(self, name: str, count: int) -> Iterator[None]:
        """Note what each operation costs the server."""
        before_s = self.server.cpu_s()
        yield
        self.add(f"{name}.cpu", (self.server.cpu_s() - before_s) / count * 1e6, "us")

    def watches(self) -> None:
        """From a patch being sent to its event being there."""
        count = 100 if self.report.quick else 500
        for watchers in WATCHERS:
            with self.charged(f"watch.{watchers}", count):
                seen = self.load.watch("list1000", count, watchers)
            detail = f"{watchers} watchers, {count} writes"
            self.add(f"watch.{watchers}.p50", seen.p50_ms, "ms", detail)
            self.add(f"watch.{watchers}.p99", seen.p99_ms, "ms", detail)

    def lists(self, size: int, times: int, clients: int = 1) -> None:
        """Lists of a namespace with that many pods; each client asks again when it has one."""
        name = f"list.{size}" if clients == 1 else f"list.{size}.{clients}"
        with self.charged(name, times):
            seen = self.load.list(f"list{size}", times, clients)
        detail = f"whole, JSON, not compressed, {clients} clients"
        self.add(f"{name}.p50", seen.p50_ms, "ms", detail)
        self.add(f"{name}.p99", seen.p99_ms, "ms", f"of {times}")

    def everything(self) -> None:
        """All that needs a server of little history."""
        quick = self.report.quick
        self.add("ready", self.server.ready_s, "s", "from the start of the process to /readyz")
        self.add("rss.idle", self.server.rss_mib(), "MiB")
        self.rates()
        self.watches()
        self.lists(1000, 20 if quick else 100)
        self.load.create(self.namespace("list5000"), "p", 5000, 32)
        self.lists(5000, 10 if quick else 50)
        self.lists(5000, 16 if quick else 80, clients=8)

    def growth(self, levels: Sequence[int]) -> None:
        """What the server needs, and what a create costs, with few and with many pods stored."""
        namespace = self.namespace("growth")
        stored, count = 0, 500 if self.report.quick else 3000
        for level in levels:
            self.load.create(namespace, f"fill{level}", level - stored, 32)
            self.add(f"rss.{level}", self.server.rss_mib(), "MiB", f"{level} pods")
            with self.charged(f"create.stored.{level}", count):
                self.load.create(namespace, f"on{level}", count, 32)
            stored = level + count


def measure(options: argparse.Namespace, report: figures.Report) -> None:
    def bench(server: Server) -> Bench:
        if options.kload is not None:
            return Bench(report, server, Kload(server.url, options.kload))
        return Bench(report, server, OwnLoad(server.port))

    with tempfile.TemporaryDirectory(prefix="motley-bench-") as scratch:
        numbers = itertools.count()

        def started(name: str) -> AbstractContextManager[Server]:
            directory = Path(scratch, str(next(numbers)))
            directory.mkdir()
            if name == "motley":
                return motley(directory)
            return peer(directory, options.peer_bin)

        names = ["motley", *(["peer"] if options.peer_bin is not None else [])]
        for name in [n for n in names if options.server in (None, n)]:
            with started(name) as server:
                bench(server).everything()
            with started(name) as server:
                bench(server).growth((1000, 10_000) if report.quick else (1000, 10_000, 100_000))
    compare(report)


def compare(report: figures.Report) -> None:
    """How many times the peer each figure is, where both were measured in this run.

    More is better for rates (`/s`), less for everything else.
    """
    known = {figure.name: figure for figure in report.figures}
    for name, figure in known.items():
        theirs = known.get(f"api.peer.{name.removeprefix('api.')}")
        if theirs is not None and theirs.value:
            values = f"{figure.value:.4g} to {theirs.value:.4g} {figure.unit}"
            report.add(f"{name}.ratio", figure.value / theirs.value, "x", values)


def arguments(given: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """This script's own options, and the ones every benchmark has."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--kload", type=Path)
    parser.add_argument("--peer-bin", type=Path)
    parser.add_argument("--server", choices=("motley", "peer"))
    options, rest = parser.parse_known_args(given)
    if options.kload is not None and shutil.which(options.kload) is None:
        parser.error(f"--kload: {options.kload} is not a program")
    for name in ("kube-apiserver", "etcd"):
        if options.peer_bin is not None and shutil.which(options.peer_bin / name) is None:
            parser.error(f"--peer-bin: no program {name} in {options.peer_bin}")
    if options.server == "peer" and options.peer_bin is None:
        parser.error("--server peer needs --peer-bin")
    return options, rest


def main() -> None:
    options, rest = arguments(sys.argv[1:])
    report = figures.Report.from_arguments(__doc__ or "", rest)
    measure(options, report)
    report.finish()


if __name__ == "__main__":
    main()
