"""Read your own writes: an informer's view, corrected by what this process wrote itself.

Between a write and its event the cache is stale. A controller that counted only the cache would
create a pod twice or delete two pods where one was enough. So every answer to a write is kept
here until the informer has caught up with its revision.
Invariant: `over(items)` never misses an object this process created, never shows one it
deleted, and never shows an older version than it wrote.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from motley.api.views.base import Key, Object
from motley.client.informer import Informer
from motley.lib.clock import SYSTEM, Clock

T = TypeVar("T", bound=Object)

# Far longer than a watch lags; only a store whose revisions started anew makes this matter.
_FORGET_S = 120.0


@dataclass(slots=True)
class _Write(Generic[T]):
    obj: T
    at: float


class Written(Generic[T]):
    """Recent writes of one kind, over its informer."""

    def __init__(self, informer: Informer[T], clock: Clock = SYSTEM) -> None:
        self._informer = informer
        self._clock = clock
        self._puts: dict[str, dict[Key, _Write[T]]] = {}  # by scope: the owner's uid, or ''
        self._deletions: dict[str, float] = {}  # uid -> when

    def put(self, obj: T, scope: str = "") -> None:
        """The server answered a create or patch with this."""
        writes = self._puts.setdefault(scope, {})
        writes[obj.key] = _Write(obj, self._clock.monotonic())

    def delete(self, obj: T) -> None:
        """The server accepted this object's deletion."""
        now = self._clock.monotonic()
        self._deletions[obj.metadata.uid] = now
        if len(self._deletions) > 1024:
            self._deletions = {u: t for u, t in self._deletions.items() if now - t < _FORGET_S}

    def get(self, key: Key, scope: str = "") -> T | None:
        """The newest version known of one object."""
        cached = self._informer.get(key)
        return next(
            iter(self.over([cached] if cached else [], scope, lambda o: o.key == key)), None
        )

    def over(
        self, items: Iterable[T], scope: str = "", belongs: Callable[[T], bool] | None = None
    ) -> list[T]:
        """`items` of the cache, corrected; created ones are added when they `belongs`."""
        writes = self._current(scope)
        seen = set()
        result = []
        for obj in items:
            seen.add(obj.key)
            write = writes.get(obj.key)
            newest = obj if write is None else _newer(obj, write.obj)
            if not self._is_deleted(newest):
                result.append(newest)
        for key, write in writes.items():
            wanted = key not in seen and (belongs is None or belongs(write.obj))
            if wanted and not self._is_deleted(write.obj):
                result.append(write.obj)
        return result

    def _current(self, scope: str) -> dict[Key, _Write[T]]:
        writes = self._puts.get(scope)
        if not writes:
            return {}
        now, reached = self._clock.monotonic(), _number(self._informer.resource_version)
        for key, write in list(writes.items()):
            old = now - write.at > _FORGET_S
            if old or _number(write.obj.metadata.resource_version) <= reached:
                del writes[key]
        if not writes:
            del self._puts[scope]
        return writes

    def _is_deleted(self, obj: T) -> bool:
        at = self._deletions.get(obj.metadata.uid)
        if at is None:
            return False
        if obj.metadata.deletion_timestamp or self._clock.monotonic() - at > _FORGET_S:
            del self._deletions[obj.metadata.uid]
            return False
        return True


def _newer(cached: T, written: T) -> T:
    if _number(written.metadata.resource_version) > _number(cached.metadata.resource_version):
        return written
    return cached


def _number(resource_version: str) -> int:
    return int(resource_version) if resource_version.isdigit() else 0
