"""What every store promises (`motley.store.contract`), whatever keeps its bytes."""

import asyncio
from collections.abc import Sequence

import pytest

from motley.lib import clock
from motley.store import broadcast
from motley.store.contract import (
    MAX_OPS,
    Ahead,
    Closed,
    Compacted,
    Delete,
    Event,
    Mismatch,
    Put,
    Revision,
    Store,
    Watch,
)

NEW = Revision(0)


async def put(store: Store, key: str, value: bytes = b"v", expect: int | None = None) -> Revision:
    expected = None if expect is None else Revision(expect)
    return (await store.commit([Put(key, value, expected)])).revision


async def delete(store: Store, key: str, expect: int | None = None) -> Revision:
    expected = None if expect is None else Revision(expect)
    return (await store.commit([Delete(key, expected)])).revision


async def take(watch: Watch, count: int) -> list[Event]:
    """The next `count` events, however they are batched."""
    events: list[Event] = []
    async with asyncio.timeout(10):
        while len(events) < count:
            events += await anext(watch)
    assert len(events) == count
    return events


async def keys(store: Store, prefix: str, **options) -> list[str]:
    return [r.key for r in (await store.range(prefix, **options)).records]


def told(events: Sequence[Event]) -> list[tuple[int, str, bytes | None]]:
    return [(e.revision, e.key, e.value) for e in events]


