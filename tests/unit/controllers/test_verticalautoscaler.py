"""Which pods a VerticalPodAutoscaler evicts, and when it had better not."""

from types import SimpleNamespace

import pytest

from motley.api.views.core import Node
from motley.api.views.pod import Pod
from motley.api.views.verticalautoscaling import VerticalPodAutoscaler
from motley.autoscale.past import Past
from motley.controllers.verticalautoscaler import VerticalPodAutoscalerController
from motley.lib.clock import rfc3339

NOW = 1_700_000_000.0
MIB = float(1 << 20)


def a_scaler(name="web", mode="Recreate", created=NOW - 100):
    return VerticalPodAutoscaler.of(
        {
            "metadata": {
                "name": name,
                "namespace": "d",
                "uid": name,
                "creationTimestamp": rfc3339(created),
            },
            "spec": {
                "targetRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web"},
                "updatePolicy": {"updateMode": mode},
            },
        }
    )


def a_pod(name, cpu="100m", created=NOW - 1000, on="", conditions=()):
    owner = {"kind": "StatefulSet", "name": "web", "controller": True, "apiVersion": "apps/v1"}
    resources = {"requests": {"cpu": cpu, "memory": "210Mi"}}
    return Pod.of(
        {
            "metadata": {
                "name": name,
                "namespace": "d",
                "uid": f"{name}-{created}",
                "creationTimestamp": rfc3339(created),
                "ownerReferences": [owner],
            },
            "spec": {"nodeName": on, "containers": [{"name": "c", "resources": resources}]},
            "status": {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True"}, *conditions],
            },
        }
    )


class Listed:
    """An informer that has these objects."""

    def __init__(self, *objects):
        self.objects = {o.key: o for o in objects}

    def items(self):
        return list(self.objects.values())

    def get(self, key):
        return self.objects.get(key)

    def by_index(self, index, value):
        return self.items()

    def add_index(self, name, function):
        pass

    def add_handler(self, handler):
        pass


class World:
    """Three small pods of a busy workload; successors come as `successor` makes them."""

    def __init__(self, *scalers, pods=(), nodes=(), successor=None):
        self.scalers = Listed(*scalers)
        self.pods = Listed(*(pods or [a_pod(n) for n in ("p-0", "p-1", "p-2")]))
        self.known = {Pod: self.pods, VerticalPodAutoscaler: self.scalers, Node: Listed(*nodes)}
        self.successor = successor or (lambda old: a_pod(old.metadata.name, "460m", self.at))
        self.evicted, self.resized, self.events = [], [], []
        self.at = NOW
        self.load = 1.0
        self.controller = None

    async def workload(self, *_):
        steps = 576
        load = self.load
        whole = [1.2 * load] * steps, [1.2 * load] * steps, [3 * 180 * MIB] * steps
        return {
            "c": Past(
                NOW - steps * 300.0,
                300.0,
                *whole,
                [0.4 * load] * steps,
                [180 * MIB] * steps,
                [3.0] * steps,
            )
        }

    async def patch(self, cls, name, namespace, body, *, subresource, type="merge"):
        if subresource == "resize":
            self.resized.append(name)

    async def create_subresource(self, cls, name, namespace, subresource, body):
        self.evicted.append(name)
        old = next(p for p in self.pods.items() if p.metadata.name == name)
        del self.pods.objects[old.key]
        new = self.successor(old)
        self.pods.objects[new.key] = new

    def now(self):
        return self.at

    def monotonic(self):
        return self.at

    def of(self, cls):
        return self.known.get(cls) or Listed()

    def source(self, _):
        return self

    def event(self, of, type_, reason, message):
        self.events.append((of.metadata.name, reason))

    async def look(self, times, again=False):
        context = SimpleNamespace(client=self, clock=self, recorder=self, informers=self)
        if not again:
            self.controller = VerticalPodAutoscalerController(context, pasts=self)
        for _ in range(times):
            for scaler in self.scalers.items():
                await self.controller.reconcile(scaler.key)
            self.at += 60.0


async def test_pods_are_evicted_one_by_one_until_all_have_what_they_need():
    world = World(a_scaler())
    await world.look(6)
    assert world.evicted == ["p-0", "p-1", "p-2"]


async def test_pods_that_came_since_go_once_something_else_is_recommended():
    world = World(a_scaler())
    await world.look(4)
    assert world.evicted == ["p-0", "p-1", "p-2"]
    world.load, world.evicted = 3.0, []
    world.successor = lambda old: a_pod(old.metadata.name, "1380m", world.at)
    await world.look(4, again=True)
    assert world.evicted == ["p-0", "p-1", "p-2"]


async def test_where_nobody_gives_new_pods_more_one_eviction_is_enough_to_see_it():
    world = World(a_scaler(), successor=lambda old: a_pod(f"z-{old.metadata.name}", "100m", NOW))
    world.at = NOW
    await world.look(6)
    assert world.evicted == ["p-0"], "in whatever order the successor's name comes"
    assert ("z-p-0", "EvictedInVain") in world.events


async def test_a_successor_on_a_slow_node_does_not_hold_up_the_others():
    slow = Node.of({"metadata": {"name": "slow", "labels": {"hice.kj": "0.25"}}})
    world = World(a_scaler(), nodes=[slow])
    world.successor = lambda old: a_pod(old.metadata.name, "460m", world.at, on="slow")
    await world.look(8)
    assert world.evicted == ["p-0", "p-1", "p-2"], "each once"


@pytest.mark.parametrize("mode", ["Recreate", "InPlaceOrRecreate"])
async def test_of_two_for_one_target_only_the_eldest_acts(mode):
    younger, off = a_scaler("a", mode, NOW - 50), a_scaler("b", "Off", NOW - 500)
    world = World(younger, off, a_scaler("web", mode))
    acting = []
    plain = VerticalPodAutoscalerController._update

    async def noted(self, found, *rest):
        acting.append(found.metadata.name)
        await plain(self, found, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(VerticalPodAutoscalerController, "_update", noted)
        await world.look(2)
    assert acting == ["web", "web"]


async def test_a_size_that_does_not_fit_is_taken_back_once_less_is_recommended():
    pending = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
    lone = a_pod("p-0", "100", conditions=[pending])
    world = World(a_scaler(mode="InPlaceOrRecreate"), pods=[lone])
    await world.look(1)
    assert (world.resized, world.evicted) == (["p-0"], [])


async def test_a_size_that_does_not_fit_and_is_still_recommended_costs_a_pod_its_place():
    pending = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
    pods = [a_pod(f"p-{i}", "460m", conditions=[pending]) for i in range(2)]
    world = World(a_scaler(mode="InPlaceOrRecreate"), pods=pods)
    await world.look(1)
    assert (world.resized, world.evicted) == ([], ["p-0"])
