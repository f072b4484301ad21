"""The node agent: how soon pods run, many at once, and what it costs to keep them.

A whole cluster in a network namespace of its own. Each pod is compared with the bare CRI calls on
the same containerd, in turn, in the same run. While fifty pods do nothing the agent's CPU time is
measured, and its memory.
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
from motley.ops import images
from motley.ops.testbed import Testbed
from onepod import bare, pod, through_the_api

CACHE = Path(__file__).parents[1] / ".cache"
MANY = 50
OVERHEAD_SHARE, OVERHEAD_MS = 0.15, 50.0


def p99(values: list[float]) -> float:
    """The value that one in a hundred exceeds."""
    return sorted(values)[min(len(values) - 1, round(len(values) * 0.99))]


async def one_by_one(
    report: figures.Report, client: Client, runtime: Runtime, config: configs.Config, rounds: int
) -> None:
    ours, theirs = [], []
    for number in range(rounds + 1):  # the first pair warms both up
        theirs.append(await bare(runtime, config, f"bare-{number}"))
        ours.append(await through_the_api(client, runtime, f"bench-{number}"))
    ours, theirs = ours[1:], theirs[1:]
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


async def many(report: figures.Report, client: Client) -> None:
    """Fifty at once: until the last is Ready."""
    names = [f"many-{number}" for number in range(MANY)]
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
    report.add("node.many.last_ready", times[-1] / 1000, "s", f"{MANY} pods created at once")
    report.add("node.many.pods_per_s", MANY / (times[-1] / 1000), "pods/s")


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
        await many(report, client)
    await idle(report, testbed, 15 if report.quick else 60)
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
