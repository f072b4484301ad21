"""Pods that run together or not at all: what is known of each PodGroup and its members.

    pending ── reserve ──► reserved ── the API shows the binding ──► bound
       ▲                       │
       └────── unreserve ──────┘

A gang is complete when as many members as it needs are bound or reserved; until then those that
have a place wait (`Waiting`). A gang that cannot become complete lets go of what it holds and
rests for a while, longer each time, so that two gangs that stand in each other's way do not
come back together.

Invariant: a member is in exactly one of `pending`, `gated` and `bound`, as the API has it; members
that are being deleted, or have failed, are in none.
"""

import asyncio
import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

from motley.api.views.base import Key
from motley.api.views.pod import Pod
from motley.api.views.scheduling import POD_GROUP_LABEL, PodGroup
from motley.lib import clock as clocks
from motley.lib.backoff import Backoff
from motley.lib.clock import Clock
from motley.scheduler.podinfo import PodInfo, Requests, amount, identity

# A gang's first rest and the longest, as with single pods.
_REST_S = 1.0
_LONGEST_REST_S = 10.0
_TICK_S = 0.25  # how exact rests are

Activate = Callable[[frozenset[str]], None]


def gang_key(pod: Pod) -> Key | None:
    """The PodGroup that a pod names; None: it belongs to none."""
    name = pod.metadata.labels.get(POD_GROUP_LABEL)
    return Key(pod.metadata.namespace, name) if name else None


@dataclass(slots=True, eq=False)
class Gang:
    """One PodGroup, which may not be there (yet), and its members by uid."""

    key: Key
    group: PodGroup | None = None
    created: float = 0.0
    min_resources: Requests = field(default_factory=dict)
    pending: set[str] = field(default_factory=set)
    gated: set[str] = field(default_factory=set)
    bound: set[str] = field(default_factory=set)  # have a node, and run or ended well
    reserved: set[str] = field(default_factory=set)  # have a place that the API does not show yet
    hopeless: set[str] = field(default_factory=set)  # found no place since the last rest
    failed_at: float = 0.0  # by the wall clock
    failure: str = ""  # how it ended when it was tried last
    rests_until: float = 0.0  # monotonic
    rests_at_least: float = 0.0  # whatever happens
    lacks_resources: bool = False
    has_resources: bool = False  # there were enough when it was first tried since the last rest
    pauses: Backoff = field(default_factory=lambda: Backoff(_REST_S, _LONGEST_REST_S))

    @property
    def needed(self) -> int:
        """How many members must have a place."""
        return self.group.spec.min_member if self.group else 0

    @property
    def placed(self) -> int:
        """How many have one."""
        return len(self.bound) + len(self.reserved)  # nobody is in both

    @property
    def members(self) -> int:
        """How many there are."""
        return len(self.pending) + len(self.gated) + len(self.bound)

    @property
    def is_complete(self) -> bool:
        """Have enough members a place?"""
        return self.group is not None and self.placed >= self.needed

    @property
    def can_complete(self) -> bool:
        """Could those that have not been tried in vain make it complete?"""
        untried = self.pending - self.reserved - self.hopeless
        return self.placed + len(untried) >= self.needed

    @property
    def lack(self) -> str:
        """Why no member can be tried, for as long as the API stays as it is; empty: nothing."""
        if self.group is None:
            return f"PodGroup {self.key} not found"
        # No counts: those who were refused before would go on showing old ones.
        if self.members < self.needed:
            return f"PodGroup {self.key} needs {self.needed} members and has fewer"
        if self.members - len(self.gated) < self.needed:
            return (
                f"PodGroup {self.key} needs {self.needed} members and too many are held back by"
                " scheduling gates"
            )
        return ""


