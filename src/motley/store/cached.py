"""What a watch cache shows: objects, their changes, and lists of them."""

from collections.abc import Sequence
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

from motley.store.contract import Record, Revision

A = TypeVar("A")


class Cached(Struct, Generic[A], frozen=True, gc=False):
    """An object as the store has it, with the caller's attributes of it."""

    record: Record
    attributes: A


class CachedEvent(Struct, Generic[A], frozen=True, gc=False):
    """One change, as every watcher of the resource sees it."""

    revision: Revision
    key: str
    value: bytes
    """The object to show: its new state, or its last one stamped with the deletion's revision."""
    deleted: bool
    attributes: A
    """Of the new state; of the last one when it is deleted."""
    previous: Cached[A] | None
    """The state before; None when the object is new. A watcher with a selector compares: what
    begins to match is ADDED to it, what no longer matches is DELETED from it."""
    encodings: dict[str, bytes] = msgspec.field(default_factory=dict)
    """Room for the caller to keep encoded forms of this event, by name, so that each is made once
    for all watchers. They go when newer events have come: they are as large as the object, and
    whoever is that late can have them made again."""


class Listing(Struct, Generic[A], frozen=True, gc=False):
    """Part of the cache in key order, true at `revision`. `remaining` counts what lies beyond."""

    items: Sequence[Cached[A]]
    revision: Revision
    remaining: int
