"""Event objects: what `kubectl describe` shows as the story of an object.

Recording never waits and never fails its caller: events go into bounded queues and background
tasks write them. The same event again within ten minutes becomes a count on the first, events that
differ only in their message become one after the tenth, and an object that produces a flood is cut
down, so that a crash loop cannot fill the store (the rules are client-go's).
Invariant: the events of one object are written in the order they were noted.
"""

import asyncio
import zlib
from collections import OrderedDict
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

from motley.api import status
from motley.api.views.base import Object
from motley.api.views.core import Event
from motley.client.together import Writes
from motley.lib import clock as clocks
from motley.lib import journal
from motley.lib.clock import SYSTEM, Clock

log = journal.get(__name__)

_WRITERS = 8  # in flight at once; the objects are divided among them
_QUEUE = 1000  # waiting, for all writers together
_REMEMBERED = 4096  # client-go's correlator cache
_SIMILAR = 10  # client-go: more messages than this about one thing are combined
_COMBINED = "(combined from similar events): "
_AGGREGATE_S = 600.0  # client-go: repeats within 10 minutes count as one
_BURST, _REFILL_S = 25, 300.0  # client-go's spam filter: 25 at once, then one per 5 minutes
_MESSAGE_MAX = 1024  # the API's limit on an event's message


@dataclass(slots=True)
class _Entry:
    """An event already written."""

    namespace: str
    name: str
    count: int
    last: float


@dataclass(slots=True)
class _Similar:
    """What was said lately about one thing."""

    messages: set[str] = field(default_factory=set)
    last: float = 0.0


@dataclass(slots=True)
class _Bucket:
    """How many more events an object may have."""

    tokens: float
    filled: float


@dataclass(frozen=True, slots=True)
class _Note:
    """One occurrence, as taken from the caller."""

    component: str
    reference: dict[str, str]
    type: str
    reason: str
    message: str
    at: float

    @property
    def kind(self) -> tuple[str, ...]:
        """What similar events have in common: everything but the message."""
        return (self.component, *self.reference.values(), self.type, self.reason)

    @property
    def subject(self) -> tuple[str, ...]:
        """Whom a flood is counted for: one component's talk of one object."""
        return (self.component, *self.reference.values())


class Source:
    """One component's voice; what it says goes through the shared recorder."""

    def __init__(self, recorder: "Recorder", component: str) -> None:
        self._recorder = recorder
        self._component = component

    def event(
        self, obj: Object, type: Literal["Normal", "Warning"], reason: str, message: str
    ) -> None:
        """Note that something happened to `obj`; returns at once."""
        self._recorder.note(self._component, obj, type, reason, message)


