"""When the node lifecycle controller condemns a node, on virtual time and a scripted world."""

from types import SimpleNamespace

import pytest

from motley.api.views.base import Key
from motley.api.views.core import Lease, Node
from motley.api.views.pod import Pod
from motley.client.informer import Cache, Change
from motley.controllers.nodelifecycle import NodeLifecycleController


class Clock:
    def __init__(self):
        self.at = 1000.0

    def now(self):
        return 1_000_000.0 + self.at

    def monotonic(self):
        return self.at


class World(Cache):
    """An informer that the test fills."""

    def __init__(self):
        super().__init__()
        self.interrupted_at = float("-inf")

    def get(self, key):
        return self.objects.get(key)

    def put(self, obj):
        old = self.objects.get(obj.key)
        self.objects[obj.key] = obj
        for handler in self._handlers:
            handler(Change(old, obj))


class Client:
    def __init__(self):
        self.patches = []

    async def patch(self, cls, name, namespace, body, **_):
        self.patches.append((cls.KIND, body))
        return node("Unknown")


def node(ready="True"):
    return Node.of(
        {
            "metadata": {"name": "n"},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        }
    )


def lease(renewed):
    meta = {"name": "n", "namespace": "kube-node-lease"}
    return Lease.of({"metadata": meta, "spec": {"renewTime": renewed}})


@pytest.fixture
def world():
    worlds = {Node: World(), Lease: World(), Pod: World()}
    clock, client = Clock(), Client()
    recorder = SimpleNamespace(source=lambda _: SimpleNamespace(event=lambda *_: None))
    context = SimpleNamespace(
        client=client,
        clock=clock,
        recorder=recorder,
        informers=SimpleNamespace(of=lambda cls, namespace="": worlds[cls]),
    )
    controller = NodeLifecycleController(context, grace_s=40.0)
    worlds[Node].put(node())
    return SimpleNamespace(
        nodes=worlds[Node],
        leases=worlds[Lease],
        clock=clock,
        client=client,
        look=lambda: controller.reconcile(Key("", "n")),
    )


async def test_a_node_that_renews_is_left_alone(world):
    for i in range(20):
        world.clock.at += 10
        world.leases.put(lease(f"t{i}"))
        await world.look()
    assert world.client.patches == []


async def test_a_silent_node_is_condemned_after_the_grace(world):
    world.clock.at += 39
    again = await world.look()
    assert world.client.patches == []
    assert again.after_s >= 1
    world.clock.at += 2
    await world.look()
    kinds = [(kind, sorted(body)) for kind, body in world.client.patches]
    assert kinds == [("Node", ["metadata", "status"]), ("Node", ["metadata", "spec"])]


async def test_an_absence_of_the_api_server_is_not_held_against_the_nodes(world):
    world.clock.at += 100  # nobody could renew …
    world.leases.interrupted_at = world.clock.at - 5  # … because there was nobody to renew with
    await world.look()
    assert world.client.patches == []
    world.clock.at += 40
    await world.look()
    assert world.client.patches
