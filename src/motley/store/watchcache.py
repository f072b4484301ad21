"""Watch cache: the objects of one resource, and the last of their changes, shared by all watchers.

One task follows the store. It computes what the caller wants to know about an object (labels,
fields for selectors) once per change, keeps the latest state in key order, and appends the change
to a ring. A watcher is a cursor into that ring: it costs no queue and no copy, gets everything
since its last look as one batch, and is woken only by changes it asked for.

Invariants: nobody waits for a watcher; one that is so slow that the ring passed it is cut off with
`Compacted` and must list again. List and ring agree: listing, then watching from the listing's
revision, misses nothing and repeats nothing.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Generic, TypeVar

from motley.lib import journal
from motley.lib.clock import SYSTEM, Clock
from motley.store.cached import Cached, CachedEvent, Listing
from motley.store.contract import (
    Ahead,
    Closed,
    Compacted,
    Event,
    Record,
    Revision,
    Store,
    Unavailable,
    Watch,
)
from motley.store.keyspace import Keyspace

log = journal.get(__name__)

A = TypeVar("A")

CAPACITY = 4096  # changes kept: a minute of a very busy resource, hours of a quiet one
FOLLOWED = 512  # of the last changes, encoded forms are kept for those who follow closely
CATCH_UP_S = 3.0  # kube-apiserver's limit for waiting until a cache has a revision
RECHECK_S = 0.01
LIST_AGAIN_S = 1.0  # the store has already tried for a while when it says `Unavailable`

_by_revision = attrgetter("revision")


Wanted = Callable[[CachedEvent[A]], bool]


class WatchCache(Generic[A]):
    """The cache of one prefix; `run` it in a task group, then `ready()` before reading."""

    def __init__(
        self,
        store: Store,
        prefix: str,
        attributes: Callable[[str, bytes], A],
        capacity: int = CAPACITY,
        *,
        clock: Clock = SYSTEM,
    ) -> None:
        self.prefix = prefix
        self._store = store
        self._attributes = attributes
        self._capacity = capacity
        self._clock = clock
        self._latest: Keyspace[Cached[A]] = Keyspace()
        self._ring: list[CachedEvent[A]] = []
        self._dropped = 0  # how many changes left the ring: ring[i] has number dropped + i
        self._plain = 0  # changes of the ring whose encoded forms are gone
        self._horizon = Revision(0)  # the ring holds every change after this revision
        self._applied = Revision(0)
        self._watch: Watch | None = None
        self._target = Revision(0)  # the store's revision when it was last listed
        self._listed = asyncio.Event()
        self._cursors: dict[Cursor[A], None] = {}  # in order of arrival, so woken in it
        self._stopped = False
        self._waiting: dict[asyncio.Future[None], None] = {}

    async def run(self) -> None:
        """Follow the store until cancelled or the store is closed, which raises `Closed`."""
        while True:
            try:
                await self._follow()
            except Compacted as gone:
                log.warning(
                    "cache fell behind, listing again", prefix=self.prefix, oldest=gone.oldest
                )
            except Unavailable as away:
                log.warning("cache cannot list", prefix=self.prefix, reason=str(away))
                await self._clock.sleep(LIST_AGAIN_S)

    def stop(self) -> None:
        """End every watch: what this cache shows is no longer served."""
        self._stopped = True
        self._listed.set()
        for cursor in self._cursors:
            cursor.wake()

    async def ready(self) -> None:
        """Wait until the cache shows all that the store had when it was first asked.

        One that is stopped keeps nobody waiting, and shows nothing that may be relied on.
        """
        await self._listed.wait()
        while not self.is_ready and not self._stopped:
            await self._some_progress()

    @property
    def is_ready(self) -> bool:
        """Whether the cache has caught up with the store once."""
        return self._listed.is_set() and self.revision >= self._target

    @property
    def revision(self) -> Revision:
        """The cache shows every change of its prefix up to this revision of the store.

        It moves on when other resources change, so it is fit for bookmarks and list answers.
        """
        return max(self._applied, self._watch.revision) if self._watch else self._applied

    @property
    def changed(self) -> Revision:
        """A revision since which nothing of this resource has changed here, moved by changes only:
        what was made of the objects at one is what would be made of them now."""
        return self._applied

    @property
    def horizon(self) -> Revision:
        """The oldest revision that a watch can start after."""
        return self._horizon

    async def wait_until(self, revision: Revision, timeout_s: float = CATCH_UP_S) -> None:
        """Return once everything up to `revision` is visible here, so a client reads its writes.

        Usually at once. Raises `Ahead` when the revision does not come in time.
        """
        if revision <= self.revision:
            return
        deadline = self._clock.monotonic() + timeout_s
        while self.revision < revision:
            if self._clock.monotonic() >= deadline:
                raise Ahead(self.revision)
            await self._some_progress()

    @property
    def is_empty(self) -> bool:
        """Whether there is no object at all: much cheaper than an empty list."""
        return not len(self._latest)

    def get(self, key: str) -> Cached[A] | None:
        """One object, as of `revision`."""
        return self._latest.get(key)

    def list(self, prefix: str = "", *, start: str = "", limit: int = 0) -> Listing[A]:
        """Objects in key order: all, or those of a longer prefix (a namespace), from `start`."""
        items, beyond = self._latest.range(prefix or self.prefix, start, limit)
        return Listing(items, self.revision, beyond)

    def events_since(self, revision: Revision) -> Sequence[CachedEvent[A]]:
        """Every change after a revision; raises `Compacted` when the ring no longer has them."""
        if revision < self._horizon:
            raise Compacted(self._horizon)
        return self._ring[bisect_right(self._ring, revision, key=_by_revision) :]

    def watch(
        self, after: Revision, *, prefix: str = "", wanted: Wanted[A] | None = None
    ) -> "Cursor[A]":
        """A cursor on the changes after a revision, of the whole resource or a longer prefix.

        `wanted` is asked for each of them, must not raise, and costs far less than waking a
        watcher that has no use for the change. Raises `Compacted`; `Ahead`, which `wait_until`
        prevents.
        """
        if after > self.revision:
            raise Ahead(self.revision)
        if after < self._horizon:
            raise Compacted(self._horizon)
        number = self._dropped + bisect_right(self._ring, after, key=_by_revision)
        cursor = Cursor(self, number, after, prefix or self.prefix, wanted)
        self._cursors[cursor] = None
        return cursor

    async def _follow(self) -> None:
        """List, then apply the store's changes.

        The first listing is of a moment in the past that the log still reaches, so that watchers
        which come back after a restart of this process find their changes here and need not list
        again. Later ones are of now: what was shown is never taken back.
        """
        self._target = await self._store.revision()
        at = self._target
        if not self._listed.is_set():
            at = Revision(max(await self._store.oldest(), at - self._capacity))
        listed = await self._store.range(self.prefix, at=at)
        self._reset(listed.records, listed.revision)
        watch = self._watch = self._store.watch(self.prefix, listed.revision)
        self._listed.set()
        try:
            async for events in watch:
                self._apply(events)
        finally:
            self._applied = self.revision
            self._watch = None
            await watch.aclose()

    def _reset(self, records: Sequence[Record], revision: Revision) -> None:
        """Begin anew from a listing; cursors that were here are cut off."""
        attributes = self._attributes
        items = {r.key: Cached(r, attributes(r.key, r.value)) for r in records}
        self._latest = Keyspace(items)
        self._dropped += len(self._ring) + 1  # no old cursor can be mistaken for a current one
        self._ring = []
        self._plain = 0
        self._horizon = self._applied = revision
        for cursor in self._cursors:
            cursor.wake()

    def _apply(self, events: Sequence[Event]) -> None:
        """Take in changes, then wake who wants them. Never waits."""
        latest, attributes = self._latest, self._attributes
        fresh: list[CachedEvent[A]] = []
        for event in events:
            key = event.key
            before = latest.get(key)
            if event.value is not None:
                record = Record(key, event.value, event.revision, event.created)
                about = attributes(key, event.value)
                latest.put(key, Cached(record, about))
            elif before is not None:
                about = before.attributes
                latest.remove(key)
            else:
                continue
            deleted = event.value is None
            fresh.append(CachedEvent(event.revision, key, event.last_state, deleted, about, before))
        if not fresh:
            return
        self._ring += fresh
        self._applied = fresh[-1].revision
        self._trim()
        for cursor in self._cursors:
            cursor.offer(fresh)
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)

    def _trim(self) -> None:
        """Drop the oldest changes, many at a time: that moves the rest rarely."""
        late = len(self._ring) - FOLLOWED
        for event in self._ring[self._plain : max(late, self._plain)]:
            event.encodings.clear()
        self._plain = max(late, self._plain)
        if len(self._ring) >= 2 * self._capacity:
            count = len(self._ring) - self._capacity
            self._horizon = self._ring[count - 1].revision
            self._dropped += count
            del self._ring[:count]
            self._plain = max(0, self._plain - count)

    async def _some_progress(self) -> None:
        """Wait for a change here, or a moment: changes elsewhere move `revision` silently."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = None
        try:
            async with asyncio.timeout(RECHECK_S):
                await waiter
        except TimeoutError:
            pass
        finally:
            self._waiting.pop(waiter, None)


