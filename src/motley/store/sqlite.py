"""The embedded store: reads from memory, writes through one thread to an SQLite log.

    commit() ──► bounded queue ──► writer thread: takes what waits, checks and stamps each
                                   transaction on top of the ones before it, writes all of them as
                                   one SQLite transaction (one fsync)
                 event loop    ◄── outcome: latest state, then watches, then the callers

A transaction that fails its check leaves no trace and does not touch the others in its group.
Callers that wait together share one fsync, so durability costs little under load and nothing is
delayed to make groups larger.

Invariant: the event loop's state is always a durable one. The writer has its own view of the
latest state, ahead by at most what is being committed, and the two threads share nothing else.
"""

import asyncio
import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import attrgetter
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from msgspec import Struct

from motley.lib import journal
from motley.store import sealing, transaction
from motley.store.broadcast import Broadcaster
from motley.store.contract import (
    Ahead,
    Closed,
    Committed,
    Compacted,
    Event,
    Failed,
    Full,
    Op,
    Range,
    Record,
    Revision,
    Stamp,
    Watch,
    identity,
)
from motley.store.keyspace import Keyspace
from motley.store.sqlitelog import Loaded, LogFile

log = journal.get(__name__)

T = TypeVar("T")

_by_revision = attrgetter("revision")

GROUP = 256  # transactions per fsync at most: bounds how long the first of them waits
WAITING = 4096  # requests in the queue; more callers than that wait for a place
RECENT = 4096  # events of the log's end kept in memory, twice that between trims
SWEEP = 128  # revisions per compaction step, a few milliseconds that commits wait for


class _Request(Struct, eq=False):
    """Something for the writer thread: a transaction, or any other work with the file."""

    future: asyncio.Future[Any]
    ops: Sequence[Op] = ()
    work: Callable[[LogFile], Any] | None = None


class _Outcome(Struct, eq=False):
    """What the writer tells the event loop after a group."""

    answers: list[tuple[asyncio.Future[Any], Any, Exception | None]]
    events: list[Event]
    changes: dict[str, Record | None]
    revision: Revision


class SqliteStore:
    """See `contract.Store`; made by `SqliteStore.open`."""

    def __init__(self, writer: "_Writer", loaded: Loaded, recent: Sequence[Event]) -> None:
        self._writer = writer
        self._latest = Keyspace(loaded.latest)
        self._compacted = loaded.compacted
        self._recent = list(recent)  # the end of the log: pages and watches rarely need the file
        self._recent_after = Revision(max(loaded.compacted, loaded.revision - RECENT))
        self._live = Broadcaster(loaded.revision, self._read_log)
        self._places = asyncio.Semaphore(WAITING)
        self._gathered: list[_Request] = []
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] | None = None

    @classmethod
    async def open(
        cls,
        path: Path | str,
        *,
        stamp: Stamp = identity,
        quota_bytes: int = 0,
        seal: sealing.Seal = sealing.PLAIN,
    ) -> "SqliteStore":
        """Open or create the store in a file, and read its latest state.

        Raises `Locked` when another process has it, `Corrupt` when it should not be written to.
        `quota_bytes` bounds the file's size, 0 does not. Raises `Unreadable` when the latest state
        of a key does not open with `seal`.
        """
        loop = asyncio.get_running_loop()
        writer = _Writer(Path(path), stamp, quota_bytes, seal)
        loaded, recent = await loop.run_in_executor(None, writer.load)
        store = cls(writer, loaded, recent)
        writer.start(lambda outcome: loop.call_soon_threadsafe(store._settle, outcome))
        return store

    async def revision(self) -> Revision:
        """The latest durable revision."""
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
        """A listing of now from memory, or of then by undoing what the log says came later."""
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
        """Do all operations or none; durable when this returns."""
        transaction.check(ops)
        return await self._ask(_Request(self._loop.create_future(), ops))  # type: ignore[no-any-return]

    def watch(self, prefix: str, after: Revision) -> Watch:
        """Every change under `prefix` after a revision."""
        return self._live.subscribe(prefix, after)

    async def compact(self, revision: Revision) -> None:
        """Forget what was replaced up to `revision`, in steps between commits."""
        if revision > self._live.revision:
            raise Ahead(self._live.revision)
        if revision > self._compacted:
            await self._with_file(lambda file: file.compact(revision))
            self._compacted = max(revision, self._compacted)
        while await self._with_file(lambda file: file.sweep(SWEEP)):
            pass

    async def close(self) -> None:
        """Finish what is in the queue, then let go of the file."""
        if self._ended is None:
            self._ended = self._loop.create_future()
            self._hand_over()
            self._writer.requests.put([_Request(self._ended, work=LogFile.close), None])
            self._live.close()
        await asyncio.shield(self._ended)

    async def _read_log(self, after: Revision, upto: Revision) -> Sequence[Event]:
        if after < self._compacted:
            raise Compacted(self._compacted)
        if after >= self._recent_after:
            begin = bisect_right(self._recent, after, key=_by_revision)
            return self._recent[begin : bisect_right(self._recent, upto, key=_by_revision)]
        stamp = self._writer.stamp
        try:
            return await self._with_file(lambda file: file.read(after, upto, stamp))
        except sealing.Unreadable:
            raise Compacted(self._recent_after) from None

    def _remember(self, events: Sequence[Event]) -> None:
        self._recent += events
        if len(self._recent) >= 2 * RECENT:
            dropped = len(self._recent) - RECENT
            self._recent_after = self._recent[dropped - 1].revision
            del self._recent[:dropped]

    async def _with_file(self, work: Callable[[LogFile], T]) -> T:
        return await self._ask(_Request(self._loop.create_future(), work=work))  # type: ignore[no-any-return]

    async def _ask(self, request: _Request) -> Any:
        await self._places.acquire()
        if self._ended is not None:
            self._places.release()
            raise Closed("the store was closed")
        if not self._gathered:
            self._loop.call_soon(self._hand_over)
        self._gathered.append(request)
        return await request.future

    def _hand_over(self) -> None:
        """Give the writer what came in one turn of the loop: each time it is woken costs both."""
        if self._gathered:
            self._writer.requests.put(self._gathered)
            self._gathered = []

    def _settle(self, outcome: _Outcome) -> None:
        """On the event loop: make a durable group visible, then answer its callers."""
        for key, record in outcome.changes.items():
            if record is not None:
                self._latest.put(key, record)
            elif key in self._latest:
                self._latest.remove(key)
        if outcome.events:
            self._remember(outcome.events)
            self._live.publish(outcome.events, outcome.revision)
        for future, result, error in outcome.answers:
            if future is not self._ended:
                self._places.release()
            if future.done():  # its caller was cancelled
                continue
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)


