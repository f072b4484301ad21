"""The store: commits, reads, watch fan-out and start, beside SQLite's raw limit in the same run.

Values are 3.3 KB, a usual Pod. `store.raw.N` is what plain sqlite3 does with the same rows, N per
transaction, one fsync each, on the same disk and without an event loop: the limit that
`store.commit.N` is to be compared with. `store.etcd.commit.N` are the same commits into a real
etcd, where one is installed.
"""

import asyncio
import gc
import itertools
import os
import sqlite3
import tempfile
from pathlib import Path

import uvloop

import figures
from motley.lib.clock import SYSTEM
from motley.ops import etcdbed
from motley.ops.etcdbed import Etcd
from motley.store.contract import Event, Put, Revision, Store
from motley.store.etcd.config import Config as EtcdConfig
from motley.store.etcd.store import EtcdStore
from motley.store.memory import MemoryStore
from motley.store.sqlite import SqliteStore
from motley.store.sqlitelog import LogFile
from motley.store.watchcache import WatchCache

VALUE = bytes(range(256)) * 13
IN_FLIGHT = (1, 32, 256)
PODS = "/registry/pods/"


def key(number: int) -> str:
    return f"{PODS}namespace-{number % 50}/deployment-5d4f8c7b9-{number:06d}"


def raw(report: figures.Report, directory: Path, batch: int, transactions: int) -> None:
    connection = sqlite3.connect(directory / f"raw{batch}.db", isolation_level=None)
    connection.execute("PRAGMA page_size = 8192")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(
        "CREATE TABLE log (id INTEGER PRIMARY KEY, previous INTEGER, created INTEGER,"
        " key TEXT, value BLOB)"
    )
    numbers = itertools.count(1)
    with figures.measured() as spent:
        for _ in range(transactions):
            rows = [(n, 0, n, key(n), VALUE) for n in itertools.islice(numbers, batch)]
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT INTO log VALUES (?, ?, ?, ?, ?)", rows)
            connection.execute("COMMIT")
    connection.close()
    total = batch * transactions
    report.add(
        f"store.raw.{batch}", total / spent.wall_s, "rows/s", f"sqlite3, {batch} rows per fsync"
    )
    report.add(f"store.raw.{batch}.cpu", spent.cpu_s / total * 1e6, "us/row")