class Gangs:
    """All of them; filled by informers and by the plugin's Reserve, on one event loop."""

    def __init__(self) -> None:
        self._gangs: dict[Key, Gang] = {}
        # Members told to let go of their places that have not done so yet.
        self.releasing: set[str] = set()
        self.activate: Activate = lambda uids: None
        self._rests: list[tuple[float, Key]] = []  # a heap: when, and whose, a rest ends
        self._resting = asyncio.Event()
        self._timekeeping = asyncio.Lock()

    def of(self, pod: Pod) -> Gang | None:
        """The gang that a pod belongs to."""
        key = gang_key(pod)
        return None if key is None else self.get(key)

    def get(self, key: Key) -> Gang:
        """A gang, known or not."""
        gang = self._gangs.get(key)
        if gang is None:
            gang = self._gangs[key] = Gang(key)
        return gang

    def __len__(self) -> int:
        return len(self._gangs)

    # -- what the API says ------------------------------------------------------------------

    def set_group(self, key: Key, group: PodGroup | None) -> None:
        """A PodGroup came, changed or went."""
        gang = self.get(key)
        before = gang.group
        gang.group = group
        if group is None:
            self._tidy(gang)
            return
        stamp = group.metadata.creation_timestamp
        gang.created = clocks.parse_rfc3339(stamp) if stamp else 0.0
        wanted = group.spec.min_resources
        gang.min_resources = {name: amount(name, q) for name, q in wanted.items()}
        # Most changes are those of its status, which moves with the members.
        if before is None or before.spec != group.spec:
            gang.has_resources = False
            self.wake(gang)

    def set_pod(self, old: Pod | None, new: Pod | None) -> None:
        """A pod came, changed or went."""
        before = gang_key(old) if old is not None else None
        after = gang_key(new) if new is not None else None
        if before is None and after is None:
            return
        if old is not None and before is not None:
            other = new is None or after != before or identity(new) != identity(old)
            if other:
                self._leave(self.get(before), identity(old))
        if new is not None and after is not None:
            self._sort_in(self.get(after), new)

    def _sort_in(self, gang: Gang, pod: Pod) -> None:
        uid = identity(pod)
        if pod.metadata.deletion_timestamp or pod.status.phase == "Failed":
            self._leave(gang, uid)
            return
        lacked = gang.lack
        if pod.spec.node_name:
            place = gang.bound
            gang.reserved.discard(uid)
        else:
            place = gang.gated if pod.spec.scheduling_gates else gang.pending
        if uid in place:
            return
        for held in (gang.pending, gang.gated, gang.bound):
            held.discard(uid)
        place.add(uid)
        if lacked and gang.lack != lacked:
            self.wake(gang)  # at least they can say what they wait for now

    def _leave(self, gang: Gang, uid: str) -> None:
        for held in (gang.pending, gang.gated, gang.bound, gang.reserved, gang.hopeless):
            held.discard(uid)
        self.releasing.discard(uid)
        self._tidy(gang)

    def _tidy(self, gang: Gang) -> None:
        if gang.group is None and not gang.members and not gang.reserved:
            self._gangs.pop(gang.key, None)

    # -- what the scheduler does ------------------------------------------------------------

    def reserve(self, gang: Gang, pod: PodInfo) -> None:
        """A member has a place."""
        gang.hopeless.discard(pod.uid)
        if pod.uid not in gang.bound:
            gang.reserved.add(pod.uid)

    def unreserve(self, gang: Gang, pod: PodInfo) -> None:
        """It has none, after all."""
        gang.reserved.discard(pod.uid)
        self.releasing.discard(pod.uid)
        self._tidy(gang)

    def fail(self, gang: Gang, clock: Clock, at_least_s: float, placed: int | None = None) -> None:
        """It did not work out; it is to rest, at least this long. `placed`: how many members had
        a place, if not as many as have one now."""
        now = clock.monotonic()
        gang.rests_at_least = now + at_least_s * (1.0 + 0.25 * gang.pauses.rng.random())
        self._rest(gang, max(now + gang.pauses.next(), gang.rests_at_least))
        gang.failed_at = clock.now()
        gang.has_resources = False
        gang.failure = (
            f"PodGroup {gang.key} was released: only {gang.placed if placed is None else placed} of"
            f" the {gang.needed} members"
            " it needs found a place"
        )
        gang.hopeless.clear()

    def room_grew(self, clock: Clock) -> None:
        """There is more in the cluster: rests end as soon as they may."""
        now = clock.monotonic()
        for _, key in list(self._rests):
            gang = self._gangs.get(key)
            if gang is not None and gang.rests_until > max(now, gang.rests_at_least):
                self._rest(gang, max(now, gang.rests_at_least))

    def _rest(self, gang: Gang, until: float) -> None:
        gang.rests_until = until
        heapq.heappush(self._rests, (until, gang.key))
        self._resting.set()

    async def wake_rested(self, clock: Clock) -> None:
        """Wake gangs whose rest is over, until cancelled. One of those who call it does it for all;
        when that one is cancelled, the next takes over."""
        async with self._timekeeping:
            while True:
                await self._resting.wait()
                while self._rests and self._rests[0][0] <= clock.monotonic():
                    _, key = heapq.heappop(self._rests)
                    gang = self._gangs.get(key)
                    if gang is not None and gang.rests_until <= clock.monotonic():
                        self.wake(gang)
                if self._rests:
                    await clock.sleep(_TICK_S)
                else:
                    self._resting.clear()

    def completed(self, gang: Gang) -> None:
        """It did work out."""
        gang.pauses.reset()
        gang.failed_at = gang.rests_until = 0.0
        gang.failure = ""
        gang.has_resources = False
        gang.hopeless.clear()

    def wake(self, gang: Gang) -> None:
        """Try all members that have no place, now and together."""
        self.activate(frozenset(gang.pending - gang.reserved))