class Recorder:
    """Writes events for one component; `run` it in a task group."""

    def __init__(
        self,
        client: Writes,
        component: str,
        host: str = "",
        *,
        clock: Clock = SYSTEM,
        rng: Random | None = None,
        writers: int = _WRITERS,
        waiting: int = _QUEUE,
        linger_s: float = 0.0,
    ) -> None:
        """`writers` are in flight at once; beyond `waiting` events are dropped and counted. With
        `linger_s` an event is written so long after the fact, so that the telling does not take
        the machine from the doing."""
        self._client = client
        self._component = component
        self._host = host
        self._clock = clock
        self._rng = rng or Random()
        self._linger_s = linger_s
        self._queues: list[asyncio.Queue[_Note]] = [
            asyncio.Queue(waiting // writers) for _ in range(writers)
        ]
        self._written: OrderedDict[tuple[str, ...], _Entry] = OrderedDict()
        self._similar: OrderedDict[tuple[str, ...], _Similar] = OrderedDict()
        self._buckets: OrderedDict[tuple[str, ...], _Bucket] = OrderedDict()
        self.dropped = 0

    def source(self, component: str) -> Source:
        """The same recorder under another component's name, as `kubectl describe` shows it."""
        return Source(self, component)

    def event(
        self, obj: Object, type: Literal["Normal", "Warning"], reason: str, message: str
    ) -> None:
        """Note that something happened to `obj`; returns at once."""
        self.note(self._component, obj, type, reason, message)

    def note(self, component: str, obj: Object, type: str, reason: str, message: str) -> None:
        """Queue one occurrence for a component."""
        reference = {
            "apiVersion": obj.API_VERSION,
            "kind": obj.KIND,
            "namespace": obj.metadata.namespace,
            "name": obj.metadata.name,
            "uid": obj.metadata.uid,
        }
        note = _Note(component, reference, type, reason, message[:_MESSAGE_MAX], self._clock.now())
        writer = zlib.crc32(f"{reference['uid']}/{reference['name']}".encode())
        try:
            self._queues[writer % len(self._queues)].put_nowait(note)
        except asyncio.QueueFull:
            self.dropped += 1
            if self.dropped % 100 == 1:
                log.warning("events dropped, queue full", dropped=self.dropped, reason=reason)

    async def run(self) -> None:
        """Write events until cancelled."""
        async with asyncio.TaskGroup() as group:
            for queue in self._queues:
                group.create_task(self._drain(queue))

    async def _drain(self, queue: asyncio.Queue[_Note]) -> None:
        while True:
            note = await queue.get()
            early_s = note.at + self._linger_s - self._clock.now()
            if self._linger_s and early_s > 0:
                await self._clock.sleep(min(early_s, self._linger_s))
            try:
                await self._write(note)
            except status.ApiError as error:
                # An event is a courtesy: a namespace that is going away refuses it, for one.
                log.debug("event not written", reason=note.reason, error=error.message)

    async def _write(self, note: _Note) -> None:
        if not self._allowed(note):
            return
        identity, message = self._combined(note)
        entry = self._written.get(identity)
        if entry is not None and note.at - entry.last <= _AGGREGATE_S:
            entry.count, entry.last = entry.count + 1, note.at
            change: dict[str, Any] = {
                "count": entry.count,
                "lastTimestamp": clocks.rfc3339(note.at),
                "message": message,
            }
            try:
                await self._client.patch(Event, entry.name, entry.namespace, change)
            except status.NotFound:
                del self._written[identity]
            else:
                self._written.move_to_end(identity)
                return
        created = await self._client.create(Event, self._document(note, message))
        self._written[identity] = _Entry(
            created.metadata.namespace, created.metadata.name, 1, note.at
        )
        _bound(self._written)

    def _combined(self, note: _Note) -> tuple[tuple[str, ...], str]:
        """Under what the event is counted, and its message: of many that are alike, as one."""
        similar = self._similar.get(note.kind)
        if similar is None or note.at - similar.last > _AGGREGATE_S:
            similar = self._similar[note.kind] = _Similar()
        similar.last = note.at
        self._similar.move_to_end(note.kind)
        _bound(self._similar)
        if note.message in similar.messages or len(similar.messages) < _SIMILAR:
            similar.messages.add(note.message)
            return (*note.kind, note.message), note.message
        return note.kind, (_COMBINED + note.message)[:_MESSAGE_MAX]

    def _allowed(self, note: _Note) -> bool:
        bucket = self._buckets.setdefault(note.subject, _Bucket(_BURST, note.at))
        self._buckets.move_to_end(note.subject)
        _bound(self._buckets)
        bucket.tokens = min(_BURST, bucket.tokens + (note.at - bucket.filled) / _REFILL_S)
        bucket.filled = note.at
        if bucket.tokens < 1:
            log.debug("event rate limited", object=note.reference["name"], reason=note.reason)
            return False
        bucket.tokens -= 1
        return True

    def _document(self, note: _Note, message: str) -> dict[str, Any]:
        stamp = clocks.rfc3339(note.at)
        reference = {name: value for name, value in note.reference.items() if value}
        return {
            "metadata": {
                # kubectl sorts and people recognise client-go's form: object name, then hex.
                "name": f"{note.reference['name']}.{self._rng.randbytes(8).hex()}",
                "namespace": note.reference["namespace"] or "default",
            },
            "involvedObject": reference,
            "type": note.type,
            "reason": note.reason,
            "message": message,
            "source": {
                "component": note.component,
                **({"host": self._host} if self._host else {}),
            },
            "reportingComponent": note.component,
            "reportingInstance": self._host,
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
        }


def _bound(remembered: OrderedDict[tuple[str, ...], Any]) -> None:
    while len(remembered) > _REMEMBERED:
        remembered.popitem(last=False)
