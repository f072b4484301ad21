"""A local, always current copy of the objects of one kind, with handlers and indexes.

Every component reads from informers and writes through the client. Handlers are called in the
order of changes, synchronously, so they only put keys into work queues; an object added before
the handler was is announced to it when it registers.
Invariant: when a handler runs, `get`, `items` and `by_index` already show the change.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from motley.api.views.base import Key, Object
from motley.client.decoding import Listing, WatchEvent
from motley.client.index import Index
from motley.client.reflector import Reflector
from motley.client.rest import Client
from motley.lib import journal
from motley.lib.clock import SYSTEM, Clock

log = journal.get(__name__)

T = TypeVar("T", bound=Object)


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """What happened to an object: `old` is None when added, `new` is None when deleted."""

    old: T | None
    new: T | None

    @property
    def object(self) -> T:
        """The newest state known, also of a deleted object."""
        current = self.new if self.new is not None else self.old
        assert current is not None
        return current

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return self.object.key


Handler = Callable[[Change[T]], None]


class Cache(Generic[T]):
    """The objects, their indexes and who is told; the reflector's sink."""

    def __init__(self, indexes: Mapping[str, Callable[[T], Iterable[str]]] | None = None) -> None:
        self.objects: dict[Key, T] = {}
        self._indexes = {name: Index(function) for name, function in (indexes or {}).items()}
        self._handlers: list[Handler[T]] = []
        self.synced = asyncio.Event()

    def add_handler(self, handler: Handler[T]) -> None:
        """Tell `handler` of everything that is here, and of every change from now on."""
        self._handlers.append(handler)
        for obj in list(self.objects.values()):
            self._call(handler, Change(None, obj))

    def remove_handler(self, handler: Handler[T]) -> None:
        """Tell `handler` nothing more."""
        if handler in self._handlers:
            self._handlers.remove(handler)

    def add_index(self, name: str, function: Callable[[T], Iterable[str]]) -> None:
        """Index what is here and what will come; the same name twice is the same index."""
        if name in self._indexes:
            return
        index = self._indexes[name] = Index(function)
        for obj in self.objects.values():
            index.put(None, obj)

    def by_index(self, index: str, value: str) -> list[T]:
        """Objects an index function yields `value` for."""
        return [self.objects[key] for key in self._indexes[index].keys(value)]

    def replace(self, items: list[T]) -> None:
        """Become exactly these objects, announcing only what differs."""
        fresh = {obj.key: obj for obj in items}
        for key in [key for key in self.objects if key not in fresh]:
            self._put(key, None)
        for key, obj in fresh.items():
            old = self.objects.get(key)
            if old is not None and old.metadata.uid != obj.metadata.uid:
                self._put(key, None)  # deleted and made again while we did not look
            self._put(key, obj)
        self.synced.set()

    def apply(self, event: WatchEvent[T]) -> None:
        """Take one event of a watch."""
        if event.type == "DELETED":
            self._put(event.object.key, None, last=event.object)
        else:
            self._put(event.object.key, event.object)

    def _put(self, key: Key, new: T | None, *, last: T | None = None) -> None:
        old = self.objects.get(key)
        if new is None:
            if old is None:
                return
            del self.objects[key]
        else:
            if old is not None and _same_version(old, new):
                return
            self.objects[key] = new
        for index in self._indexes.values():
            index.put(old, new)
        # A deletion is announced with the last state the server knew.
        change = Change(last if new is None and last is not None else old, new)
        for handler in tuple(self._handlers):
            self._call(handler, change)

    def _call(self, handler: Handler[T], change: Change[T]) -> None:
        try:
            handler(change)
        except Exception as error:
            # One object that a handler cannot digest must not stop the component's view of all
            # others; the journal makes the defect visible.
            log.error("informer handler failed", exc_info=error, key=change.key)


@dataclass(frozen=True)
class _Selection(Generic[T]):
    """The reflector's source: some objects of a kind, through a client."""

    client: Client
    cls: type[T]
    namespace: str
    label_selector: str
    field_selector: str

    async def list(self) -> Listing[T]:
        return await self.client.list(
            self.cls,
            namespace=self.namespace,
            label_selector=self.label_selector,
            field_selector=self.field_selector,
        )

    def watch(
        self, resource_version: str, *, initial_events: bool = False
    ) -> AsyncGenerator[WatchEvent[T], None]:
        return self.client.watch(
            self.cls,
            namespace=self.namespace,
            resource_version=resource_version,
            label_selector=self.label_selector,
            field_selector=self.field_selector,
            initial_events=initial_events,
        )


class Informer(Generic[T]):
    """Keeps a `Cache` current through a client; `run` it in a task group."""

    def __init__(
        self,
        client: Client,
        cls: type[T],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        indexes: Mapping[str, Callable[[T], Iterable[str]]] | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        self.cls = cls
        self._cache: Cache[T] = Cache(indexes)
        source = _Selection(client, cls, namespace, label_selector, field_selector)
        self._reflector: Reflector[T] = Reflector(cls.PLURAL, source, self._cache, clock=clock)

    def add_handler(self, handler: Handler[T]) -> None:
        """Call `handler` for everything known now, then for every change, in order."""
        self._cache.add_handler(handler)

    def remove_handler(self, handler: Handler[T]) -> None:
        """Call `handler` no more."""
        self._cache.remove_handler(handler)

    def add_index(self, name: str, function: Callable[[T], Iterable[str]]) -> None:
        """Add an index; the same name twice is the same index."""
        self._cache.add_index(name, function)

    async def run(self) -> None:
        """Follow the server until cancelled."""
        await self._reflector.run()

    async def synced(self) -> None:
        """Wait until the first list has been delivered to the handlers."""
        await self._cache.synced.wait()

    @property
    def has_synced(self) -> bool:
        """Has the first list been delivered?"""
        return self._cache.synced.is_set()

    @property
    def resource_version(self) -> str:
        """The revision this copy is of."""
        return self._reflector.resource_version

    @property
    def interrupted_at(self) -> float:
        """When (monotonic) this copy was last known to be cut off; silence before that proves
        nothing about whoever should have written."""
        return self._reflector.interrupted_at

    def get(self, key: Key) -> T | None:
        """One object, or None."""
        return self._cache.objects.get(key)

    def items(self) -> list[T]:
        """All objects."""
        return list(self._cache.objects.values())

    def __len__(self) -> int:
        return len(self._cache.objects)

    def by_index(self, index: str, value: str) -> list[T]:
        """Objects the named index function yields `value` for."""
        return self._cache.by_index(index, value)


def _same_version(old: Object, new: Object) -> bool:
    version = new.metadata.resource_version
    return bool(version) and old.metadata.resource_version == version