class TestCommit:
    async def test_a_new_store_is_empty_and_at_revision_zero(self, store):
        assert await store.revision() == 0
        assert await store.get("/a") is None
        assert (await store.range("/")).records == []

    async def test_every_commit_gets_the_next_revision(self, store):
        assert [await put(store, k) for k in ("/a", "/b", "/a")] == [1, 2, 3]
        assert await store.revision() == 3

    async def test_a_record_carries_its_stamped_value_and_both_revisions(self, store):
        await put(store, "/a", b"one")
        await put(store, "/a", b"two")
        record = await store.get("/a")
        assert (record.value, record.revision, record.created) == (b"two@2", 2, 1)

    async def test_what_is_returned_is_what_is_read(self, store):
        done = await store.commit([Put("/a", b"one", NEW), Put("/b", b"two", NEW)])
        assert list(done.records) == [await store.get("/a"), await store.get("/b")]

    async def test_all_keys_of_a_transaction_share_one_revision(self, store):
        await put(store, "/old")
        done = await store.commit([Put("/a", b"x"), Delete("/old"), Put("/b", b"y")])
        assert done.revision == 2
        assert [r.revision for r in done.records] == [2, 2, 2]
        assert await keys(store, "/") == ["/a", "/b"]

    async def test_a_create_of_an_existing_key_is_refused_with_its_state(self, store):
        await put(store, "/a", b"mine")
        with pytest.raises(Mismatch) as refused:
            await put(store, "/a", b"yours", expect=0)
        assert refused.value.current == await store.get("/a")
        assert (await store.get("/a")).value == b"mine@1"

    async def test_a_stale_update_is_refused(self, store):
        first = await put(store, "/a")
        await put(store, "/a")
        with pytest.raises(Mismatch) as refused:
            await put(store, "/a", b"late", expect=first)
        assert refused.value.current.revision == 2

    async def test_an_update_of_a_missing_key_is_refused(self, store):
        with pytest.raises(Mismatch) as refused:
            await put(store, "/a", expect=7)
        assert refused.value.current is None

    async def test_a_deleted_key_is_gone_and_can_be_created_again(self, store):
        await put(store, "/a")
        await delete(store, "/a", expect=1)
        assert await store.get("/a") is None
        await put(store, "/a", expect=0)
        assert (await store.get("/a")).created == 3

    async def test_a_delete_returns_the_last_state_stamped_with_its_own_revision(self, store):
        await put(store, "/a", b"last")
        done = await store.commit([Delete("/a")])
        assert done.records[0].value == b"last@2"
        assert (done.records[0].revision, done.records[0].created) == (2, 1)

    async def test_a_delete_of_a_missing_key_is_refused(self, store):
        with pytest.raises(Mismatch) as refused:
            await delete(store, "/a")
        assert refused.value.current is None

    async def test_a_stale_delete_is_refused(self, store):
        await put(store, "/a")
        await put(store, "/a")
        with pytest.raises(Mismatch):
            await delete(store, "/a", expect=1)
        assert await store.get("/a") is not None

    async def test_a_refused_transaction_changes_nothing_and_costs_no_revision(self, store):
        await put(store, "/a")
        with pytest.raises(Mismatch):
            await store.commit([Put("/b", b"x"), Put("/a", b"y", Revision(99))])
        assert await store.get("/b") is None
        assert await store.revision() == 1
        assert await put(store, "/c") == 2

    async def test_one_refusal_does_not_hurt_those_committed_at_the_same_time(self, store):
        await put(store, "/taken")
        results = await asyncio.gather(
            *(put(store, f"/k{i}", expect=0) for i in range(20)),
            put(store, "/taken", expect=0),
            *(put(store, f"/k{i}", expect=0) for i in range(20, 40)),
            return_exceptions=True,
        )
        refused = [r for r in results if isinstance(r, BaseException)]
        assert [type(r) for r in refused] == [Mismatch]
        assert len(await keys(store, "/k")) == 40
        assert await store.revision() == 41

    async def test_of_concurrent_creates_of_one_key_exactly_one_succeeds(self, store):
        results = await asyncio.gather(
            *(put(store, "/a", b"%d" % i, expect=0) for i in range(16)), return_exceptions=True
        )
        winners = [i for i, r in enumerate(results) if not isinstance(r, BaseException)]
        assert len(winners) == 1
        assert (await store.get("/a")).value == b"%d@1" % winners[0]

    async def test_concurrent_updates_with_retries_lose_none(self, store):
        await put(store, "/counter", b"0")

        async def increment() -> None:
            while True:
                record = await store.get("/counter")
                number = int(record.value.partition(b"@")[0]) + 1
                try:
                    await put(store, "/counter", b"%d" % number, expect=record.revision)
                except Mismatch:
                    continue
                return

        await asyncio.gather(*(increment() for _ in range(20)))
        assert (await store.get("/counter")).value.startswith(b"20@")

    async def test_transactions_that_make_no_sense_are_refused(self, store):
        many = [Put(f"/{i}", b"") for i in range(MAX_OPS + 1)]
        for ops in ([], [Put("/a", b""), Delete("/a")], many, [Put("", b"")], [Put("\ud800", b"")]):
            with pytest.raises(ValueError):
                await store.commit(ops)
        assert len((await store.commit(many[:MAX_OPS])).records) == MAX_OPS

    async def test_keys_and_values_are_kept_byte_for_byte(self, store):
        value = bytes(b for b in range(256) if b != ord("@")) * 2000
        await put(store, "/ü\U0001f600 '\"\\", value)
        assert (await store.get("/ü\U0001f600 '\"\\")).value == value + b"@1"
        await put(store, "/empty", b"")
        assert (await store.get("/empty")).value == b"@2"

    async def test_a_closed_store_says_so(self, store):
        await store.close()
        with pytest.raises(Closed):
            await put(store, "/a")


