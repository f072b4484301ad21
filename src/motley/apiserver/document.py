"""The form of an object at rest: its bytes, with the resourceVersion inside.

Every stored object begins `{"kind":K,"apiVersion":V,"metadata":{"resourceVersion":"N",`. Because
that order never varies, a revision can be stamped in without decoding, and a list can leave out
the kind of its items, as Kubernetes does, by cutting off a prefix of known length.

Invariant: whatever enters the store went through `encode`.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import msgspec

from motley.api import codec, scheme
from motley.api.fields import stored

_sorted = msgspec.json.Encoder(order="sorted").encode

# 256 KiB: the most that goes to a connection at a time. Measured flat from 64 KiB to 1 MiB.
BLOCK = 256 * 1024
_END = b"]}"


def encode(kind: scheme.Kind, document: dict[str, Any]) -> bytes:
    """The bytes to store, without a revision; the document is not changed."""
    # Versions of a custom resource differ in their name alone: it is kept in one of them.
    version = kind.storage.api_version if kind.definition is not None else kind.api_version
    return codec.encode_object({**document, "kind": kind.kind, "apiVersion": version})


def decode(value: bytes) -> dict[str, Any]:
    """The document in stored bytes."""
    return stored.decode(value)


def copy(document: dict[str, Any]) -> dict[str, Any]:
    """An independent copy; several times quicker than `copy.deepcopy`."""
    return decode(codec.encode(document))


def stamp(value: bytes, revision: int) -> bytes:
    """The bytes with this revision as resourceVersion, whatever they carried before."""
    return codec.stamp(codec.unstamped(value), revision)


def is_same(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Whether writing `new` over `old` would change nothing; the order of keys is nothing.

    Python calls 1 and True equal, so equal dicts are compared as text before they count.
    """
    return old == new and _sorted(old) == _sorted(new)


@cache
def item_offset(kind: scheme.Kind) -> int:
    """How many bytes of a stored object name its kind; a list's items go without."""
    return len(codec.encode({"kind": kind.kind, "apiVersion": kind.api_version}))


class ListBody:
    """A list's bytes, joined from its items' a block at a time.

    The sender asks for the next block when the last is on its way: joining ten megabytes at once
    would cost ten times as much, nearly all of it for fresh memory, and hold everybody else up.
    """

    def __init__(self, head: bytes, items: Sequence[bytes], begin: bytes, offset: int) -> None:
        """`head` comes first; each item loses `offset` bytes and gets `begin` instead."""
        self._head = head + b',"items":['
        self._items = items
        self._begin = begin
        self._offset = offset
        own = sum(map(len, items)) + len(items) * (len(begin) + 1 - offset) - bool(items)
        self.length = len(self._head) + own + len(_END)
        self._per_block = max(1, len(items) * BLOCK // max(own, 1))

    def __iter__(self) -> Iterator[bytes]:
        items, offset, count = self._items, self._offset, self._per_block
        between = b"," + self._begin
        before = self._head + self._begin
        if not items:
            yield self._head + _END
        for at in range(0, len(items), count):
            some = items[at : at + count]
            joined = between.join([item[offset:] for item in some] if offset else some)
            yield b"".join((before, joined, _END if at + count >= len(items) else b""))
            before = between

    def __bytes__(self) -> bytes:
        return b"".join(self)


def list_body(
    kind: scheme.Kind,
    values: Sequence[bytes],
    revision: int,
    *,
    next_page: str = "",
    remaining: int | None = None,
) -> ListBody:
    """A whole list, of stored bytes."""
    if kind.definition is not None:  # items of custom resources say what they are
        metadata: dict[str, Any] = {"resourceVersion": str(revision), "continue": next_page}
        if next_page and remaining:
            metadata["remainingItemCount"] = remaining
        shown = {"kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": metadata}
        return ListBody(codec.encode(shown)[:-1], values, b"", 0)
    head = list_head(kind.list_kind, kind.api_version, revision, next_page, remaining)
    return ListBody(head, values, b"{", item_offset(kind))


def list_head(
    list_kind: str, api_version: str, revision: int, next_page: str, remaining: int | None
) -> bytes:
    """A list's own fields, without the closing brace."""
    metadata: dict[str, Any] = {"resourceVersion": str(revision)}
    if next_page:
        metadata["continue"] = next_page
        if remaining:
            metadata["remainingItemCount"] = remaining
    return codec.encode({"kind": list_kind, "apiVersion": api_version, "metadata": metadata})[:-1]
