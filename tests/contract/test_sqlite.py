"""What the SQLite store promises beyond the contract: files, disks, locks and restarts."""

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys
import threading

import pytest

from motley.lib import clock
from motley.store import sqlite as sqlite_module
from motley.store import sqlitelog
from motley.store.contract import (
    Closed,
    Compacted,
    Corrupt,
    Delete,
    Failed,
    Full,
    Locked,
    Mismatch,
    Put,
    Revision,
)
from motley.store.sqlite import SqliteStore

VALUE = b"x" * 2000

HOLDER = """
import asyncio, sys
from motley.store.sqlite import SqliteStore
async def main():
    await SqliteStore.open(sys.argv[1])
    print("open", flush=True)
    sys.stdin.read()
asyncio.run(main())
"""


async def fill(store, count, prefix="/k/", value=VALUE):
    await asyncio.gather(*(store.commit([Put(f"{prefix}{i}", value)]) for i in range(count)))


@pytest.fixture
def small_disk(tmp_path):
    mount = tmp_path / "small"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "motley-test", mount], check=True)
    yield mount
    subprocess.run(["umount", "--lazy", mount], check=True)


async def listing(store):
    return list((await store.range("")).records)


def rows_in(path):
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT count(*) FROM log").fetchone()[0]


def corrupt(path, offset, data=b"\xff" * 4096):
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


async def test_state_history_and_revision_survive_a_restart(tmp_path):
    path = tmp_path / "store.db"
    store = await SqliteStore.open(path)
    await fill(store, 10)
    await store.commit([Delete("/k/3")])
    await store.commit([Put("/k/4", b"new"), Put("/k/new", b"new")])
    before = await listing(store)
    then = await store.range("", at=Revision(10))
    await store.close()
    store = await SqliteStore.open(path)
    assert await store.revision() == 12
    assert await listing(store) == before
    assert list((await store.range("", at=Revision(10))).records) == list(then.records)
    watch = store.watch("", Revision(10))
    assert [e.key for e in await anext(watch)] == ["/k/3", "/k/4", "/k/new"]
    await store.close()


async def test_compaction_survives_a_restart_and_revisions_do_not_go_back(tmp_path):
    path = tmp_path / "store.db"
    store = await SqliteStore.open(path)
    await fill(store, 5)
    for i in range(5):
        await store.commit([Delete(f"/k/{i}")])
    await store.compact(Revision(10))
    await store.close()
    store = await SqliteStore.open(path)
    assert await listing(store) == []
    assert await store.revision() == await store.oldest() == 10
    with pytest.raises(Compacted):
        await store.range("", at=Revision(9))
    assert (await store.commit([Put("/a", b"")])).revision == 11
    await store.close()
    assert rows_in(path) == 1


async def test_compaction_gives_space_back_to_later_writes(tmp_path):
    path = tmp_path / "store.db"
    store = await SqliteStore.open(path)

    async def rewrite():
        for _ in range(30):
            await fill(store, 10)
        await store.compact(await store.revision())
        await store.close()
        return await SqliteStore.open(path), path.stat().st_size

    store, first = await rewrite()
    for _ in range(3):
        store, size = await rewrite()
    assert size <= first * 1.1
    await store.close()
    assert rows_in(path) == 10


async def test_an_interrupted_compaction_is_finished_by_the_next(tmp_path):
    path = tmp_path / "store.db"
    store = await SqliteStore.open(path)
    for _ in range(20):
        await fill(store, 2)
    await store.close()
    file = sqlitelog.LogFile(path)
    file.compact(Revision(39))
    assert file.sweep(10)
    file.close()
    store = await SqliteStore.open(path)
    assert await store.oldest() == 39
    assert len(await listing(store)) == 2
    await store.compact(Revision(39))
    await store.close()
    assert rows_in(path) == 3


