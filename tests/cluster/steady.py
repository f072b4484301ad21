"""A user who goes on working while parts of the control plane die; run inside the testbed.

Creates a ConfigMap at a time, scales a Deployment with every tenth, and watches what it creates,
until its standard input closes. Then it says what was acknowledged, what the watch saw, and what
went wrong. It uses Motley's own client with the kubeconfig's list of API servers.
"""

import asyncio
import json
import sys
from collections import Counter

from motley.api import status
from motley.api.views.apps import Deployment
from motley.api.views.core import ConfigMap
from motley.client import kubeconfig
from motley.client.reflector import Reflector
from motley.client.rest import Client
from motley.lib.clock import SYSTEM

LABELS = {"made-by": "steady"}
SIZES = (3, 5, 2, 4)


class Source:
    """ConfigMaps of ours, as a reflector reads them."""

    def __init__(self, client):
        self._client = client

    async def list(self):
        return await self._client.list(ConfigMap, label_selector="made-by=steady")

    def watch(self, version, *, initial_events=False):
        return self._client.watch(
            ConfigMap,
            resource_version=version,
            label_selector="made-by=steady",
            initial_events=initial_events,
        )


class Seen:
    """How often each was added, and whether a list had to be made again."""

    def __init__(self):
        self.added = Counter()
        self.lists = 0

    def replace(self, items):
        self.lists += 1
        self.added = Counter(item.metadata.name for item in items)

    def apply(self, event):
        if event.type == "ADDED":
            self.added[event.object.metadata.name] += 1


async def create(client, name, doubts):
    """Create one, and find out what happened where the answer was lost."""
    body = {"metadata": {"name": name, "namespace": "default", "labels": LABELS}}
    while True:
        try:
            await client.create(ConfigMap, body)
            return
        except (status.GatewayTimeout, status.ServiceUnavailable) as error:
            doubts.append(f"{name}: {error.message}")
        except status.AlreadyExists:
            if not doubts or not doubts[-1].startswith(f"{name}:"):
                raise
            return
        await SYSTEM.sleep(0.05)


async def scale(client, size, doubts):
    try:
        await client.patch(Deployment, "steady", "default", {"spec": {"replicas": size}})
    except (status.GatewayTimeout, status.ServiceUnavailable) as error:
        doubts.append(f"scale: {error.message}")


async def work(client, ended, told):
    number = 0
    while not ended.is_set():
        begun = SYSTEM.monotonic()
        await create(client, f"step-{number}", told["doubts"])
        if number % 10 == 0:
            await scale(client, SIZES[number // 10 % len(SIZES)], told["doubts"])
        told["longest_s"] = max(told["longest_s"], SYSTEM.monotonic() - begun)
        number += 1
        await SYSTEM.sleep(0.05)
    told["acknowledged"] = number


async def main(path):
    told = {"doubts": [], "longest_s": 0.0, "acknowledged": 0}
    ended, seen = asyncio.Event(), Seen()
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin.fileno(), ended.set)
    async with Client(kubeconfig.load(path), user_agent="steady") as client:
        reflector = Reflector("configmaps", Source(client), seen)
        async with asyncio.TaskGroup() as group:
            following = group.create_task(reflector.run())
            await work(client, ended, told)
            wanted = {f"step-{n}" for n in range(told["acknowledged"])}
            for _ in range(100):
                if wanted <= set(seen.added):
                    break
                await SYSTEM.sleep(0.05)
            following.cancel()
        listed = await client.list(ConfigMap, namespace="default", label_selector="made-by=steady")
    told["stored"] = sorted(item.metadata.name for item in listed.items)
    told["seen"], told["lists"] = dict(seen.added), seen.lists
    print(json.dumps(told))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
