"""A store without a disk: for tests, for the simulator, and as the contract in its plainest form.

It keeps the whole log in a list until it is compacted; nothing survives the process.
"""

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter

from motley.store import transaction
from motley.store.broadcast import Broadcaster
from motley.store.contract import (
    Ahead,
    Closed,
    Committed,
    Compacted,
    Event,
    Op,
    Range,
    Record,
    Revision,
    Stamp,
    Watch,
    identity,
)
from motley.store.keyspace import Keyspace

_by_revision = attrgetter("revision")


class MemoryStore:
    """See `contract.Store`."""

    def __init__(self, stamp: Stamp = identity) -> None:
        self._stamp = stamp
        self._latest: Keyspace[Record] = Keyspace()
        self._log: list[Event] = []
        self._compacted = Revision(0)
        self._live = Broadcaster(Revision(0), self._read_log)

    async def revision(self) -> Revision:
        """The latest revision."""
        return self._live.revision

    async def oldest(self) -> Revision:
        """The compacted revision."""
        return self._compacted

    async def get(self, key: str) -> Record | None:
        """The latest state of one key."""
        return self._latest.get(key)

    async def range(
        self, prefix: str, *, start: str = "", limit: int = 0, at: Revision | None = None
    ) -> Range:
        """A listing of now, or of then by undoing what came later."""
        now = self._live.revision
        if at is None or at == now:
            found, beyond = self._latest.range(prefix, start, limit)
            return Range(found, now, beyond > 0, beyond)
        if at > now:
            raise Ahead(now)
        everything, _ = self._latest.range(prefix, start)
        later = await self._read_log(at, now)
        return transaction.page(transaction.rewind(everything, later, prefix, start), limit, at)

    async def commit(self, ops: Sequence[Op]) -> Committed:
        """Do all operations or none."""
        transaction.check(ops)
        if self._live.closed:
            raise Closed("the store was closed")
        revision = Revision(self._live.revision + 1)
        committed, events = transaction.prepare(ops, self._latest.get, revision, self._stamp)
        for event, record in zip(events, committed.records, strict=True):
            if event.value is None:
                self._latest.remove(event.key)
            else:
                self._latest.put(event.key, record)
        self._log += events
        self._live.publish(events, revision)
        return committed

    def watch(self, prefix: str, after: Revision) -> Watch:
        """Every change under `prefix` after a revision."""
        return self._live.subscribe(prefix, after)

    async def compact(self, revision: Revision) -> None:
        """Forget the log up to `revision`."""
        if revision > self._live.revision:
            raise Ahead(self._live.revision)
        if revision > self._compacted:
            self._compacted = revision
            del self._log[: bisect_right(self._log, revision, key=_by_revision)]

    async def close(self) -> None:
        """End every watch."""
        self._live.close()

    async def _read_log(self, after: Revision, upto: Revision) -> Sequence[Event]:
        if after < self._compacted:
            raise Compacted(self._compacted)
        begin = bisect_right(self._log, after, key=_by_revision)
        end = bisect_right(self._log, upto, key=_by_revision)
        return self._log[begin:end]
