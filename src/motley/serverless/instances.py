"""Where a function's calls can go: instances, how busy each is, and who waits for one.

A call takes a slot of the least busy instance; where there is none it waits in a queue with a
bound, first come first served. A slot that becomes free goes to whoever waits longest.
Invariant: an instance never has more calls of this router than its concurrency, and one that ends
gets no further ones.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from motley.api.views.base import Key
from motley.lib.clock import Clock

QUEUE_LIMIT = 1000


class Overloaded(Exception):
    """Too many calls wait already."""


class Unavailable(Exception):
    """No instance became free in time."""


class Broken(Exception):
    """The function's code cannot be loaded; `error` says why."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(str(error.get("message", "")))
        self.error = dict(error)


@dataclass
class Instance:
    """One pod that takes calls."""

    pod: Key
    address: str
    token: str
    revision: str
    concurrency: int
    is_single: bool = False
    in_flight: int = 0
    calls: int = 0
    is_draining: bool = False
    is_cold: bool = True  # nobody has called it yet
    idle_since: float = 0.0

    @property
    def is_free(self) -> bool:
        """Could it take a call?"""
        if self.is_draining or (self.is_single and self.calls):
            return False
        return self.in_flight < self.concurrency


@dataclass
class Slot:
    """The right to one call of an instance; give it back with `Group.release`."""

    instance: Instance
    waited_s: float
    was_cold: bool


@dataclass
class Group:
    """One function's instances and its queue."""

    key: Key
    clock: Clock
    on_wait: Callable[["Group"], None] = lambda _: None
    on_spent: Callable[[Instance], None] = lambda _: None
    revision: str = ""  # the newest: preferred where it has instances
    instances: dict[Key, Instance] = field(default_factory=dict)
    failure: dict[str, Any] | None = None
    failed_at: float = 0.0
    reason: str = ""  # why there is no instance yet
    arrivals: int = 0
    _retired: set[Key] = field(default_factory=set)  # ended here, though their pods still show
    _queue: deque[asyncio.Future[Slot]] = field(default_factory=deque)
    _busy_area: float = 0.0  # calls times seconds, since it was last asked
    _area_at: float = 0.0
    _accounted_at: float = 0.0

    def __post_init__(self) -> None:
        self._area_at = self._accounted_at = self.clock.monotonic()

    @property
    def in_flight(self) -> int:
        """Calls under way."""
        return sum(one.in_flight for one in self.instances.values())

    @property
    def waiting(self) -> int:
        """Calls that wait for an instance."""
        return len(self._queue)

    def sample(self) -> tuple[float, int]:
        """Mean of calls under way or waiting, and arrivals, both since the last time."""
        now = self.clock.monotonic()
        span_s = now - self._area_at
        self._account()
        mean = self._busy_area / span_s if span_s > 0 else float(self.in_flight + self.waiting)
        arrivals = self.arrivals
        self._busy_area, self._area_at, self.arrivals = 0.0, now, 0
        return mean, arrivals

    def _account(self) -> None:
        now = self.clock.monotonic()
        self._busy_area += (self.in_flight + self.waiting) * (now - self._accounted_at)
        self._accounted_at = now

    def put(self, instance: Instance) -> None:
        """An instance can take calls; those who wait get its slots."""
        if instance.pod in self._retired:
            return
        self.instances[instance.pod] = instance
        instance.idle_since = self.clock.monotonic()
        self.failure = None
        self.reason = ""
        self._serve_waiting()

    def drop(self, pod: Key) -> None:
        """An instance is not there, as far as is known."""
        self._account()
        self.instances.pop(pod, None)

    def retire(self, pod: Key) -> None:
        """An instance gets no further calls, whatever is heard of its pod."""
        self.drop(pod)
        self._retired.add(pod)

    def gone(self, pod: Key) -> None:
        """An instance's pod ends or is gone."""
        self.drop(pod)
        self._retired.discard(pod)

    def fail(self, error: Mapping[str, Any]) -> None:
        """The code cannot be loaded: whoever waits need not wait longer."""
        self.failure = dict(error)
        self.failed_at = self.clock.monotonic()
        while self._queue:
            future = self._queue.popleft()
            if not future.done():
                future.set_exception(Broken(error))

    async def acquire(self, timeout_s: float) -> Slot:
        """A slot, after a wait if need be. Raises Overloaded, Unavailable, Broken."""
        self._account()
        self.arrivals += 1
        chosen = None if self._queue else self._choose()
        if chosen is not None:
            return self._take(chosen, 0.0)
        if len(self._queue) >= QUEUE_LIMIT:
            raise Overloaded(f"{len(self._queue)} calls of {self.key} wait already")
        future: asyncio.Future[Slot] = asyncio.get_running_loop().create_future()
        self._queue.append(future)
        began = self.clock.monotonic()
        self.on_wait(self)
        try:
            async with asyncio.timeout(timeout_s):
                slot = await future
        except TimeoutError:
            self._leave(future)
            why = f": {self.reason}" if self.reason else ""
            raise Unavailable(f"no instance of {self.key} within {timeout_s:g} s{why}") from None
        except asyncio.CancelledError:
            self._leave(future)
            raise
        slot.waited_s = self.clock.monotonic() - began
        return slot

    def _leave(self, future: asyncio.Future[Slot]) -> None:
        """A waiting call goes: its place is free, and so is a slot it got in the same moment."""
        self._account()
        if future in self._queue:
            self._queue.remove(future)
        elif future.done() and not future.cancelled() and future.exception() is None:
            self.release(future.result(), started=False)

    def retake(self, pod: Key) -> Slot | None:
        """A slot of one certain instance, beyond its limit: the call runs there already."""
        instance = self.instances.get(pod)
        return None if instance is None else self._take(instance, 0.0)

    def release(self, slot: Slot, *, started: bool = True) -> None:
        """The call is over, or did not start."""
        self._account()
        instance = slot.instance
        instance.in_flight -= 1
        if not started:
            instance.calls -= 1
        instance.idle_since = self.clock.monotonic()
        if instance.is_single and instance.calls:
            self.retire(instance.pod)
            self.on_spent(instance)
        self._serve_waiting()

    def _serve_waiting(self) -> None:
        self._account()
        while self._queue:
            chosen = self._choose()
            if chosen is None:
                return
            future = self._queue.popleft()
            if not future.done():
                future.set_result(self._take(chosen, 0.0))

    def _take(self, instance: Instance, waited_s: float) -> Slot:
        instance.in_flight += 1
        instance.calls += 1
        slot = Slot(instance, waited_s, instance.is_cold)
        instance.is_cold = False
        return slot

    def _choose(self) -> Instance | None:
        """The least busy one; the newest code first."""
        free = [one for one in self.instances.values() if one.is_free]
        if not free:
            return None
        return min(
            free,
            key=lambda one: (one.revision != self.revision, one.in_flight / one.concurrency),
        )


class Table:
    """Every function's group."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.groups: dict[Key, Group] = {}
        self.on_wait: Callable[[Group], None] = lambda _: None
        self.on_spent: Callable[[Instance], None] = lambda _: None

    def group(self, key: Key) -> Group:
        """A function's group, made when it is first asked for."""
        found = self.groups.get(key)
        if found is None:
            found = self.groups[key] = Group(
                key,
                self._clock,
                on_wait=lambda group: self.on_wait(group),
                on_spent=lambda instance: self.on_spent(instance),
            )
        return found

    def drop(self, key: Key) -> None:
        """The function is gone."""
        group = self.groups.pop(key, None)
        if group is not None:
            group.fail({"type": "NotFound", "message": f"function {key} was deleted"})
