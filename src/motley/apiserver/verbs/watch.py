"""GET with watch=true: the changes of a collection, one JSON document per line.

Every watcher is a cursor into the kind's cache; an event's line is encoded once and shared. To a
watcher with a selector an object that begins to match is ADDED and one that stops is DELETED.

Invariant: the stream is exactly the changes after the revision it began at, in order; a watcher
too slow for the cache's ring is told 410 and must list again.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from motley.api import codec, scheme, status
from motley.apiserver import attributes, document, negotiate, tables, versions
from motley.apiserver.answer import Push, Stream
from motley.apiserver.attributes import Attributes, Matcher
from motley.apiserver.core import Core
from motley.apiserver.crds import conversion
from motley.apiserver.crds.conversion import Conversions
from motley.apiserver.crds.shown import value as shown_value
from motley.apiserver.options import ListOptions, list_options
from motley.apiserver.verbs.call import Call
from motley.lib.clock import Clock
from motley.store.contract import Closed, Compacted, Revision
from motley.store.watchcache import CachedEvent, Cursor

# A minute, as kube-apiserver; half an hour at least, so that watchers do not come back together.
BOOKMARK_S = 60.0
MIN_TIMEOUT_S = 1800.0
_LAST_BOOKMARK_S = 2.0
_FIRST = 100  # objects that are there already, sent at a time

Event = CachedEvent[Attributes]
Encode = Callable[[str, bytes], bytes]


async def handle(core: Core, call: Call) -> Stream:
    """200 with a stream that ends after its timeout."""
    options = list_options(call.info.query, watching=True)
    if call.wanted.media_type != negotiate.JSON:
        raise status.NotAcceptable(
            "only the following media types are accepted: application/json;stream=watch"
        )
    matcher = attributes.matcher(call.kind, options.label_selector, options.field_selector)
    if call.info.name:  # the old /watch/…/NAME path
        matcher = attributes.matcher(
            call.kind, options.label_selector, f"metadata.name={call.info.name}"
        )
    timeout_s = float(options.timeout_s or MIN_TIMEOUT_S * (1 + core.rng.random()))
    watcher = Watcher(call, matcher, options, core.clock, timeout_s, core.writer.conversions)
    return await watcher.begin(core)


class Watcher:
    """One watch request."""

    def __init__(
        self,
        call: Call,
        matcher: Matcher,
        options: ListOptions,
        clock: Clock,
        timeout_s: float,
        conversions: Conversions,
    ) -> None:
        self._conversions = conversions
        self._kind = call.kind
        self._prefix = call.kind.prefix(call.namespace)
        self._matcher = matcher
        self._options = options
        self._clock = clock
        self._deadline = clock.monotonic() + timeout_s
        self._bookmark_s = min(BOOKMARK_S, max(timeout_s - _LAST_BOOKMARK_S, 1.0))
        self._encode, self._form = _encoder(call)

    async def begin(self, core: Core) -> Stream:
        """Take a place in the cache, which may refuse the request, and return the stream."""
        options, kind = self._options, self._kind
        version = options.resource_version
        initial = options.send_initial_events
        if version is None:
            cache = await core.caches.fresh(kind)
        elif initial:
            cache = await core.caches.not_older_than(kind, Revision(version))
        else:
            cache = await core.caches.of(kind)
        first: list[bytes] | None = None
        after = Revision(version) if version else cache.revision
        if initial or (initial is None and not version):
            listing = cache.list(self._prefix)
            matches = self._matcher.matches
            first = [c.record.value for c in listing.items if matches(c.attributes)]
            after = listing.revision
        wanted = None if self._matcher.is_everything else self._is_wanted
        try:
            # A watch may begin in the future, at a revision that another server has told of.
            cursor = cache.watch(min(after, cache.revision), prefix=self._prefix, wanted=wanted)
        except Compacted as gone:
            return Stream(_told(_error(gone, after)))

        def connect(push: Push) -> None:
            cursor.shortcut = lambda events: push(self._lines(events, after))

        chunks = self._stream(cursor, after, first)
        shortcut = None if conversion.is_asked(kind) else connect  # which cannot wait for a webhook
        return Stream(chunks, close=cursor.close, shortcut=shortcut)

    async def _stream(
        self, cursor: "Cursor[Attributes]", after: Revision, first: Sequence[bytes] | None
    ) -> AsyncIterator[bytes]:
        there = first or ()
        try:
            await self._conversions.prime(self._kind, there)
        except status.ApiError as error:
            yield _line("ERROR", codec.encode(status.to_status(error)))
            return
        for at in range(0, len(there), _FIRST):
            yield b"".join([self._encode("ADDED", value) for value in there[at : at + _FIRST]])
        if first is not None and self._options.bookmarks:
            yield self._bookmark(after, end_of_initial=True)
        async for chunk in self._changes(cursor, after):
            yield chunk

    async def _changes(self, cursor: "Cursor[Attributes]", after: Revision) -> AsyncIterator[bytes]:
        due = self._clock.monotonic() + self._bookmark_s
        while True:
            remaining_s = self._deadline - self._clock.monotonic()
            if remaining_s <= 0:
                return
            until_s = min(due - self._clock.monotonic(), remaining_s)
            try:
                async with asyncio.timeout(max(until_s, 0)):
                    events = await anext(cursor)
            except TimeoutError:
                if self._clock.monotonic() >= due:
                    due += self._bookmark_s
                    if self._options.bookmarks:
                        yield self._bookmark(cursor.revision)
                continue
            except Compacted as gone:
                yield _error(gone, cursor.revision)
                return
            except Closed:
                return  # the resource itself is gone: its definition was deleted
            try:
                await self._prime(events)
            except status.ApiError as error:
                yield _line("ERROR", codec.encode(status.to_status(error)))
                return
            yield self._lines(events, after)

    async def _prime(self, events: Sequence[Event]) -> None:
        values = [event.value for event in events]
        values += [event.previous.record.value for event in events if event.previous is not None]
        await self._conversions.prime(self._kind, values)

    def _lines(self, events: Sequence[Event], after: Revision) -> bytes:
        """What to send for changes; those that the client knows already are left out."""
        return b"".join([self._line(event) for event in events if event.revision > after])

    def _change(self, event: Event) -> str:
        """What the event is to this watcher; empty when it is nothing."""
        matcher, previous = self._matcher, event.previous
        before = previous is not None and matcher.matches(previous.attributes)
        if event.deleted:
            return "DELETED" if before else ""
        if matcher.matches(event.attributes):
            return "MODIFIED" if before else "ADDED"
        return "LEFT" if before else ""

    def _is_wanted(self, event: Event) -> bool:
        return bool(self._change(event))

    def _line(self, event: Event) -> bytes:
        if self._matcher.is_everything:
            if event.deleted:
                change = "DELETED"
            else:
                change = "ADDED" if event.previous is None else "MODIFIED"
        else:
            change = self._change(event)
        form = f"{self._form}{change}"
        line = event.encodings.get(form)
        if line is None:
            line = event.encodings[form] = self._encoded(event, change)
        return line

    def _encoded(self, event: Event, change: str) -> bytes:
        if change == "LEFT":  # shown as it was while it matched, at the time it stopped
            assert event.previous is not None
            value = document.stamp(event.previous.record.value, event.revision)
            return self._encode("DELETED", value)
        return self._encode(change, event.value)

    def _bookmark(self, revision: int, *, end_of_initial: bool = False) -> bytes:
        metadata: dict[str, Any] = {"resourceVersion": str(revision)}
        if end_of_initial:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        shown = {
            "kind": self._kind.kind,
            "apiVersion": self._kind.api_version,
            "metadata": metadata,
        }
        return self._encode("BOOKMARK", codec.encode(shown))


def _encoder(call: Call) -> tuple[Encode, str]:
    """How an event becomes a line, and the name of that form in the shared encodings."""
    wanted = call.wanted
    if wanted.transform == "Table":
        return _table_encoder(call)
    if wanted.transform.startswith("PartialObjectMetadata"):

        def partial(change: str, value: bytes) -> bytes:
            shown = tables.partial(document.decode(value), wanted.version)
            return _line(change, codec.encode(shown))

        return partial, f"partial {wanted.version} "
    if call.kind.definition is not None or call.kind.stored_as is not None:
        kind = call.kind

        def convert(change: str, value: bytes) -> bytes:
            return _line(change, value if change == "BOOKMARK" else shown_value(kind, value))

        return convert, f"{kind.api_version} "
    return _line, ""


def _line(change: str, value: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (change.encode(), value)


def _table_encoder(call: Call) -> tuple[Encode, str]:
    """Tables: the first one names the columns, the others leave them out, as Kubernetes does.

    kubectl takes columns from any table, so every line of this shared form carries them.
    """
    include = call.info.query.text("includeObject")
    kind: scheme.Kind = versions.tabled(call.kind)
    version = call.wanted.version
    tables.of_list(kind, [], include, version)  # a wrong `includeObject` is refused before it runs

    def encode(change: str, value: bytes) -> bytes:
        is_custom = kind.definition is not None and change != "BOOKMARK"
        shown = document.decode(shown_value(kind, value) if is_custom else value)
        if change == "BOOKMARK":
            table = tables.bookmark(kind, shown, version)
        else:
            table = tables.of_object(kind, shown, include, version)
        return _line(change, codec.encode(table))

    # Ages in a table are as of now, so tables are not worth sharing for long; events are young.
    return encode, f"table {include} {version} "


async def _told(line: bytes) -> AsyncIterator[bytes]:
    yield line


def _error(gone: Compacted, asked: int) -> bytes:
    error = status.Gone(f"too old resource version: {asked} ({gone.oldest})")
    return _line("ERROR", codec.encode(status.to_status(error)))