async def commits(
    report: figures.Report, store: Store, name: str, in_flight: int, total: int
) -> None:
    numbers = iter(range(total))
    waits_ms: list[float] = []

    async def caller() -> None:
        for number in numbers:
            begun = SYSTEM.monotonic()
            await store.commit([Put(key(number), VALUE, Revision(0))])
            waits_ms.append((SYSTEM.monotonic() - begun) * 1e3)

    with figures.measured() as spent:
        async with asyncio.TaskGroup() as group:
            for _ in range(in_flight):
                group.create_task(caller())
    await store.close()
    waits_ms.sort()
    report.add(name, total / spent.wall_s, "commits/s", f"{in_flight} in flight, durable each")
    report.add(f"{name}.cpu", spent.cpu_s / total * 1e6, "us/commit", "of this process")
    report.add(f"{name}.p50", waits_ms[len(waits_ms) // 2], "ms")
    report.add(f"{name}.p99", waits_ms[int(len(waits_ms) * 0.99)], "ms")


async def etcd_store(report: figures.Report, directory: Path, counts: dict[int, int]) -> None:
    """The same commits into a real etcd on the same disk, and what a consistent read costs."""
    directory.mkdir()
    server = Etcd(directory)
    await server.start()
    try:
        for in_flight, total in counts.items():
            config = EtcdConfig(server.url, prefix=f"/commits{in_flight}")
            store: Store = await EtcdStore.open(config)
            await commits(report, store, f"store.etcd.commit.{in_flight}", in_flight, total)
        store = await EtcdStore.open(EtcdConfig(server.url, prefix=f"/commits{max(counts)}"))
        for readers in (1, 100):
            await fresh_reads(report, store, readers, 50)
        listed = min(1000, counts[max(counts)])
        with figures.measured() as spent:
            for _ in range(5):
                assert len((await store.range(PODS, limit=listed)).records) == listed
        report.add("store.etcd.range.1000", spent.wall_s / 5 * 1e3, "ms", f"{listed} records")
        await store.close()
    finally:
        server.kill()


async def fresh_reads(report: figures.Report, store: Store, readers: int, rounds: int) -> None:
    """Asking how far the store is, as every consistent list does; readers share the question."""
    with figures.measured() as spent:
        for _ in range(rounds):
            await asyncio.gather(*(store.revision() for _ in range(readers)))
    per_round_ms = spent.wall_s / rounds * 1e3
    report.add(f"store.etcd.revision.{readers}", per_round_ms, "ms", f"{readers} at a time")


def write_log(path: Path, count: int) -> None:
    """A log of that many objects, by the way the writer goes, without its waiting."""
    file = LogFile(path)
    for first in range(0, count, 2000):
        file.append(
            [
                Event(Revision(n + 1), key(n), VALUE, None, VALUE, Revision(n + 1))
                for n in range(first, min(first + 2000, count))
            ]
        )
    file.close()
    os.sync()  # or the disk is still busy with this when others are measured


async def reads(report: figures.Report, directory: Path, count: int) -> None:
    write_log(directory / "reads.db", count)
    with figures.measured() as spent:
        store = await SqliteStore.open(directory / "reads.db")
    report.add("store.load", spent.wall_s, "s", f"open, check and read {count} objects")
    gc.collect()
    gc.freeze()  # as the API server does once it has loaded
    with figures.measured() as spent:
        for number in range(100_000):
            await store.get(key(number % count))
    report.add("store.get", spent.cpu_s / 100_000 * 1e6, "us", "CPU, with making the key")
    with figures.measured() as spent:
        for _ in range(20):
            assert len((await store.range(PODS, limit=5000)).records) == 5000
    report.add("store.range.5000", spent.cpu_s / 20 * 1e3, "ms", f"5000 of {count}")
    at = await store.revision()
    await store.commit([Put(key(0), VALUE)])
    with figures.measured() as spent:
        for _ in range(20):
            await store.range(f"{PODS}namespace-1/", limit=500, at=at)
    report.add("store.range_at", spent.wall_s / 20 * 1e3, "ms", "a page of 500 of the past")
    await creates(report, store, count)
    await store.close()


async def creates(report: figures.Report, store: Store, count: int) -> None:
    """Creates in a large store: they must not cost more than in an empty one."""
    total = 5000
    numbers = iter(range(count, count + total))

    async def caller() -> None:
        for number in numbers:
            await store.commit([Put(key(number), VALUE, Revision(0))])

    with figures.measured() as spent:
        async with asyncio.TaskGroup() as group:
            for _ in range(32):
                group.create_task(caller())
    cpu_us = spent.cpu_s / total * 1e6
    report.add("store.commit.32.large.cpu", cpu_us, "us/commit", f"on top of {count} objects")


async def compaction(report: figures.Report, directory: Path, updates: int) -> None:
    """What a writer notices while a long history is removed."""
    store = await SqliteStore.open(directory / "compaction.db")
    for first in range(0, updates, 256):
        numbers = range(first, min(first + 256, updates))
        await asyncio.gather(*(store.commit([Put(key(n % 1000), VALUE)]) for n in numbers))
    waits_ms: list[float] = []
    with figures.measured() as whole:
        async with asyncio.TaskGroup() as group:
            compacting = group.create_task(store.compact(Revision(updates)))
            while not compacting.done():
                with figures.measured() as spent:
                    await store.commit([Put(key(0), VALUE)])
                waits_ms.append(spent.wall_s * 1e3)
    await store.close()
    waits_ms.sort()
    report.add("store.compact", whole.wall_s, "s", f"{updates} revisions of 1000 objects")
    p99_ms = waits_ms[int(len(waits_ms) * 0.99)]
    report.add("store.compact.commit_p99", p99_ms, "ms", f"of {len(waits_ms)} commits meanwhile")


async def fan_out(report: figures.Report, watchers: int, events: int) -> None:
    """One event at a time to many cursors, as a cluster with little going on does it."""
    store = MemoryStore()
    cache = WatchCache(store, PODS, lambda key, value: len(value))
    seen = 0

    async def follow() -> None:
        nonlocal seen
        cursor = cache.watch(Revision(0))
        while True:
            events = await anext(cursor)
            seen += len(events)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(cache.run())]
        await cache.ready()
        tasks += [group.create_task(follow()) for _ in range(watchers)]
        with figures.measured() as spent:
            for number in range(events):
                await store.commit([Put(key(number), VALUE)])
                while seen < (number + 1) * watchers:
                    await cache.wait_until(Revision(number + 1))
                    await asyncio.wait(tasks[:1], timeout=0)
        for task in tasks:
            task.cancel()
    name = f"store.fan_out.{watchers}"
    report.add(name, spent.cpu_s / events * 1e6, "us/event", f"CPU to wake {watchers} cursors")


async def cache_apply(report: figures.Report, events: int) -> None:
    """What one change costs the cache when nobody watches, in batches as a busy store makes."""
    store = MemoryStore()
    cache = WatchCache(store, PODS, lambda key, value: len(value))
    changes = [
        Event(Revision(n + 1), key(n), VALUE, None, VALUE, Revision(n + 1)) for n in range(events)
    ]
    with figures.measured() as spent:
        for first in range(0, events, 32):
            cache._apply(changes[first : first + 32])
    report.add("store.cache_apply", spent.cpu_s / events * 1e6, "us/event", "CPU, 32 at a time")


async def measure(report: figures.Report, directory: Path) -> None:
    transactions = {1: 1000, 32: 300, 256: 60}
    for number in IN_FLIGHT:
        count = transactions[number] * (1 if report.quick else 4)
        raw(report, directory, number, count)
        store = await SqliteStore.open(directory / f"commits{number}.db")
        await commits(report, store, f"store.commit.{number}", number, count * number)
    if etcdbed.program() is not None:
        quick = {1: 300, 32: 3000, 256: 5000}
        counts = {n: c * (1 if report.quick else 4) for n, c in quick.items()}
        await etcd_store(report, directory / "etcd", counts)
    await reads(report, directory, 20_000 if report.quick else 100_000)
    await compaction(report, directory, 10_000 if report.quick else 50_000)
    await fan_out(report, 100, 300 if report.quick else 2000)
    await fan_out(report, 1000, 50 if report.quick else 300)
    await cache_apply(report, 20_000 if report.quick else 100_000)


def main() -> None:
    report = figures.Report.from_arguments(__doc__ or "")
    with tempfile.TemporaryDirectory(prefix="motley-bench-") as directory:
        uvloop.run(measure(report, Path(directory)))
    report.finish()


if __name__ == "__main__":
    main()
