"""Slots and the queue for them."""

import asyncio

import pytest

from motley.api.views.base import Key
from motley.lib import clock
from motley.serverless import instances
from motley.serverless.instances import Broken, Group, Instance, Overloaded, Unavailable


def instance(name, *, concurrency=2, revision="r", single=False):
    return Instance(Key("ns", name), name, "t", revision, concurrency, is_single=single)


@pytest.fixture
def group():
    return Group(Key("ns", "f"), clock.SYSTEM, revision="r")


async def test_a_call_goes_to_the_least_busy_instance(group):
    group.put(instance("a"))
    group.put(instance("b"))
    taken = [(await group.acquire(1)).instance.pod.name for _ in range(4)]
    assert sorted(taken[:2]) == ["a", "b"]
    assert sorted(taken) == ["a", "a", "b", "b"]


async def test_a_call_waits_until_a_slot_is_free_and_first_come_are_first_served(group):
    group.put(instance("a", concurrency=1))
    slot = await group.acquire(1)
    order = []

    async def wait(name):
        order.append((name, (await group.acquire(5)).waited_s > 0))

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(wait("first"))
        second = tasks.create_task(wait("second"))
        while group.waiting < 2:
            await clock.SYSTEM.sleep(0)
        group.release(slot)
        while not order:
            await clock.SYSTEM.sleep(0)
        assert order == [("first", True)]
        second.cancel()
    assert group.waiting == 0


async def test_nobody_comes_within_the_time(group):
    group.reason = "0/1 nodes are available"
    with pytest.raises(Unavailable, match="0/1 nodes are available"):
        await group.acquire(0.01)
    assert group.waiting == 0


async def test_the_queue_has_an_end(group, monkeypatch):
    monkeypatch.setattr(instances, "QUEUE_LIMIT", 1)
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(group.acquire(5))
        while not group.waiting:
            await clock.SYSTEM.sleep(0)
        with pytest.raises(Overloaded):
            await group.acquire(5)
        waiting.cancel()


async def test_those_who_wait_hear_that_the_code_is_broken(group):
    async def wait():
        with pytest.raises(Broken, match="bad"):
            await group.acquire(5)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(wait())
        while not group.waiting:
            await clock.SYSTEM.sleep(0)
        group.fail({"type": "SyntaxError", "message": "bad"})


async def test_newer_code_is_preferred_and_what_drains_gets_nothing(group):
    old, new = instance("old", revision="r0"), instance("new", concurrency=1)
    group.put(old)
    group.put(new)
    assert (await group.acquire(1)).instance is new
    assert (await group.acquire(1)).instance is old
    old.is_draining = True
    with pytest.raises(Unavailable):
        await group.acquire(0.01)


async def test_a_v1_instance_is_spent_after_its_call_and_never_comes_back(group):
    spent = []
    group.on_spent = lambda one: spent.append(one.pod.name)
    single = instance("a", concurrency=1, single=True)
    group.put(single)
    group.release(await group.acquire(1))
    assert spent == ["a"]
    group.put(instance("a", concurrency=1, single=True))  # its pod is still seen for a moment
    assert not group.instances


async def test_a_call_that_did_not_start_leaves_a_v1_instance_unused(group):
    group.put(instance("a", concurrency=1, single=True))
    group.release(await group.acquire(1), started=False)
    assert (await group.acquire(1)).instance.pod.name == "a"


async def test_the_mean_of_calls_counts_those_who_wait(group):
    group.put(instance("a", concurrency=1))
    group.sample()
    await group.acquire(1)
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(group.acquire(5))
        await clock.SYSTEM.sleep(0.05)
        mean, arrivals = group.sample()
        waiting.cancel()
    assert mean == pytest.approx(2.0, abs=0.3)
    assert arrivals == 2
