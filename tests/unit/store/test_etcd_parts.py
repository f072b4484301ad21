"""The parts of the etcd store that need no etcd: addresses, keys, messages, what errors mean."""

import asyncio
import filecmp
import importlib.util
from pathlib import Path

import grpc
import pytest

from motley.store.broadcast import Broadcaster
from motley.store.contract import (
    Compacted,
    Corrupt,
    Failed,
    Full,
    Put,
    Revision,
    TooLarge,
    Unavailable,
    identity,
)
from motley.store.etcd import errors, mapping
from motley.store.etcd import etcd_pb2 as pb
from motley.store.etcd.config import Config
from motley.store.etcd.errors import IsAhead, IsCompacted, Transient
from motley.store.etcd.store import _Shared

ROOT = Path(__file__).parents[3]
Code = grpc.StatusCode


def test_the_generated_messages_are_those_of_the_proto_file(tmp_path):
    spec = importlib.util.spec_from_file_location("gen_protos", ROOT / "tools" / "gen_protos.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    generated = tool.generate(tmp_path, tool.ETCD)
    assert len(generated) == 2
    for path in generated:
        assert filecmp.cmp(path, tool.ETCD / path.name, shallow=False), (
            f"{path.name} is not current: run tools/gen_protos.py"
        )


@pytest.mark.parametrize(
    ("servers", "targets"),
    [
        ("http://127.0.0.1:2379", ["127.0.0.1:2379"]),
        ("127.0.0.1:1, http://etcd", ["127.0.0.1:1", "etcd:2379"]),
        ("http://[::1]:4,http://b:5/", ["[::1]:4", "b:5"]),
    ],
)
def test_servers_are_urls_with_commas(servers, targets):
    found = Config(servers).addresses()
    assert [address.target for address in found] == targets
    assert not any(address.tls for address in found)


def test_an_address_without_a_scheme_is_secure_when_there_are_certificates():
    assert Config("a:1", cafile=Path("ca")).addresses()[0].tls
    assert Config("https://a:1").addresses()[0].tls


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (Config(" , "), "at least one server"),
        (Config("ftp://a:1"), "ftp://a:1"),
        (Config("http://a:99999"), "http://a:99999"),
        (Config("http://a:1/v3"), "http://a:1/v3"),
        (Config("http://"), "no etcd server"),
        (Config("https://a:1", keyfile=Path("k")), "give both"),
        (Config("https://a:1,http://b:1", cafile=Path("ca")), "not every server is https"),
    ],
)
def test_an_address_that_makes_no_sense_is_named(config, told):
    with pytest.raises(ValueError, match=told):
        config.addresses()


