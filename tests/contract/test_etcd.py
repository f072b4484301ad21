"""What the etcd store promises beyond the contract: servers that die, hang, refuse, are shared."""

import asyncio
import datetime
import ipaddress
import random

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from motley.lib import clock
from motley.ops import etcdbed
from motley.ops.etcdbed import Etcd
from motley.ops.freeports import free_port
from motley.store.contract import (
    Compacted,
    Delete,
    Full,
    Mismatch,
    Put,
    Revision,
    TooLarge,
    Unavailable,
)
from motley.store.etcd import connection as connections
from motley.store.etcd import store as stores
from motley.store.etcd.config import Config
from motley.store.etcd.connection import TXN
from motley.store.etcd.store import EtcdStore
from motley.store.watchcache import WatchCache

NEW = Revision(0)
QUICK = ("--heartbeat-interval", "20", "--election-timeout", "200")  # so restarts take less


@pytest.fixture
async def etcd(tmp_path):
    """A server that the test may kill."""
    server = Etcd(tmp_path, fsync=False, options=QUICK)
    await server.start()
    yield server
    server.kill()


@pytest.fixture
async def store(etcd):
    opened = await EtcdStore.open(Config(etcd.url))
    yield opened
    await opened.close()


@pytest.fixture
async def shared(etcd_stores):
    """A store on the server that the whole session shares."""
    opened = await EtcdStore.open(etcd_stores.config())
    yield opened
    await opened.close()


async def take(watch, count):
    events = []
    async with asyncio.timeout(20):
        while len(events) < count:
            events += await anext(watch)
    assert len(events) == count
    return events


class TestRestarts:
    async def test_watches_and_commits_go_on_over_kills_of_the_server(self, etcd, store):
        """Every acknowledged write is told once; nothing is told twice or out of order."""
        rng = random.Random(7)
        acknowledged: dict[str, int] = {}
        told: list = []
        stopping = False

        async def write(worker: int) -> None:
            number = 0
            while not stopping:
                number += 1
                key = f"/w/{worker}/{number:05d}"
                try:
                    done = await store.commit([Put(key, b"%d" % number, NEW)])
                except Unavailable:
                    continue
                acknowledged[key] = done.revision

        async def follow() -> None:
            async for events in store.watch("/w/", start):
                told.extend(events)

        start = await store.revision()
        async with asyncio.TaskGroup() as group:
            following = group.create_task(follow())
            writers = [group.create_task(write(n)) for n in range(4)]
            for _ in range(4):
                await clock.SYSTEM.sleep(rng.uniform(0.1, 0.3))
                etcd.kill()
                await etcd.start()
            await clock.SYSTEM.sleep(0.2)
            stopping = True
            await asyncio.wait(writers)
            last = await store.revision()
            async with asyncio.timeout(10):
                while not told or told[-1].revision < last:
                    await clock.SYSTEM.sleep(0.01)
            following.cancel()
        revisions = [event.revision for event in told]
        assert revisions == list(range(start + 1, last + 1))
        found = {event.key: event.revision for event in told}
        assert len(acknowledged) > 50
        assert acknowledged.items() <= found.items()
        # What was told and not acknowledged is at most what was under way at each kill.
        assert len(found) - len(acknowledged) <= 4 * 4

    async def test_a_commit_waits_for_a_server_that_is_starting(self, etcd, store):
        etcd.kill()
        async with asyncio.TaskGroup() as group:
            commit = group.create_task(store.commit([Put("/a", b"1", NEW)]))
            await clock.SYSTEM.sleep(0.1)
            assert not commit.done()
            await etcd.start()
        assert (await store.get("/a")).revision == commit.result().revision

    async def test_a_server_that_stays_away_is_said_to_be(self, etcd, store, monkeypatch):
        monkeypatch.setattr(connections, "TOTAL_S", 0.3)
        etcd.kill()
        for work in (store.get("/a"), store.commit([Put("/a", b"", NEW)]), store.revision()):
            with pytest.raises(Unavailable, match=f"127.0.0.1:{etcd.ports[0]}"):
                await work

    async def test_opening_without_a_server_names_the_addresses(self, tmp_path, monkeypatch):
        monkeypatch.setattr(connections, "TOTAL_S", 0.3)
        with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1, 127\.0\.0\.1:2"):
            await EtcdStore.open(Config("http://127.0.0.1:1,http://127.0.0.1:2"))

    async def test_a_server_that_hangs_does_not_hang_its_callers(self, etcd, store, monkeypatch):
        monkeypatch.setattr(connections, "ATTEMPT_S", 0.1)
        monkeypatch.setattr(connections, "TOTAL_S", 0.4)
        etcd.pause()
        try:
            with pytest.raises(Unavailable):
                await store.get("/a")
            with pytest.raises(Unavailable, match="may have happened"):
                await store.commit([Put("/a", b"")])
        finally:
            etcd.resume()
        monkeypatch.setattr(connections, "TOTAL_S", 10)
        assert (await store.commit([Put("/b", b"")])).revision == await store.revision()

    async def test_a_silent_watch_is_noticed_and_opened_again(self, store, monkeypatch):
        monkeypatch.setattr(stores, "CATCH_UP_S", 0.2)
        real = store._connection.stream
        silent = asyncio.Event()

        class Silent:
            async def write(self, request):
                silent.set()

            async def read(self):
                await asyncio.Event().wait()

            def cancel(self):
                pass

        store._connection.stream = lambda: (real()[0], Silent())
        store._follower.restart()
        await asyncio.wait_for(silent.wait(), 10)
        await store.commit([Put("/a", b"")])
        with pytest.raises(Unavailable, match="watch is at revision 2, etcd at 3"):
            await store.revision()
        store._connection.stream = real
        monkeypatch.setattr(stores, "CATCH_UP_S", 10)
        assert await store.revision() == 3

    async def test_the_next_member_takes_over_when_one_dies(self, tmp_path):
        members = etcdbed.cluster(tmp_path, 3)
        store = None
        try:
            for member in members:
                member.launch()
            await asyncio.gather(*(member.ready() for member in members))
            store = await EtcdStore.open(Config(",".join(m.url for m in members)))
            start = await store.revision()
            watch = store.watch("/", start)
            await store.commit([Put("/before", b"", NEW)])
            members[0].kill()
            await store.commit([Put("/after", b"", NEW)])
            assert [e.key for e in await take(watch, 2)] == ["/before", "/after"]
            assert await store.revision() == start + 2
        finally:
            if store is not None:
                await store.close()
            for member in members:
                member.kill()


