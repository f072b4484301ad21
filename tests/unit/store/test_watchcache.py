"""The watch cache: list and watch agree, watchers cost nobody anything, slow ones are cut off."""

import asyncio
import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motley.lib import clock
from motley.store import watchcache
from motley.store.contract import Ahead, Compacted, Delete, Put, Revision
from motley.store.memory import MemoryStore
from motley.store.sqlite import SqliteStore
from motley.store.watchcache import WatchCache

PODS = "/pods/"


def stamp(value, revision):
    return b"%s@%d" % (value.partition(b"@")[0], revision)


def label(key, value):
    """The attributes of these tests: the value's text before its stamp."""
    return value.partition(b"@")[0].decode()


@contextlib.asynccontextmanager
async def running(store, capacity=100, attributes=label):
    cache = WatchCache(store, PODS, attributes, capacity)
    async with asyncio.TaskGroup() as group:
        following = group.create_task(cache.run())
        await asyncio.wait_for(cache.ready(), 20)
        yield cache
        following.cancel()


@pytest.fixture
async def store():
    return MemoryStore(stamp)


@pytest.fixture
async def cache(store):
    async with running(store) as cache:
        yield cache


async def put(store, key, value=b"x"):
    return (await store.commit([Put(key, value)])).revision


async def take(cursor, count):
    events = []
    async with asyncio.timeout(20):
        while len(events) < count:
            events += await anext(cursor)
    assert len(events) == count
    return events


async def settle():
    """Let every task that can run, run."""
    for _ in range(10):
        await clock.SYSTEM.sleep(0)


async def test_a_write_is_visible_after_waiting_for_its_revision(store, cache):
    revision = await put(store, "/pods/a/1", b"red")
    await cache.wait_until(revision)
    found = cache.get("/pods/a/1")
    assert (found.record.value, found.attributes) == (b"red@1", "red")
    assert found.record == await store.get("/pods/a/1")


async def test_listing_is_in_key_order_with_pages_and_namespaces(store, cache):
    for key in ("/pods/b/1", "/pods/a/2", "/pods/a/1", "/nodes/n"):
        revision = await put(store, key)
    await cache.wait_until(revision)
    assert [c.record.key for c in cache.list().items] == ["/pods/a/1", "/pods/a/2", "/pods/b/1"]
    assert [c.record.key for c in cache.list("/pods/a/").items] == ["/pods/a/1", "/pods/a/2"]
    page = cache.list(limit=2)
    assert (len(page.items), page.remaining, page.revision) == (2, 1, 4)
    rest = cache.list(start=page.items[-1].record.key + "\0")
    assert [c.record.key for c in rest.items] == ["/pods/b/1"]


async def test_the_revision_moves_on_with_other_resources(store, cache):
    await put(store, "/pods/a")
    last = await put(store, "/nodes/n")
    await cache.wait_until(last)
    assert cache.revision == last
    cursor = cache.watch(last)
    last = await put(store, "/nodes/n")
    assert cursor.revision == last


async def test_waiting_for_a_revision_that_does_not_come_ends(cache):
    with pytest.raises(Ahead):
        await cache.wait_until(Revision(7), timeout_s=0.05)


async def test_waiting_for_a_revision_of_another_resource_ends_when_it_comes(store, cache):
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        group.create_task(cache.wait_until(Revision(2)))
        await settle()
        await put(store, "/nodes/a")
        await put(store, "/nodes/b")


async def test_an_event_carries_the_attributes_before_and_after(store, cache):
    cursor = cache.watch(Revision(0))
    await put(store, "/pods/a", b"red")
    await put(store, "/pods/a", b"blue")
    await store.commit([Delete("/pods/a")])
    added, changed, deleted = await take(cursor, 3)
    assert (added.attributes, added.previous, added.deleted) == ("red", None, False)
    assert (changed.attributes, changed.previous.attributes) == ("blue", "red")
    assert changed.previous.record.value == b"red@1"
    assert (deleted.attributes, deleted.previous.attributes) == ("blue", "blue")
    assert (deleted.value, deleted.deleted) == (b"blue@3", True)
    assert cache.get("/pods/a") is None


async def test_attributes_are_computed_once_per_change_whatever_the_watchers(store):
    calls = []

    def counted(key, value):
        calls.append(key)
        return label(key, value)

    await put(store, "/pods/before")
    async with running(store, attributes=counted) as cache:
        cursors = [cache.watch(Revision(1)) for _ in range(20)]
        await put(store, "/pods/a")
        await put(store, "/pods/b")
        seen = [await take(cursor, 2) for cursor in cursors]
        cache.list()
    assert calls == ["/pods/before", "/pods/a", "/pods/b"]
    assert all(a is b for events in seen for a, b in zip(events, seen[0], strict=True))


