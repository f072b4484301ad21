"""Stores of older and newer versions: opened, or refused untouched, and never taken back."""

import contextlib
import gzip
import sqlite3
from pathlib import Path

import grpc
import msgspec
import pytest

from motley.store import format as formats
from motley.store.contract import Corrupt, Newer, Put
from motley.store.etcd import etcd_pb2 as pb
from motley.store.etcd.store import EtcdStore
from motley.store.format import Format
from motley.store.sqlite import SqliteStore

# How it was made is told beside it.
OLD = Path(__file__).parents[1] / "data" / "store" / "0.1.0.db.gz"


@pytest.fixture
def old(tmp_path):
    path = tmp_path / "store.db"
    path.write_bytes(gzip.decompress(OLD.read_bytes()))
    return path


def sql(path, *statements):
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        return [connection.execute(*one).fetchall() for one in statements]


async def listing(store):
    return {record.key: record for record in (await store.range("/")).records}


@pytest.mark.parametrize(
    ("found", "is_read"),
    [
        (Format(1, 1), True),
        (Format(2, 1), True),
        (Format(2, 2), True),
        (Format(3, 2), True),
        (Format(3, 3), False),
        (Format(9, 4), False),
    ],
)
def test_a_format_is_read_when_our_own_is_among_its_readers(found, is_read):
    with contextlib.nullcontext() if is_read else pytest.raises(Newer, match="newer version"):
        formats.check(found, "store.db", known=2)


async def test_a_store_made_by_0_1_0_is_opened_with_every_object_as_it_was(old):
    rows = {
        key: (at // 1000, value)
        for at, key, value in sql(old, ("SELECT max(id), key, value FROM log GROUP BY key",))[0]
    }
    store = await SqliteStore.open(old)
    try:
        found = await listing(store)
        assert {k: (r.revision, r.value) for k, r in found.items()} == {
            key: row for key, row in rows.items() if row[1] is not None
        }
        assert len(found) == 86
        before = await store.revision()
        assert (await store.commit([Put("/new", b"1")])).revision == before + 1
    finally:
        await store.close()


def make_newer(path, readable_from):
    """As a version would leave it that knows more: columns, tables and marks of its own."""
    sql(
        path,
        ("PRAGMA user_version = 7",),
        ("ALTER TABLE log ADD COLUMN writer TEXT NOT NULL DEFAULT 'nobody'",),
        ("UPDATE log SET writer = 'version 7'",),
        ("CREATE TABLE extra (what TEXT)",),
        ("INSERT INTO extra VALUES ('precious')",),
        ("INSERT INTO mark VALUES ('checkpoint', 42)",),
        ("INSERT INTO mark VALUES ('readable_from', ?)", (readable_from,)),
    )


async def test_a_newer_format_that_we_can_read_is_used_and_left_as_it_is(old):
    make_newer(old, readable_from=formats.CURRENT)
    store = await SqliteStore.open(old)
    before = await listing(store)
    await store.commit([Put("/new", b"1")])
    await store.compact(await store.revision())
    await store.close()
    version, writers, extra, marks = sql(
        old,
        ("PRAGMA user_version",),
        ("SELECT writer, count(*) FROM log GROUP BY writer ORDER BY 1",),
        ("SELECT * FROM extra",),
        ("SELECT name, revision FROM mark WHERE name IN ('checkpoint', 'readable_from')",),
    )
    assert version == [(7,)]
    assert writers == [("nobody", 1), ("version 7", len(before))]
    assert extra == [("precious",)]
    assert dict(marks) == {"checkpoint": 42, "readable_from": 1}


async def test_a_newer_format_that_we_would_misread_is_refused_and_left_alone(old):
    make_newer(old, readable_from=formats.CURRENT + 1)
    before = old.read_bytes()
    with pytest.raises(Newer, match=r"has format 7, this version of Motley reads 1: .*newer"):
        await SqliteStore.open(old)
    assert old.read_bytes() == before


async def test_a_newer_format_without_our_tables_is_told_as_such(tmp_path):
    path = tmp_path / "store.db"
    sql(
        path,
        ("PRAGMA application_id = 0x4D6F746C",),
        ("PRAGMA user_version = 8",),
        ("CREATE TABLE journal (all_else TEXT)",),
    )
    with pytest.raises(Newer, match="has format 8"):
        await SqliteStore.open(path)


class TestEtcd:
    async def put(self, config, key, value):
        async with grpc.aio.insecure_channel(config.servers.removeprefix("http://")) as channel:
            call = channel.unary_unary(
                "/etcdserverpb.KV/Put",
                request_serializer=pb.PutRequest.SerializeToString,
                response_deserializer=lambda data: data,
            )
            await call(pb.PutRequest(key=key, value=value))

    def note(self, **fields):
        return msgspec.json.encode(fields)

    async def test_the_format_is_noted_once_and_shown_to_nobody(self, etcd_stores):
        config = etcd_stores.config()
        first = await EtcdStore.open(config)
        before = await first.revision()
        second = await EtcdStore.open(config)
        try:
            assert await second.revision() == before
            assert await listing(first) == {}
            await first.commit([Put("/a", b"1")])
            assert list(await listing(second)) == ["/a"]
        finally:
            await first.close()
            await second.close()

    async def test_a_newer_readable_note_is_left_and_a_newer_format_refused(self, etcd_stores):
        config = etcd_stores.config()
        key = f"{config.prefix.rstrip('/')}.format".encode()
        await self.put(config, key, self.note(version=7, readableFrom=1, more="unknown"))
        store = await EtcdStore.open(config)
        await store.commit([Put("/a", b"1")])
        await store.close()
        await self.put(config, key, self.note(version=8, readableFrom=2))
        with pytest.raises(Newer, match="has format 8"):
            await EtcdStore.open(config)
        await self.put(config, key, b"?")
        with pytest.raises(Corrupt, match=r"\.format"):
            await EtcdStore.open(config)
