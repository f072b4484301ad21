"""Telling every watch what was committed, and letting none of them hold anybody up.

A store publishes durable events in order. Each subscription keeps references to those of its
prefix until its reader takes them; one whose reader is too slow drops them and goes back to the
store's log, which has them all. So the memory of a slow reader is bounded, and it still misses
nothing until the log itself is compacted.

Invariant: what a subscription has handed out, plus what is pending, plus what it will read from
the log, is every event of its prefix after its start, once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence

from motley.store.contract import Closed, Event, Revision

PENDING = 4096  # events kept for a slow reader before it is sent back to the log
SLICE = 512  # revisions read from the log at a time, so that commits pass in between

ReadLog = Callable[[Revision, Revision], Awaitable[Sequence[Event]]]
"""The events after the first revision up to the second, of all keys; raises `Compacted`."""


class Broadcaster:
    """The live end of a store's log."""

    def __init__(self, revision: Revision, read_log: ReadLog) -> None:
        self.revision = revision
        self.read_log = read_log
        self.closed = False
        self._subscriptions: dict[Subscription, None] = {}  # told in order of arrival
        # Those of folders (`/registry/pods/`) by their folder: an event is shown to the few that
        # can want it, however many there are. The others are shown every event.
        self._by_folder: dict[str, dict[Subscription, None]] = {}
        self._others: dict[Subscription, None] = {}

    def subscribe(self, prefix: str, after: Revision) -> "Subscription":
        """A watch that starts after a revision, in the past or at the live end."""
        subscription = Subscription(self, prefix, after)
        self._subscriptions[subscription] = None
        if prefix.endswith("/"):
            self._by_folder.setdefault(prefix, {})[subscription] = None
        else:
            self._others[subscription] = None
        return subscription

    def unsubscribe(self, subscription: "Subscription") -> None:
        """Forget a watch."""
        self._subscriptions.pop(subscription, None)
        self._others.pop(subscription, None)
        siblings = self._by_folder.get(subscription.prefix, {})
        if siblings.pop(subscription, self) is None and not siblings:
            del self._by_folder[subscription.prefix]

    def publish(self, events: Sequence[Event], revision: Revision) -> None:
        """Announce durable events; they end at `revision`. Never waits."""
        self.revision = revision
        offered: dict[Subscription, list[Event]] = {}
        for event in events:
            for folder in _folders(event.key):
                for subscription in self._by_folder.get(folder, ()):
                    offered.setdefault(subscription, []).append(event)
        for subscription, wanted in offered.items():
            subscription.offer(wanted)
        for subscription in self._others:
            subscription.offer([e for e in events if e.key.startswith(subscription.prefix)])

    def skip(self, revision: Revision) -> None:
        """Go on at a revision when the events before it were lost: every watch that has not seen
        them asks the log, which must say `Compacted`."""
        self.revision = revision
        for subscription in self._subscriptions:
            subscription.lose(revision)

    def close(self) -> None:
        """End every watch with `Closed`."""
        self.closed = True
        for subscription in self._subscriptions:
            subscription.wake()
        self._subscriptions.clear()
        self._by_folder.clear()
        self._others.clear()


def _folders(key: str) -> Iterator[str]:
    """Every prefix of a key that ends with a slash."""
    at = key.find("/")
    while at >= 0:
        yield key[: at + 1]
        at = key.find("/", at + 1)


class Subscription:
    """One watch of a store (see `contract.Watch`)."""

    def __init__(self, hub: Broadcaster, prefix: str, after: Revision) -> None:
        self._hub = hub
        self.prefix = prefix
        self._after = after
        self._position = after  # handed out up to here
        self._live_from = hub.revision  # what came later is in `pending`
        self._pending: list[Event] = []
        self._waiter: asyncio.Future[None] | None = None

    @property
    def revision(self) -> Revision:
        """Every event of the prefix up to this revision has been handed out."""
        if self._pending or self._position < self._live_from:
            return self._position
        return self._hub.revision

    def __aiter__(self) -> "Subscription":
        return self

    async def __anext__(self) -> Sequence[Event]:
        while not self._hub.closed:
            if self._position < self._live_from:
                events = await self._from_log()
            else:
                events, self._pending = self._pending, []
                self._position = max(self._position, self._hub.revision)
            if events:
                return events
            if self._position >= self._live_from and not self._hub.closed:
                await self._wait()
        raise Closed("the store was closed")

    async def aclose(self) -> None:
        """Stop."""
        self._hub.unsubscribe(self)
        self._pending.clear()

    def offer(self, events: Sequence[Event]) -> None:
        """Keep events of the prefix for the reader, or a note to read them from the log."""
        after = self._after
        mine = [e for e in events if e.revision > after]
        if not mine:
            return
        self._pending += mine
        if len(self._pending) > PENDING:
            self._pending.clear()
            self._live_from = self._hub.revision
        self.wake()

    def lose(self, upto: Revision) -> None:
        """What is pending and what follows up to a revision must come from the log."""
        self._pending.clear()
        self._live_from = upto
        self.wake()

    def wake(self) -> None:
        """Let the reader look again."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    async def _from_log(self) -> list[Event]:
        position = self._position
        upto = Revision(min(self._live_from, position + SLICE))
        events = await self._hub.read_log(position, upto)
        self._position = upto
        return [e for e in events if e.key.startswith(self.prefix)]
