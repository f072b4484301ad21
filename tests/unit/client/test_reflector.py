import asyncio

import pytest

from motley.api import status
from motley.api.views.core import ConfigMap
from motley.client.decoding import Listing, ListMeta, WatchEvent
from motley.client.informer import Cache
from motley.client.reflector import Reflector

pytestmark = pytest.mark.looptime


def obj(name, version, uid="", **data):
    return ConfigMap.of(
        {
            "metadata": {
                "name": name,
                "namespace": "n",
                "uid": uid or name,
                "resourceVersion": str(version),
            },
            "data": data,
        }
    )


def event(kind, name, version, **data):
    return WatchEvent(type=kind, object=obj(name, version, **data))


class Script:
    """A source that plays prepared lists and watches, then stays silent."""

    def __init__(self, lists, watches):
        self.lists, self.watches = list(lists), list(watches)
        self.watched_from = []

    async def list(self):
        answer = self.lists.pop(0)
        if isinstance(answer, Exception):
            raise answer
        version, items = answer
        return Listing(metadata=ListMeta(resource_version=str(version)), items=items)

    async def watch(self, resource_version, *, initial_events=False):
        if initial_events:
            raise status.BadRequest("sendInitialEvents is not offered here")
        self.watched_from.append(resource_version)
        if not self.watches:
            await asyncio.Event().wait()
        for step in self.watches.pop(0):
            if isinstance(step, Exception):
                raise step
            yield step


class Log:
    def __init__(self, cache):
        self.lines = []
        cache.add_handler(self)

    def __call__(self, change):
        if change.old is None:
            self.lines.append(f"+{change.key.name}@{change.new.metadata.resource_version}")
        elif change.new is None:
            self.lines.append(f"-{change.key.name}@{change.old.metadata.resource_version}")
        else:
            self.lines.append(f"~{change.key.name}@{change.new.metadata.resource_version}")


async def play(lists, watches, clock):
    source, cache = Script(lists, watches), Cache()
    log = Log(cache)
    reflector = Reflector("configmaps", source, cache, clock=clock)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(300):
            await reflector.run()
    return source, cache, log.lines, reflector


async def test_a_watch_that_breaks_is_resumed_from_the_last_revision(clock):
    source, _, lines, _ = await play(
        [(5, [obj("a", 3)])],
        [
            [event("ADDED", "b", 6), status.ServiceUnavailable("broken")],
            [event("MODIFIED", "a", 7)],
            [event("DELETED", "b", 9)],
        ],
        clock,
    )
    assert source.watched_from == ["5", "6", "7", "9"]
    assert lines == ["+a@3", "+b@6", "~a@7", "-b@9"]


async def test_a_bookmark_moves_the_revision_and_is_not_announced(clock):
    source, _, lines, _ = await play(
        [(5, [])], [[event("BOOKMARK", "", 40)], [event("ADDED", "a", 41)]], clock
    )
    assert source.watched_from == ["5", "40", "41"]
    assert lines == ["+a@41"]


async def test_a_relist_after_gone_announces_only_the_differences(clock):
    _, cache, lines, _ = await play(
        [(5, [obj("a", 1), obj("b", 2), obj("c", 3)]), (90, [obj("a", 1), obj("b", 80)])],
        [[status.Gone("compacted")]],
        clock,
    )
    assert lines == ["+a@1", "+b@2", "+c@3", "-c@3", "~b@80"]
    assert {key.name for key in cache.objects} == {"a", "b"}


async def test_gone_as_the_first_event_does_not_lose_the_relist(clock):
    source, _, lines, _ = await play(
        [(5, []), (50, [obj("a", 44)])], [[status.Gone("")], [event("ADDED", "b", 51)]], clock
    )
    assert source.watched_from == ["5", "50", "51"]
    assert lines == ["+a@44", "+b@51"]


async def test_an_object_made_again_between_lists_is_a_deletion_and_an_addition(clock):
    _, _, lines, _ = await play(
        [(5, [obj("a", 1, uid="first")]), (9, [obj("a", 8, uid="second")])],
        [[status.Gone("")]],
        clock,
    )
    assert lines == ["+a@1", "-a@1", "+a@8"]


async def test_a_server_whose_history_restarted_is_listed_again(clock):
    _, cache, lines, _ = await play(
        [(500, [obj("old", 400)]), (3, [obj("new", 2)])], [[event("ADDED", "new", 2)]], clock
    )
    assert lines == ["+old@400", "-old@400", "+new@2"]
    assert len(cache.objects) == 1


async def test_an_unreachable_server_is_asked_again_with_growing_pauses(clock, looptime):
    failures = [status.ServiceUnavailable("down") for _ in range(8)]
    source, _, lines, _ = await play([*failures, (5, [obj("a", 1)])], [], clock)
    assert lines == ["+a@1"]
    assert source.lists == []


