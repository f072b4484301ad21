"""The contract of a store: one ordered log of revisions, whatever keeps it.

A store maps keys to bytes. Every successful `commit` gets the next revision, and all keys that it
changes carry it; that number is the Kubernetes `resourceVersion`. A watch replays the log from
any revision that is not compacted and then follows it, so that *list, then watch from the list's
revision* misses nothing and sees nothing twice.

Invariants, held by every implementation and checked by one suite (`tests/contract`):
revisions only grow, also over restarts and compaction; what `commit` returned survives a crash;
events come in the order of their revisions and only after they are durable.

    StoreError
    ├── Mismatch     the key is not at the expected revision: re-read and try again
    ├── Compacted    that revision is no longer in the log: list again
    ├── Ahead        that revision has not happened yet
    ├── Full         no space: nothing was changed, try again later
    ├── TooLarge     one transaction holds more bytes than the store takes: nothing was changed
    ├── Unavailable  the store cannot be reached now: try again later
    │   └── InDoubt  nor is it known whether a transaction happened: re-read first
    ├── Failed       the disk answered with an error: open the store again
    ├── Corrupt      the file is damaged or not ours: it is left as it is, restore a backup
    │   └── Newer    nothing is damaged: a newer version wrote it, in a format we would misread
    ├── Locked       another process has the store open
    └── Closed       the store was closed
"""

from collections.abc import Callable, Sequence
from typing import NewType, Protocol

from msgspec import Struct

Revision = NewType("Revision", int)

Stamp = Callable[[bytes, Revision], bytes]
"""Puts the revision into an encoded object. It must be a pure function of its arguments, and must
also take bytes that already carry an older revision (a deletion re-stamps the last state). It may
be called from another thread."""

MAX_OPS = 128  # per transaction; etcd's default limit, so that every store takes the same


def identity(value: bytes, revision: Revision) -> bytes:
    """The stamp of a store whose values do not carry their revision."""
    return value


class Record(Struct, frozen=True, gc=False):
    """A key's state: its stamped value, and when it last changed and was created."""

    key: str
    value: bytes
    revision: Revision
    created: Revision


class Event(Struct, frozen=True, gc=False):
    """One change of one key."""

    revision: Revision
    key: str
    value: bytes | None
    """The new value, or None when the key was deleted."""
    previous: Record | None
    """The state before, or None when the key was created."""
    last_state: bytes
    """What to show to a watcher: the new value or, for a deletion, the previous value stamped
    with the deletion's revision, as Kubernetes shows deleted objects."""
    created: Revision
    """When the key was created: with the fields above, the new `Record`."""


class Put(Struct, frozen=True, gc=False):
    """Set a key. `expect`: the revision it must be at, 0 = it must not exist, None = any."""

    key: str
    value: bytes
    expect: Revision | None = None


class Delete(Struct, frozen=True, gc=False):
    """Remove a key, which must exist. `expect`: the revision it must be at, None = any."""

    key: str
    expect: Revision | None = None


Op = Put | Delete


class Committed(Struct, frozen=True, gc=False):
    """A transaction that happened. `records` has one entry per operation, in their order: the new
    record of a `Put`; the last state of a `Delete`, stamped with this revision."""

    revision: Revision
    records: tuple[Record, ...]


class Range(Struct, frozen=True, gc=False):
    """Part of a listing in key order, true at `revision`. `remaining` counts what lies beyond."""

    records: Sequence[Record]
    revision: Revision
    more: bool
    remaining: int


class StoreError(Exception):
    """Something a store could not do."""


class Mismatch(StoreError):
    """A key is not at the revision that the transaction expected; nothing was changed.

    `current` is the key's state at that moment, None when it does not exist.
    """

    def __init__(self, key: str, current: Record | None) -> None:
        state = f"at revision {current.revision}" if current else "absent"
        super().__init__(f"{key} is {state}")
        self.key = key
        self.current = current


