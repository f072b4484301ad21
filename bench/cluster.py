"""The whole cluster: how soon it runs its first pod, what memory and CPU it takes, empty and large.

Targets: `motley up`, installed, to the first pod Running in 15 s; the idle control plane in 350 MB.

What is counted as control plane: API server, controllers, scheduler, gateway, supervisor with its
zygote, and any component that is not of the node. Beside it, what every node has: agent, proxy,
containerd. Components share pages (they are forked from one process, and libraries are mapped
once), so each is told twice: `rss`, where a shared page counts for everybody who has it, and `pss`,
where it counts once, divided by how many have it. Only `pss` may be added up. The large cluster is
`motley fake-nodes` with pods of one Deployment; that process is not counted.

Runs in a network namespace of its own, which ends with it.
"""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from pyroute2 import netns

import figures
from motley.api.views.apps import Deployment
from motley.api.views.pod import Pod
from motley.client import kubeconfig
from motley.client.rest import Client
from motley.lib import clock
from motley.ops import images, processes
from motley.ops.testbed import Testbed
from onepod import pod

CACHE = Path(__file__).parents[1] / ".cache"
OF_NODES = ("node", "proxy", "containerd")
UP_S, MEMORY_MB = 15.0, 350.0
FAKE = {"bench": "fake"}
_TICKS = os.sysconf("SC_CLK_TCK")


class Usage(NamedTuple):
    """What one component takes."""

    rss_mb: float
    pss_mb: float
    cpu_s: float


def component_pids(testbed: Testbed) -> dict[str, list[int]]:
    """Processes by component; one may have several, nginx beside the gateway."""
    found: dict[str, list[int]] = {}
    for process, name in processes.of_cluster(testbed.root).items():
        program = Path(os.readlink(f"/proc/{process.pid}/exe")).name
        if not program.startswith("containerd-shim") and program not in ("pause", "busybox"):
            found.setdefault(name, []).append(process.pid)
    return found


def usage(pid: int) -> Usage:
    sizes = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, _, rest = line.partition(":")
        sizes[name] = int(rest.split()[0]) * 1024 / 1e6
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return Usage(sizes["Rss"], sizes["Pss"], (int(fields[11]) + int(fields[12])) / _TICKS)


def used(testbed: Testbed) -> dict[str, Usage]:
    """What every component takes now."""
    return {
        name: Usage(*(sum(values) for values in zip(*map(usage, pids), strict=True)))
        for name, pids in component_pids(testbed).items()
    }


def memory(report: figures.Report, testbed: Testbed, when: str, detail: str, target: str) -> None:
    """A line per component, then the sums of what shares its pages honestly."""
    found = used(testbed)
    own = {name: one for name, one in found.items() if name not in OF_NODES}
    nodes = {name: one for name, one in found.items() if name in OF_NODES}
    for name, one in sorted(found.items()):
        report.add(f"cluster.{when}.pss.{name}", one.pss_mb, "MB", f"RSS {one.rss_mb:.1f} MB")
    for part, among in (("control_plane", own), ("node", nodes), ("everything", found)):
        pss, rss = sum(one.pss_mb for one in among.values()), sum(o.rss_mb for o in among.values())
        counted = ", ".join(sorted(among))
        said = f"{detail}; RSS added up {rss:.0f} MB; counted: {counted}"
        if part == "control_plane" and target:
            said = f"{target}; {said}"
        report.add(f"cluster.{when}.memory.{part}", pss, "MB", said)


async def first_pod(testbed: Testbed) -> None:
    """Until a first pod is Running."""
    async with Client(kubeconfig.load(testbed.kubeconfig)) as client:
        made = await client.create(Pod, pod("first"), "default")
        watch = client.watch(
            Pod, namespace="default", resource_version=made.metadata.resource_version
        )
        async for event in watch:
            if event.object is not None and event.object.status.phase == "Running":
                return


async def idle(report: figures.Report, testbed: Testbed, when: str, seconds: float) -> None:
    """CPU of everything while nothing happens."""
    begun, before = time.perf_counter(), used(testbed)
    await clock.SYSTEM.sleep(seconds)
    after, spent = used(testbed), time.perf_counter() - begun
    shares = {
        name: (one.cpu_s - before[name].cpu_s) / spent * 100
        for name, one in after.items()
        if name in before
    }
    each = ", ".join(f"{name} {share:.1f}" for name, share in sorted(shares.items()))
    report.add(
        f"cluster.{when}.cpu", sum(shares.values()), "%", f"of one core, {spent:.0f} s: {each}"
    )


@contextmanager
def fake_nodes(testbed: Testbed, count: int) -> Iterator[None]:
    """Nodes that run bound pods at once."""
    label = ",".join(f"{k}={v}" for k, v in FAKE.items())
    options = ("--kubeconfig", testbed.kubeconfig, "--count", count, "--label", label)
    command = [sys.executable, "-P", "-m", "motley.cli.main", "fake-nodes", *map(str, options)]
    log = testbed.root / "fake-nodes.log"
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def deployment(replicas: int) -> dict[str, Any]:
    labels = {"app": "many"}
    container = {"name": "c", "image": "localhost/motley/busybox:1", "command": ["sleep", "9999"]}
    template = {
        "metadata": {"labels": labels},
        "spec": {"nodeSelector": FAKE, "containers": [container]},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "many"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }


async def large(report: figures.Report, testbed: Testbed, nodes: int, pods: int) -> None:
    """Many nodes and pods, then the same questions."""
    begun = time.perf_counter()
    with fake_nodes(testbed, nodes):
        async with Client(kubeconfig.load(testbed.kubeconfig)) as client:
            await client.create(Deployment, deployment(pods), "default")
            async with asyncio.timeout(300):
                while True:
                    seen = await client.get(Deployment, "many", "default")
                    if seen.status.available_replicas >= pods:
                        break
                    await clock.SYSTEM.sleep(0.5)
        spent = time.perf_counter() - begun
        report.add("cluster.large.ready", spent, "s", f"{nodes} nodes and {pods} pods, from none")
        await clock.SYSTEM.sleep(5)
        memory(report, testbed, "large", f"{nodes} nodes, {pods} pods", "")
        await idle(report, testbed, "large", 10 if report.quick else 30)


async def run(report: figures.Report, testbed: Testbed, begun: float) -> None:
    await first_pod(testbed)
    report.add(
        "cluster.first_pod",
        time.perf_counter() - begun,
        "s",
        f"target {UP_S:.0f}: motley up, installed, to the first pod Running",
    )
    await clock.SYSTEM.sleep(5)  # what the start set off is over
    target = f"target {MEMORY_MB:.0f}"
    memory(report, testbed, "idle", "one pod", target)
    await idle(report, testbed, "idle", 10 if report.quick else 30)
    await large(report, testbed, *((100, 500) if report.quick else (1000, 3000)))


def main() -> None:
    report = figures.Report.from_arguments(__doc__ or "")
    images.ensure(CACHE / "images", say=lambda _: None)
    testbed = Testbed(CACHE)
    try:
        testbed.make_namespace()
        netns.setns(testbed.name)
        begun = time.perf_counter()
        testbed.up()
        report.add("cluster.up", time.perf_counter() - begun, "s", "motley up: node Ready")
        asyncio.run(run(report, testbed, begun))
    finally:
        testbed.destroy()
    report.finish()


if __name__ == "__main__":
    main()
