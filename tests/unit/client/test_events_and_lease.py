"""Recorder and leader election over a client that keeps objects in a dict."""

import asyncio
import os
from random import Random

import pytest

from motley.api import status
from motley.api.views.core import ConfigMap, Event, Lease
from motley.client import lease as leases
from motley.client.events import Recorder
from motley.client.lease import LeaderElection, LostLeadership

pytestmark = pytest.mark.looptime


class DictClient:
    """Just the calls these two need, with optimistic locking."""

    def __init__(self):
        self.objects = {}
        self.revision = 0
        self.down = False

    def _check(self):
        if self.down:
            raise status.ServiceUnavailable("down")

    async def get(self, cls, name, namespace=""):
        self._check()
        try:
            return cls.of(self.objects[cls, namespace, name])
        except KeyError:
            raise status.NotFound(name) from None

    async def create(self, cls, body, namespace=""):
        self._check()
        namespace = namespace or body["metadata"].get("namespace", "")
        key = (cls, namespace, body["metadata"]["name"])
        if key in self.objects:
            raise status.AlreadyExists(key[2])
        return await self._put(key, body)

    async def _put(self, key, body):
        self.revision += 1
        body = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.revision)}}
        self.objects[key] = body
        return key[0].of(body)

    async def patch(self, cls, name, namespace, body, **_):
        self._check()
        key = (cls, namespace, name)
        if key not in self.objects:
            raise status.NotFound(name)
        old = self.objects[key]
        expected = body.get("metadata", {}).get("resourceVersion")
        if expected and expected != old["metadata"]["resourceVersion"]:
            raise status.Conflict("stale")
        merged = {**old, **{k: v for k, v in body.items() if k not in ("spec", "metadata")}}
        if "spec" in body:
            merged["spec"] = {**old.get("spec", {}), **body["spec"]}
        return await self._put(key, merged)

    def events(self):
        return [Event.of(v) for k, v in self.objects.items() if k[0] is Event]


def thing(name="a"):
    return ConfigMap.of({"metadata": {"name": name, "namespace": "n", "uid": f"uid-{name}"}})


async def record(clock, client, *steps, **options):
    recorder = Recorder(client, "tester", "host", clock=clock, rng=Random(3), **options)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(recorder.run())
        for step in steps:
            step(recorder) if callable(step) else await clock.sleep(step)
            await clock.sleep(0.01)
        running.cancel()
    return client.events()


def note(message="m", name="a"):
    return lambda r: r.event(thing(name), "Normal", "Why", message)


async def test_an_event_says_about_what_by_whom_and_why(clock):
    (event,) = await record(clock, DictClient(), note("it happened"))
    assert event.metadata.namespace == "n"
    assert event.metadata.name.startswith("a.")
    assert (event.involved_object.kind, event.involved_object.uid) == ("ConfigMap", "uid-a")
    assert (event.type, event.reason, event.message) == ("Normal", "Why", "it happened")
    assert event.count == 1


async def test_repeats_become_a_count(clock):
    (event,) = await record(clock, DictClient(), note(), 5, note(), 5, note())
    assert event.count == 3
    assert event.first_timestamp != event.last_timestamp


async def test_a_repeat_much_later_is_a_new_event(clock):
    assert len(await record(clock, DictClient(), note(), 700, note())) == 2


async def test_different_objects_and_messages_are_different_events(clock):
    events = await record(clock, DictClient(), note("x"), note("y"), note("x", "b"))
    assert len(events) == 3


async def test_many_events_that_differ_only_in_their_message_become_one(clock):
    events = await record(clock, DictClient(), *[note(str(i)) for i in range(13)])
    assert [e.message for e in events[:10]] == [str(i) for i in range(10)]
    (combined,) = events[10:]
    assert combined.message == "(combined from similar events): 12"
    assert combined.count == 3


async def test_a_flood_of_one_object_is_cut_down(clock):
    noisy = [note(str(i)) for i in range(100)]
    events = await record(clock, DictClient(), *noisy, note("calm", "b"))
    assert sum(e.count for e in events if e.involved_object.name == "a") == 25
    assert any(e.involved_object.name == "b" for e in events)


