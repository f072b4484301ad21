"""The stores that the contract suite runs against: memory, SQLite and a real etcd.

All of etcd's tests share one server, each below a prefix of its own. Its revisions begin where the
test before ended, so the suite sees them through `FromZero`, which counts them from there.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from motley.ops.etcdbed import Etcd
from motley.store import contract
from motley.store.contract import Event, Revision, Store
from motley.store.etcd.config import Config
from motley.store.etcd.store import EtcdStore
from motley.store.memory import MemoryStore
from motley.store.sqlite import SqliteStore

asyncio.set_event_loop(None)  # see tests/conftest.py


def stamp(value: bytes, revision: Revision) -> bytes:
    """`value@revision`, also over an older stamp, as an API server does it inside JSON."""
    return b"%s@%d" % (value.partition(b"@")[0], revision)


class FromZero:
    """A store whose revisions are told less `base`; in all else the store itself."""

    def __init__(self, store: Store, base: Revision, config: Config) -> None:
        self.store = store
        self.base = base
        self.config = config

    def _down(self, thing):
        """A record, event or error with its revisions counted from the base."""
        if thing is None:
            return None
        less = {
            name: getattr(thing, name) - self.base
            for name in ("revision", "created")
            if getattr(thing, name, None) is not None
        }
        if isinstance(thing, Event):
            less["previous"] = self._down(thing.previous)
        return msgspec.structs.replace(thing, **less)

    def _error(self, error: contract.StoreError) -> contract.StoreError:
        if isinstance(error, contract.Mismatch):
            return contract.Mismatch(error.key, self._down(error.current))
        if isinstance(error, contract.Compacted):
            return contract.Compacted(error.oldest - self.base)
        if isinstance(error, contract.Ahead):
            return contract.Ahead(error.current - self.base)
        return error

    async def revision(self):
        return await self.store.revision() - self.base

    async def oldest(self):
        return await self.store.oldest() - self.base

    async def get(self, key):
        return self._down(await self.store.get(key))

    async def range(self, prefix, *, start="", limit=0, at=None):
        at = None if at is None else at + self.base
        try:
            found = await self.store.range(prefix, start=start, limit=limit, at=at)
        except contract.StoreError as error:
            raise self._error(error) from None
        return msgspec.structs.replace(
            found, revision=found.revision - self.base, records=list(map(self._down, found.records))
        )

    async def commit(self, ops):
        ops = [
            msgspec.structs.replace(op, expect=op.expect + self.base) if op.expect else op
            for op in ops
        ]
        try:
            done = await self.store.commit(ops)
        except contract.StoreError as error:
            raise self._error(error) from None
        return contract.Committed(done.revision - self.base, tuple(map(self._down, done.records)))

    def watch(self, prefix, after):
        return FromZeroWatch(self, self.store.watch(prefix, after + self.base))

    async def compact(self, revision):
        try:
            await self.store.compact(revision + self.base)
        except contract.StoreError as error:
            raise self._error(error) from None

    async def close(self):
        await self.store.close()


class FromZeroWatch:
    def __init__(self, store: FromZero, watch: contract.Watch) -> None:
        self.store = store
        self.watch = watch

    @property
    def revision(self):
        return self.watch.revision - self.store.base

    def __aiter__(self):
        return self

    async def __anext__(self):
        try:
            return [self.store._down(event) for event in await anext(self.watch)]
        except contract.StoreError as error:
            raise self.store._error(error) from None

    async def aclose(self):
        await self.watch.aclose()


class EtcdStores:
    """Stores on one etcd, each as if it were new."""

    def __init__(self, etcd: Etcd) -> None:
        self.etcd = etcd
        self._numbers = itertools.count()

    def config(self, **options) -> Config:
        """Of a store of one's own on the shared server."""
        return Config(self.etcd.url, prefix=f"/t{next(self._numbers)}-", **options)

    async def open(self) -> FromZero:
        """Empty, at revision 0, with no history."""
        config = self.config()
        base = Revision(0)
        # The stamp counts from the base as well: values then agree with their revisions.
        store = await EtcdStore.open(config, stamp=lambda v, r: stamp(v, r - base))
        base = await store.revision()
        await store.compact(base)
        return FromZero(store, base, config)

    async def reopen(self, before: FromZero) -> FromZero:
        """Another store over the same state."""
        base = before.base
        store = await EtcdStore.open(before.config, stamp=lambda v, r: stamp(v, r - base))
        return FromZero(store, base, before.config)


@pytest.fixture(scope="session")
def etcd_stores(tmp_path_factory) -> Iterator[EtcdStores]:
    etcd = Etcd(tmp_path_factory.mktemp("etcd"), fsync=False)
    try:
        asyncio.run(etcd.start())
        yield EtcdStores(etcd)
    finally:
        etcd.kill()


@pytest.fixture(params=["memory", "sqlite", "etcd"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Awaitable[Store]]:
    """Opens a new store of one of the kinds."""

    async def memory() -> Store:
        return MemoryStore(stamp)

    async def sqlite() -> Store:
        return await SqliteStore.open(tmp_path / "store.db", stamp=stamp)

    if request.param == "etcd":  # started here, before there is an event loop
        return request.getfixturevalue("etcd_stores").open
    return memory if request.param == "memory" else sqlite


@pytest.fixture
async def store(opened: Callable[[], Awaitable[Store]]) -> AsyncIterator[Store]:
    found = await opened()
    yield found
    await found.close()


@pytest.fixture
async def sqlite(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    opened = await SqliteStore.open(tmp_path / "store.db", stamp=stamp)
    yield opened
    await opened.close()
