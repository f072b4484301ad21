"""The stores that the contract suite runs against."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from motley.store.contract import Revision, Store
from motley.store.memory import MemoryStore
from motley.store.sqlite import SqliteStore


def stamp(value: bytes, revision: Revision) -> bytes:
    """`value@revision`, also over an older stamp, as an API server does it inside JSON."""
    return b"%s@%d" % (value.partition(b"@")[0], revision)


async def open_store(name: str, directory: Path) -> Store:
    if name == "memory":
        return MemoryStore(stamp)
    return await SqliteStore.open(directory / "store.db", stamp=stamp)


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    opened = await open_store(request.param, tmp_path)
    yield opened
    await opened.close()


@pytest.fixture
async def sqlite(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    opened = await SqliteStore.open(tmp_path / "store.db", stamp=stamp)
    yield opened
    await opened.close()