async def test_it_remembers_when_it_was_cut_off(clock, looptime):
    failures = [status.ServiceUnavailable("down") for _ in range(3)]
    *_, untouched = await play([(5, []), (6, [])], [[], [status.Gone("")]], clock)
    assert untouched.interrupted_at == float("-inf")
    started = float(looptime)
    *_, cut_off = await play([(5, [])], [[e] for e in failures], clock)
    assert started <= cut_off.interrupted_at < started + 10


async def test_a_server_that_keeps_refusing_the_watch_is_listed_again(clock):
    source, _, lines, _ = await play(
        [(500, []), (7, [obj("a", 6)])],
        [[status.GatewayTimeout("too large resource version")] for _ in range(2)],
        clock,
    )
    assert lines == ["+a@6"]
    assert source.watched_from[-1] == "7"


async def test_a_server_that_ends_every_watch_at_once_is_not_asked_in_a_tight_loop(clock):
    source, *_ = await play([(5, [])], [[] for _ in range(1000)], clock)
    assert len(source.watched_from) < 100


async def test_the_same_version_again_is_not_announced(clock):
    _, _, lines, _ = await play(
        [(5, [obj("a", 5)])], [[event("ADDED", "a", 5), event("MODIFIED", "a", 6)]], clock
    )
    assert lines == ["+a@5", "~a@6"]


async def test_a_deletion_carries_the_last_state_the_server_knew(clock):
    cache = Cache()
    seen = []
    cache.add_handler(seen.append)
    cache.apply(event("ADDED", "a", 1, x="1"))
    cache.apply(event("DELETED", "a", 2, x="2"))
    assert seen[-1].new is None
    assert seen[-1].old.data == {"x": "2"}


async def test_a_handler_added_late_is_told_what_is_there(clock):
    cache = Cache()
    cache.apply(event("ADDED", "a", 1))
    log = Log(cache)
    assert log.lines == ["+a@1"]


async def test_a_failing_handler_stops_neither_the_others_nor_the_cache(clock, caplog):
    cache = Cache()

    def broken(change):
        raise KeyError("bug")

    cache.add_handler(broken)
    log = Log(cache)
    cache.apply(event("ADDED", "a", 1))
    assert log.lines == ["+a@1"]
    assert "informer handler failed" in caplog.text


async def test_indexes_follow_every_change(clock):
    cache = Cache({"color": lambda o: [o.data["color"]] if "color" in o.data else []})
    cache.apply(event("ADDED", "a", 1, color="red"))
    cache.apply(event("ADDED", "b", 2, color="red"))
    assert {o.metadata.name for o in cache.by_index("color", "red")} == {"a", "b"}
    cache.apply(event("MODIFIED", "a", 3, color="blue"))
    assert [o.metadata.name for o in cache.by_index("color", "blue")] == ["a"]
    cache.apply(event("DELETED", "b", 4))
    assert cache.by_index("color", "red") == []
    cache.add_index("name", lambda o: [o.metadata.name])
    assert len(cache.by_index("name", "a")) == 1


class Streaming(Script):
    """A source whose watches may begin with a list."""

    async def watch(self, resource_version, *, initial_events=False):
        async for step in Script.watch(self, "initial" if initial_events else resource_version):
            yield step


def whole(version):
    mark = {"k8s.io/initial-events-end": "true"}
    metadata = {"resourceVersion": str(version), "annotations": mark}
    return WatchEvent(type="BOOKMARK", object=ConfigMap.of({"metadata": metadata}))


async def stream(watches, clock):
    source, cache = Streaming([], watches), Cache()
    log = Log(cache)
    reflector = Reflector("configmaps", source, cache, clock=clock)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(reflector.run())
        await clock.sleep(60)
        running.cancel()
    return source, cache, log


async def test_a_streamed_list_is_announced_when_it_is_whole_and_goes_on_as_a_watch(clock):
    first = [event("ADDED", "a", 1), event("ADDED", "b", 2), event("MODIFIED", "a", 5)]
    first += [event("ADDED", "c", 3), event("DELETED", "c", 6), whole(7), event("ADDED", "d", 8)]
    source, cache, log = await stream([first], clock)
    assert log.lines == ["+a@5", "+b@2", "+d@8"]
    assert source.watched_from == ["initial", "8"]
    assert {key.name for key in cache.objects} == {"a", "b", "d"}


async def test_a_streamed_list_that_breaks_off_is_begun_again(clock):
    broken = [event("ADDED", "a", 1), event("ADDED", "gone", 2)]
    source, _, log = await stream(
        [broken, [status.ServiceUnavailable("cut")], [event("ADDED", "a", 1), whole(4)]], clock
    )
    assert source.watched_from == ["initial", "initial", "initial", "4"]
    assert log.lines == ["+a@1"]


async def test_a_streamed_list_after_gone_announces_only_the_differences(clock):
    first = [event("ADDED", "a", 1), event("ADDED", "b", 2), whole(2)]
    again = [event("ADDED", "a", 9), whole(9)]
    _, _, log = await stream([[*first, status.Gone("compacted")], again], clock)
    assert log.lines == ["+a@1", "+b@2", "-b@2", "~a@9"]
