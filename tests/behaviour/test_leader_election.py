"""Two controller managers as processes: one works, the other stands by and takes over."""

import asyncio
import signal
import subprocess
import sys
from collections import Counter

from motley.api import status
from motley.api.views.core import Lease
from motley.api.views.pod import Pod
from motley.client.informer import Informer
from motley.controllers.fakenodes import FakeNodes
from motley.controllers.workload import Deployment, ReplicaSet
from motley.lib.clock import SYSTEM

REPLICAS = 12


def manager(config):
    command = [sys.executable, "-m", "motley.cli.main", "controllers", "--health-port", "0"]
    command += ["--kubeconfig", str(config), "--log-level", "error"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def deployment(image):
    containers = [{"name": "c", "image": image}]
    # Bound from the start, so that no scheduler is needed.
    template = {"nodeName": "lead-0", "containers": containers, "terminationGracePeriodSeconds": 0}
    return {
        "metadata": {"name": "led"},
        "spec": {
            "replicas": REPLICAS,
            "selector": {"matchLabels": {"app": "led"}},
            "template": {"metadata": {"labels": {"app": "led"}}, "spec": template},
        },
    }


async def holder(client):
    try:
        lease = await client.get(Lease, "kube-controller-manager", "kube-system")
    except status.NotFound:
        return None
    return lease.spec.holder_identity


async def test_when_the_leader_is_killed_the_standby_goes_on_and_nothing_is_done_twice(
    shared_server, eventually
):
    if shared_server.process is None:
        await shared_server.start()
    config, made = shared_server.kubeconfig, Counter()
    first = manager(config)
    second = None

    def note(change):
        if change.old is None and change.new.metadata.labels.get("app") == "led":
            made[change.new.spec.containers[0].image] += 1

    async with shared_server.client() as client, asyncio.TaskGroup() as group:

        async def settled(image):
            d = await client.get(Deployment, "led", "default")
            pods = (await client.list(Pod, namespace="default", label_selector="app=led")).items
            images = [p.spec.containers[0].image for p in pods if p.is_ready]
            return d.status.updated_replicas == REPLICAS and images == [image] * REPLICAS

        fakes, pods = FakeNodes(client, 1, prefix="lead-"), Informer(client, Pod)
        pods.add_handler(note)
        playing = [group.create_task(fakes.run()), group.create_task(pods.run())]
        try:
            await eventually(fakes.is_ready, "a node")
            leader = await eventually(lambda: holder(client), "the first leads")
            second = manager(config)

            async def created():
                try:
                    return await client.create(Deployment, deployment("one"), "default")
                except status.AlreadyExists:
                    return True

            await eventually(created, "a service account for pods")
            await eventually(lambda: settled("one"), "the first rollout", timeout_s=60)
            assert await holder(client) == leader  # the other only stands by
            change = {
                "spec": {"template": {"spec": {"containers": [{"name": "c", "image": "two"}]}}}
            }
            await client.patch(Deployment, "led", "default", change, type="strategic")
            await eventually(lambda: made["two"] >= 2, "the rollout is under way")
            first.send_signal(signal.SIGKILL)
            first.wait(10)
            killed = SYSTEM.monotonic()

            async def other():
                return (await holder(client)) not in (leader, None, "")

            await eventually(other, "the second leads")
            assert SYSTEM.monotonic() - killed < 20  # a lease of 15 s, found dead sooner here
            await eventually(lambda: settled("two"), "the second rollout", timeout_s=60)
            assert made == {"one": REPLICAS, "two": REPLICAS}
            sets = await client.list(ReplicaSet, namespace="default", label_selector="app=led")
            assert len(sets.items) == 2
        finally:
            for process in filter(None, (first, second)):
                process.kill()
                process.wait(10)
            for task in playing:
                task.cancel()
