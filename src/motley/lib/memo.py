"""Outcomes of pure functions, found again by the bytes they were computed from.

Objects of one template come in thousands, equal to the last byte: to look one up costs a hash of
its bytes, a hundredth of computing the outcome anew.

Invariant: the bytes of all keys and values together never exceed the limit; what was longest
unused goes first. An outcome is handed out as it was put in: only what nobody changes belongs here.
"""

from typing import Generic, TypeVar

V = TypeVar("V")


class Memo(Generic[V]):
    """A table of outcomes, bounded by bytes. Belongs to one thread."""

    def __init__(self, limit_bytes: int, *, largest_bytes: int = 32 * 1024) -> None:
        """`largest_bytes`: what is larger than this is not kept, it would push out too much."""
        self._limit_bytes = limit_bytes
        self._largest_bytes = largest_bytes
        self._size_bytes = 0
        self._known: dict[bytes, tuple[V, int]] = {}  # the longest unused first

    def __len__(self) -> int:
        """How many outcomes are known."""
        return len(self._known)

    @property
    def size_bytes(self) -> int:
        """What is kept, keys and values."""
        return self._size_bytes

    def get(self, key: bytes) -> V | None:
        """The outcome for these bytes; None when it is not known."""
        known = self._known.pop(key, None)
        if known is None:
            return None
        self._known[key] = known
        return known[0]

    def put(self, key: bytes, value: V, value_bytes: int = 0) -> None:
        """Keep an outcome, whose own size is `value_bytes`."""
        size = len(key) + value_bytes
        if size > self._largest_bytes:
            return
        replaced = self._known.pop(key, None)
        if replaced is not None:
            self._size_bytes -= replaced[1]
        self._known[key] = (value, size)
        self._size_bytes += size
        while self._size_bytes > self._limit_bytes:
            _, dropped = self._known.pop(next(iter(self._known)))
            self._size_bytes -= dropped