class TestRange:
    async def test_a_range_is_in_key_order_and_only_of_its_prefix(self, store):
        for key in ("/b/2", "/a/1", "/b/10", "/c", "/b", "/b/\U0010ffff", "/b0"):
            await put(store, key)
        assert await keys(store, "/b/") == ["/b/10", "/b/2", "/b/\U0010ffff"]
        assert await keys(store, "/b") == ["/b", "/b/10", "/b/2", "/b/\U0010ffff", "/b0"]
        assert len(await keys(store, "")) == 7

    async def test_pages_of_one_moment_join_to_the_listing_of_that_moment(self, store):
        for i in range(10):
            await put(store, f"/p/{i}", b"old")
        first = await store.range("/p/", limit=4)
        assert (first.more, first.remaining, first.revision) == (True, 6, 10)
        await put(store, "/p/5", b"new")
        await delete(store, "/p/7")
        await put(store, "/p/55", b"new")
        await put(store, "/p/0", b"new")
        await put(store, "/other", b"new")
        found, page = list(first.records), first
        while page.more:
            start = found[-1].key + "\0"
            page = await store.range("/p/", start=start, limit=4, at=first.revision)
            assert page.revision == first.revision
            found += page.records
        assert page.remaining == 0
        assert [(r.key, r.value) for r in found] == [
            (f"/p/{i}", b"old@%d" % (i + 1)) for i in range(10)
        ]

    async def test_a_listing_of_the_future_is_refused(self, store):
        await put(store, "/a")
        with pytest.raises(Ahead):
            await store.range("/", at=Revision(2))

    async def test_a_listing_of_the_past_has_what_was_deleted_since(self, store):
        await put(store, "/a")
        await put(store, "/b")
        await delete(store, "/a")
        await put(store, "/a", b"again")
        assert await keys(store, "/", at=Revision(0)) == []
        assert await keys(store, "/", at=Revision(1)) == ["/a"]
        assert await keys(store, "/", at=Revision(3)) == ["/b"]
        assert (await store.range("/", at=Revision(2))).records[0].value == b"v@1"


class TestWatch:
    async def test_a_watch_tells_every_change_with_the_state_before(self, store):
        watch = store.watch("/", Revision(0))
        await put(store, "/a", b"one")
        await put(store, "/a", b"two")
        await delete(store, "/a")
        created, changed, deleted = await take(watch, 3)
        assert (created.value, created.previous, created.last_state) == (b"one@1", None, b"one@1")
        assert (changed.value, changed.previous.value) == (b"two@2", b"one@1")
        assert (deleted.value, deleted.previous.value) == (None, b"two@2")
        assert deleted.last_state == b"two@3"
        assert [e.created for e in (created, changed, deleted)] == [1, 1, 1]
        await watch.aclose()

    async def test_history_and_live_events_join_without_gap_or_repetition(self, store):
        for i in range(5):
            await put(store, f"/w/{i}")
        watch = store.watch("/w/", Revision(2))
        assert [e.revision for e in await take(watch, 3)] == [3, 4, 5]
        await put(store, "/w/live")
        assert [e.revision for e in await take(watch, 1)] == [6]
        await watch.aclose()

    async def test_a_watch_started_amid_writes_misses_nothing(self, store):
        async def write() -> None:
            for i in range(200):
                await put(store, f"/w/{i % 7}", b"%d" % i)
                await clock.SYSTEM.sleep(0)

        async with asyncio.TaskGroup() as group:
            group.create_task(write())
            while await store.revision() < 50:
                await clock.SYSTEM.sleep(0)
            watch = store.watch("/w/", Revision(20))
            events = await take(watch, 180)
        assert [e.revision for e in events] == list(range(21, 201))
        await watch.aclose()

    async def test_a_watch_sees_only_its_prefix_but_knows_of_progress(self, store):
        watch = store.watch("/mine/", Revision(0))
        await put(store, "/other/a")
        await put(store, "/mine/a")
        assert watch.revision < 2
        assert [e.key for e in await take(watch, 1)] == ["/mine/a"]
        await put(store, "/other/b")
        assert await store.revision() == 3  # from here on every watch knows
        assert watch.revision == 3
        await watch.aclose()

    async def test_the_events_of_one_transaction_come_together(self, store):
        watch = store.watch("/", Revision(0))
        await store.commit([Put("/b", b"x"), Put("/a", b"y")])
        batch = await asyncio.wait_for(anext(watch), 10)
        assert told(batch) == [(1, "/b", b"x@1"), (1, "/a", b"y@1")]
        await watch.aclose()

    async def test_an_event_is_told_only_when_it_can_be_read(self, store):
        watch = store.watch("/", Revision(0))

        async def write() -> None:
            for i in range(50):
                await put(store, f"/{i}")

        async with asyncio.TaskGroup() as group:
            group.create_task(write())
            seen = 0
            while seen < 50:
                for event in await asyncio.wait_for(anext(watch), 10):
                    assert (await store.get(event.key)).revision == event.revision
                    seen += 1
        await watch.aclose()

    async def test_a_watch_of_the_future_skips_what_comes_before_it(self, store):
        watch = store.watch("/", Revision(2))
        for key in ("/a", "/b", "/c"):
            await put(store, key)
        assert [e.revision for e in await take(watch, 1)] == [3]
        await watch.aclose()

    async def test_a_reader_that_falls_behind_still_gets_everything(self, store, monkeypatch):
        monkeypatch.setattr(broadcast, "PENDING", 10)
        monkeypatch.setattr(broadcast, "SLICE", 7)
        watch = store.watch("/", Revision(0))
        for i in range(100):
            await put(store, f"/{i % 9}")
        assert watch.revision == 0
        assert [e.revision for e in await take(watch, 100)] == list(range(1, 101))
        await put(store, "/live")
        assert [e.revision for e in await take(watch, 1)] == [101]
        await watch.aclose()

    async def test_a_cancelled_reader_can_go_on_reading(self, store):
        watch = store.watch("/", Revision(0))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(watch), 0.01)
        await put(store, "/a")
        assert [e.key for e in await take(watch, 1)] == ["/a"]
        await watch.aclose()

    async def test_closing_the_store_ends_its_watches(self, store):
        watch = store.watch("/", Revision(0))
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(_ends_closed(watch))
            await put(store, "/a")
            await store.close()
        assert reading.result()


