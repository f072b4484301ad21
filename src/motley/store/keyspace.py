"""The latest items by key, and the keys in order.

A dict answers point reads; beside it, the keys lie in a list of short sorted lists, so adding one
key moves a few hundred pointers and not all hundred thousand. Listing a prefix is two bisections
and a walk.

Invariant: the short lists joined are exactly the dict's keys, sorted; none of them is empty.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

T = TypeVar("T")

# Keys per short list: halves are split off at twice this. Measured flat between 256 and 2,048.
CHUNK = 512


def after_prefix(prefix: str) -> str:
    """The first string that sorts after everything with this prefix; empty when nothing does."""
    while prefix:
        last = ord(prefix[-1])
        if last < 0x10FFFF:
            return prefix[:-1] + chr(last + 1)
        prefix = prefix[:-1]
    return ""


class Keyspace(Generic[T]):
    """An ordered map made for many point writes and for listing by prefix."""

    def __init__(self, items: Mapping[str, T] | None = None) -> None:
        self._items: dict[str, T] = dict(items or {})
        keys = sorted(self._items)
        self._chunks = [keys[i : i + CHUNK] for i in range(0, len(keys), CHUNK)]
        # A bound for each chunk: not before its keys, before the next chunk's.
        self._last = [chunk[-1] for chunk in self._chunks]
        self.get = self._items.get  # bound once: the hottest call of all

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, key: str) -> bool:
        return key in self._items

    def __iter__(self) -> Iterator[str]:
        for chunk in self._chunks:
            yield from chunk

    def put(self, key: str, item: T) -> None:
        """Set a key's item."""
        if key not in self._items:
            self._insert(key)
        self._items[key] = item

    def remove(self, key: str) -> None:
        """Forget a key, which must be there."""
        del self._items[key]
        index = bisect_left(self._last, key)
        chunk = self._chunks[index]
        del chunk[bisect_left(chunk, key)]
        if not chunk:
            del self._chunks[index], self._last[index]

    def range(self, prefix: str, start: str = "", limit: int = 0) -> tuple[list[T], int]:
        """Items whose key has the prefix and is not before `start`, at most `limit` of them
        (0: all), and how many lie beyond."""
        low, low_at = self._position(max(prefix, start))
        end = after_prefix(prefix)
        high, high_at = self._position(end) if end else (len(self._chunks), 0)
        if (high, high_at) <= (low, low_at):
            return [], 0
        keys: list[str] = []
        beyond = 0
        for index in range(low, min(high + 1, len(self._chunks))):
            chunk = self._chunks[index]
            if index == high:
                chunk = chunk[:high_at]
            if index == low:
                chunk = chunk[low_at:]
            if limit and len(keys) + len(chunk) > limit:
                space = limit - len(keys)
                beyond += len(chunk) - space
                chunk = chunk[:space]
            keys += chunk
        return list(map(self._items.__getitem__, keys)), beyond

    def _position(self, key: str) -> tuple[int, int]:
        """Where the key is or would be: chunk, and place in it."""
        index = bisect_left(self._last, key)
        if index == len(self._last):
            return index, 0
        return index, bisect_left(self._chunks[index], key)

    def _insert(self, key: str) -> None:
        if not self._chunks:
            self._chunks.append([key])
            self._last.append(key)
            return
        index = min(bisect_left(self._last, key), len(self._last) - 1)
        chunk = self._chunks[index]
        insort(chunk, key)
        if len(chunk) >= 2 * CHUNK:
            self._chunks[index : index + 1] = [chunk[:CHUNK], chunk[CHUNK:]]
            self._last[index : index + 1] = [chunk[CHUNK - 1], chunk[-1]]
        else:
            self._last[index] = chunk[-1]
