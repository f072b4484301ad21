"""The rebalancer's loop, among refusals and changes that nobody expects."""

import asyncio
from types import SimpleNamespace

import pytest

from motley.api import status
from motley.api.views.core import Node
from motley.api.views.pod import Pod
from motley.autoscale.rebalance import Settings
from motley.controllers.rebalancer import Rebalancer


def node(name):
    return Node.of(
        {
            "metadata": {"name": name},
            "status": {
                "allocatable": {"cpu": "4", "memory": "8Gi"},
                "capacity": {"cpu": "4", "memory": "8Gi"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
    )


def pod(name, on="hot"):
    owner = {"kind": "StatefulSet", "name": name, "controller": True, "apiVersion": "apps/v1"}
    return Pod.of(
        {
            "metadata": {
                "name": name,
                "namespace": "d",
                "uid": f"{name}-on-{on}",
                "ownerReferences": [owner],
            },
            "spec": {"nodeName": on, "containers": [{"name": "c"}]},
            "status": {"phase": "Running"},
        }
    )


def usage(cpu, name, namespace=""):
    return {
        "metadata": {"name": name, "namespace": namespace},
        "usage": {"cpu": cpu, "memory": "1Mi"},
    }


class Listed:
    """An informer that has these objects."""

    def __init__(self, *objects):
        self.objects = {o.key: o for o in objects}

    def items(self):
        return list(self.objects.values())

    def get(self, key):
        return self.objects.get(key)


class World:
    """A hot node with two busy pods, and a cool one; evictions end as they are told to."""

    def __init__(self, *outcomes):
        self.pods = Listed(pod("a"), pod("b"))
        self.known = {Node: Listed(node("hot"), node("cool")), Pod: self.pods}
        self.outcomes = list(outcomes)
        self.tried = []
        self.looks = 0
        self.events = []
        self.at = 0.0

    # -- the client
    async def raw(self, method, path, **_):
        if path.endswith("nodes"):
            return {"items": [usage("3900m", "hot"), usage("100m", "cool")]}
        return {"items": [usage("800m", "a", "d"), usage("700m", "b", "d")]}

    async def list(self, cls):
        return SimpleNamespace(items=[])

    async def create_subresource(self, cls, name, namespace, subresource, body):
        self.tried.append(name)
        outcome = self.outcomes.pop(0) if self.outcomes else None
        if callable(outcome):
            outcome()
        elif outcome is not None:
            raise outcome

    # -- the clock
    def monotonic(self):
        return self.at

    def now(self):
        return 0.0

    async def sleep(self, seconds):
        self.at += seconds
        self.looks += 1
        if self.looks > 3:
            raise asyncio.CancelledError

    # -- the rest
    def of(self, cls):
        return self.known.get(cls) or Listed()

    def source(self, _):
        return self

    def event(self, of, type_, reason, message):
        self.events.append((of.metadata.name, reason))

    def context(self):
        return SimpleNamespace(client=self, clock=self, recorder=self, informers=self)


async def run(world, **options):
    rebalancer = Rebalancer(world.context(), Settings(**options))
    with pytest.raises(asyncio.CancelledError):
        await rebalancer.run()
    return rebalancer


@pytest.mark.parametrize(
    "error",
    [
        status.InternalError("more than one budget"),
        status.Forbidden("a webhook says no"),
        status.Conflict("another uid"),
        status.ServiceUnavailable("the connection was refused"),
    ],
)
async def test_an_eviction_that_fails_ends_neither_the_others_nor_the_loop(error):
    world = World(error)
    await run(world, rest_s=0.0)
    assert world.looks == 4
    assert world.tried == ["a", "b", "a", "b"], "nothing in the first look, then each of the two"
    assert [name for name, reason in world.events if reason == "Rebalanced"] == ["b", "a", "b"]


async def test_a_successor_that_has_the_name_already_is_left_alone():
    world = World()

    def replaced():
        new = pod("b", on="cool")
        world.pods.objects[new.key] = new

    world.outcomes = [replaced]
    await run(world)
    assert world.tried == ["a"], "b runs elsewhere by now"


async def test_what_has_rested_is_forgotten():
    world = World()
    rebalancer = await run(world, rest_s=60.0, every_s=120.0)
    assert world.tried == ["a", "b", "a", "b"]
    for index in range(1000):
        rebalancer._rested[f"d/Job/{index}"] = 0.0
    world.looks = 2
    with pytest.raises(asyncio.CancelledError):
        await rebalancer.run()
    assert len(rebalancer._rested) <= 3
