"""Who hears of an event: every watch whose prefix begins its key, and nobody else."""

import asyncio
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from motley.store.broadcast import Broadcaster
from motley.store.contract import Event, Revision


def _event(revision: int, key: str) -> Event:
    number = Revision(revision)
    return Event(number, key, b"v", None, b"v", number)


async def _no_log(after: Revision, upto: Revision) -> Sequence[Event]:
    raise AssertionError("nothing was missed")


_KEYS = st.text("ab/", min_size=1, max_size=6)


@given(st.lists(_KEYS, max_size=6), st.lists(st.lists(_KEYS, min_size=1, max_size=4), max_size=4))
def test_a_watch_gets_the_events_of_its_prefix_once_and_in_order(prefixes, groups):
    async def heard() -> None:
        hub = Broadcaster(Revision(0), _no_log)
        watches = [hub.subscribe(prefix, Revision(0)) for prefix in prefixes]
        everything: list[Event] = []
        for keys in groups:
            events = [_event(len(everything) + i + 1, key) for i, key in enumerate(keys)]
            everything += events
            hub.publish(events, events[-1].revision)
        for prefix, watch in zip(prefixes, watches, strict=True):
            wanted = [e for e in everything if e.key.startswith(prefix)]
            if wanted:
                assert list(await anext(watch)) == wanted
            assert watch.revision == hub.revision

    asyncio.run(heard())


async def test_a_watch_that_was_closed_is_told_nothing_and_its_sibling_everything():
    hub = Broadcaster(Revision(0), _no_log)
    closed, kept = hub.subscribe("/pods/", Revision(0)), hub.subscribe("/pods/", Revision(0))
    await closed.aclose()
    await closed.aclose()  # twice is once
    hub.publish([_event(1, "/pods/a")], Revision(1))
    assert [e.key for e in await anext(kept)] == ["/pods/a"]
    assert closed.revision == 1  # nothing pending: it keeps no event
