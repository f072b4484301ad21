"""The store in etcd: reads and transactions go there, watches come from one followed log.

    get, range, commit ──► etcd (linearizable; retried elsewhere when a server fails)
    etcd ──► Follower ──► the log's recent end in memory ──► Broadcaster ──► every watch

`revision()` asks etcd and then waits until the followed log has come that far. So what is served
from caches after it (a list with no `resourceVersion`) shows every write that was acknowledged
before, also by another API server. Callers that ask at the same time share one question.

Invariant: the log's end in memory is etcd's history after `_recent_after` without a gap.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Sequence
from operator import attrgetter
from random import Random
from typing import Any

from motley.lib import journal
from motley.lib.clock import SYSTEM, Clock
from motley.store import sealing, transaction
from motley.store.broadcast import Broadcaster
from motley.store.contract import (
    Ahead,
    Closed,
    Committed,
    Compacted,
    Event,
    InDoubt,
    Mismatch,
    Op,
    Range,
    Record,
    Revision,
    Stamp,
    StoreError,
    Unavailable,
    Watch,
    identity,
)
from motley.store.etcd import etcd_pb2 as pb
from motley.store.etcd import formatkey
from motley.store.etcd.config import Config
from motley.store.etcd.connection import COMPACT, RANGE, TOTAL_S, TXN, Connection
from motley.store.etcd.errors import IsAhead, IsCompacted
from motley.store.etcd.mapping import EVERYTHING, Mapper
from motley.store.etcd.watching import Broken, Follower, batches

log = journal.get(__name__)

_by_revision = attrgetter("revision")

RECENT = 4096  # revisions read at the start, events kept later: what a watch cache asks for
PAGE = 1000  # records per request: 3 MB of usual Pods, so other calls pass in between
CATCH_UP_S = 3.0  # kube-apiserver's limit for waiting until a cache has a revision
FIRST = Revision(1)  # of an etcd that nobody has written to


class EtcdStore:
    """See `contract.Store`; made by `EtcdStore.open`."""

    def __init__(
        self, connection: Connection, mapper: Mapper, after: Revision, clock: Clock
    ) -> None:
        self._connection = connection
        self._mapper = mapper
        self._clock = clock
        self._compacted = FIRST  # at least; etcd may have been compacted further by others
        self._recent: list[Event] = []
        self._recent_after = after
        self._live = Broadcaster(after, self._read_log)
        self._waiting: list[tuple[Revision, asyncio.Future[None]]] = []
        self._latest = _Shared(self._ask_revision)
        self._follower = Follower(connection, after, self._deliver, self._skip, clock)
        # It lives as long as the store, not as long as the caller of `open`; `close` ends it.
        self._following = asyncio.get_running_loop().create_task(
            self._follower.run(), name="follow etcd"
        )

    @classmethod
    async def open(
        cls,
        config: Config,
        *,
        stamp: Stamp = identity,
        seal: sealing.Seal = sealing.PLAIN,
        clock: Clock = SYSTEM,
        rng: Random | None = None,
    ) -> "EtcdStore":
        """Connect, and read the log's end.

        Raises ValueError or OSError for a configuration that makes no sense, `Unavailable` when
        no server answers, `Newer` when a newer version wrote what we would misread.
        """
        mapper = Mapper(config.prefix, stamp, seal)
        connection = Connection(config, clock, rng)
        store = None
        try:
            answer = await connection.call(RANGE, _probe())
            now = Revision(answer.header.revision)
            now = max(now, await formatkey.ensure(connection, mapper))
            oldest = await _find_oldest(connection, FIRST, now)
            store = cls(connection, mapper, Revision(max(oldest, now - RECENT)), clock)
            store._compacted = oldest
            await store._reach(now, TOTAL_S)
        except BaseException:
            await (store.close() if store is not None else connection.close())
            raise
        return store

    async def revision(self) -> Revision:
        """The latest revision of etcd, once every watch has been told of it."""
        revision = await self._latest.get()
        await self._reach(revision, CATCH_UP_S)
        return revision

    async def oldest(self) -> Revision:
        """The compacted revision, which another client of etcd may have moved."""
        self._check_open()
        now = await self._ask_revision()
        self._compacted = await _find_oldest(self._connection, self._compacted, now)
        return self._compacted

    async def get(self, key: str) -> Record | None:
        """The latest state of one key."""
        self._check_open()
        request = pb.RangeRequest(key=self._mapper.key(key))
        answer = await self._connection.call(RANGE, request)
        return self._mapper.record(answer.kvs[0]) if answer.kvs else None

    async def range(
        self, prefix: str, *, start: str = "", limit: int = 0, at: Revision | None = None
    ) -> Range:
        """A listing, in pages of one moment, so that no answer is huge."""
        self._check_open()
        begin, end = self._mapper.bounds(prefix, start)
        if begin >= end != EVERYTHING:
            begin, end = EVERYTHING, b""  # nothing can be there, but the moment may be gone
        if at is not None and at < FIRST:
            raise Compacted(await self.oldest())  # to etcd this would mean now
        records: list[Record] = []
        revision = at
        while True:
            size = min(PAGE, limit - len(records)) if limit else PAGE
            request = pb.RangeRequest(key=begin, range_end=end, limit=size, revision=revision or 0)
            try:
                answer = await self._connection.call(RANGE, request)
            except IsCompacted:
                if at is not None or revision is None:
                    raise Compacted(await self.oldest()) from None
                records, revision = [], None  # between two pages: begin again, of now
                begin, end = self._mapper.bounds(prefix, start)
                continue
            except IsAhead:
                raise Ahead(await self._ask_revision()) from None
            records += map(self._mapper.record, answer.kvs)
            revision = revision or Revision(answer.header.revision)
            remaining = answer.count - len(answer.kvs)
            if not answer.more or (limit and len(records) == limit):
                return Range(records, revision, remaining > 0, remaining)
            begin = answer.kvs[-1].key + b"\0"

    async def commit(self, ops: Sequence[Op]) -> Committed:
        """Do all operations or none; durable on most of etcd's members when this returns.

        When an answer is lost, a transaction whose operations all expect a revision is sent
        again: at most one of the two can happen.
        """
        transaction.check(ops)
        self._check_open()
        request = self._mapper.transaction(ops)
        may_repeat = all(op.expect is not None for op in ops)
        before = self._live.revision
        answer, in_doubt = await self._connection.try_call(TXN, request, may_repeat=may_repeat)
        if answer.succeeded:
            return self._mapper.committed(ops, answer)
        problem = self._mapper.mismatch(ops, answer)
        if in_doubt and not _is_older(problem, before):
            done = self._mapper.done_before(ops, answer)
            if done is None:
                raise InDoubt("etcd's answer was lost; the transaction may have happened")
            return done
        raise problem

    def watch(self, prefix: str, after: Revision) -> Watch:
        """Every change under `prefix` after a revision."""
        return self._live.subscribe(prefix, after)

    async def compact(self, revision: Revision) -> None:
        """Let etcd forget what was replaced up to `revision`; it does so in the background."""
        self._check_open()
        if revision <= self._compacted:
            return
        try:
            await self._connection.call(COMPACT, pb.CompactionRequest(revision=revision))
        except IsCompacted:
            await self.oldest()
        except IsAhead:
            raise Ahead(await self._ask_revision()) from None
        self._compacted = max(revision, self._compacted)

    async def close(self) -> None:
        """End every watch and the connections."""
        if self._live.closed:
            return
        self._live.close()
        for _, waiter in self._waiting:
            if not waiter.done():
                waiter.set_exception(Closed("the store was closed"))
        self._following.cancel()
        await asyncio.wait([self._following])
        await self._connection.close()

    def _check_open(self) -> None:
        if self._live.closed:
            raise Closed("the store was closed")

    async def _ask_revision(self) -> Revision:
        self._check_open()
        answer = await self._connection.call(RANGE, _probe())
        return Revision(answer.header.revision)

    async def _reach(self, revision: Revision, timeout_s: float) -> None:
        """Wait until the followed log has come to a revision."""
        if self._live.revision >= revision:
            return
        waiter = asyncio.get_running_loop().create_future()
        entry = (revision, waiter)
        self._waiting.append(entry)
        try:
            async with asyncio.timeout(timeout_s):
                await waiter
        except TimeoutError:
            self._follower.restart()
            raise Unavailable(
                f"etcd's watch is at revision {self._live.revision}, etcd at {revision}"
            ) from None
        finally:
            if entry in self._waiting:
                self._waiting.remove(entry)

    def _deliver(self, found: Sequence[Any], revision: Revision) -> None:
        """From the follower: remember and announce."""
        events = self._mapper.events(found)
        self._recent += events
        if len(self._recent) >= 2 * RECENT:
            dropped = len(self._recent) - RECENT
            self._recent_after = self._recent[dropped - 1].revision
            # The rest of that revision goes as well: half a transaction is of no use.
            kept = bisect_right(self._recent, self._recent_after, key=_by_revision)
            del self._recent[:kept]
        self._live.publish(events, revision)
        self._wake(revision)

    def _skip(self, revision: Revision) -> None:
        """From the follower: what came before this revision can no longer be had."""
        self._compacted = max(self._compacted, revision)
        self._recent.clear()
        self._recent_after = revision
        self._live.skip(revision)
        self._wake(revision)

    def _wake(self, revision: Revision) -> None:
        for wanted, waiter in self._waiting:
            if wanted <= revision and not waiter.done():
                waiter.set_result(None)

    async def _read_log(self, after: Revision, upto: Revision) -> Sequence[Event]:
        if after < self._compacted:
            raise Compacted(self._compacted)
        if after >= self._recent_after:
            begin = bisect_right(self._recent, after, key=_by_revision)
            return self._recent[begin : bisect_right(self._recent, upto, key=_by_revision)]
        backoff = self._connection.backoff()
        while True:  # a watch waits for its store; `close` ends the connection under it
            self._check_open()
            try:
                return await self._replay(after, upto)
            except (Broken, TimeoutError) as broken:
                log.warning("cannot read etcd's history", after=after, reason=str(broken))
                await self._clock.sleep(backoff.next())

    async def _replay(self, after: Revision, upto: Revision) -> Sequence[Event]:
        """The events between two revisions of the past, from a watch of their own."""
        stream = batches(self._connection, after)
        events: list[Event] = []
        try:
            async with asyncio.timeout(TOTAL_S):
                async for found in stream:
                    wanted = [event for event in found if event.kv.mod_revision <= upto]
                    events += self._mapper.events(wanted)
                    if found[-1].kv.mod_revision >= upto:
                        break
        finally:
            await stream.aclose()
        return events


class _Shared:
    """A question whose answer many may share, but nobody one that was asked before they came."""

    def __init__(self, ask: Callable[[], Awaitable[Revision]]) -> None:
        self._ask = ask
        self._begun = 0
        self._answered = (0, Revision(0))
        self._failed: tuple[int, Unavailable] = (0, Unavailable())
        self._turn = asyncio.Lock()

    async def get(self) -> Revision:
        """The answer to a question that begins after this call does."""
        mine = self._begun + 1
        async with self._turn:
            number, revision = self._answered
            if number >= mine:
                return revision
            number, problem = self._failed
            if number >= mine:
                raise Unavailable(str(problem))
            self._begun += 1
            number = self._begun
            try:
                revision = await self._ask()
            except Unavailable as error:
                self._failed = (number, error)
                raise
            self._answered = (number, revision)
            return revision


def _is_older(problem: StoreError, revision: Revision) -> bool:
    """Whether what is in the way was there at a revision, so that it cannot be our own doing."""
    current = problem.current if isinstance(problem, Mismatch) else None
    return current is not None and current.revision <= revision


def _probe(at: Revision | None = None) -> pb.RangeRequest:
    """The cheapest read: of a key nobody has. Its answer's header carries etcd's revision."""
    return pb.RangeRequest(key=EVERYTHING, count_only=True, revision=at or 0)


async def _find_oldest(connection: Connection, known: Revision, now: Revision) -> Revision:
    """The oldest revision etcd still has; it never says, so it is looked for by halves.

    One cheap question when it has not moved since it was `known`.
    """
    low, high = known, now  # the answer is one of low … high
    guess = low
    while low < high:
        try:
            await connection.call(RANGE, _probe(guess))
            high = guess
        except IsCompacted:
            low = Revision(guess + 1)
        guess = Revision((low + high) // 2)
    return low
