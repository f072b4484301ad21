"""From nothing to an answer: how long a cluster takes to serve, and what it costs while it does.

Runs a whole cluster in a network namespace of its own, which ends with it. "Installed" means that
packages and images are there (`make setup`); the cluster itself is new.
"""

import asyncio
import statistics
import time
from pathlib import Path

from pyroute2 import netns

import figures
from motley.client import kubeconfig
from motley.client.rest import Client
from motley.node.cri.runtime import Runtime
from motley.ops import config as configs
from motley.ops import demo, images
from motley.ops.testbed import Testbed, eventually
from onepod import bare, through_the_api

CACHE = Path(__file__).parents[1] / ".cache"


def first_answer(report: figures.Report, testbed: Testbed) -> None:
    begun = time.perf_counter()
    testbed.up()
    ready = time.perf_counter() - begun
    testbed.kubectl("apply", "-f", demo.manifest())
    address = testbed.get("service", demo.NAME)["spec"]["clusterIP"]
    eventually(lambda: testbed.fetch(address, timeout_s=1.0), 60, pause_s=0.02)
    answered = time.perf_counter() - begun
    report.add("hello.up", ready, "s", "motley up, installed: node Ready")
    report.add("hello.first_answer", answered, "s", "motley up to an answer through the Service")
    begun = time.perf_counter()
    testbed.up()
    report.add("hello.up_again", time.perf_counter() - begun, "s", "motley up of what is up")
    testbed.kubectl("rollout", "status", "deployment/hello", "--timeout=60s")


def memory(report: figures.Report, testbed: Testbed) -> None:
    status = testbed.status()
    sizes = {one["name"]: one["rssBytes"] / 2**20 for one in status["components"]}
    sizes["supervisor"] = status["supervisor"]["rssBytes"] / 2**20
    for name, size in sizes.items():
        report.add(f"hello.rss.{name}", size, "MiB", "resident memory, three pods running")
    report.add("hello.rss.total", sum(sizes.values()), "MiB", "all components")


async def pods(report: figures.Report, testbed: Testbed, rounds: int) -> None:
    config = configs.load(testbed.root)
    assert config is not None
    runtime = Runtime(f"unix://{testbed.root}/containerd/containerd.sock")
    ours, theirs = [], []
    async with Client(kubeconfig.load(testbed.kubeconfig)) as client:
        for number in range(rounds + 1):  # the first pair warms both up
            theirs.append((await bare(runtime, config, f"bare-{number}")).spent_ms)
            ours.append((await through_the_api(client, runtime, f"bench-{number}"))["ready"])
    await runtime.close()
    api, cri_only = statistics.median(ours[1:]), statistics.median(theirs[1:])
    report.add("hello.pod.ready", api, "ms", f"create to Ready, p50 of {rounds}")
    report.add("hello.pod.bare_cri", cri_only, "ms", f"sandbox, create, start, p50 of {rounds}")
    report.add("hello.pod.over_cri", api - cri_only, "ms", "what API, scheduler and agent add")


def main() -> None:
    report = figures.Report.from_arguments(__doc__ or "")
    images.ensure(CACHE / "images", say=lambda _: None)
    testbed = Testbed(CACHE)
    try:
        testbed.make_namespace()
        first_answer(report, testbed)
        memory(report, testbed)
        netns.setns(testbed.name)
        asyncio.run(pods(report, testbed, 10 if report.quick else 40))
    finally:
        testbed.destroy()
    report.finish()


if __name__ == "__main__":
    main()
