"""Pods that wait to be scheduled: active, backing off, unschedulable or gated.

    add ──► active ──pop──► in flight ──► bound (done)
              ▲                │  └─ failed ─► backing off ──time──► active
              │                ▼
              └── event ── unschedulable ──5 minutes──► active

An unschedulable pod is not tried again on every change in the cluster: only an event that one
of the plugins that rejected it declares helpful (`wakes_on`, `may_help`) moves it. Time comes in
through the clock, nothing here waits, so every rule can be tested without waiting.

The queue is not bounded: it refers to pods that the informer holds anyway.
"""

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import count
from typing import Any

from motley.lib.clock import SYSTEM, Clock
from motley.scheduler.contract import PodInfo
from motley.scheduler.events import ClusterEvent, PodsActivated
from motley.scheduler.profiles import Profile

UNSCHEDULABLE_MAX_S = 300.0  # kube-scheduler's podMaxInUnschedulablePodsDuration
INITIAL_BACKOFF_S = 1.0
MAX_BACKOFF_S = 10.0

_NOBODY = ""
# Why a pod moves, in kube-scheduler's words.
_FAILED = "ScheduleAttemptFailure"
_FORCED = "ForceActivate"


class Place(Enum):
    """Where in the queue a pod is."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"
    IN_FLIGHT = "in flight"


@dataclass(slots=True, eq=False)
class QueuedPod:
    """A pod and how it has fared."""

    info: PodInfo
    queued_at: float
    arrival: int  # breaks ties: creation times are whole seconds
    place: Place = Place.ACTIVE
    attempts: int = 0
    rejected_by: frozenset[str] = frozenset()
    failed_at: float = 0.0
    first_at: float = 0.0  # when it was first tried
    gate: str = ""
    ticket: int = 0  # of its one valid heap entry; older entries are stale


class Queue:
    """All pods that wait, of all profiles."""

    def __init__(
        self,
        profiles: Mapping[str, Profile],
        *,
        clock: Clock = SYSTEM,
        initial_backoff_s: float = INITIAL_BACKOFF_S,
        max_backoff_s: float = MAX_BACKOFF_S,
        unschedulable_max_s: float = UNSCHEDULABLE_MAX_S,
    ) -> None:
        self.profiles = profiles
        self._clock = clock
        self._initial_backoff_s = initial_backoff_s
        self._max_backoff_s = max_backoff_s
        self._unschedulable_max_s = unschedulable_max_s
        self._pods: dict[str, QueuedPod] = {}
        self._active: list[tuple[Any, int, int, str]] = []
        self._backoff: list[tuple[float, int, str]] = []
        self._unschedulable: dict[str, float] = {}  # uid → since, oldest first
        # Plugin → the unschedulable pods it rejected; "": pods that nobody in particular did.
        self._rejected: defaultdict[str, set[str]] = defaultdict(set)
        self._tickets = count(1)
        self._arrivals = count(1)
        self._sort = next(iter(profiles.values())).queue_sort[0].sort_key
        self._wakers = _wakers(profiles.values())
        self.is_held: Callable[[str], bool] = _nobody
        """Is room being made for the pod? Then no event wakes it: whoever makes it does."""
        self.entered: Callable[[str, str], None] = _unnoted
        """Told of every pod that comes into one of the queues, and why."""

    def __len__(self) -> int:
        return len(self._pods)

    def get(self, uid: str) -> QueuedPod | None:
        """A pod that waits or is in flight."""
        return self._pods.get(uid)

    def counts(self) -> dict[str, int]:
        """How many pods are where."""
        counts = {place.value: 0 for place in Place}
        for queued in self._pods.values():
            counts[queued.place.value] += 1
        return counts

    # -- pods come, change and go -----------------------------------------------------------

    def add(self, info: PodInfo) -> None:
        """A pod that is to be scheduled, new or changed.

        A change that no plugin can see (a status, a timestamp) does not disturb the pod where
        it is; any other is a reason to try again.
        """
        queued = self._pods.get(info.uid)
        if queued is None:
            queued = QueuedPod(
                info, info.created or self._clock.now(), arrival=next(self._arrivals)
            )
            self._pods[info.uid] = queued
            self._enter(queued, "PodAdd")
            return
        changed = queued.info.template != info.template
        queued.info = info
        if changed and queued.place is not Place.IN_FLIGHT:
            self._leave_unschedulable(queued)
            self._enter(queued, "PodUpdate")

    def replan(self) -> None:
        """The plugins of the profiles are others: all that waits is worth another try."""
        self._sort = next(iter(self.profiles.values())).queue_sort[0].sort_key
        self._wakers = _wakers(self.profiles.values())
        self._active.clear()
        for queued in self._pods.values():
            if queued.place is not Place.IN_FLIGHT:
                self._leave_unschedulable(queued)
                self._enter(queued, _FORCED)

    def remove(self, uid: str) -> None:
        """The pod is bound or gone."""
        queued = self._pods.pop(uid, None)
        if queued is not None:
            self._leave_unschedulable(queued)

    def pop(self) -> QueuedPod | None:
        """The pod to try next; it is in flight until removed or sent back."""
        while self._active:
            _, _, ticket, uid = heapq.heappop(self._active)
            queued = self._pods.get(uid)
            if queued is not None and queued.ticket == ticket:
                queued.place = Place.IN_FLIGHT
                queued.attempts += 1
                queued.first_at = queued.first_at or self._clock.monotonic()
                return queued
        return None

    def retry(self, queued: QueuedPod) -> None:
        """Something failed that is nobody's opinion of the pod: try again after its back-off."""
        if self._fail(queued, frozenset()):
            self._put_backoff(queued, _FAILED)

    def reject(self, queued: QueuedPod, rejected_by: frozenset[str]) -> None:
        """No node fits: wait for an event that helps."""
        if self._fail(queued, rejected_by):
            queued.place = Place.UNSCHEDULABLE
            queued.ticket = 0
            self.entered(Place.UNSCHEDULABLE.value, _FAILED)
            self._unschedulable[queued.info.uid] = self._clock.monotonic()
            if not self.is_held(queued.info.uid):
                self._await_events(queued)

    def release(self, uid: str) -> None:
        """The pod is held no more: from now on events wake it like any other."""
        queued = self._pods.get(uid)
        if queued is not None and queued.place is Place.UNSCHEDULABLE:
            self._await_events(queued)

    def _await_events(self, queued: QueuedPod) -> None:
        for name in queued.rejected_by or [_NOBODY]:
            self._rejected[name].add(queued.info.uid)

    def _fail(self, queued: QueuedPod, rejected_by: frozenset[str]) -> bool:
        queued.rejected_by = rejected_by
        queued.failed_at = self._clock.monotonic()
        return self._pods.get(queued.info.uid) is queued

    # -- what moves them --------------------------------------------------------------------

    def event(self, event: ClusterEvent) -> int:
        """Wake the unschedulable pods that the event may help; returns how many."""
        if isinstance(event, PodsActivated):
            return sum(self._hurry(uid) for uid in event.uids)
        wakers = self._wakers[type(event)]
        candidates = {uid for name in wakers | {_NOBODY} for uid in self._rejected.get(name, ())}
        woken = [
            queued for uid in candidates if self._may_help(queued := self._pods[uid], event, wakers)
        ]
        for queued in woken:
            self._wake(queued, type(event).__name__, at_once=event.at_once)
        return len(woken)

    def activate(self, uid: str) -> None:
        """Try an unschedulable pod again, whatever rejected it: its situation is another."""
        queued = self._pods.get(uid)
        if queued is not None and queued.place is Place.UNSCHEDULABLE:
            self._wake(queued, _FORCED)

    def _hurry(self, uid: str) -> bool:
        queued = self._pods.get(uid)
        if queued is None or queued.place not in (Place.UNSCHEDULABLE, Place.BACKOFF):
            return False
        self._leave_unschedulable(queued)
        self._put_active(queued, _FORCED)
        return True

    def flush(self) -> None:
        """Move what has waited long enough."""
        now = self._clock.monotonic()
        while self._backoff and self._backoff[0][0] <= now:
            _, ticket, uid = heapq.heappop(self._backoff)
            queued = self._pods.get(uid)
            if queued is not None and queued.ticket == ticket:
                self._put_active(queued, "BackoffComplete")
        expired = []
        for uid, since in self._unschedulable.items():
            if since + self._unschedulable_max_s > now:
                break
            expired.append(uid)
        for uid in expired:
            self._wake(self._pods[uid], "UnschedulableTimeout")

    def backoff_s(self, attempts: int) -> float:
        """How long a pod rests after this many failed attempts: 1, 2, 4, 8, 10, 10 …"""
        doubled: float = self._initial_backoff_s * 2 ** min(max(attempts - 1, 0), 32)
        return min(doubled, self._max_backoff_s)

    def _may_help(self, queued: QueuedPod, event: ClusterEvent, wakers: frozenset[str]) -> bool:
        if not queued.rejected_by:
            return True  # there were no nodes, for one
        profile = self.profiles[queued.info.scheduler_name]
        for name in queued.rejected_by & wakers:
            look = getattr(profile.plugins[name], "may_help", None)
            if look is None or look(queued.info, event):
                return True
        return False

    def _leave_unschedulable(self, queued: QueuedPod) -> None:
        if self._unschedulable.pop(queued.info.uid, None) is not None:
            for name in queued.rejected_by or [_NOBODY]:
                self._rejected[name].discard(queued.info.uid)

    def _enter(self, queued: QueuedPod, why: str) -> None:
        for plugin in self.profiles[queued.info.scheduler_name].pre_enqueue:
            refusal = plugin.pre_enqueue(queued.info)
            if refusal is not None:
                queued.place, queued.gate, queued.ticket = Place.GATED, refusal.reason, 0
                self.entered(Place.GATED.value, why)
                return
        queued.gate = ""
        self._wake(queued, why)

    def _wake(self, queued: QueuedPod, why: str, *, at_once: bool = False) -> None:
        self._leave_unschedulable(queued)
        if not at_once and self._rested_at(queued) > self._clock.monotonic():
            self._put_backoff(queued, why)
        else:
            self._put_active(queued, why)

    def _rested_at(self, queued: QueuedPod) -> float:
        if not queued.attempts:
            return float("-inf")
        return queued.failed_at + self.backoff_s(queued.attempts)

    def _put_active(self, queued: QueuedPod, why: str) -> None:
        self.entered(Place.ACTIVE.value, why)
        queued.place, queued.ticket = Place.ACTIVE, next(self._tickets)
        key = self._sort(queued.info, queued.queued_at)
        heapq.heappush(self._active, (key, queued.arrival, queued.ticket, queued.info.uid))

    def _put_backoff(self, queued: QueuedPod, why: str) -> None:
        self.entered(Place.BACKOFF.value, why)
        queued.place, queued.ticket = Place.BACKOFF, next(self._tickets)
        entry = (self._rested_at(queued), queued.ticket, queued.info.uid)
        heapq.heappush(self._backoff, entry)


def _nobody(uid: str) -> bool:
    return False


def _unnoted(queue: str, event: str) -> None:
    """Nobody counts."""


def _wakers(profiles: Iterable[Profile]) -> dict[type[ClusterEvent], frozenset[str]]:
    """Event → the plugins it may convince. A plugin that does not say is convinced by any."""
    wakers: dict[type[ClusterEvent], frozenset[str]] = {}
    for kind in ClusterEvent.__subclasses__():
        wakers[kind] = frozenset(
            name
            for profile in profiles
            for name, plugin in profile.plugins.items()
            if kind in getattr(plugin, "wakes_on", (kind,))
        )
    return wakers
