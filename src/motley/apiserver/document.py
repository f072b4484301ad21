"""The form of an object at rest: its bytes, with the resourceVersion inside.

Every stored object begins `{"kind":K,"apiVersion":V,"metadata":{"resourceVersion":"N",`. Because
that order never varies, a revision can be stamped in without decoding, and a list can leave out
the kind of its items, as Kubernetes does, by cutting off a prefix of known length.

Invariant: whatever enters the store went through `encode`.
"""

from collections.abc import Iterable
from functools import cache
from typing import Any

import msgspec

from motley.api import codec, scheme
from motley.api.fields import stored

_sorted = msgspec.json.Encoder(order="sorted").encode


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


def list_body(
    kind: scheme.Kind,
    values: Iterable[bytes],
    revision: int,
    *,
    next_page: str = "",
    remaining: int | None = None,
) -> bytes:
    """A whole list, joined from stored bytes."""
    if kind.definition is not None:  # items of custom resources say what they are
        joined = b",".join(values)
        metadata: dict[str, Any] = {"resourceVersion": str(revision), "continue": next_page}
        if next_page and remaining:
            metadata["remainingItemCount"] = remaining
        shown = {"kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": metadata}
        return b"".join((codec.encode(shown)[:-1], b',"items":[', joined, b"]}"))
    head = list_head(kind.list_kind, kind.api_version, revision, next_page, remaining)
    offset = item_offset(kind)
    items = b",{".join([value[offset:] for value in values])
    return b"".join((head, b',"items":[', b"{" if items else b"", items, b"]}"))


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
