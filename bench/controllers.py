"""The controllers under load, alone or beside kube-controller-manager in the same run.

A Deployment of 1,000 replicas (200 with --quick) is created, rolled to another template and
deleted; nodes are `motley fake-nodes`, placement is `motley scheduler`, each manager gets a fresh
API server of Motley's. `.cpu` and `.rss` are the manager's own (from /proc); the calls it made are
counted by the server's audit log, so both managers are counted by the same hand.

  --peer-bin DIR   also measure kube-controller-manager from this directory, with its limit of 20
                   requests a second lifted, for it would measure nothing else
  --repeat N       each manager N times, alternately (default 1); the median is reported
"""

import argparse
import asyncio
import collections
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

import figures
from motley.api import status
from motley.api.views.core import Namespace
from motley.api.views.pod import Pod
from motley.client import kubeconfig
from motley.client.rest import Client
from motley.controllers.workload import Deployment
from motley.lib.clock import SYSTEM
from motley.ops.freeports import free_port

NAMESPACE = "bench"
READY_S = 60.0
CONVERGE_S = 600.0
WRITES = ("create", "update", "patch", "delete", "deletecollection")


@dataclass
class Manager:
    """One controller manager: how it is started, and the agent that its requests name."""

    name: str
    command: Callable[[Path], list[str]]
    agent: str


def ours(config: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "motley.cli.main", "controllers", "--no-leader-elect"),
        *("--kubeconfig", str(config), "--health-port", "0", "--log-level", "warning"),
    ]


def peers(binaries: Path) -> Callable[[Path], list[str]]:
    def command(config: Path) -> list[str]:
        return [
            str(binaries / "kube-controller-manager"),
            *(f"--kubeconfig={config}", "--leader-elect=false", "--secure-port=0", "--v=0"),
            *("--kube-api-qps=5000", "--kube-api-burst=5000"),
            "--use-service-account-credentials=false",
        ]

    return command


@dataclass
class Run:
    """What one manager did."""

    wall_s: dict[str, float] = field(default_factory=dict)
    cpu_s: dict[str, float] = field(default_factory=dict)
    calls: dict[str, collections.Counter[str]] = field(default_factory=dict)
    rss_mib: float = 0.0


@contextmanager
def process(command: Sequence[str], log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    with log.open("ab") as out:
        started = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        yield started
    finally:
        started.send_signal(signal.SIGTERM)
        try:
            started.wait(20)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise SystemExit("the kernel does not tell the peak of memory")


def motley(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "motley.cli.main", *arguments]


def measure(manager: Manager, replicas: int, directory: Path) -> Run:
    """Start everything afresh, put one manager through the three phases, end everything."""
    audit, config = directory / "audit.log", directory / "data" / "admin.kubeconfig"
    logs = directory / "log"
    with ExitStack() as stack:
        start = lambda *arguments: stack.enter_context(process(arguments, logs))  # noqa: E731
        port = free_port()
        start(
            *motley("apiserver", "--port", str(port), "--data-dir", str(directory / "data")),
            *("--audit-log-path", str(audit), "--log-level", "warning"),
        )
        _until(config.exists, "the API server")
        nodes = str(replicas // 50 + 4)
        start(
            *motley("fake-nodes", "--kubeconfig", str(config), "--count", nodes, "--cpu", "64"),
            *("--log-level", "warning"),
        )
        start(
            *motley("scheduler", "--kubeconfig", str(config), "--health-port", "0"),
            *("--no-leader-elect", "--log-level", "warning"),
        )
        asyncio.run(_ready(config))
        measured = start(*manager.command(config))
        return asyncio.run(_phases(manager, measured.pid, config, audit, replicas))


def _until(condition: Callable[[], Any], what: str) -> None:
    deadline = time.perf_counter() + READY_S
    while not condition():
        if time.perf_counter() > deadline:
            raise SystemExit(f"{what} is not there after {READY_S:g} s")
        time.sleep(0.05)  # noqa: TID251


async def _ready(config: Path) -> None:
    async with Client(kubeconfig.load(config)) as client:
        deadline = time.perf_counter() + READY_S
        while time.perf_counter() < deadline:
            try:
                await client.raw("GET", "/readyz")
                break
            except status.ApiError:
                await SYSTEM.sleep(0.1)
        await client.create(Namespace, {"metadata": {"name": NAMESPACE}})


async def _phases(manager: Manager, pid: int, config: Path, audit: Path, replicas: int) -> Run:
    run = Run()
    async with Client(kubeconfig.load(config), user_agent="bench") as client:

        async def settled() -> bool:
            found = await client.get(Deployment, "web", NAMESPACE)
            now = found.status
            return (
                now.observed_generation >= (found.metadata.generation or 0)
                and (now.replicas, now.updated_replicas) == (replicas, replicas)
                and (now.available_replicas, now.unavailable_replicas) == (replicas, 0)
            )

        async def gone() -> bool:
            return not (await client.list(Pod, namespace=NAMESPACE, limit=1)).items

        async def phase(name: str, action: Any, done: Callable[[], Any]) -> None:
            offset, spent, begun = audit.stat().st_size, cpu_s(pid), time.perf_counter()
            await action
            while not await done():
                if time.perf_counter() - begun > CONVERGE_S:
                    raise SystemExit(f"{manager.name}: {name} not done in {CONVERGE_S:g} s")
                await SYSTEM.sleep(0.1)
            run.wall_s[name] = time.perf_counter() - begun
            await SYSTEM.sleep(2.0)  # what trails behind is part of the cost
            run.cpu_s[name] = cpu_s(pid) - spent
            run.calls[name] = _calls(audit, offset, manager.agent)

        # The manager makes the namespace's service account, without which no pod can be.
        await _account(client)
        await phase("create", client.create(Deployment, _deployment(replicas), NAMESPACE), settled)
        change = {"spec": {"template": {"metadata": {"annotations": {"rolled": "1"}}}}}
        await phase("roll", client.patch(Deployment, "web", NAMESPACE, change), settled)
        await phase("delete", client.delete(Deployment, "web", NAMESPACE), gone)
    run.rss_mib = peak_mib(pid)
    return run


async def _account(client: Client) -> None:
    deadline = time.perf_counter() + READY_S
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
    while time.perf_counter() < deadline:
        try:
            await client.raw("GET", path)
            return
        except status.NotFound:
            await SYSTEM.sleep(0.1)
    raise SystemExit("no service account was made: the manager does not work")


def _deployment(replicas: int) -> dict[str, Any]:
    container = {"name": "c", "image": "app:1", "resources": {"requests": {"cpu": "10m"}}}
    return {
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
            },
        },
    }