async def test_watchers_get_what_came_since_their_last_look_as_one_batch(store, cache):
    cursor = cache.watch(Revision(0))
    for i in range(10):
        await put(store, f"/pods/{i}")
    await cache.wait_until(Revision(10))
    assert len(await anext(cursor)) == 10
    assert cursor.take() == ()


async def test_a_watch_resumes_from_any_revision_in_the_ring(store, cache):
    for i in range(10):
        await put(store, f"/pods/{i}")
    await cache.wait_until(Revision(10))
    for after in range(11):
        events = cache.watch(Revision(after)).take()
        assert [e.revision for e in events] == list(range(after + 1, 11))
        assert list(cache.events_since(Revision(after))) == list(events)
    with pytest.raises(Ahead):
        cache.watch(Revision(11))


async def test_a_watcher_is_woken_only_by_what_it_wants(store, cache):
    woken = []

    async def follow(cursor):
        while events := await anext(cursor):
            woken.append([e.key for e in events])

    red = cache.watch(Revision(0), wanted=lambda e: e.attributes == "red")
    team = cache.watch(Revision(0), prefix="/pods/team/")
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(follow(c)) for c in (red, team)]
        await settle()
        for i in range(500):  # far more than the ring holds: quiet watchers are not cut off
            await put(store, f"/pods/other/{i}", b"blue")
            await clock.SYSTEM.sleep(0)
        await settle()
        assert woken == []
        assert red.revision == team.revision == 500
        await put(store, "/pods/team/1", b"blue")
        await settle()
        await put(store, "/pods/other/1", b"red")
        await settle()
        assert woken == [["/pods/team/1"], ["/pods/other/1"]]
        for task in tasks:
            task.cancel()


async def test_a_watcher_that_the_ring_passed_is_cut_off_and_others_are_not(store):
    async with running(store, capacity=10) as cache:
        slow, quick = cache.watch(Revision(0)), cache.watch(Revision(0))
        got = 0
        for i in range(50):
            await put(store, f"/pods/{i}")
            await cache.wait_until(Revision(i + 1))
            got += len(await anext(quick))
        assert got == 50
        with pytest.raises(Compacted) as gone:
            await anext(slow)
        assert gone.value.oldest == cache.horizon
        with pytest.raises(Compacted):
            cache.watch(Revision(1))
        with pytest.raises(Compacted):
            cache.events_since(Revision(cache.horizon - 1))
        assert 10 <= len(cache.events_since(cache.horizon)) < 20
        assert len(cache.list().items) == 50


async def test_a_closed_cursor_is_no_longer_offered_anything(store, cache):
    asked = []
    cursor = cache.watch(Revision(0), wanted=lambda e: asked.append(e) is None)
    waiting = asyncio.ensure_future(anext(cursor))
    await settle()
    await put(store, "/pods/a")
    await waiting
    cursor.close()
    count = len(asked)
    await put(store, "/pods/b")
    await cache.wait_until(Revision(2))
    assert len(asked) == count


async def test_a_shortcut_gets_what_a_waiting_reader_wants_and_lets_it_sleep(store, cache):
    passed = []
    cursor = cache.watch(Revision(0), wanted=lambda e: e.attributes != "noise")
    cursor.shortcut = lambda events: passed.extend(e.attributes for e in events) or True
    await put(store, "/pods/early", b"early")
    await settle()
    assert passed == []  # nobody waits: the reader will take it
    assert [e.attributes for e in await take(cursor, 1)] == ["early"]

    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        reading = group.create_task(take(cursor, 1))
        await settle()
        await put(store, "/pods/a", b"one")
        await put(store, "/pods/b", b"noise")
        last = await put(store, "/pods/c", b"two")
        await settle()
        assert passed == ["one", "two"]
        assert cursor.revision == last
        cursor.shortcut = lambda events: False
        await put(store, "/pods/d", b"three")
    assert [e.attributes for e in reading.result()] == ["three"]
    assert passed == ["one", "two"]


async def test_encodings_are_shared_by_all_watchers(store, cache):
    first, second = cache.watch(Revision(0)), cache.watch(Revision(0))
    await put(store, "/pods/a")
    (event,) = await take(first, 1)
    event.encodings["json"] = b"{}"
    (same,) = await take(second, 1)
    assert same.encodings == {"json": b"{}"}
    await put(store, "/pods/b")
    (other,) = await take(first, 1)
    assert other.encodings == {}


