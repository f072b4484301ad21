"""Keeps something derived from a watch cache up to date, at the moment it is asked.

Decisions need an index of roles, bindings and pods, and must not lag behind the cache that lists
and watches read. So nothing runs in the background: whoever is about to use the index lets it
catch up first, which costs nothing when nothing changed.

Invariant: after `catch_up` the index says what the cache says.
"""

from typing import Protocol

from motley.apiserver.attributes import Attributes
from motley.store.contract import Compacted
from motley.store.watchcache import Cursor, WatchCache


class Index(Protocol):
    """What is derived from the objects of one kind."""

    def clear(self) -> None:
        """Forget everything: a whole listing follows."""

    def put(self, key: str, about: Attributes, value: bytes) -> None:
        """There is a new object, or a new state of a known one."""

    def remove(self, key: str, about: Attributes) -> None:
        """The object is gone."""


class Follower:
    """Feeds an index from a cache."""

    def __init__(self, cache: WatchCache[Attributes], index: Index) -> None:
        self._cache = cache
        self._index = index
        self._cursor: Cursor[Attributes] | None = None

    def catch_up(self) -> bool:
        """Apply what changed since the last call; whether anything did."""
        if self._cursor is None:
            return self._list()
        try:
            events = self._cursor.take()
        except Compacted:
            return self._list()
        for event in events:
            if event.deleted:
                self._index.remove(event.key, event.attributes)
            else:
                self._index.put(event.key, event.attributes, event.value)
        return bool(events)

    def _list(self) -> bool:
        if self._cursor is not None:
            self._cursor.close()
        listing = self._cache.list()
        self._index.clear()
        for item in listing.items:
            self._index.put(item.record.key, item.attributes, item.record.value)
        self._cursor = self._cache.watch(listing.revision)
        return True
