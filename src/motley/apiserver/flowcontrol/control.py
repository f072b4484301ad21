"""Who may run now: the server's seats, shared out between classes of users.

    request ─► FlowSchema (by user, verb, resource) ─► priority level ─► seat, queue or 429

The configuration is what is stored, followed in the background (`follower`). A decision which
schema a request belongs to is remembered by what it depends on, so that a request costs a lookup
and two additions; only when a level's seats are taken does anything wait.

Invariant: every seat taken is given back exactly once, and a freed seat goes to whoever waits.
"""

import asyncio
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from motley.api import status
from motley.apiserver.authn.user import User
from motley.apiserver.flowcontrol import defaults, matching
from motley.apiserver.flowcontrol.level import Level, divide, limits_of
from motley.apiserver.flowcontrol.matching import Schema
from motley.apiserver.request import RequestInfo

Document = dict[str, Any]
Header = tuple[bytes, bytes]

# Far below kube-apiserver's 600: requests here share one event loop, and more of them at once
# would not finish sooner, but make everybody wait for all of them.
MAX_READS = 120
MAX_WRITES = 80
QUEUE_WAIT_S = 15.0  # a quarter of a request's time limit, as in Kubernetes
RETRY_AFTER_S = 1
REMEMBERED = 8192  # decisions; beyond it they are made again
_STREAMED = frozenset({"proxy", "log", "exec", "attach", "portforward"})


class Refused(status.TooManyRequests):
    """No seat and no place in a queue; with the class that was full, for the answer's headers."""

    def __init__(self, grant: "Grant") -> None:
        super().__init__("too many requests, please try again later", retry_after_s=RETRY_AFTER_S)
        self.grant = grant


@dataclass(frozen=True, slots=True)
class Grant:
    """The class a request was found to be of."""

    schema: Schema
    level: Level
    headers: tuple[Header, ...]
    """Who decided, as Kubernetes tells it: the uids of schema and level."""


class _Waiting:
    """A request in a queue: its future is done when it has a seat."""

    __slots__ = ("future",)

    def __init__(self) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def start(self) -> bool:
        """See `Waiter`."""
        if self.future.done():
            return False
        self.future.set_result(None)
        return True


class FlowControl:
    """The seats of one server."""

    instances: ClassVar["weakref.WeakSet[FlowControl]"] = weakref.WeakSet()
    """Every one there is, for the metrics."""

    def __init__(self, total: int = MAX_READS + MAX_WRITES, wait_s: float = QUEUE_WAIT_S) -> None:
        self._total = total
        self._wait_s = wait_s
        self._schemas: list[Schema] = []
        self._decisions: dict[tuple[Any, ...], Grant] = {}
        self.levels: dict[str, Level] = {}
        self.configure(
            [*defaults.MANDATORY_SCHEMAS, *defaults.SUGGESTED_SCHEMAS],
            [*defaults.MANDATORY_LEVELS, *defaults.SUGGESTED_LEVELS],
        )
        self.instances.add(self)

    def configure(self, schemas: Iterable[Document], levels: Iterable[Document]) -> None:
        """Work by this configuration from now on. Who runs or waits goes on as before."""
        known: dict[str, Level] = {}
        for document in (*defaults.MANDATORY_LEVELS, *levels):
            name, uid = document["metadata"]["name"], document["metadata"].get("uid", "")
            level = self.levels.get(name) or Level(name, uid, limits_of(document))
            level.uid, level.limits = uid, limits_of(document)
            known[name] = level
        self.levels = known
        divide(known.values(), self._total)
        found = {s.name: s for s in map(matching.schema_of, defaults.MANDATORY_SCHEMAS)}
        found |= {s.name: s for s in map(matching.schema_of, schemas)}
        self._schemas = matching.in_order(s for s in found.values() if s.level in known)
        self._decisions.clear()
        for level in known.values():
            self._fill(level)

    def classify(self, user: User, info: RequestInfo) -> Grant:
        """The class of a request."""
        where = (info.group, info.resource, info.subresource) if info.is_resource else info.path
        key = (user.name, user.groups, info.verb, where, info.namespace)
        grant = self._decisions.get(key)
        if grant is None:
            grant = self._decide(user, info)
            if len(self._decisions) >= REMEMBERED:
                self._decisions.clear()
            self._decisions[key] = grant
        return grant

    def _decide(self, user: User, info: RequestInfo) -> Grant:
        schema = next((s for s in self._schemas if s.matches(user, info)), None)
        if schema is None:  # only somebody in neither of the groups that everybody is in
            schema = next(s for s in self._schemas if s.name == defaults.CATCH_ALL)
        level = self.levels[schema.level]
        headers = (
            (b"x-kubernetes-pf-flowschema-uid", schema.uid.encode()),
            (b"x-kubernetes-pf-prioritylevel-uid", level.uid.encode()),
        )
        return Grant(schema, level, headers)

    def enter(self, grant: Grant) -> bool:
        """Take a seat if there is one now; give it back with `leave`."""
        level = grant.level
        is_full = level.executing >= level.seats and not level.limits.is_exempt
        if is_full and (level.waiting or not self._can_borrow(level)):
            return False
        level.executing += 1
        level.dispatched += 1
        return True

    async def wait(self, grant: Grant, user: User, info: RequestInfo) -> None:
        """Wait for a seat; give it back with `leave`. Raises `Refused`."""
        level = grant.level
        waiting = _Waiting()
        queue = level.enqueue(f"{grant.schema.name}/{grant.schema.flow(user, info)}", waiting)
        if queue is None:
            level.reject("queue-full" if level.limits.queues else "concurrency-limit")
            raise Refused(grant)
        try:
            async with asyncio.timeout(self._wait_s):
                await waiting.future
        except TimeoutError:
            if waiting.future.done() and not waiting.future.cancelled():
                return  # the seat came in the same moment
            level.leave(queue, waiting)
            level.reject("time-out")
            raise Refused(grant) from None
        except asyncio.CancelledError:
            if waiting.future.done() and not waiting.future.cancelled():
                self.leave(grant)  # a seat nobody will use
            level.leave(queue, waiting)
            raise

    def leave(self, grant: Grant) -> None:
        """Give a seat back."""
        level = grant.level
        level.executing -= 1
        if level.waiting:
            self._fill(level)
        if not level.limits.is_exempt and level.executing < level.seats:
            for other in self.levels.values():
                if other.waiting and other is not level:
                    self._fill(other)

    def _fill(self, level: Level) -> None:
        """Let those run who wait, as far as there are seats."""
        while level.waiting and (level.executing < level.seats or self._can_borrow(level)):
            waiter = level.next()
            if waiter is not None and waiter.start():
                level.executing += 1
                level.dispatched += 1

    def _can_borrow(self, level: Level) -> bool:
        if not level.may_borrow:
            return False
        lent = idle = 0
        for other in self.levels.values():
            if other.limits.is_exempt:
                continue
            lent += max(0, other.executing - other.seats)
            if other is not level:
                idle += other.lendable
        return idle > lent


def is_limited(info: RequestInfo) -> bool:
    """Whether a request holds a seat while it runs: streams to nodes do not, they last too long.

    A watch holds one until it has begun.
    """
    return info.subresource not in _STREAMED
