"""The running scheduler against a scripted API."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from motley.api import status
from motley.api.views.core import Event, Node
from motley.api.views.pod import Pod
from motley.client.decoding import Listing, ListMeta, WatchEvent
from motley.lib.clock import SYSTEM
from motley.scheduler import contract, service
from motley.scheduler.plugins.registry import PLUGINS
from motley.scheduler.profiles import Configuration
from motley.scheduler.service import Scheduler

pytestmark = pytest.mark.looptime


class LoopClock:
    """The event loop's time, which looptime makes virtual."""

    def now(self) -> float:
        return 1_700_000_000.0 + self.monotonic()

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await SYSTEM.sleep(seconds)


class FakeApi:
    """Nodes and pods in memory, with the calls the scheduler makes."""

    def __init__(self) -> None:
        self.objects: dict[type, dict[tuple[str, str], Any]] = {Pod: {}, Node: {}}
        self.watchers: list[tuple[type, asyncio.Queue[WatchEvent[Any]]]] = []
        self.revision = 0
        self.events: list[tuple[str, str]] = []
        self.bindings: list[tuple[str, str]] = []
        self.conditions: dict[str, dict[str, Any]] = {}
        self.bind_errors: list[Exception] = []
        self.silent_bindings = False  # answer, but never show the pod as bound
        self.in_flight = self.most_in_flight = 0

    def put(self, obj: Any) -> None:
        kept = self.objects[type(obj)]
        key = (obj.metadata.namespace, obj.metadata.name)
        kind = "MODIFIED" if key in kept else "ADDED"
        self._tell(kind, obj)
        kept[key] = obj

    def remove(self, obj: Any) -> None:
        del self.objects[type(obj)][obj.metadata.namespace, obj.metadata.name]
        self._tell("DELETED", obj)

    def _tell(self, kind: str, obj: Any) -> None:
        self.revision += 1
        obj.metadata.resource_version = str(self.revision)
        for cls, queue in self.watchers:
            if cls is type(obj):
                queue.put_nowait(WatchEvent(type=kind, object=obj))

    def pod(self, name: str) -> Pod:
        return self.objects[Pod]["default", name]

    async def list(self, cls: type, **_: Any) -> Listing[Any]:
        meta = ListMeta(resource_version=str(self.revision))
        return Listing(metadata=meta, items=list(self.objects.get(cls, {}).values()))

    async def watch(
        self, cls: type, *, initial_events: bool = False, **_: Any
    ) -> AsyncIterator[WatchEvent[Any]]:
        if initial_events:
            raise status.BadRequest("streamed lists are not served here")
        queue: asyncio.Queue[WatchEvent[Any]] = asyncio.Queue()
        self.watchers.append((cls, queue))
        while True:
            yield await queue.get()

    async def get(self, cls: type, name: str, namespace: str = "") -> Any:
        if (namespace, name) not in self.objects[cls]:
            raise status.NotFound(f"{name} not found")
        return self.objects[cls][namespace, name]

    async def raw(self, method: str, path: str, *, body: Any = None) -> Any:
        raise status.NotFound("the server could not find the requested resource")

    async def create(self, cls: type, body: dict[str, Any], namespace: str = "") -> Any:
        self.events.append((body["reason"], body["message"]))
        return Event.of({"metadata": body["metadata"]})

    async def patch(self, cls: type, name: str, namespace: str, body: Any, **_: Any) -> Any:
        if cls is Pod:
            self.conditions[name] = body["status"]["conditions"][0]

    async def create_subresource(
        self, cls: type, name: str, namespace: str, subresource: str, body: dict[str, Any]
    ) -> dict[str, Any]:
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        await SYSTEM.sleep(0.01)
        self.in_flight -= 1
        if self.bind_errors:
            raise self.bind_errors.pop(0)
        pod = self.pod(name)
        assert not pod.spec.node_name, "bound twice"
        assert body["metadata"]["uid"] == pod.metadata.uid
        node = body["target"]["name"]
        self.bindings.append((name, node))
        if not self.silent_bindings:
            bound = Pod.of({"metadata": {}, "spec": {}})
            bound.metadata, bound.spec = _copy(pod.metadata), _copy(pod.spec)
            bound.spec.node_name = node
            self.put(bound)
        return {}


