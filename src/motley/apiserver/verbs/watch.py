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
from motley.apiserver.crds import conversion, selection
from motley.apiserver.crds.selection import Selection
from motley.apiserver.crds.shown import value as shown_value
from motley.apiserver.options import ListOptions, list_options
from motley.apiserver.verbs.call import Call
from motley.store.cached import Cached, CachedEvent
from motley.store.contract import Closed, Compacted, Revision
from motley.store.watchcache import Cursor

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
    selecting = selection.of(call.kind, matcher)
    if selecting is not None:
        return await SelectingWatcher(core, call, matcher, options, timeout_s, selecting).begin()
    return await Watcher(core, call, matcher, options, timeout_s).begin()


class Watcher:
    """One watch request."""

    def __init__(
        self, core: Core, call: Call, matcher: Matcher, options: ListOptions, timeout_s: float
    ) -> None:
        self._caches = core.caches
        self._conversions = core.writer.conversions
        self._kind = call.kind
        self._prefix = call.kind.prefix(call.namespace)
        self._matcher = matcher
        self._options = options
        self._clock = core.clock
        self._deadline = core.clock.monotonic() + timeout_s
        self._bookmark_s = min(BOOKMARK_S, max(timeout_s - _LAST_BOOKMARK_S, 1.0))
        self._encode, self._form = _encoder(call)

    async def begin(self) -> Stream:
        """Take a place in the cache, which may refuse the request, and return the stream."""
        options, kind = self._options, self._kind
        version = options.resource_version
        initial = options.send_initial_events
        if version is None:
            cache = await self._caches.fresh(kind)
        elif initial:
            cache = await self._caches.not_older_than(kind, Revision(version))
        else:
            cache = await self._caches.of(kind)
        first: list[bytes] | None = None
        after = Revision(version) if version else cache.revision
        if initial or (initial is None and not version):
            listing = cache.list(self._prefix)
            after = listing.revision
            first = await self._chosen(listing.items)
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
            for at in range(0, len(there), _FIRST):
                some = there[at : at + _FIRST]
                # Again: conversions may be forgotten while others are sent to a slow client.
                await self._conversions.prime(self._kind, some)
                yield b"".join([self._encode("ADDED", value) for value in some])
        except status.ApiError as error:
            yield _line("ERROR", codec.encode(status.to_status(error)))
            return
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
            if lines := self._lines(events, after):
                yield lines

    async def _chosen(self, items: Sequence[Cached[Attributes]]) -> list[bytes]:
        """Of the objects that are there already, those to begin with."""
        matches = self._matcher.matches
        return [c.record.value for c in items if matches(c.attributes)]

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


class SelectingWatcher(Watcher):
    """A watch whose selectors look at objects as its version shows them, not as they are kept."""

    def __init__(
        self,
        core: Core,
        call: Call,
        matcher: Matcher,
        options: ListOptions,
        timeout_s: float,
        selecting: Selection,
    ) -> None:
        super().__init__(core, call, matcher, options, timeout_s)
        self._selecting = selecting

    async def _chosen(self, items: Sequence[Cached[Attributes]]) -> list[bytes]:
        await self._conversions.prime(self._kind, (c.record.value for c in items))
        return [c.record.value for c in items if self._selects(c)]

    def _selects(self, found: Cached[Attributes]) -> bool:
        return self._selecting.matches(found.record.key, found.record.value, found.attributes)

    def _lines(self, events: Sequence[Event], after: Revision) -> bytes:
        return super()._lines([event for event in events if self._change(event)], after)

    def _change(self, event: Event) -> str:
        before = event.previous is not None and self._selects(event.previous)
        if event.deleted:
            return "DELETED" if before else ""
        if self._selecting.matches(event.key, event.value, event.attributes):
            return "MODIFIED" if before else "ADDED"
        return "LEFT" if before else ""

    def _is_wanted(self, event: Event) -> bool:
        """What nobody has translated yet may be: that is asked before lines are made of it."""
        previous, can_judge = event.previous, self._selecting.can_judge
        if previous is not None and not can_judge(previous.record.value):
            return True
        if not event.deleted and not can_judge(event.value):
            return True
        return bool(self._change(event))


def _encoder(call: Call) -> tuple[Encode, str]:
    """How an event becomes a line, and the name of that form in the shared encodings."""
    wanted = call.wanted
    if wanted.transform == "Table":
        return _table_encoder(call)
    if wanted.transform.startswith("PartialObjectMetadata"):

        def partial(change: str, value: bytes) -> bytes:
            shown = tables.partial(_shown(call.kind, change, value), wanted.version)
            return _line(change, codec.encode(shown))

        return partial, f"partial {wanted.version} {_own_form(call.kind)}"
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
        shown = _shown(kind, change, value)
        if change == "BOOKMARK":
            table = tables.bookmark(kind, shown, version)
        else:
            table = tables.of_object(kind, shown, include, version)
        return _line(change, codec.encode(table))

    # Ages in a table are as of now, so tables are not worth sharing for long; events are young.
    return encode, f"table {include} {version} {_own_form(kind)}"


def _shown(kind: scheme.Kind, change: str, value: bytes) -> dict[str, Any]:
    is_custom = kind.definition is not None and change != "BOOKMARK"
    return document.decode(shown_value(kind, value) if is_custom else value)


def _own_form(kind: scheme.Kind) -> str:
    """Versions of a custom resource look different also in forms that built-in kinds share."""
    return f"{kind.api_version} " if kind.definition is not None else ""


async def _told(line: bytes) -> AsyncIterator[bytes]:
    yield line


def _error(gone: Compacted, asked: int) -> bytes:
    error = status.Gone(f"too old resource version: {asked} ({gone.oldest})")
    return _line("ERROR", codec.encode(status.to_status(error)))