async def test_a_commit_waits_for_the_disk(sqlite):
    settings = {}

    def ask(file):
        for name in ("journal_mode", "synchronous"):
            (settings[name],) = file._db.execute(f"PRAGMA {name}").fetchone()

    await sqlite._with_file(ask)
    assert settings == {"journal_mode": "wal", "synchronous": 2}


async def test_commits_that_wait_together_are_one_transaction_on_disk(sqlite, monkeypatch):
    groups = []
    append = sqlitelog.LogFile.append

    def counted(self, events):
        groups.append(len(events))
        append(self, events)

    monkeypatch.setattr(sqlitelog.LogFile, "append", counted)
    began, gate = threading.Event(), threading.Event()

    def hold(file):
        began.set()
        return gate.wait(10)

    held = asyncio.ensure_future(sqlite._with_file(hold))
    while not began.is_set():
        await clock.SYSTEM.sleep(0.001)
    writes = asyncio.gather(*(sqlite.commit([Put(f"/{i}", b"")]) for i in range(100)))
    await clock.SYSTEM.sleep(0)  # all of them are in the queue now
    gate.set()
    done = await writes
    assert await held
    assert [d.revision for d in done] == list(range(1, 101))
    assert groups == [100]


async def test_a_group_checks_each_transaction_on_top_of_those_before_it(sqlite):
    """All of these wait for one fsync, and each already counts for the next."""
    results = await asyncio.gather(
        sqlite.commit([Put("/a", b"1", Revision(0))]),
        sqlite.commit([Put("/a", b"2", Revision(1))]),
        sqlite.commit([Put("/a", b"lost", Revision(1))]),
        sqlite.commit([Delete("/a", Revision(2))]),
        sqlite.commit([Delete("/a")]),
        sqlite.commit([Put("/a", b"3", Revision(0))]),
        return_exceptions=True,
    )
    assert [type(r) is Mismatch for r in results] == [False, False, True, False, True, False]
    assert results[2].current.revision == 2
    assert results[4].current is None
    assert [(r.value, r.created) for r in await listing(sqlite)] == [(b"3@4", 4)]


async def test_a_value_that_cannot_be_stamped_hurts_only_its_writer(tmp_path):
    def picky(value, revision):
        if value == b"bad":
            raise ArithmeticError("no")
        return value

    store = await SqliteStore.open(tmp_path / "store.db", stamp=picky)
    results = await asyncio.gather(
        store.commit([Put("/a", b"good")]),
        store.commit([Put("/b", b"bad")]),
        store.commit([Put("/c", b"good")]),
        return_exceptions=True,
    )
    assert [type(r) is ArithmeticError for r in results] == [False, True, False]
    assert [r.key for r in await listing(store)] == ["/a", "/c"]
    await store.close()


async def test_a_large_group_of_large_transactions_is_still_one_transaction(sqlite):
    many = [[Put(f"/{n}/{i}", b"") for i in range(128)] for n in range(60)]
    await asyncio.gather(*(sqlite.commit(ops) for ops in many))
    assert len(await listing(sqlite)) == 60 * 128


async def test_a_cancelled_caller_does_not_disturb_the_others(sqlite):
    first = asyncio.ensure_future(sqlite.commit([Put("/a", b"")]))
    second = asyncio.ensure_future(sqlite.commit([Put("/b", b"")]))
    await asyncio.wait([first], timeout=0)
    first.cancel()
    await second
    assert (await sqlite.get("/b")) is not None
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_what_is_under_way_when_the_store_closes_is_finished(tmp_path):
    store = await SqliteStore.open(tmp_path / "store.db")
    writes = [asyncio.ensure_future(store.commit([Put(f"/{i}", b"")])) for i in range(50)]
    await asyncio.wait(writes, timeout=0)
    await store.close()
    await asyncio.gather(*writes)
    store = await SqliteStore.open(tmp_path / "store.db")
    assert len(await listing(store)) == 50
    await store.close()
    await store.close()