async def _ends_closed(watch: Watch) -> bool:
    with pytest.raises(Closed):
        async for _ in watch:
            pass
    return True


class TestCompact:
    async def test_the_latest_state_survives_compaction(self, store):
        for i in range(6):
            await put(store, f"/{i % 3}", b"%d" % i)
        await delete(store, "/0")
        await store.compact(Revision(7))
        assert [(r.key, r.value, r.created) for r in (await store.range("/")).records] == [
            ("/1", b"4@5", 2),
            ("/2", b"5@6", 3),
        ]

    async def test_a_watch_or_listing_from_a_compacted_revision_says_gone(self, store):
        for i in range(5):
            await put(store, f"/{i}")
        await store.compact(Revision(3))
        assert await store.oldest() == 3
        watch = store.watch("/", Revision(2))
        with pytest.raises(Compacted) as gone:
            await anext(watch)
        assert gone.value.oldest == 3
        with pytest.raises(Compacted):
            await store.range("/", at=Revision(2))
        with pytest.raises(Compacted):  # also where nothing can be
            await store.range("/a", start="/b", at=Revision(2))
        await watch.aclose()

    async def test_the_compacted_revision_itself_can_still_be_listed_and_watched(self, store):
        for i in range(5):
            await put(store, "/a", b"%d" % i)
        await delete(store, "/a")
        await store.compact(Revision(3))
        assert (await store.range("/", at=Revision(3))).records[0].value == b"2@3"
        watch = store.watch("/", Revision(3))
        events = await take(watch, 3)
        assert [e.previous.value for e in events] == [b"2@3", b"3@4", b"4@5"]
        await watch.aclose()

    async def test_compaction_goes_only_forward(self, store):
        for _ in range(5):
            await put(store, "/a")
        await store.compact(Revision(4))
        await store.compact(Revision(2))
        assert await store.oldest() == 4
        with pytest.raises(Ahead):
            await store.compact(Revision(6))

    async def test_revisions_go_on_after_everything_was_deleted_and_compacted(self, store):
        await put(store, "/a")
        await delete(store, "/a")
        await store.compact(Revision(2))
        assert await store.revision() == 2
        assert await put(store, "/a", expect=0) == 3

    async def test_commits_pass_while_a_long_history_is_compacted(self, store):
        for i in range(600):
            await store.commit([Put(f"/{i % 5}", b"x"), Put(f"/n/{i % 3}", b"y")])
        async with asyncio.TaskGroup() as group:
            compacting = group.create_task(store.compact(Revision(600)))
            during = 0
            while not compacting.done():
                await put(store, "/during", b"%d" % during)
                during += 1
                await clock.SYSTEM.sleep(0)
                if during > 10_000:
                    raise AssertionError("compaction does not end")
        assert len(await keys(store, "/")) == 8 + (during > 0)