async def lose_next(store):
    """Lose the answer of the next transaction, after it was carried out; the answers there were."""
    methods = store._connection._servers[0].methods
    real, answers = methods[TXN], []

    async def lost(request, timeout):
        answers.append(await real(request, timeout=timeout))
        methods[TXN] = told
        nothing = grpc.aio.Metadata()
        raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, nothing, nothing, "cut off")

    async def told(request, timeout):
        answers.append(await real(request, timeout=timeout))
        return answers[-1]

    methods[TXN] = lost
    return answers


class TestLostAnswers:
    """The server does what it was asked, and its answer never arrives."""

    async def test_a_write_that_expects_something_is_found_to_be_done(self, shared):
        answers = await lose_next(shared)
        done = await shared.commit([Put("/a", b"1", NEW), Put("/b", b"2", NEW)])
        assert [answer.succeeded for answer in answers] == [True, False]
        assert done.revision == answers[0].header.revision == await shared.revision()
        assert list(done.records) == [await shared.get("/a"), await shared.get("/b")]

    async def test_an_update_keeps_its_creation(self, shared):
        made = await shared.commit([Put("/a", b"1", NEW)])
        await lose_next(shared)
        done = await shared.commit([Put("/a", b"2", made.revision)])
        assert done.records == (await shared.get("/a"),)
        assert done.records[0].created == made.revision < done.revision

    async def test_a_write_that_expects_nothing_is_not_repeated(self, shared):
        answers = await lose_next(shared)
        with pytest.raises(Unavailable, match="may have happened"):
            await shared.commit([Put("/a", b"1")])
        assert len(answers) == 1

    async def test_whether_a_deletion_was_ours_stays_open(self, shared):
        made = await shared.commit([Put("/a", b"1", NEW)])
        await lose_next(shared)
        with pytest.raises(Unavailable, match="may have happened"):
            await shared.commit([Delete("/a", made.revision)])
        assert await shared.get("/a") is None

    async def test_what_was_in_the_way_before_is_a_plain_mismatch(self, shared):
        made = await shared.commit([Put("/a", b"1", NEW)])
        assert await shared.revision() == made.revision
        await lose_next(shared)
        with pytest.raises(Mismatch) as refused:
            await shared.commit([Put("/a", b"other", NEW)])
        assert refused.value.current == made.records[0]


