"""The one watch that everything follows.

A store has a single watch of all of etcd and hands its events on by prefix. Every revision of etcd
is an event, so the last event seen says exactly how far the store knows everything; a watch of one
prefix could say that only when etcd sends progress notes, which come every ten minutes, and on
demand in etcd before 3.4.25 and 3.5.8 too early.

A stream that breaks is opened again after the last revision handed on, at another server if need
be. Invariant: what is handed on is every event after the start, once and in order, until etcd says
that the next one is compacted.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import grpc.aio

from motley.lib import journal
from motley.lib.clock import SYSTEM, Clock
from motley.store.contract import Compacted, Revision
from motley.store.etcd import etcd_pb2 as pb
from motley.store.etcd.connection import Connection
from motley.store.etcd.mapping import EVERYTHING

log = journal.get(__name__)


class Broken(Exception):
    """The stream ended; it can be opened again."""


async def batches(
    connection: Connection, after: Revision, is_open: Callable[[], object] = lambda: None
) -> AsyncGenerator[Sequence[Any], None]:
    """etcd's events after a revision, a whole number of revisions at a time, from one stream.

    Raises `Compacted`, or `Broken` when the stream ends for any other reason; always `aclose()`.
    """
    address, call = connection.stream()
    try:
        create = pb.WatchCreateRequest(
            key=EVERYTHING, range_end=EVERYTHING, start_revision=after + 1, prev_kv=True
        )
        await call.write(pb.WatchRequest(create_request=create))
        while True:
            answer = await call.read()
            if answer is grpc.aio.EOF:
                raise Broken("the server ended the stream")
            if answer.canceled:
                if answer.compact_revision:
                    raise Compacted(Revision(answer.compact_revision))
                raise Broken(answer.cancel_reason or "the server ended the watch")
            if answer.created:
                is_open()
            if answer.events:
                yield answer.events
    except grpc.aio.AioRpcError as error:
        reason = error.details() or error.code().name
        connection.fail_over(address, reason)
        raise Broken(reason) from error
    except asyncio.InvalidStateError as error:  # written to a stream that has just ended
        connection.fail_over(address, str(error))
        raise Broken(str(error)) from error
    finally:
        call.cancel()


class Follower:
    """Follows etcd from a revision on, for as long as its task runs."""

    def __init__(
        self,
        connection: Connection,
        after: Revision,
        deliver: Callable[[Sequence[Any], Revision], None],
        skip: Callable[[Revision], None],
        clock: Clock = SYSTEM,
    ) -> None:
        """`deliver` gets events and the revision they end at; `skip` where they go on when those
        before are lost. `deliver` may raise `Compacted` when it finds that itself."""
        self.revision = after
        self._connection = connection
        self._deliver = deliver
        self._skip = skip
        self._clock = clock
        self._backoff = connection.backoff()
        self._limit: asyncio.Timeout | None = None

    def restart(self) -> None:
        """Leave a stream that is silent although there is something to tell."""
        if self._limit is not None:
            self._limit.reschedule(asyncio.get_running_loop().time())

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self._follow()
            except Compacted as gone:
                log.warning("etcd compacted what was not read yet", oldest=gone.oldest)
                self.revision = max(self.revision, gone.oldest)
                self._skip(self.revision)
            except (Broken, TimeoutError) as broken:
                reason = str(broken) or "silent"
                log.warning("watch of etcd ended", after=self.revision, reason=reason)
            except Exception as error:  # or all caches would stand still without a word
                log.error("cannot follow etcd", after=self.revision, exc_info=error)
            await self._clock.sleep(self._backoff.next())

    async def _follow(self) -> None:
        stream = batches(self._connection, self.revision, self._backoff.reset)
        try:
            async with asyncio.timeout(None) as self._limit:
                async for events in stream:
                    last = Revision(events[-1].kv.mod_revision)
                    fresh = [event for event in events if event.kv.mod_revision > self.revision]
                    if fresh:
                        self._deliver(fresh, last)
                        self.revision = last
        finally:
            self._limit = None
            await stream.aclose()