async def test_encodings_are_kept_only_of_the_last_changes(store, monkeypatch):
    monkeypatch.setattr(watchcache, "FOLLOWED", 3)
    seen = []
    async with running(store, capacity=5) as cache:
        cursor = cache.watch(Revision(0))
        for number in range(30):  # the ring is cut several times meanwhile
            await put(store, f"/pods/{number}")
            (event,) = await take(cursor, 1)
            event.encodings["json"] = b"{}"
            seen.append(event)
    assert [bool(event.encodings) for event in seen] == [False] * 27 + [True] * 3


async def test_after_a_restart_watchers_resume_where_they_were(tmp_path):
    store = await SqliteStore.open(tmp_path / "store.db", stamp=stamp)
    for i in range(30):
        await put(store, f"/pods/{i % 4}", b"%d" % i)
        await put(store, f"/nodes/{i % 4}", b"%d" % i)
    await store.close()
    store = await SqliteStore.open(tmp_path / "store.db", stamp=stamp)
    async with running(store, capacity=20) as cache:
        assert cache.revision == 60
        assert cache.horizon == 40
        assert [e.revision for e in cache.watch(Revision(44)).take()] == list(range(45, 60, 2))
        assert [c.attributes for c in cache.list().items] == ["28", "29", "26", "27"]
    await store.close()


async def test_after_a_restart_a_resource_without_recent_changes_is_ready_too(tmp_path):
    store = await SqliteStore.open(tmp_path / "store.db", stamp=stamp)
    await put(store, "/pods/a")
    for _ in range(40):
        await put(store, "/nodes/a")
    async with running(store, capacity=20) as cache:
        assert cache.revision == 41
        assert len(cache.list().items) == 1
    await store.close()


async def test_compaction_before_the_start_shortens_the_ring_only(store):
    for i in range(10):
        await put(store, f"/pods/{i}")
    await store.compact(Revision(8))
    async with running(store) as cache:
        assert cache.horizon == 8
        assert len(cache.list().items) == 10
        with pytest.raises(Compacted):
            cache.watch(Revision(7))


async def test_a_cache_that_loses_the_store_lists_again_and_cuts_its_watchers_off(store):
    async with running(store) as cache:
        await put(store, "/pods/old")
        await cache.wait_until(Revision(1))
        cursor = cache.watch(Revision(1))
        waiting = asyncio.ensure_future(anext(cursor))
        await settle()
        # As when the store's log was compacted past a cache that could not keep up.
        subscription = cache._watch
        subscription._position, subscription._live_from = Revision(0), Revision(1)
        await store.compact(Revision(1))
        subscription.wake()
        with pytest.raises(Compacted):
            await asyncio.wait_for(waiting, 20)
        last = await put(store, "/pods/new")
        await cache.wait_until(last)
        assert [c.record.key for c in cache.list().items] == ["/pods/new", "/pods/old"]
        assert [e.key for e in cache.watch(Revision(1)).take()] == ["/pods/new"]


WRITES = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["red", "blue", None])))


@settings(max_examples=60, deadline=None)
@given(writes=WRITES, pauses=st.lists(st.booleans(), min_size=20, max_size=20))
async def test_a_selecting_watcher_that_applies_its_events_has_the_selected_listing(writes, pauses):
    """What the API server does for a label selector, with nothing but an event's attributes."""
    store = MemoryStore(stamp)
    selected: set[str] = set()

    def apply(event):
        now = not event.deleted and event.attributes == "red"
        before = event.previous is not None and event.previous.attributes == "red"
        if now and not before:
            assert event.key not in selected
            selected.add(event.key)
        elif before and not now:
            selected.remove(event.key)

    async with running(store, capacity=1000) as cache:
        cursor = cache.watch(Revision(0))
        present: dict[str, str] = {}
        for number, (name, value) in enumerate(writes):
            key = f"/pods/{name}"
            if value is not None:
                await put(store, key, value.encode())
                present[key] = value
            elif present.pop(key, None) is not None:
                await store.commit([Delete(key)])
            if pauses[number % len(pauses)]:
                await cache.wait_until(await store.revision())
                for event in cursor.take():
                    apply(event)
        await cache.wait_until(await store.revision())
        for event in cursor.take():
            apply(event)
    assert selected == {k for k, v in present.items() if v == "red"}
