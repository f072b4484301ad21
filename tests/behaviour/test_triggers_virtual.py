"""Triggers on virtual time: the clock, changes of objects, crashes between two steps."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from world import simulate

from motley.api import status
from motley.api.views.core import ConfigMap
from motley.api.views.serverless import Invocation
from motley.api.views.trigger import Trigger
from motley.serverless.triggers.service import Triggers


@asynccontextmanager
async def running(world):
    """The service, as the leader runs it; killed at the end of the block."""
    informer = world.informer(Trigger)
    await world.synced()
    task = asyncio.get_running_loop().create_task(
        Triggers(world.client, informer, clock=world.clock).run()
    )
    try:
        yield
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def arguments(world):
    found = await world.list(Invocation)
    return sorted(str(one.spec.arg) for one in found)


@simulate(nodes=0)
async def test_a_schedule_calls_its_function_at_its_times_and_goes_on_after_a_crash(world):
    spec = {"function": "f", "schedule": "*/10 * * * *"}
    await world.create(Trigger, {"metadata": {"name": "often"}, "spec": spec})
    async with running(world):
        await world.sleep(1900)
    before = await arguments(world)
    assert len(before) == 3
    await world.sleep(700)  # nobody is there: one moment passes, too long ago to be made up for
    async with running(world):
        await world.sleep(1)
        assert len(await arguments(world)) in (3, 4)
        await world.sleep(600)
    after = await arguments(world)
    assert len(set(after)) == len(after) >= 4
    assert set(before) < set(after)


@simulate(nodes=0)
async def test_each_change_calls_once_also_when_the_service_dies_before_it_is_written_down(world):
    event = {"kind": "ConfigMap", "labelSelector": "watched=yes", "types": ["ADDED", "DELETED"]}
    spec = {"function": "f", "event": event}
    body = {"metadata": {"name": "old", "labels": {"watched": "yes"}}}
    await world.create(ConfigMap, body)  # before the trigger: no change
    await world.create(Trigger, {"metadata": {"name": "maps"}, "spec": spec})

    def label(name):
        return {"metadata": {"name": name, "labels": {"watched": "yes"}}, "data": {"k": name}}

    async with running(world):
        await world.sleep(5)
        await world.create(ConfigMap, label("a"))
        await world.create(ConfigMap, {"metadata": {"name": "unwatched"}})
        await world.patch(ConfigMap, "a", {"data": {"k": "2"}})  # MODIFIED is not asked for
        await world.sleep(5)
    await world.create(ConfigMap, label("b"))  # while nobody watches
    await world.delete(ConfigMap, "a")
    # As if it had died after the call and before the note: it sees the same change again.
    seen = (await world.get(Trigger, "maps")).status.resource_version
    assert seen
    async with running(world):
        await world.sleep(5)
    async with running(world):
        await world.sleep(5)
    made = await world.list(Invocation)
    told = sorted(
        (one.spec.arg["type"], one.spec.arg["object"]["metadata"]["name"]) for one in made
    )
    assert told == [("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a")]
    assert all(one.spec.arg["object"]["data"] for one in made), "the whole object is given"


@simulate(nodes=0)
async def test_what_cannot_work_is_said_in_a_condition(world):
    async with running(world):
        for name, spec, said in (
            ("bad-time", {"schedule": "61 * * * *"}, "end of range (61) above maximum (59)"),
            ("bad-zone", {"schedule": "@daily", "timeZone": "Mars/Base"}, "Mars/Base"),
            ("bad-kind", {"event": {"kind": "Ghost"}}, "there is no 'Ghost' to watch in 'v1'"),
            ("bad-group", {"event": {"apiVersion": "no/v1", "kind": "X"}}, "there is no 'no/v1'"),
        ):
            body = {"metadata": {"name": name}, "spec": {"function": "f", **spec}}
            await world.create(Trigger, body)
            await world.sleep(2)
            (condition,) = (await world.get(Trigger, name)).status.conditions
            assert condition["status"] == "False"
            assert said in condition["message"], name


@simulate(nodes=0)
async def test_a_trigger_that_would_trigger_itself_is_refused(world):
    spec = {"function": "f", "event": {"apiVersion": "motley.io/v1", "kind": "Invocation"}}
    with pytest.raises(status.Invalid, match="would trigger itself"):
        await world.create(Trigger, {"metadata": {"name": "loop"}, "spec": spec})


@simulate(nodes=0)
async def test_a_suspended_trigger_calls_nothing_until_it_is_resumed(world):
    spec = {"function": "f", "schedule": "* * * * *", "suspend": True}
    await world.create(Trigger, {"metadata": {"name": "later"}, "spec": spec})
    async with running(world):
        await world.sleep(300)
        assert await arguments(world) == []
        await world.patch(Trigger, "later", {"spec": {"suspend": False}})
        await world.sleep(61)
        assert len(await arguments(world)) >= 1