class Cursor(Generic[A]):
    """One watcher's place in the ring; `async for` over it gives batches, then `close()`."""

    def __init__(
        self,
        cache: WatchCache[A],
        number: int,
        after: Revision,
        prefix: str,
        wanted: Wanted[A] | None,
    ) -> None:
        self._cache = cache
        self._number = number  # of the next change to look at
        self._seen = after
        self._prefix = prefix if prefix != cache.prefix else ""
        self._wanted = wanted
        self._waiter: asyncio.Future[None] | None = None
        self.shortcut: Callable[[Sequence[CachedEvent[A]]], bool] | None = None
        """Given changes as they come while the reader waits. It must not wait or raise; when it
        says False it has done nothing with them, and the reader is woken to take them."""

    @property
    def revision(self) -> Revision:
        """This watcher was given every change it wants up to this revision: for bookmarks."""
        cache = self._cache
        if self._number == cache._dropped + len(cache._ring):
            return max(self._seen, cache.revision)
        return self._seen

    def __aiter__(self) -> "Cursor[A]":
        return self

    async def __anext__(self) -> Sequence[CachedEvent[A]]:
        """The next changes, at least one; waits for them. Raises `Compacted` when too slow."""
        while True:
            events = self.take()
            if events:
                return events
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    def take(self) -> Sequence[CachedEvent[A]]:
        """The changes there are now, without waiting.

        Raises `Compacted` when too slow, `Closed` when the cache was stopped.
        """
        cache = self._cache
        if cache._stopped:
            raise Closed("what was watched is no longer served")
        begin = self._number - cache._dropped
        if begin < 0:
            raise Compacted(cache._horizon)
        ring = cache._ring
        if begin == len(ring):
            return ()
        events = self._choose(ring[begin:])
        self._number = cache._dropped + len(ring)
        self._seen = ring[-1].revision
        return events

    def offer(self, events: Sequence[CachedEvent[A]]) -> None:
        """Called by the cache for changes just appended: pass a waiting reader those it wants.

        A waiting reader has seen all the rest, so changes it does not want, or gets through the
        shortcut, move it on, and a quiet watcher never falls off the ring.
        """
        if self._waiter is None or self._waiter.done():
            return
        chosen = self._choose(events)
        if chosen and (self.shortcut is None or not self.shortcut(chosen)):
            self._waiter.set_result(None)
            return
        cache = self._cache
        self._number = cache._dropped + len(cache._ring)
        self._seen = events[-1].revision

    def wake(self) -> None:
        """Let a waiting reader look again."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def close(self) -> None:
        """Stop watching; a cursor that is not closed is offered every change."""
        self._cache._cursors.pop(self, None)

    def _wants(self, event: CachedEvent[A]) -> bool:
        if self._prefix and not event.key.startswith(self._prefix):
            return False
        return self._wanted is None or self._wanted(event)

    def _choose(self, events: Sequence[CachedEvent[A]]) -> Sequence[CachedEvent[A]]:
        if not self._prefix and self._wanted is None:
            return events
        return [event for event in events if self._wants(event)]