class TestSharing:
    async def test_stores_with_different_prefixes_do_not_see_each_other(self, etcd_stores):
        number = etcd_stores.config().prefix
        one = await EtcdStore.open(Config(etcd_stores.etcd.url, prefix=number))
        other = await EtcdStore.open(Config(etcd_stores.etcd.url, prefix=number + "1"))
        start = await one.revision()
        watch = one.watch("", start)
        await other.commit([Put("/a", b"theirs", NEW)])
        assert (await one.range("")).records == []
        assert await one.get("/a") is None
        await one.commit([Put("/a", b"mine", NEW)])
        assert [e.value for e in await take(watch, 1)] == [b"mine"]
        assert [r.value for r in (await other.range("")).records] == [b"theirs"]
        assert await one.revision() == await other.revision() == start + 2
        assert watch.revision == start + 2
        await one.close()
        await other.close()

    async def test_a_revision_is_told_when_all_that_another_wrote_is_visible(self, etcd_stores):
        config = etcd_stores.config()
        one, other = await EtcdStore.open(config), await EtcdStore.open(config)
        cache = WatchCache(other, "/p/", lambda key, value: None)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(cache.run())
            await cache.ready()
            for number in range(50):
                key = f"/p/{number}"
                await one.commit([Put(key, b"", NEW)])
                await cache.wait_until(await other.revision())
                assert cache.get(key) is not None
            running.cancel()
        await one.close()
        await other.close()

    async def test_a_compaction_by_another_is_noticed(self, etcd_stores):
        config = etcd_stores.config()
        one, other = await EtcdStore.open(config), await EtcdStore.open(config)
        start = await one.revision()
        for _ in range(40):
            await one.commit([Put("/a", b"")])
        await one.compact(Revision(start + 33))
        assert await other.oldest() == start + 33
        assert await other.oldest() == start + 33
        with pytest.raises(Compacted) as gone:
            await other.range("/", at=Revision(start + 32))
        assert gone.value.oldest == start + 33
        watch = other.watch("/", Revision(start + 32))
        with pytest.raises(Compacted):
            await anext(watch)
        await one.close()
        await other.close()

    async def test_a_store_that_was_away_during_a_compaction_says_so_and_goes_on(self, etcd):
        away = await EtcdStore.open(Config(etcd.url))
        watch, cache = away.watch("/", Revision(1)), WatchCache(away, "/", lambda k, v: None)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(cache.run())
            await cache.ready()
            before = etcd.ports[0]
            await etcd_moved(etcd, free_port())
            other = await EtcdStore.open(Config(etcd.url))
            for number in range(5):
                await other.commit([Put("/a", b"%d" % number)])
            await other.compact(Revision(5))
            await other.close()
            await etcd_moved(etcd, before)
            with pytest.raises(Compacted) as gone:
                await asyncio.wait_for(anext(watch), 10)
            assert gone.value.oldest == 5
            await cache.wait_until(await away.revision(), 10)
            assert cache.get("/a").record.value == b"4"
            later = away.watch("/", await away.revision())
            await away.commit([Put("/b", b"")])
            assert [e.key for e in await take(later, 1)] == ["/b"]
            running.cancel()
        await away.close()

    async def test_a_store_opened_late_has_the_history(self, etcd_stores, monkeypatch):
        monkeypatch.setattr(stores, "RECENT", 5)
        config = etcd_stores.config()
        one = await EtcdStore.open(config)
        start = await one.revision()
        for number in range(30):
            await one.commit([Put(f"/{number % 4}", b"%d" % number)])
        await one.commit([Delete("/1")])
        late = await EtcdStore.open(config)
        watch = late.watch("/", start)
        events = await take(watch, 31)
        assert [e.revision for e in events] == list(range(start + 1, start + 32))
        assert [e.previous.value for e in events[4:30]] == [b"%d" % n for n in range(26)]
        assert events[-1].value is None
        assert events[-1].last_state == b"29"
        await one.close()
        await late.close()

    async def test_a_long_listing_comes_in_pages_of_one_moment(self, shared, monkeypatch):
        monkeypatch.setattr(stores, "PAGE", 7)
        for number in range(40):
            await shared.commit([Put(f"/p/{number:02d}", b"")])
        at = await shared.revision()
        await shared.commit([Delete("/p/39")])
        whole = await shared.range("/p/", at=at)
        assert [r.key for r in whole.records] == [f"/p/{n:02d}" for n in range(40)]
        part = await shared.range("/p/", limit=10)
        assert (len(part.records), part.more, part.remaining) == (10, True, 29)