class _Writer:
    """The thread that owns the file. Its methods run there, except where said."""

    def __init__(self, path: Path, stamp: Stamp, quota_bytes: int, seal: sealing.Seal) -> None:
        self.stamp = stamp
        # What was gathered in one turn of the loop; None ends it. Bounded by its callers.
        self.requests: SimpleQueue[Sequence[_Request | None]] = SimpleQueue()
        self._path = path
        self._quota_bytes = quota_bytes
        self._seal = seal
        self._head: dict[str, Record] = {}
        self._revision = Revision(0)
        self._failure: Failed | None = None

    def load(self) -> tuple[Loaded, list[Event]]:
        """Before the thread starts, in any thread: open the file and read it."""
        file = LogFile(self._path, quota_bytes=self._quota_bytes, seal=self._seal)
        loaded: Loaded | None = None
        try:
            loaded = file.load()
            after = Revision(max(loaded.compacted, loaded.revision - RECENT))
            recent = file.read(after, loaded.revision, self.stamp)
        except sealing.Unreadable as gone:
            if loaded is None:
                file.close()
                raise
            # Only the past is lost, of a key that was taken away: whoever asks for it lists again.
            log.info("history before this start cannot be read", reason=str(gone))
            loaded, recent = loaded._replace(compacted=loaded.revision), []
        except BaseException:
            file.close()
            raise
        self._file = file
        self._head = dict(loaded.latest)
        self._revision = loaded.revision
        return loaded, recent

    def start(self, report: Callable[[_Outcome], object]) -> None:
        """From the event loop: begin to serve; outcomes are handed to `report` in order."""
        self._report = report
        # A daemon: a process that dies without closing the store must not hang on it.
        threading.Thread(target=self._serve, name="store-writer", daemon=True).start()

    def _serve(self) -> None:
        requests = self.requests
        ended = False
        while not ended:
            group: list[_Request] = []
            taken = list(requests.get())
            while len(taken) < GROUP and not requests.empty():
                taken += requests.get()
            for request in taken:
                if request is None:
                    ended = True
                elif request.work is None:
                    group.append(request)
                    if len(group) == GROUP:
                        self._write(group)
                        group = []
                else:
                    self._write(group)
                    group = []
                    self._work(request)
            self._write(group)

    def _work(self, request: _Request) -> None:
        result, error = None, None
        assert request.work is not None
        try:
            result = request.work(self._file)
        except Exception as problem:
            error = problem
        self._report(_Outcome([(request.future, result, error)], [], {}, self._revision))

    def _write(self, group: list[_Request]) -> None:
        """Commit a group of transactions, each on top of those before it."""
        if not group:
            return
        head, changes = self._head, dict[str, Record | None]()
        events: list[Event] = []
        answers: list[tuple[asyncio.Future[Any], Any, Exception | None]] = []
        revision = self._revision

        def current(key: str) -> Record | None:
            return changes[key] if key in changes else head.get(key)

        for request in group:
            following = Revision(revision + 1)
            try:
                committed, changed = transaction.prepare(
                    request.ops, current, following, self.stamp
                )
            except Exception as error:  # this caller's problem: its expectation or its value
                answers.append((request.future, None, error))
                continue
            revision = following
            for event, record in zip(changed, committed.records, strict=True):
                changes[event.key] = None if event.value is None else record
            events += changed
            answers.append((request.future, committed, None))
        problem = self._append(events)
        if problem is not None:
            # Also for those that failed their check: they were compared with what is not there.
            again = type(problem)
            answers = [(request.future, None, again(str(problem))) for request in group]
            self._report(_Outcome(answers, [], {}, self._revision))
            return
        self._revision = revision
        for key, state in changes.items():
            if state is None:
                head.pop(key, None)
            else:
                head[key] = state
        self._report(_Outcome(answers, events, changes, revision))

    def _append(self, events: list[Event]) -> Full | Failed | None:
        if self._failure is None and events:
            try:
                self._file.append(events)
            except Full as error:
                log.error("no space for the store", path=self._path)
                return error
            except Exception as error:  # whatever it is, memory and disk may now disagree
                self._failure = error if isinstance(error, Failed) else Failed(repr(error))
                log.error("store takes no more writes", path=self._path, exc_info=error)
        return self._failure
