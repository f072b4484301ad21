"""Keys that need work, each at most once, each with at most one worker.

An informer's handler adds a key; a worker takes it, reads the current state and acts. Adding a
key that waits changes nothing; adding one that is being worked on makes it wait until its
worker is done. So the queue never holds more than one entry per key and needs no bound of its
own: it is as long as the number of objects at most.
Invariant: after `add(k)` some `get` returns `k` later, and never to two workers at once.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Hashable
from random import Random
from typing import Generic, Protocol, TypeVar

from motley.lib.clock import SYSTEM, Clock

K = TypeVar("K", bound=Hashable)


class Meter(Protocol):
    """Who wants to know how a queue fares; times in seconds."""

    def added(self, depth: int) -> None:
        """A key began to wait; this many do now."""

    def taken(self, depth: int, waited_s: float) -> None:
        """A worker took a key that waited this long."""

    def done(self, worked_s: float) -> None:
        """Its worker is finished."""

    def retried(self) -> None:
        """A key is to come back after a failure."""


class Closed(Exception):
    """The queue was closed and is empty: the worker should end."""


class WorkQueue(Generic[K]):
    """A deduplicating queue with delays and per-key exponential retry."""

    def __init__(
        self,
        clock: Clock = SYSTEM,
        *,
        retry_base_s: float = 0.005,  # client-go's default rate limiter: 5 ms … 1000 s
        retry_cap_s: float = 60.0,  # but a minute is long enough to wait for anything
        rng: Random | None = None,
    ) -> None:
        self._clock = clock
        self._retry_base_s = retry_base_s
        self._retry_cap_s = retry_cap_s
        self._rng = rng or Random()
        self._ready: deque[K] = deque()
        self._waiting: set[K] = set()  # in _ready, or dirty while processing
        self._processing: set[K] = set()
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._sequence = 0
        self._failures: dict[K, int] = {}
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._closed = False
        self.meter: Meter | None = None
        self._since: dict[K, float] = {}  # only for the meter: when a key began to wait
        self._began: dict[K, float] = {}  # and when its worker began

    def __len__(self) -> int:
        """Keys that could be taken now."""
        return len(self._ready)

    def add(self, key: K) -> None:
        """Have the key worked on."""
        if self._closed or key in self._waiting:
            return
        self._waiting.add(key)
        if key not in self._processing:
            self._append(key)

    def _append(self, key: K) -> None:
        self._ready.append(key)
        self._wake()
        if self.meter is not None:
            self._since[key] = self._clock.monotonic()
            self.meter.added(len(self._ready))

    def add_after(self, key: K, seconds: float) -> None:
        """Have the key worked on later; of several delays the shortest counts."""
        if self._closed:
            return
        if seconds <= 0:
            self.add(key)
            return
        due = self._clock.monotonic() + seconds
        if self._due.get(key, float("inf")) <= due:
            return
        self._due[key] = due
        self._sequence += 1
        heapq.heappush(self._heap, (due, self._sequence, key))
        self._wake()

    def retry(self, key: K) -> None:
        """Have the key worked on again after a failure, each time later than the last."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        if self.meter is not None:
            self.meter.retried()
        step = min(self._retry_cap_s, self._retry_base_s * 2 ** min(failures, 32))
        self.add_after(key, step * (0.5 + 0.5 * self._rng.random()))

    def forget(self, key: K) -> None:
        """The key's work succeeded: its next failure waits the shortest time again."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        """How often the key was retried since it was last forgotten."""
        return self._failures.get(key, 0)

    def unfinished_s(self) -> list[float]:
        """How long each key that is being worked on now has been, if there is a meter."""
        now = self._clock.monotonic()
        return [now - began for began in self._began.values()]

    async def get(self) -> K:
        """The next key; the caller must call `done` with it. Raises Closed."""
        while True:
            self._move_due()
            if self._ready:
                key = self._ready.popleft()
                self._waiting.discard(key)
                self._processing.add(key)
                if self.meter is not None:
                    now = self._clock.monotonic()
                    self._began[key] = now
                    self.meter.taken(len(self._ready), now - self._since.pop(key, now))
                return key
            if self._closed:
                raise Closed
            await self._wait()

    def done(self, key: K) -> None:
        """The worker is finished; if the key was added meanwhile, it waits again."""
        self._processing.discard(key)
        if self.meter is not None:
            now = self._clock.monotonic()
            self.meter.done(now - self._began.pop(key, now))
        if key in self._waiting:
            self._append(key)

    def close(self) -> None:
        """Take nothing more; workers drain what waits now, delayed keys are dropped."""
        self._closed = True
        self._heap.clear()
        self._due.clear()
        while self._waiters:
            self._wake()

    def _move_due(self) -> None:
        now = self._clock.monotonic()
        while self._heap and self._heap[0][0] <= now:
            due, _, key = heapq.heappop(self._heap)
            if self._due.get(key) == due:  # else: superseded by a shorter delay
                del self._due[key]
                self.add(key)

    async def _wait(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            if self._heap:
                await self._wait_until(waiter, self._heap[0][0])
            else:
                await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._wake()  # the wake-up was for us, and we leave: pass it on
            raise
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    async def _wait_until(self, waiter: asyncio.Future[None], due: float) -> None:
        async def alarm() -> None:
            await self._clock.sleep(max(0.0, due - self._clock.monotonic()))
            if not waiter.done():
                waiter.set_result(None)

        async with asyncio.TaskGroup() as group:
            timer = group.create_task(alarm())
            try:
                await waiter
            finally:
                timer.cancel()

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
