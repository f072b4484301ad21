"""One priority level: its seats, its queues, and who is next. Decides, but does not wait.

Every request that runs holds a seat. While a level has free seats of its own a request runs at
once; when they are taken it may borrow idle seats that other levels lend; else it waits in one of
the level's queues, or is refused. A flow (a user, a namespace) is dealt a small hand of the queues
by its name and joins the shortest of them, so that one greedy flow fills its own hand and leaves
the others alone. Freed seats go round the queues that are not empty, one request each.

Invariants: a level's own seats are its own: a level below its nominal limit never waits, whoever
borrowed from it. Waiting is bounded by queues x length.
"""

import hashlib
import math
from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

Document = dict[str, Any]


class Waiter(Protocol):
    """A request in a queue."""

    def start(self) -> bool:
        """It has a seat now; False when it has left meanwhile."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a PriorityLevelConfiguration says."""

    is_exempt: bool
    shares: int
    lendable_percent: int
    borrowing_percent: int | None
    queues: int
    hand: int
    length: int


def limits_of(document: Document) -> Limits:
    """Read a stored PriorityLevelConfiguration."""
    spec = document.get("spec") or {}
    is_exempt = spec.get("type") == "Exempt"
    limited = spec.get("exempt" if is_exempt else "limited") or {}
    shares = limited.get("nominalConcurrencyShares")
    response = limited.get("limitResponse") or {}
    queuing = (response.get("queuing") or {}) if response.get("type") == "Queue" else None
    queues = 0 if queuing is None else queuing.get("queues") or 64  # the API's defaults
    return Limits(
        is_exempt,
        shares if shares is not None else (0 if is_exempt else 30),
        limited.get("lendablePercent") or 0,
        limited.get("borrowingLimitPercent"),
        queues,
        min(queues, (queuing or {}).get("handSize") or 8),
        (queuing or {}).get("queueLengthLimit") or 50,
    )


class Queue(deque[Waiter]):
    """Requests that wait, in the order they came."""


@dataclass
class Level:
    """The state of one priority level."""

    name: str
    uid: str
    limits: Limits
    seats: int = 0
    """The nominal limit: seats that are this level's own."""
    executing: int = 0
    waiting: int = 0
    dispatched: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    queues: dict[int, Queue] = field(default_factory=dict)
    """Those that are not empty."""
    turn: OrderedDict[int, None] = field(default_factory=OrderedDict)
    """The same queues, the next to be served first."""

    @property
    def lendable(self) -> int:
        """Own seats that others may use now: of those meant for it, the ones that stand idle."""
        meant = math.floor(self.seats * self.limits.lendable_percent / 100)
        return max(0, min(meant, self.seats - self.executing))

    @property
    def may_borrow(self) -> bool:
        """Whether its configuration lets it take one more seat of others."""
        percent = self.limits.borrowing_percent
        if percent is None:
            return True
        return self.executing - self.seats < math.floor(self.seats * percent / 100)

    def reject(self, reason: str) -> None:
        """Count a refusal."""
        self.rejected[reason] = self.rejected.get(reason, 0) + 1

    def enqueue(self, flow: str, waiter: Waiter) -> int | None:
        """Put a request in a queue of its flow's hand; the queue, None when all are full."""
        if not self.limits.queues:
            return None
        chosen, shortest = 0, self.limits.length
        for number in hand(f"{self.name}/{flow}", self.limits.queues, self.limits.hand):
            length = len(self.queues.get(number, ()))
            if length < shortest:
                chosen, shortest = number, length
        if shortest >= self.limits.length:
            return None
        if chosen not in self.queues:
            self.queues[chosen] = Queue()
            self.turn[chosen] = None
        self.queues[chosen].append(waiter)
        self.waiting += 1
        return chosen

    def leave(self, number: int, waiter: Waiter) -> None:
        """A request that waited too long, or whose client went away, gives its place up."""
        queue = self.queues.get(number)
        if queue is None or waiter not in queue:
            return
        queue.remove(waiter)
        self.waiting -= 1
        if not queue:
            del self.queues[number], self.turn[number]

    def next(self) -> Waiter | None:
        """Take the next request from the queue whose turn it is; None when nobody waits."""
        if not self.turn:
            return None
        number = next(iter(self.turn))
        queue = self.queues[number]
        waiter = queue.popleft()
        self.waiting -= 1
        if queue:
            self.turn.move_to_end(number)
        else:
            del self.queues[number], self.turn[number]
        return waiter


def divide(levels: Iterable[Level], total: int) -> None:
    """Give each level its part of the server's seats, by its shares, rounded up."""
    known = list(levels)
    shares = sum(level.limits.shares for level in known)
    for level in known:
        part = total * level.limits.shares / shares if shares else 0
        level.seats = math.ceil(part)


@lru_cache(maxsize=4096)
def hand(flow: str, queues: int, size: int) -> tuple[int, ...]:
    """The queues a flow may use: always the same ones, and for two flows rarely all the same."""
    rest = int.from_bytes(hashlib.sha256(flow.encode()).digest()[:16], "big")
    deck = list(range(queues))
    dealt = []
    for left in range(queues, queues - size, -1):
        rest, place = divmod(rest, left)
        dealt.append(deck.pop(place))
    return tuple(dealt)