async def etcd_moved(etcd, port):
    """The same data on another port."""
    etcd.kill()
    etcd.ports[0] = port
    await etcd.start()


async def fill(store):
    """Far more than fits: etcd looks at its size only every tenth of a second."""
    for number in range(1000):
        await store.commit([Put(f"/{number}", b"x" * 100_000)])


class TestRefusals:
    async def test_a_transaction_that_is_too_large_is_named_so(self, shared):
        for size in (1_700_000, 3_000_000):  # etcd's own limit, and that of its gRPC server
            with pytest.raises(TooLarge, match="max-request-bytes"):
                await shared.commit([Put("/a", b"x" * size)])
        assert await shared.get("/a") is None

    async def test_a_full_etcd_refuses_writes_until_there_is_room(self, tmp_path):
        etcd = Etcd(tmp_path, options=["--quota-backend-bytes", str(2 << 20)])
        await etcd.start()
        store = await EtcdStore.open(Config(etcd.url))
        watch = store.watch("/", await store.revision())
        try:
            await store.commit([Put("/first", b"1")])
            with pytest.raises(Full, match=r"quota.*alarm disarm"):
                await fill(store)
            # Reads and watches go on, also those of a server that starts now.
            assert await store.get("/0") is not None
            assert (await anext(watch))[0].key == "/first"
            other = await EtcdStore.open(Config(etcd.url))
            assert len((await other.range("/")).records) > 2
            await other.close()
            acknowledged = {record.key for record in (await store.range("/")).records}
            # Deletions are taken, and then what the message says makes room.
            for key in acknowledged - {"/0", "/first"}:
                await store.commit([Delete(key)])
            await store.compact(await store.revision())
            etcd.make_room()
            await store.commit([Put("/again", b"1")])
            after = {record.key for record in (await store.range("/")).records}
            assert after == {"/0", "/first", "/again"}
        finally:
            await watch.aclose()
            await store.close()
            etcd.kill()

    async def test_a_key_that_would_leave_the_prefix_is_refused(self, shared):
        with pytest.raises(ValueError, match="begin with /"):
            await shared.commit([Put("a", b"")])


def certificate(name, issuer=None, address=None):
    """A certificate and its key, signed by `issuer` or by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    authority, signer = issuer or (None, key)
    today = datetime.datetime.fromtimestamp(clock.SYSTEM.now(), datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(authority.subject if authority else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(today - datetime.timedelta(hours=1))
        .not_valid_after(today + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=authority is None, path_length=None), True)
    )
    if address:
        names = [x509.IPAddress(ipaddress.ip_address(address))]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), False)
    return builder.sign(signer, hashes.SHA256()), key


def write(directory, name, pair):
    """PEM files of a certificate and its key."""
    cert, key = directory / f"{name}.crt", directory / f"{name}.key"
    cert.write_bytes(pair[0].public_bytes(serialization.Encoding.PEM))
    key.write_bytes(
        pair[1].private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return cert, key


async def test_client_certificates_are_shown_and_the_servers_is_checked(tmp_path, monkeypatch):
    authority = certificate("authority")
    ca, _ = write(tmp_path, "ca", authority)
    strange, _ = write(tmp_path, "strange", certificate("strange"))
    serving = write(tmp_path, "server", certificate("etcd", authority, "127.0.0.1"))
    cert, key = write(tmp_path, "client", certificate("motley", authority))
    etcd = Etcd(tmp_path, tls=etcdbed.Tls(ca, *serving), fsync=False)
    await etcd.start()
    try:
        store = await EtcdStore.open(Config(etcd.url, key, cert, ca))
        watch = store.watch("/", await store.revision())
        await store.commit([Put("/a", b"secret", NEW)])
        assert [e.value for e in await take(watch, 1)] == [b"secret"]
        await store.close()
        monkeypatch.setattr(connections, "TOTAL_S", 0.5)
        for refused in (
            Config(etcd.url, cafile=ca),  # no certificate of ours
            Config(etcd.url, key, cert, strange),  # not the authority that signed the server's
            Config(etcd.url.replace("https", "http")),  # no TLS at all
        ):
            with pytest.raises(Unavailable):
                await EtcdStore.open(refused)
    finally:
        etcd.kill()