class Compacted(StoreError):
    """The asked revision is no longer in the log; `oldest` is the oldest that can be asked for."""

    def __init__(self, oldest: Revision) -> None:
        super().__init__(f"revision is compacted, the oldest is {oldest}")
        self.oldest = oldest


class Ahead(StoreError):
    """The asked revision has not happened yet; `current` is the latest that did."""

    def __init__(self, current: Revision) -> None:
        super().__init__(f"revision is in the future, the latest is {current}")
        self.current = current


class Full(StoreError):
    """No space left: nothing was changed, and the store goes on when there is space again."""


class TooLarge(StoreError):
    """A transaction is larger than the store takes; nothing was changed, nor will it ever be."""


class Unavailable(StoreError):
    """The store (on another machine) does not answer; nothing was changed."""


class InDoubt(Unavailable):
    """The store did not answer a `commit`, and what it was to do may or may not have happened:
    re-read before trying again."""


class Failed(StoreError):
    """The disk answered with an error, so what it holds is uncertain until it is read again.

    The transaction may or may not be found after reopening; no further write is taken before.
    """


class Corrupt(StoreError):
    """The file is damaged, or not a store of this version; it was not touched."""


class Newer(Corrupt):
    """A newer version of Motley wrote the store, in a format that this one would misread."""


class Locked(StoreError):
    """Another process has the store open."""


class Closed(StoreError):
    """The store was closed."""


class Watch(Protocol):
    """Changes under one prefix, batch by batch; `async for` over it, then `aclose()`."""

    @property
    def revision(self) -> Revision:
        """Every event of the prefix up to this revision has been handed out.

        It also moves when other prefixes change, so a reader can know that it misses nothing.
        """

    def __aiter__(self) -> "Watch":
        """The watch itself."""

    async def __anext__(self) -> Sequence[Event]:
        """The next events, at least one, in the order of their revisions; waits for them.

        However slow the reader, memory stays bounded and no writer waits for it. Raises
        `Compacted` when the log no longer holds what comes next, `Closed` with the store.
        """

    async def aclose(self) -> None:
        """Stop; a watch that is not closed costs memory until the store is."""


class Store(Protocol):
    """Bytes under keys, with revisions. Keys sort by code point; all methods may be called
    concurrently from one event loop."""

    async def revision(self) -> Revision:
        """The latest durable revision, 0 for a new store (1 in etcd, which begins so).

        A later read sees at least this, and it is not older than what any writer was told before
        the call, in this process or another one over the same store.
        """

    async def oldest(self) -> Revision:
        """The oldest revision that `range(at=…)` and `watch(after=…)` still take."""

    async def get(self, key: str) -> Record | None:
        """The latest durable state of one key."""

    async def range(
        self, prefix: str, *, start: str = "", limit: int = 0, at: Revision | None = None
    ) -> Range:
        """Records whose key begins with `prefix` and is not before `start`, in key order.

        `limit` 0 is no limit. For the next page, `start` is the last key + "\\0" and `at` is the
        first page's revision: all pages then show the same moment. Raises `Compacted` or `Ahead`
        when that moment cannot be shown.
        """

    async def commit(self, ops: Sequence[Op]) -> Committed:
        """Do all operations or none, as one revision; durable when this returns.

        Raises `Mismatch` for the first operation whose expectation does not hold, `Full` or
        `Failed` when the disk refuses, `TooLarge`, `Unavailable`, ValueError for a transaction
        that makes no sense (empty, more than `MAX_OPS`, a key twice). A cancelled caller does not
        know whether it happened.
        """

    def watch(self, prefix: str, after: Revision) -> Watch:
        """Every change under `prefix` with a revision greater than `after`."""

    async def compact(self, revision: Revision) -> None:
        """Forget states that were replaced or deleted at or before `revision`.

        The latest states stay, and so does everything needed to list at `revision` and to watch
        after it. Works in small steps that let commits pass. Older than the last compaction:
        nothing to do. Raises `Ahead`.
        """

    async def close(self) -> None:
        """Finish what was begun and let go of the files; harmless to repeat."""