@pytest.mark.parametrize(
    ("code", "details", "kind"),
    [
        (Code.OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted", IsCompacted),
        (Code.OUT_OF_RANGE, "etcdserver: mvcc: required revision is a future revision", IsAhead),
        (Code.INVALID_ARGUMENT, "etcdserver: request is too large", TooLarge),
        (Code.RESOURCE_EXHAUSTED, "grpc: received message larger than max (9 vs. 8)", TooLarge),
        (Code.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded", Full),
        (Code.DATA_LOSS, "etcdserver: corrupt cluster", Corrupt),
        (Code.PERMISSION_DENIED, "etcdserver: permission denied", Failed),
        (Code.INVALID_ARGUMENT, "etcdserver: user name is empty", Failed),
    ],
)
def test_what_etcd_refuses_has_a_name(code, details, kind):
    assert type(errors.meaning(code, details)) is kind


@pytest.mark.parametrize(
    ("code", "details", "was_sent"),
    [
        (Code.UNAVAILABLE, "failed to connect to all addresses; last error: refused", False),
        (Code.RESOURCE_EXHAUSTED, "etcdserver: too many requests", False),
        (Code.UNAVAILABLE, "Socket closed", True),
        (Code.UNAVAILABLE, "etcdserver: leader changed", True),
        (Code.DEADLINE_EXCEEDED, "Deadline Exceeded", True),
    ],
)
def test_what_may_have_happened_is_told_from_what_cannot(code, details, was_sent):
    assert errors.meaning(code, details) == Transient(details, was_sent)


@pytest.mark.parametrize(
    ("prefix", "end"), [(b"/a", b"/b"), (b"/a\xff\xff", b"/b"), (b"\xff", b"\0"), (b"", b"\0")]
)
def test_the_end_of_a_prefix_is_the_next_key_without_it(prefix, end):
    assert mapping.after(prefix) == end


def test_a_listing_of_everything_stays_below_the_prefix():
    mapper = mapping.Mapper("/motley/", identity)
    assert mapper.bounds("", "") == (b"/motley/", b"/motley0")
    assert mapper.bounds("/a/", "/a/x\0") == (b"/motley/a/x\0", b"/motley/a0")
    assert not mapper.is_ours(b"/motley2/a")
    with pytest.raises(ValueError, match="must begin with /"):
        mapping.Mapper("motley", identity)


def test_an_event_whose_state_before_is_lost_is_not_told_as_a_creation():
    mapper = mapping.Mapper("", identity)
    kv = pb.KeyValue(key=b"/a", value=b"v", create_revision=3, mod_revision=5)
    with pytest.raises(Compacted):
        mapper.events([pb.Event(type=pb.Event.PUT, kv=kv)])
    new = pb.KeyValue(key=b"/a", value=b"v", create_revision=5, mod_revision=5)
    (event,) = mapper.events([pb.Event(type=pb.Event.PUT, kv=new)])
    assert (event.previous, event.created) == (None, 5)


def test_a_write_is_not_taken_for_ours_when_only_part_of_it_is_there():
    mapper = mapping.Mapper("", identity)
    ops = [Put("/a", b"1", Revision(0)), Put("/b", b"2", Revision(0))]

    def found(**revisions):
        answer = pb.TxnResponse()
        for key, revision in revisions.items():
            value = {"a": b"1", "b": b"2"}[key]
            kv = pb.KeyValue(key=f"/{key}".encode(), value=value, mod_revision=revision)
            answer.responses.add(response_range=pb.RangeResponse(kvs=[kv]))
        return answer

    assert mapper.done_before(ops, found(a=7, b=7)).revision == 7
    assert mapper.done_before(ops, found(a=7)) is None
    assert mapper.done_before(ops, found(a=7, b=8)) is None


class TestSharedQuestion:
    async def test_those_who_come_while_one_is_asked_share_the_next(self):
        asked, gates = 0, [asyncio.Event(), asyncio.Event()]

        async def ask():
            nonlocal asked
            asked += 1
            number = asked
            await gates[number - 1].wait()
            return Revision(number)

        shared = _Shared(ask)
        async with asyncio.TaskGroup() as group:
            first = group.create_task(shared.get())
            while asked < 1:
                await asyncio.wait([first], timeout=0)
            later = [group.create_task(shared.get()) for _ in range(50)]
            await asyncio.wait(later, timeout=0.01)
            gates[0].set()
            gates[1].set()
        assert first.result() == 1
        assert {task.result() for task in later} == {2}
        assert asked == 2

    async def test_those_who_waited_for_a_failure_share_it_too(self):
        asked = 0

        async def ask():
            nonlocal asked
            asked += 1
            await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.01)
            raise Unavailable("gone")

        shared = _Shared(ask)
        results = await asyncio.gather(*(shared.get() for _ in range(20)), return_exceptions=True)
        assert {type(result) for result in results} == {Unavailable}
        assert asked <= 2


async def test_a_gap_in_the_live_end_sends_every_watch_to_the_log():
    async def read_log(after, upto):
        if after < 9:
            raise Compacted(Revision(9))
        return []

    hub = Broadcaster(Revision(3), read_log)
    behind, waiting = hub.subscribe("/", Revision(1)), hub.subscribe("/", Revision(3))
    reading = asyncio.ensure_future(anext(waiting))
    await asyncio.wait([reading], timeout=0.01)
    hub.skip(Revision(9))
    for watch in (reading, anext(behind)):
        with pytest.raises(Compacted):
            await watch
    after = hub.subscribe("/", Revision(9))
    assert after.revision == 9
