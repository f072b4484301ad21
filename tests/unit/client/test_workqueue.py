import asyncio
from random import Random

import pytest

from motley.client.workqueue import Closed, WorkQueue

pytestmark = pytest.mark.looptime


@pytest.fixture
def queue(clock):
    return WorkQueue(clock, rng=Random(1))


async def test_a_key_added_twice_is_given_out_once(queue):
    queue.add("a")
    queue.add("a")
    queue.add("b")
    assert [await queue.get(), await queue.get()] == ["a", "b"]
    assert len(queue) == 0


async def test_a_key_in_work_is_not_given_to_a_second_worker(queue):
    queue.add("a")
    await queue.get()
    queue.add("a")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queue.get(), 10)
    queue.done("a")
    assert await asyncio.wait_for(queue.get(), 10) == "a"


async def test_a_key_not_added_again_is_finished_when_done(queue):
    queue.add("a")
    queue.done(await queue.get())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queue.get(), 10)


async def test_get_blocks_until_something_is_added(queue, looptime):
    async def later():
        await asyncio.sleep(7)  # noqa: TID251
        queue.add("a")

    async with asyncio.TaskGroup() as group:
        group.create_task(later())
        assert await queue.get() == "a"
    assert looptime == 7


async def test_a_delayed_key_comes_after_its_delay(queue, looptime):
    queue.add_after("a", 5)
    assert await queue.get() == "a"
    assert looptime == 5


async def test_the_shortest_of_several_delays_counts(queue, looptime):
    queue.add_after("a", 50)
    queue.add_after("a", 5)
    queue.add_after("a", 500)
    queue.done(await queue.get())
    assert looptime == 5
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queue.get(), 1000)


async def test_a_shorter_delay_added_while_a_worker_waits_wakes_it(queue, looptime):
    queue.add_after("late", 100)

    async def later():
        await asyncio.sleep(1)  # noqa: TID251
        queue.add_after("early", 2)

    async with asyncio.TaskGroup() as group:
        group.create_task(later())
        assert await queue.get() == "early"
    assert looptime == 3


async def test_retries_wait_longer_each_time_and_start_anew_after_forget(queue, looptime):
    waits = []
    for _ in range(6):
        before = float(looptime)
        queue.retry("a")
        queue.done(await queue.get())
        waits.append(float(looptime) - before)
    assert waits == sorted(waits)
    assert waits[5] > 10 * waits[0]
    assert queue.failures("a") == 6
    queue.forget("a")
    before = float(looptime)
    queue.retry("a")
    await queue.get()
    assert float(looptime) - before <= 0.005


async def test_close_lets_workers_drain_and_then_ends_them(queue):
    queue.add("a")
    queue.add_after("never", 5)
    queue.close()
    queue.add("refused")
    assert await queue.get() == "a"
    with pytest.raises(Closed):
        await queue.get()


async def test_close_ends_workers_that_wait(queue):
    async def worker():
        with pytest.raises(Closed):
            await queue.get()
        return True

    async with asyncio.TaskGroup() as group:
        workers = [group.create_task(worker()) for _ in range(3)]
        await asyncio.sleep(1)  # noqa: TID251
        queue.close()
    assert all(w.result() for w in workers)


async def test_a_cancelled_worker_passes_its_wake_up_on(queue):
    async with asyncio.TaskGroup() as group:
        first = group.create_task(queue.get())
        second = group.create_task(queue.get())
        await asyncio.sleep(1)  # noqa: TID251
        queue.add("a")  # wakes the first …
        first.cancel()  # … which leaves before it runs
        assert await asyncio.wait_for(asyncio.shield(second), 20) == "a"


async def test_many_workers_never_share_a_key_and_lose_none(queue):
    rng = Random(7)
    busy, done = set(), {}

    async def worker():
        while True:
            try:
                key = await queue.get()
            except Closed:
                return
            assert key not in busy
            busy.add(key)
            await asyncio.sleep(rng.random())  # noqa: TID251
            busy.discard(key)
            done[key] = asyncio.get_running_loop().time()
            queue.done(key)

    last_added = {}
    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(worker())
        for _ in range(300):
            key = rng.randrange(20)
            last_added[key] = asyncio.get_running_loop().time()
            queue.add(key) if rng.random() < 0.5 else queue.add_after(key, rng.random() * 3)
            await asyncio.sleep(rng.random() * 0.2)  # noqa: TID251
        await asyncio.sleep(60)  # noqa: TID251
        queue.close()
    assert all(done[key] > added for key, added in last_added.items())


class Meter:
    def __init__(self):
        self.seen = []

    def added(self, depth):
        self.seen.append(("added", depth))

    def taken(self, depth, waited_s):
        self.seen.append(("taken", depth, waited_s))

    def done(self, worked_s):
        self.seen.append(("done", worked_s))

    def retried(self):
        self.seen.append(("retried",))


async def test_a_meter_is_told_how_long_keys_waited_and_were_worked_on(queue, clock):
    meter = queue.meter = Meter()
    queue.add("a")
    queue.add("b")
    await clock.sleep(3)
    key = await queue.get()
    await clock.sleep(5)
    assert queue.unfinished_s() == [5]
    queue.add(key)  # waits only from the end of the work on
    queue.retry("b")
    queue.done(key)
    assert queue.unfinished_s() == []
    assert meter.seen == [
        ("added", 1),
        ("added", 2),
        ("taken", 1, 3),
        ("retried",),
        ("done", 5),
        ("added", 2),
    ]
