"""The node agent: how soon pods run, many at once, and what it costs to keep them.

A whole cluster in a network namespace of its own. Each pod is compared with the bare CRI calls on
the same containerd, in turn, in the same run; where its time goes is told by stages. While fifty
pods do nothing the agent's CPU time is measured, and its memory. A hundred pods are started and
deleted: the benchmark fails if anything of them is left.
"""

import asyncio
import os
import statistics
import time
from pathlib import Path

from pyroute2 import netns

import figures
from motley.api.views.pod import Pod
from motley.client import kubeconfig
from motley.client.rest import Client
from motley.lib import clock
from motley.node.cri.runtime import Runtime
from motley.ops import config as configs
from motley.ops import images, remains
from motley.ops.testbed import Testbed
from onepod import STAGES, bare, pod, through_the_api

CACHE = Path(__file__).parents[1] / ".cache"
MANY = 50
OVERHEAD_SHARE, OVERHEAD_MS = 0.15, 50.0


def p99(values: list[float]) -> float:
    """The value that one in a hundred exceeds."""
    return sorted(values)[min(len(values) - 1, round(len(values) * 0.99))]


async def one_by_one(
    report: figures.Report, client: Client, runtime: Runtime, config: configs.Config, rounds: int
) -> None:
    traces, theirs = [], []
    for number in range(rounds + 1):  # the first pair warms both up
        theirs.append((await bare(runtime, config, f"bare-{number}")).spent_ms)
        traces.append(await through_the_api(client, runtime, f"bench-{number}"))
    ours, theirs = [trace["ready"] for trace in traces[1:]], theirs[1:]
    for stage in STAGES:
        reached = [trace[stage] for trace in traces[1:] if stage in trace]
        if reached:
            report.add(f"node.stage.{stage}", statistics.median(reached), "ms", "after the create")
    ready, cri_only = statistics.median(ours), statistics.median(theirs)
    report.add("node.pod.ready_p50", ready, "ms", f"create to Ready, {rounds} pods")
    report.add("node.pod.ready_p99", p99(ours), "ms")
    report.add("node.cri.bare_p50", cri_only, "ms", "sandbox, create, start on the same runtime")
    report.add("node.cri.bare_p99", p99(theirs), "ms")
    allowed = cri_only * (1 + OVERHEAD_SHARE) + OVERHEAD_MS
    report.add("node.pod.over_cri", ready - cri_only, "ms", "what API, scheduler and agent add")
    report.add(
        "node.pod.of_allowed", ready / allowed, "×", f"of 1.15 × bare + 50 = {allowed:.0f} ms"
    )


async def many(report: figures.Report | None, client: Client, prefix: str = "many") -> None:
    """Fifty at once: until the last is Ready."""
    names = [f"{prefix}-{number}" for number in range(MANY)]
    listing = await client.list(Pod, namespace="default")
    begun = time.perf_counter()

    async def ready() -> list[float]:
        waiting, times = set(names), []
        watch = client.watch(
            Pod, namespace="default", resource_version=listing.metadata.resource_version
        )
        async for event in watch:
            name = event.object.metadata.name
            if name in waiting and event.object.is_ready:
                waiting.discard(name)
                times.append((time.perf_counter() - begun) * 1000)
                if not waiting:
                    break
        return times

    async with asyncio.timeout(180), asyncio.TaskGroup() as group:
        seen = group.create_task(ready())
        for name in names:
            group.create_task(client.create(Pod, pod(name), "default"))
    times = seen.result()
    if report is None:
        return
    report.add("node.many.last_ready", times[-1] / 1000, "s", f"{MANY} pods created at once")
    report.add("node.many.pods_per_s", MANY / (times[-1] / 1000), "pods/s")


async def bare_many(report: figures.Report, runtime: Runtime, config: configs.Config) -> None:
    """The runtime's own limit: as many by bare calls, all at once."""
    begun = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        made = [
            group.create_task(bare(runtime, config, f"all-{number}", keep=True))
            for number in range(MANY)
        ]
    spent = time.perf_counter() - begun
    report.add("node.many.bare", spent, "s", f"{MANY} pods by bare CRI calls at once")
    for task in made:
        await runtime.stop_sandbox(task.result().sandbox)
        await runtime.remove_sandbox(task.result().sandbox)


def left(testbed: Testbed, config: configs.Config) -> list[str]:
    """What is there of pods that are gone."""
    node = testbed.root / "node"
    found = [*node.glob("pods/*"), *node.glob("logs/pods/*")]
    found += [m for m in remains.mounts(testbed.root) if "/node/" in str(m) or "rootfs" in str(m)]
    for top in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/memory")):
        found += (top / config.cgroup_root).glob("**/pod*")
    return [str(path) for path in found]


async def clean(
    report: figures.Report,
    client: Client,
    runtime: Runtime,
    testbed: Testbed,
    config: configs.Config,
) -> None:
    """Fifty more, then all hundred deleted: nothing may be left of them."""
    await many(None, client, "more")
    begun = time.perf_counter()
    listing = await client.list(Pod, namespace="default")
    names = [p.metadata.name for p in listing.items if p.metadata.name.startswith(("ma", "mo"))]
    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(client.delete(Pod, name, "default"))
    uids = {p.metadata.uid for p in listing.items if p.metadata.name in names}
    async with asyncio.timeout(180):
        while True:
            sandboxes = {s.uid for s in await runtime.list_sandboxes()} & uids
            rest = [path for path in left(testbed, config) if any(u in path for u in uids)]
            if not sandboxes and not rest:
                break
            await clock.SYSTEM.sleep(0.2)
    report.add("node.clean.left", 0, "things", f"of {len(names)} pods that are gone")
    report.add("node.clean.spent", time.perf_counter() - begun, "s", f"{len(names)} pods deleted")


def cpu_s(pid: int) -> float:
    """CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def idle(report: figures.Report, testbed: Testbed, seconds: float) -> None:
    agent = next(c for c in testbed.status()["components"] if c["name"] == "node")
    await clock.SYSTEM.sleep(5)  # what the last pods set off is over
    begun, before = time.perf_counter(), cpu_s(agent["pid"])
    await clock.SYSTEM.sleep(seconds)
    share = (cpu_s(agent["pid"]) - before) / (time.perf_counter() - begun) * 100
    report.add("node.idle.cpu", share, "%", f"of one core, {MANY} pods, {seconds:.0f} s")
    rss = next(c for c in testbed.status()["components"] if c["name"] == "node")["rssBytes"]
    report.add("node.idle.rss", rss / 2**20, "MiB", f"{MANY} pods")


async def run(report: figures.Report, testbed: Testbed) -> None:
    config = configs.load(testbed.root)
    assert config is not None
    runtime = Runtime(f"unix://{testbed.root}/containerd/containerd.sock")
    async with Client(kubeconfig.load(testbed.kubeconfig)) as client:
        await one_by_one(report, client, runtime, config, 10 if report.quick else 100)
        await bare_many(report, runtime, config)
        await many(report, client)
        await idle(report, testbed, 15 if report.quick else 60)
        await clean(report, client, runtime, testbed, config)
    await runtime.close()


def main() -> None:
    report = figures.Report.from_arguments(__doc__ or "")
    images.ensure(CACHE / "images", say=lambda _: None)
    testbed = Testbed(CACHE)
    try:
        testbed.make_namespace()
        testbed.up()
        netns.setns(testbed.name)
        asyncio.run(run(report, testbed))
    finally:
        testbed.destroy()
    report.finish()


if __name__ == "__main__":
    main()