async def test_events_of_many_objects_are_written_side_by_side(clock, looptime):
    class Slow(DictClient):
        async def create(self, cls, body, namespace=""):
            await clock.sleep(1.0)
            return await super().create(cls, body, namespace)

    burst = lambda r: [note("m", f"o-{i}")(r) for i in range(64)]  # noqa: E731
    events = await record(clock, Slow(), burst, 25)
    assert len(events) == 64


async def test_an_event_may_be_told_a_moment_after_the_fact(clock, looptime):
    client = DictClient()
    assert await record(clock, client, note("one"), note("two"), 0.2, linger_s=0.3) == []
    first, second = await record(clock, client, note("one"), note("two"), 0.4, linger_s=0.3)
    assert (first.message, second.message) == ("one", "two")


async def test_recording_never_waits_or_fails_its_caller(clock):
    client = DictClient()
    client.down = True
    recorder = Recorder(client, "tester", clock=clock)
    for i in range(2000):
        recorder.event(thing(str(i)), "Warning", "R", "m")
    assert 1000 <= recorder.dropped < 1100  # about a thousand wait, spread over the writers
    await record(clock, client, note())  # the writer survives a server that is down


def election(client, clock, identity):
    return LeaderElection(client, "lead", namespace="n", identity=identity, clock=clock)


async def test_one_of_two_works_and_the_other_takes_over_when_it_ends(clock, looptime):
    client, log = DictClient(), []

    def work(name, seconds):
        async def run():
            log.append(f"{name} starts")
            await clock.sleep(seconds)
            log.append(f"{name} ends")

        return run

    async with asyncio.TaskGroup() as group:
        group.create_task(election(client, clock, "one").lead(work("one", 60)))
        await clock.sleep(0.5)
        group.create_task(election(client, clock, "two").lead(work("two", 60)))
    assert log == ["one starts", "one ends", "two starts", "two ends"]
    assert looptime < 125  # the lease was given back, not waited for
    spec = Lease.of(client.objects[Lease, "n", "lead"]).spec
    assert spec.lease_transitions == 1


async def test_a_silent_holder_is_replaced_after_the_leases_duration(clock, looptime):
    client = DictClient()
    await client.create(
        Lease,
        {
            "metadata": {"name": "lead", "namespace": "n"},
            "spec": {"holderIdentity": "dead", "leaseDurationSeconds": 15, "renewTime": "t"},
        },
    )
    started = []

    async def work():
        started.append(float(looptime))

    await election(client, clock, "new").lead(work)
    assert 15 <= started[0] <= 19


async def test_a_holder_that_cannot_renew_stops_in_time(clock, looptime):
    client = DictClient()

    async def work():
        await clock.sleep(5)
        client.down = True
        await clock.sleep(1000)

    with pytest.raises(LostLeadership):
        await election(client, clock, "one").lead(work)
    assert looptime < 5 + 15


async def test_a_holder_whose_lease_was_taken_stops(clock, looptime):
    client = DictClient()

    async def work():
        await clock.sleep(5)
        spec = {"spec": {"holderIdentity": "thief"}}
        await client.patch(Lease, "lead", "n", spec)
        await clock.sleep(1000)

    with pytest.raises(LostLeadership):
        await election(client, clock, "one").lead(work)
    assert looptime < 10


async def test_a_crashed_process_of_this_machine_need_not_be_waited_for(clock, looptime):
    client = DictClient()
    host, scope, pid, started = leases.process_identity().rsplit("_", 3)
    assert not leases.is_dead_process(leases.process_identity())
    assert leases.is_dead_process(f"{host}_{scope}_{pid}_{int(started) + 1}")
    assert not leases.is_dead_process(f"{host}_other-scope_{pid}_1")
    assert not leases.is_dead_process("kube-controller-manager-0")
    assert int(pid) == os.getpid()
    dead = f"{host}_{scope}_{pid}_{int(started) + 1}"
    await client.create(
        Lease,
        {"metadata": {"name": "lead", "namespace": "n"}, "spec": {"holderIdentity": dead}},
    )

    async def work():
        return

    await election(client, clock, "new").lead(work)
    assert looptime < 1


async def test_who_may_not_take_the_lease_says_so_once(clock, caplog):
    class Refusing(DictClient):
        async def get(self, cls, name, namespace=""):
            raise status.Forbidden('leases "lead" is forbidden')

    async def work():
        raise AssertionError("works without the lease")

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(60):
            await election(Refusing(), clock, "one").lead(work)
    assert caplog.text.count("lease may not be taken") == 1