def _calls(audit: Path, offset: int, agent: str) -> collections.Counter[str]:
    """The manager's finished requests since a place in the log, by verb."""
    found: collections.Counter[str] = collections.Counter()
    with audit.open("rb") as lines:
        lines.seek(offset)
        for line in lines:
            entry = msgspec.json.decode(line)
            ended = entry["stage"] == "ResponseComplete"
            if ended and entry.get("userAgent", "").startswith(agent):
                what = entry.get("objectRef", {}).get("resource", "")
                found[f"{entry['verb']} {what}"] += 1
    return found


def writes(calls: collections.Counter[str]) -> int:
    return sum(n for name, n in calls.items() if name.split()[0] in WRITES)


def tell(report: figures.Report, manager: Manager, runs: Sequence[Run], replicas: int) -> None:
    prefix = "controllers" if manager.name == "motley" else f"controllers.{manager.name}"
    middle = lambda values: statistics.median(list(values))  # noqa: E731
    for phase in ("create", "roll", "delete"):
        detail = f"{replicas} replicas"
        report.add(f"{prefix}.{phase}", middle(r.wall_s[phase] for r in runs), "s", detail)
        report.add(f"{prefix}.{phase}.cpu", middle(r.cpu_s[phase] for r in runs), "s", detail)
        calls = runs[-1].calls[phase]
        common = ", ".join(f"{name} {n}" for name, n in calls.most_common(6))
        report.add(f"{prefix}.{phase}.writes", writes(calls), "calls", common)
    report.add(f"{prefix}.rss", middle(r.rss_mib for r in runs), "MiB", "peak")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="take less than a minute")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures here")
    parser.add_argument("--peer-bin", type=Path, metavar="DIR")
    parser.add_argument("--repeat", type=int, default=1, metavar="N")
    parser.add_argument("--replicas", type=int, metavar="N")
    options = parser.parse_args()
    report = figures.Report(options.quick, options.json)
    replicas = options.replicas or (200 if options.quick else 1000)
    managers = [Manager("motley", ours, "kube-controller-manager")]
    if options.peer_bin:
        managers.append(Manager("peer", peers(options.peer_bin), "kube-controller-manager"))
    runs: dict[str, list[Run]] = {m.name: [] for m in managers}
    for _ in range(options.repeat):
        for manager in managers:
            with tempfile.TemporaryDirectory(prefix="motley-bench-") as directory:
                runs[manager.name].append(measure(manager, replicas, Path(directory)))
    for manager in managers:
        tell(report, manager, runs[manager.name], replicas)
    report.finish()


if __name__ == "__main__":
    main()