async def test_more_callers_than_places_wait_and_all_are_served(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite_module, "WAITING", 4)
    store = await SqliteStore.open(tmp_path / "store.db")
    await fill(store, 50, value=b"")
    assert len(await listing(store)) == 50
    waiting = [asyncio.ensure_future(store.commit([Put(f"/{i}", b"")])) for i in range(9)]
    await asyncio.wait(waiting, timeout=0)
    await store.close()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(r) for r in results if isinstance(r, Exception)} == {Closed}


class TestRefusals:
    async def test_a_second_opener_is_refused_by_name(self, sqlite, tmp_path):
        with pytest.raises(Locked, match=f"process {os.getpid()}"):
            await SqliteStore.open(tmp_path / "store.db")
        assert (await sqlite.commit([Put("/a", b"")])).revision == 1

    async def test_a_second_process_is_refused_and_the_lock_ends_with_its_holder(self, tmp_path):
        path = tmp_path / "store.db"
        other = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", HOLDER, path),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            assert await other.stdout.readline() == b"open\n"
            with pytest.raises(Locked, match=f"process {other.pid}"):
                await SqliteStore.open(path)
        finally:
            other.kill()
            await other.communicate()
        store = await SqliteStore.open(path)
        await store.close()

    async def damaged(self, tmp_path):
        path = tmp_path / "store.db"
        store = await SqliteStore.open(path)
        await fill(store, 100)
        await store.close()
        return path

    async def refused(self, path, match="store.db"):
        before = path.read_bytes()
        with pytest.raises(Corrupt, match=match):
            await SqliteStore.open(path)
        assert path.read_bytes() == before

    async def test_a_file_that_is_no_database_is_refused_and_left_alone(self, tmp_path):
        path = tmp_path / "store.db"
        path.write_bytes(b"precious notes\n" * 1000)
        await self.refused(path)

    async def test_another_programs_database_is_refused_and_left_alone(self, tmp_path):
        path = tmp_path / "store.db"
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE log (mine)")
        connection.close()
        await self.refused(path, "not a Motley store")

    async def test_a_store_of_a_newer_format_is_refused(self, tmp_path):
        path = await self.damaged(tmp_path)
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA user_version = 99")
        connection.close()
        await self.refused(path, "format 99")

    @pytest.mark.parametrize("page", [1, 2, 7, 15])
    async def test_a_damaged_page_is_found_and_left_alone(self, tmp_path, page):
        path = await self.damaged(tmp_path)
        corrupt(path, page * sqlitelog.PAGE_BYTES)
        await self.refused(path)

    async def test_a_damaged_header_is_found_and_left_alone(self, tmp_path):
        path = await self.damaged(tmp_path)
        corrupt(path, 0, b"\0" * 100)
        await self.refused(path)

    async def test_a_cut_off_file_is_found_and_left_alone(self, tmp_path):
        path = await self.damaged(tmp_path)
        os.truncate(path, path.stat().st_size // 2)
        await self.refused(path)

    async def test_an_emptied_file_does_not_cost_the_write_ahead_log(self, tmp_path):
        path = tmp_path / "store.db"
        path.write_bytes(b"")
        wal = tmp_path / "store.db-wal"
        wal.write_bytes(b"frames")
        await self.refused(path, "write-ahead log")
        assert wal.read_bytes() == b"frames"

    async def test_a_history_with_a_missing_link_is_refused(self, tmp_path):
        path = tmp_path / "store.db"
        store = await SqliteStore.open(path)
        for _ in range(3):
            await store.commit([Put("/a", b"")])
        await store.close()
        connection = sqlite3.connect(path)
        connection.execute("DELETE FROM log WHERE id = 2000")
        connection.commit()
        connection.close()
        await self.refused(path, "history of /a breaks at revision 3")


class TestFullDisk:
    async def write_until_full(self, store, keys=10_000):
        for written in range(10_000):
            try:
                await store.commit([Put(f"/k/{written % keys}", VALUE)])
            except Full:
                return written
        raise AssertionError("the disk does not fill")

    async def goes_on_after_full(self, store, make_space):
        watch = store.watch("", Revision(0))
        written = await self.write_until_full(store)
        assert await store.revision() == written
        assert len(await listing(store)) == written
        results = await asyncio.gather(
            *(store.commit([Put(f"/more/{i}", VALUE * 100)]) for i in range(5)),
            return_exceptions=True,
        )
        assert {type(r) for r in results} == {Full}
        await make_space()
        assert (await store.commit([Put("/again", VALUE)])).revision == written + 1
        told = 0
        while told < written + 1:
            for event in await anext(watch):
                told += 1
                assert event.revision == told
        return await listing(store)

    async def test_a_full_quota_refuses_writes_until_there_is_room(self, tmp_path):
        path = tmp_path / "store.db"
        store = await SqliteStore.open(path, quota_bytes=400_000)

        async def raise_quota():
            await store._with_file(lambda file: file._db.execute("PRAGMA max_page_count = 10000"))

        state = await self.goes_on_after_full(store, raise_quota)
        await store.close()
        store = await SqliteStore.open(path)
        assert await listing(store) == state
        await store.close()

    async def test_compaction_makes_room_under_a_quota(self, tmp_path):
        store = await SqliteStore.open(tmp_path / "store.db", quota_bytes=400_000)
        written = await self.write_until_full(store, keys=5)
        await store.compact(Revision(written))
        assert (await store.commit([Put("/again", VALUE)])).revision == written + 1
        await store.close()

    @pytest.mark.root
    async def test_a_full_file_system_refuses_writes_until_there_is_room(self, small_disk):
        ballast = small_disk / "ballast"
        ballast.write_bytes(b"\0" * 500_000)
        store = await SqliteStore.open(small_disk / "store.db")

        async def remove_ballast():
            ballast.unlink()

        state = await self.goes_on_after_full(store, remove_ballast)
        await store.close()
        store = await SqliteStore.open(small_disk / "store.db")
        assert await listing(store) == state
        await store.close()


class TestFailingDisk:
    async def test_after_a_disk_error_nothing_more_is_written(self, sqlite, monkeypatch):
        await sqlite.commit([Put("/a", b"")])

        def broken(self, events):
            raise Failed("cannot write: disk I/O error (SQLITE_IOERR_FSYNC)")

        monkeypatch.setattr(sqlitelog.LogFile, "append", broken)
        with pytest.raises(Failed, match="SQLITE_IOERR_FSYNC"):
            await sqlite.commit([Put("/b", b"")])
        monkeypatch.undo()
        with pytest.raises(Failed):
            await sqlite.commit([Put("/c", b"")])
        assert [r.key for r in await listing(sqlite)] == ["/a"]
        assert await sqlite.revision() == 1

    async def test_a_check_against_what_was_never_written_does_not_count(self, sqlite, monkeypatch):
        """Two creates of one key share a group whose write fails: both hear of the failure."""

        def full(self, events):
            raise Full("cannot write: no space left")

        monkeypatch.setattr(sqlitelog.LogFile, "append", full)
        creates = [sqlite.commit([Put("/a", b"", Revision(0))]) for _ in range(2)]
        results = await asyncio.gather(*creates, return_exceptions=True)
        assert [type(r) for r in results] == [Full, Full]
        monkeypatch.undo()
        assert (await sqlite.commit([Put("/a", b"", Revision(0))])).revision == 1


@pytest.mark.parametrize("query", ["_EVENTS", "_SWEEP_REPLACED", "_SWEEP_DELETED"])
async def test_no_query_walks_the_whole_log(sqlite, query):
    text = f"EXPLAIN QUERY PLAN {getattr(sqlitelog, query)}"
    plan = await sqlite._with_file(lambda file: file._db.execute(text, (1, 2)).fetchall())
    steps = [row[3] for row in plan if "SUBQUERY" not in row[3]]
    assert steps
    assert all("USING INTEGER PRIMARY KEY" in step for step in steps)
