"""List, then watch, for ever: keeps a sink equal to the server's state.

The state machine is free of transport: it speaks to a `Source` (list, watch) and a `Sink`
(replace, apply), so tests drive it with a scripted source.

    list ──► replace ──► watch from the list's revision ──► apply each event
     ▲                     │  ▲
     │ Gone, or history    │  └─ broken or ended: resume from the last revision seen
     └─ goes backwards ◄───┘

Where the server offers it, the list is the beginning of the watch (a streamed list); a server that
refuses is not asked again.

Invariant: the sink sees every change after its last `replace` exactly once, in order; a break of
the connection shows as a pause, never as a gap or a repetition.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Generic, Protocol, TypeVar

from motley.api import status
from motley.api.views.base import Key, Object
from motley.client.decoding import Listing, WatchEvent
from motley.lib import journal
from motley.lib.backoff import Backoff
from motley.lib.clock import SYSTEM, Clock

log = journal.get(__name__)

T = TypeVar("T", bound=Object)

# A watch that ends sooner than this without an event counts as a failure, so that a server that
# closes every watch at once is not asked in a tight loop.
_SHORT_WATCH_S = 1.0
# A server that answers but keeps refusing to resume is asked for a fresh list.
_REFUSALS_BEFORE_RELIST = 2


class Source(Protocol[T]):
    """Where the objects come from."""

    async def list(self) -> Listing[T]:
        """All objects and the revision they are of."""

    def watch(
        self, resource_version: str, *, initial_events: bool = False
    ) -> AsyncGenerator[WatchEvent[T], None]:
        """Changes after a revision; ends or raises when the connection does. With
        `initial_events` all objects first, then a bookmark that says so."""


class Sink(Protocol[T]):
    """Who wants to know."""

    def replace(self, items: list[T]) -> None:
        """This is the whole state now; what is missing is gone."""

    def apply(self, event: WatchEvent[T]) -> None:
        """One change: ADDED, MODIFIED or DELETED."""


class Reflector(Generic[T]):
    """Drives a sink from a source; `resource_version` is where it stands."""

    def __init__(
        self,
        name: str,
        source: Source[T],
        sink: Sink[T],
        *,
        clock: Clock = SYSTEM,
        backoff: Backoff | None = None,
        streams: bool = True,
    ) -> None:
        self._name = name
        self._source = source
        self._sink = sink
        self._clock = clock
        self._backoff = backoff or Backoff(base_s=0.1, cap_s=10.0)
        self._refusals = 0
        self._refusal = ""
        self._streams = streams
        self.resource_version = ""
        self.interrupted_at = float("-inf")  # when the server was last found unreachable

    async def run(self) -> None:
        """Reflect until cancelled. Only programming errors end it."""
        while True:
            try:
                await self._follow()
            except status.Gone:
                log.info("history compacted, listing again", resource=self._name)
                self._relist()
                await self._clock.sleep(self._backoff.next())
            except status.ServiceUnavailable as error:
                log.debug("server not reached", resource=self._name, error=error.message)
                self.interrupted_at = self._clock.monotonic()
                await self._clock.sleep(self._backoff.next())
            except status.ApiError as error:
                await self._refused(error)

    async def _follow(self) -> None:
        if self.resource_version:
            await self._watch()
        elif self._streams:
            await self._stream()
        else:
            await self._list()
            await self._watch()

    async def _stream(self) -> None:
        """List and watch in one; nothing reaches the sink before the list is whole."""
        async with aclosing(self._source.watch("", initial_events=True)) as events:
            try:
                await self._stream_list(events)
            except (status.ServiceUnavailable, status.Gone):
                raise  # not reached: that says nothing about what is offered
            except status.ApiError as error:
                # Whatever the reason is, a plain list is always possible where one may list.
                log.debug("no streamed lists here", resource=self._name, error=error.message)
                self._streams = False
                return
            async for event in events:
                self._take(event)
                if not self.resource_version:
                    return

    async def _stream_list(self, events: AsyncGenerator[WatchEvent[T], None]) -> None:
        initial: dict[Key, T] = {}
        async for event in events:
            if event.ends_initial_events:
                self._sink.replace(list(initial.values()))
                self.resource_version = event.resource_version
                return
            if event.type == "DELETED":
                initial.pop(event.object.key, None)
            elif event.type != "BOOKMARK":
                initial[event.object.key] = event.object
        raise status.ServiceUnavailable("the watch ended before its list was whole")

    async def _list(self) -> None:
        listing = await self._source.list()
        self._sink.replace(listing.items)
        self.resource_version = listing.resource_version

    async def _watch(self) -> None:
        started = self._clock.monotonic()
        seen = 0
        async with aclosing(self._source.watch(self.resource_version)) as events:
            async for event in events:
                seen += 1
                self._take(event)
                if not self.resource_version:
                    return
        if seen == 0 and self._clock.monotonic() - started < _SHORT_WATCH_S:
            await self._clock.sleep(self._backoff.next())

    def _take(self, event: WatchEvent[T]) -> None:
        revision = event.resource_version
        if _precedes(revision, self.resource_version):
            log.warning("server's history went backwards, listing again", resource=self._name)
            self._relist()
            return
        if event.type != "BOOKMARK":
            self._sink.apply(event)
        self.resource_version = revision or self.resource_version
        self._backoff.reset()
        self._refusals = 0
        self._refusal = ""

    async def _refused(self, error: status.ApiError) -> None:
        # Said once: a kind that is not served here may never be.
        say = log.debug if error.message == self._refusal else log.warning
        say("list or watch refused", resource=self._name, error=error.message)
        self._refusal = error.message
        self._refusals += 1
        if self._refusals >= _REFUSALS_BEFORE_RELIST:
            self._relist()
        await self._clock.sleep(self._backoff.next())

    def _relist(self) -> None:
        self.resource_version = ""
        self._refusals = 0


def _precedes(revision: str, last: str) -> bool:
    """Revisions of one server only grow; numbers that shrink mean its data was replaced."""
    return revision.isdigit() and last.isdigit() and int(revision) < int(last)