def _copy(struct: Any) -> Any:
    return msgspec.structs.replace(struct)


@asynccontextmanager
async def running(
    api: FakeApi, configuration: Configuration | None = None, **options: Any
) -> AsyncIterator[Scheduler]:
    scheduler = Scheduler(api, configuration or Configuration(), clock=LoopClock(), **options)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(scheduler.run())
        try:
            yield scheduler
        finally:
            task.cancel()


async def until(condition: Any, timeout_s: float = 60.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await SYSTEM.sleep(0.005)


async def test_pods_are_bound_and_counted_once(node, pod):
    api = FakeApi()
    api.put(node("a", cpu="1"))
    api.put(node("b", cpu="1"))
    async with running(api) as scheduler:
        for i in range(4):
            api.put(pod(f"p{i}", requests={"cpu": "500m"}))
        await until(lambda: len(api.bindings) == 4)
        await until(lambda: not any(p.assumed for p in scheduler.nodes.placed.values()))
        assert sorted(node for _, node in api.bindings) == ["a", "a", "b", "b"]
        assert scheduler.nodes.requested[0].tolist() == [1000, 1000]
        await until(lambda: len(api.events) == 4)
    assert {reason for reason, _ in api.events} == {"Scheduled"}


async def test_a_pod_that_fits_nowhere_says_why_and_is_bound_when_a_taint_goes(node, pod):
    api = FakeApi()
    taint = [{"key": "k", "value": "v", "effect": "NoSchedule"}]
    api.put(node("a", taints=taint))
    async with running(api):
        api.put(pod("p"))
        await until(lambda: api.conditions)
        message = (
            "0/1 nodes are available: 1 node(s) had untolerated taint(s). "
            "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
        )
        assert api.conditions["p"]["reason"] == "Unschedulable"
        assert api.conditions["p"]["message"] == message
        assert api.conditions["p"]["status"] == "False"
        await until(lambda: ("FailedScheduling", message) in api.events)
        api.put(node("a"))
        await until(lambda: api.bindings == [("p", "a")])


async def test_a_failed_binding_gives_the_room_back_and_is_tried_again(node, pod):
    api = FakeApi()
    api.bind_errors = [status.InternalError("store is gone"), status.Conflict("stale")]
    api.put(node("a", cpu="1"))
    async with running(api) as scheduler:
        api.put(pod("p", requests={"cpu": "1"}))
        await until(lambda: len(api.bind_errors) == 1)
        await until(lambda: not scheduler.nodes.placed)
        assert scheduler.nodes.requested[0].tolist() == [0]
        await until(lambda: api.bindings == [("p", "a")])
    assert ("FailedScheduling", "binding rejected: store is gone") in api.events


async def test_a_pod_deleted_while_it_is_bound_is_forgotten(node, pod):
    api = FakeApi()
    api.bind_errors = [status.NotFound("gone")]
    api.put(node("a"))
    async with running(api) as scheduler:
        api.put(pod("p"))
        await until(lambda: not api.bind_errors)
        await until(lambda: len(scheduler.queue) == 0)
        assert not scheduler.nodes.placed


async def test_pods_of_other_schedulers_and_ended_or_deleted_pods_are_left_alone(node, pod):
    api = FakeApi()
    api.put(node("a", cpu="2"))
    foreign = pod("foreign", schedulerName="someone-else")
    ended = pod("ended")
    ended.status.phase = "Succeeded"
    leaving = pod("leaving")
    leaving.metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
    for each in (foreign, ended, leaving, pod("mine")):
        api.put(each)
    api.put(pod("theirs", node="a", requests={"cpu": "1"}, schedulerName="someone-else"))
    async with running(api) as scheduler:
        await until(lambda: api.bindings == [("mine", "a")])
        await until(lambda: len(scheduler.queue) == 0)
        assert scheduler.nodes.requested[0].tolist() == [1000]
    assert api.bindings == [("mine", "a")]


async def test_room_freed_by_a_deleted_or_ended_pod_wakes_the_waiting_one(node, pod):
    api = FakeApi()
    api.put(node("a", cpu="1"))
    api.put(pod("first", node="a", requests={"cpu": "1"}))
    async with running(api):
        api.put(pod("second", requests={"cpu": "1"}))
        await until(lambda: "second" in api.conditions)
        api.remove(api.pod("first"))
        await until(lambda: api.bindings == [("second", "a")])
        api.put(pod("third", requests={"cpu": "1"}))
        await until(lambda: "third" in api.conditions)
        done = pod("second", node="a", requests={"cpu": "1"})
        done.status.phase = "Succeeded"
        api.put(done)
        await until(lambda: ("third", "a") in api.bindings)


async def test_a_restart_in_the_middle_of_a_burst_binds_everything_once(node, pod):
    api = FakeApi()
    for name in "abc":
        api.put(node(name))
    for i in range(200):
        api.put(pod(f"p{i}"))
    async with running(api):
        await until(lambda: len(api.bindings) > 20)
    survived = len(api.bindings)
    assert survived < 200
    api.watchers.clear()
    async with running(api) as scheduler:
        await until(lambda: len(api.bindings) == 200)
        await until(lambda: len(scheduler.queue) == 0)
    assert len({name for name, _ in api.bindings}) == 200


async def test_bindings_are_concurrent_but_bounded(node, pod):
    api = FakeApi()
    api.put(node("a", pods="500", cpu="64"))
    for i in range(150):
        api.put(pod(f"p{i}"))
    async with running(api):
        await until(lambda: len(api.bindings) == 150)
    assert 8 < api.most_in_flight <= 48


async def test_an_assumption_that_is_never_confirmed_expires(node, pod, monkeypatch):
    monkeypatch.setattr(service, "ASSUMED_MAX_S", 5.0)
    api = FakeApi()
    api.silent_bindings = True
    api.put(node("a", cpu="1"))
    async with running(api) as scheduler:
        api.put(pod("p", requests={"cpu": "1"}))
        await until(lambda: api.bindings == [("p", "a")])
        assert scheduler.nodes.requested[0].tolist() == [1000]
        api.silent_bindings = False
        await until(lambda: len(api.bindings) == 2)
        await until(lambda: not any(p.assumed for p in scheduler.nodes.placed.values()))


async def test_decisions_are_kept_for_explanation(node, pod):
    api = FakeApi()
    api.put(node("a"))
    async with running(api) as scheduler:
        api.put(pod("p"))
        await until(lambda: len(scheduler.records))
        assert [record.decision.node for record in scheduler.records.latest()] == ["a"]
        assert scheduler.ready


class ResizingApi(FakeApi):
    """Also takes what Hicev2 writes before it binds."""

    async def patch(
        self, cls: type, name: str, namespace: str, body: Any, *, subresource: str = "", **_: Any
    ) -> Any:
        if subresource == "status":
            return await super().patch(cls, name, namespace, body)
        await SYSTEM.sleep(0.01)
        pod = self.pod(name)
        changed = Pod.of({"metadata": {}, "spec": {}})
        changed.metadata, changed.spec = _copy(pod.metadata), _copy(pod.spec)
        if subresource == "resize":
            (wanted,) = body["spec"]["containers"]
            container = _copy(pod.spec.containers[0])
            container.resources = _copy(container.resources)
            container.resources.requests = wanted["resources"]["requests"]
            changed.spec.containers = [container]
        else:
            changed.metadata.annotations = body["metadata"]["annotations"]
        self.put(changed)
        return changed


async def test_scaled_pods_are_counted_scaled_from_the_decision_on(node, pod):
    api = ResizingApi()
    api.put(node("slow", cpu="1", labels={"hice.kj": "0.5"}))
    points: dict[str, Any] = {
        "filter": {"enabled": [{"name": "Hicev2"}], "disabled": [{"name": "NodeResourcesFit"}]},
        "bind": {"enabled": [{"name": "Hicev2"}], "disabled": [{"name": "DefaultBinder"}]},
    }
    configuration = msgspec.convert({"profiles": [{"plugins": points}]}, Configuration)
    for i in range(8):
        api.put(pod(f"p{i}", requests={"cpu": "100m"}))
    most = 0.0
    async with running(api, configuration=configuration) as scheduler:

        def is_settled() -> bool:
            nonlocal most
            most = max([most, *scheduler.nodes.requested[0].tolist()])
            confirmed = [p for p in scheduler.nodes.placed.values() if not p.assumed]
            return len(confirmed) == 5 and len(api.conditions) == 3

        await until(is_settled)
        assert scheduler.nodes.requested[0].tolist() == [1000]
    assert most == 1000
    assert len(api.bindings) == 5
    bound = [api.pod(name) for name, _ in api.bindings]
    assert {p.spec.containers[0].resources.requests["cpu"] for p in bound} == {"200m"}
    assert {c["message"] for c in api.conditions.values()} == {
        "0/1 nodes are available: 1 Insufficient cpu. preemption: "
        "0/1 nodes are available: 1 No preemption victims found for incoming pod."
    }


async def test_what_a_failed_attempt_has_written_is_known_to_the_next(node, pod):
    api = ResizingApi()
    api.put(node("slow", labels={"hice.kj": "0.5"}))
    points: dict[str, Any] = {
        "filter": {"enabled": [{"name": "Hicev2"}], "disabled": [{"name": "NodeResourcesFit"}]},
        "bind": {"enabled": [{"name": "Hicev2"}], "disabled": [{"name": "DefaultBinder"}]},
    }
    configuration = msgspec.convert({"profiles": [{"plugins": points}]}, Configuration)
    api.bind_errors = [status.InternalError("store is gone")]
    async with running(api, configuration=configuration) as scheduler:
        api.put(pod("p", requests={"cpu": "100m"}))
        await until(lambda: "p" in api.conditions)
        assert api.pod("p").spec.containers[0].resources.requests == {"cpu": "200m"}
        api.remove(api.objects[Node]["", "slow"])
        api.put(node("fast"))
        await until(lambda: api.bindings)
        await until(lambda: not scheduler.nodes.placed["p"].assumed)
        assert scheduler.nodes.requested[0].tolist() == [100]
    assert api.bindings == [("p", "fast")]
    assert api.pod("p").spec.containers[0].resources.requests == {"cpu": "100m"}


async def test_what_plugins_say_of_no_object_is_an_event_of_the_scheduler(node, pod):
    api = FakeApi()
    async with running(api) as scheduler:
        scheduler._warn(None, "MeasurementsMissing", "none for an hour")
        await until(lambda: ("MeasurementsMissing", "none for an hour") in api.events)


async def test_a_resize_that_its_node_refuses_closes_the_node_for_nobody(node, pod):
    api = FakeApi()
    api.put(node("a", cpu="4"))
    api.put(pod("greedy", node="a", requests={"cpu": "1"}))
    async with running(api) as scheduler:
        await until(lambda: "greedy" in scheduler.nodes.placed)
        wish = pod("greedy", node="a", requests={"cpu": "999"})
        api.put(wish)
        await until(lambda: scheduler.nodes.requested[0, 0] == 999_000)
        api.put(pod("waiting", requests={"cpu": "2"}))
        await until(lambda: "waiting" in api.conditions)
        answer = {
            "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}],
            "containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "1"}}],
        }
        refused = Pod.of({"status": answer})
        refused.metadata, refused.spec = _copy(wish.metadata), _copy(wish.spec)
        api.put(refused)
        await until(lambda: api.bindings == [("waiting", "a")])
        assert scheduler.nodes.requested[0, 0] == 3000


class Restless:
    """Has work in the background, which fails once."""

    name = "Restless"
    Args = contract.NoArgs
    begun = 0

    def __init__(self, args: contract.NoArgs, handle: contract.Handle) -> None: ...

    def score(self, pod: Any, nodes: Any) -> Any:
        return nodes.allocatable[0] * 0

    async def background(self, client: Any) -> None:
        Restless.begun += 1
        if Restless.begun == 1:
            raise RuntimeError("not today")
        await asyncio.Event().wait()


async def test_a_plugins_work_in_the_background_may_fail(node, pod):
    api = FakeApi()
    api.put(node("a"))
    points = {"score": {"enabled": [{"name": "Restless"}]}}
    configuration = msgspec.convert({"profiles": [{"plugins": points}]}, Configuration)
    registry = {**PLUGINS, "Restless": Restless}
    async with running(api, configuration=configuration, registry=registry):
        await until(lambda: Restless.begun == 2)
        api.put(pod("p"))
        await until(lambda: api.bindings == [("p", "a")])


async def test_a_spread_pod_is_bound_when_one_in_its_way_begins_to_end(node, pod):
    api = FakeApi()
    for name in ("a", "b"):
        api.put(node(name, cpu="1"))
    spread = {
        "topologyKey": "kubernetes.io/hostname",
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    api.put(pod("full", node="b", requests={"cpu": "1"}))
    first = pod("first", node="a", labels={"app": "web"})
    api.put(first)
    async with running(api):
        api.put(
            pod(
                "second",
                labels={"app": "web"},
                requests={"cpu": "500m"},
                topologySpreadConstraints=[spread],
            )
        )
        await until(lambda: "second" in api.conditions)
        assert "didn't match pod topology spread" in api.conditions["second"]["message"]
        ending = msgspec.structs.replace(first)
        ending.metadata = _copy(first.metadata)
        ending.metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
        api.put(ending)
        await until(lambda: api.bindings == [("second", "a")])


async def test_a_spread_pod_is_bound_when_the_emptiest_node_is_removed(node, pod):
    api = FakeApi()
    a, b = node("a"), node("b", cpu="100m")
    api.put(a)
    api.put(b)
    api.put(pod("first", node="a", labels={"app": "web"}))
    spread = {
        "topologyKey": "kubernetes.io/hostname",
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    second = pod(
        "second",
        labels={"app": "web"},
        requests={"cpu": "500m"},
        topologySpreadConstraints=[spread],
    )
    async with running(api):
        api.put(second)
        await until(lambda: "second" in api.conditions)
        api.remove(b)
        await until(lambda: api.bindings == [("second", "a")])


class BatchApi(FakeApi):
    """A server that takes bindings together, as Motley's does."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[list[dict[str, Any]]] = []
        self.refused: dict[str, int] = {}  # pod → the code it is refused with, once

    async def raw(self, method: str, path: str, *, body: Any = None) -> Any:
        if method == "GET":
            return {"resources": [{"name": "bindings", "verbs": ["create"]}]}
        self.batches.append(body["items"])
        return {"items": [await self._bound(item) for item in body["items"]]}

    async def _bound(self, item: dict[str, Any]) -> dict[str, Any]:
        meta = item["metadata"]
        if code := self.refused.pop(meta["name"], 0):
            return {"status": "Failure", "code": code, "reason": "Conflict", "message": "no"}
        await self.create_subresource(Pod, meta["name"], meta["namespace"], "binding", item)
        self.events.append((item["event"]["reason"], item["event"]["message"]))
        return {"status": "Success", "code": 201}


async def test_bindings_decided_together_are_one_call_that_also_tells_of_them(node, pod):
    api = BatchApi()
    api.put(node("a", cpu="64"))
    for i in range(20):
        api.put(pod(f"p{i}", requests={"cpu": "1"}))
    async with running(api):
        await until(lambda: len(api.bindings) == 20)
        await until(lambda: len(api.events) == 20)
    assert len(api.batches) < 5
    assert ("Scheduled", "Successfully assigned default/p0 to a") in api.events
    assert len(set(api.events)) == 20, "each is told of once"


async def test_an_item_that_is_refused_fails_its_pod_only(node, pod):
    api = BatchApi()
    api.refused = {"p1": 409}
    api.put(node("a", cpu="3"))
    for i in range(3):
        api.put(pod(f"p{i}", requests={"cpu": "1"}))
    async with running(api):
        await until(lambda: len(api.bindings) == 3)
    assert [name for name, _ in api.bindings[:2]] == ["p0", "p2"]
    assert ("FailedScheduling", "binding rejected: no") in api.events


async def test_a_binding_whose_answer_was_lost_counts_where_the_api_has_it(node, pod):
    api = FakeApi()
    api.put(node("a", cpu="1"))
    bind = api.create_subresource

    async def lost(*args: Any) -> Any:
        await bind(*args)
        raise status.GatewayTimeout("the connection broke")

    async def again(*args: Any) -> Any:
        raise status.Conflict("already assigned")

    answers = iter([lost, again])
    api.create_subresource = lambda *args: next(answers)(*args)  # type: ignore[method-assign]
    async with running(api) as scheduler:
        api.put(pod("p", requests={"cpu": "1"}))
        await until(lambda: len(scheduler.queue) == 0 and api.bindings)
        assert scheduler.nodes.requested[0].tolist() == [1000]
        await until(lambda: api.events)
    assert [reason for reason, _ in api.events] == ["Scheduled"]
