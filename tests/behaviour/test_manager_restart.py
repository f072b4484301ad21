"""The manager may die at any moment: a successor finishes what was begun, and nothing twice."""

import asyncio
import signal
import subprocess
import sys
from collections import Counter
from random import Random

import pytest
from world import Behaviour, World, run
from world.workloads import completed, deployment, set_image

from motley.api import status
from motley.api.views.pod import Pod
from motley.client import kubeconfig
from motley.client.informer import Informer
from motley.client.rest import Client
from motley.controllers.fakenodes import FakeNodes
from motley.controllers.workload import Deployment, ReplicaSet
from motley.lib.clock import SYSTEM

ROUNDS = 30
REPLICAS = 6


def created(world, plural):
    return sum(
        a.code == 201 and a.asked.method == "POST" and a.asked.path.endswith(f"/{plural}")
        for a in world.wire.log
    )


async def one_rollout(world, rng, image):
    """Change the image and kill the manager again and again while it works."""
    pods, sets = created(world, "pods"), created(world, "replicasets")
    await set_image(world, image)
    for _ in range(rng.randint(1, 5)):
        # Most of the manager's work happens within milliseconds of an event.
        seconds = rng.choice([rng.uniform(0, 0.05), rng.uniform(0, 6)])
        await world.sleep(seconds)
        await world.kill_manager()
        await world.sleep(rng.choice([0.0, rng.uniform(0, 3)]))
        world.start_manager()
    await completed(world)
    await world.until(lambda: len(world.pods()) == REPLICAS, "old pods gone")
    await world.sleep(5)
    images = {p.spec.containers[0].image for p in world.living()}
    assert images == {image}
    assert all(p.is_ready for p in world.living())
    assert created(world, "pods") - pods == REPLICAS, "every new pod was made once"
    assert created(world, "replicasets") - sets == 1


@pytest.mark.parametrize("seed", range(6))
def test_a_rollout_survives_kills_at_random_moments(seed):
    async def main():
        rng = Random(seed)
        async with World.open(nodes=3, seed=seed, latency_s=0.004) as world:
            world.kubelets.script = lambda _: Behaviour(start_s=0.5, ready_s=0.5, stop_s=0.5)
            surge = {"rollingUpdate": {"maxSurge": 2, "maxUnavailable": 1}}
            await world.create(Deployment, deployment(replicas=REPLICAS, strategy=surge))
            await completed(world)
            for number in range(ROUNDS // 6):
                await one_rollout(world, rng, f"image-{number}")

    run(main())


def test_a_scale_up_is_not_done_twice_whenever_the_manager_dies():
    """Killed after each of the first requests of a scale-up, one world for every point."""

    async def main(point):
        async with World.open(nodes=1, latency_s=0.004) as world:
            await world.create(Deployment, deployment(replicas=8))
            begun = len(world.wire.log)
            await world.until(lambda: requests(world, begun) >= point, within_s=30)
            await world.kill_manager()
            world.start_manager()
            await completed(world)
            assert created(world, "pods") == 8
            assert created(world, "replicasets") == 1

    for point in range(0, 14, 2):
        run(main(point))


def requests(world, begun):
    return sum(a.asked.who == "controllers" for a in world.wire.log[begun:])


def manager(config):
    command = [sys.executable, "-m", "motley.cli.main", "controllers", "--health-port", "0"]
    command += ["--kubeconfig", str(config), "--log-level", "error"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


async def test_a_real_process_is_killed_and_succeeded_amid_a_rollout(shared_server, eventually):
    if shared_server.process is None:
        await shared_server.start()
    config = shared_server.kubeconfig
    rng = Random(4)
    process = manager(config)
    made = Counter()
    async with Client(kubeconfig.load(config)) as client, asyncio.TaskGroup() as group:
        fakes, pods = FakeNodes(client, 2, prefix="kill-"), Informer(client, Pod)
        pods.add_handler(lambda change: made.update(new_image(change)))
        playing = [group.create_task(fakes.run()), group.create_task(pods.run())]
        try:
            await eventually(fakes.is_ready, "nodes")
            body = deployment("killed", REPLICAS)
            body["spec"]["template"]["spec"]["nodeName"] = "kill-0"  # no scheduler is needed
            await eventually(lambda: create(client, body), "a service account for pods")
            await eventually(lambda: is_done(client), "first rollout", timeout_s=60)
            for number in range(3):
                change = {"containers": [{"name": "c", "image": f"image-{number}"}]}
                body = {"spec": {"template": {"spec": change}}}
                await client.patch(Deployment, "killed", "default", body, type="strategic")
                await SYSTEM.sleep(rng.uniform(0.0, 0.3))
                process.send_signal(signal.SIGKILL)
                process.wait(10)
                process = manager(config)
                await eventually(lambda: is_done(client), f"rollout {number}", timeout_s=60)
                assert made[f"image-{number}"] == REPLICAS
            sets = await client.list(ReplicaSet, namespace="default", label_selector="app=killed")
            assert len(sets.items) == 4
        finally:
            process.kill()
            process.wait(10)
            for task in playing:
                task.cancel()


def new_image(change):
    if change.old is None and change.new.metadata.labels.get("app") == "killed":
        return [change.new.spec.containers[0].image]
    return []


async def create(client, body):
    """Pods need their namespace's service account, which the manager makes."""
    try:
        return await client.create(Deployment, body, "default")
    except status.AlreadyExists:
        return True


async def is_done(client):
    d = await client.get(Deployment, "killed", "default")
    s = d.status
    pods = (await client.list(Pod, namespace="default", label_selector="app=killed")).items
    counts = {s.replicas, s.updated_replicas, s.available_replicas, len(pods), d.spec.replicas}
    return s.observed_generation == d.metadata.generation and len(counts) == 1
