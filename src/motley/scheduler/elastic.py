"""What namespaces use of their ElasticQuotas, and what they borrow.

A quota guarantees its namespace `min` and lets it use up to `max`. What it takes above `min` it
borrows from other quotas that leave some of theirs unused: all quotas together never use more than
the sum of their `min`. A resource that no quota has a `min` for is not shared out, and one that a
quota has no `max` for is not limited by it.

Invariant: a pod counts once, from its reservation until it has ended or is gone.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from motley.api.views.base import Key
from motley.api.views.pod import Pod
from motley.api.views.scheduling import ElasticQuota
from motley.scheduler.podinfo import (
    CPU,
    PODS,
    PodInfo,
    Requests,
    amount,
    identity,
    pod_requests,
)

_NOTHING: Requests = {}


@dataclass(slots=True)
class _Counted:
    namespace: str
    requests: Requests
    is_bound: bool  # the API shows it; a failed reservation does not undo that


@dataclass(frozen=True, slots=True)
class Absent:
    """A pod that is not counted for the moment."""

    uid: str
    counted: _Counted


@dataclass(slots=True, eq=False)
class Share:
    """A namespace's quota."""

    key: Key
    min: Requests
    max: Requests
    made: str = field(default="")  # when; where there are two, the older counts

    @property
    def order(self) -> tuple[str, str]:
        """The first in this order is the namespace's quota."""
        return (self.made, self.key.name)


def with_pod(requests: Requests) -> dict[str, int]:
    """What a pod counts for: what it requests, and one pod."""
    return {**requests, PODS: 1}


def total(left: Requests, right: Requests) -> dict[str, int]:
    """The sum, name by name."""
    return {name: left.get(name, 0) + right.get(name, 0) for name in {**left, **right}}


class ElasticQuotas:
    """The book; filled by informers and by the plugin's Reserve, on one event loop."""

    def __init__(self) -> None:
        self._quotas: dict[Key, Share] = {}
        self._shares: dict[str, Share] = {}  # the quota in force, by namespace
        self._guaranteed: dict[str, int] = {}  # the sum of all `min`
        self._pods: dict[str, _Counted] = {}  # by uid
        self._used: dict[str, dict[str, int]] = {}  # by namespace
        self._used_by_all: dict[str, int] = {}  # the sum over namespaces with a quota
        self._ending: dict[str, float] = {}
        self._by_namespace: dict[str, dict[str, None]] = {}  # in order, so that ties are stable

    def __len__(self) -> int:
        return len(self._shares)

    # -- questions --------------------------------------------------------------------------

    def of(self, namespace: str) -> Share | None:
        """The quota of a namespace."""
        return self._shares.get(namespace)

    def used(self, namespace: str) -> Requests:
        """What the pods of a namespace take."""
        return self._used.get(namespace, _NOTHING)

    def above_max(self, share: Share, more: Requests) -> dict[str, str]:
        """By resource that would be over the quota's max: how much, of how much."""
        return _above(self.used(share.key.namespace), more, share.max)

    def above_guaranteed(self, more: Requests) -> dict[str, str]:
        """By resource of which all quotas together would use more than they guarantee."""
        return _above(self._used_by_all, more, self._guaranteed)

    def is_within_min(self, share: Share, more: Requests) -> bool:
        """Would the namespace still take only what it is guaranteed?"""
        return not _above(self.used(share.key.namespace), more, self._floor(share))

    def is_borrowing(self, namespace: str) -> bool:
        """Does a namespace with a quota take more than it is guaranteed?"""
        share = self._shares.get(namespace)
        if share is None:
            return False
        used, floor = self.used(namespace), self._floor(share)
        return any(used.get(name, 0) > limit for name, limit in floor.items())

    def pods_in(self, namespace: str) -> list[str]:
        """The pods that count there, by uid."""
        return list(self._by_namespace.get(namespace, ()))

    def borrowers(self) -> Iterator[str]:
        """The namespaces that borrow."""
        return (namespace for namespace in self._shares if self.is_borrowing(namespace))

    def _floor(self, share: Share) -> Requests:
        return {name: share.min.get(name, 0) for name in self._guaranteed}

    # -- pods that are to end ---------------------------------------------------------------

    def will_end(self, uids: Iterable[str], by: float) -> None:
        """Somebody takes back what these pods use; `by` when (monotonic) they have been told."""
        self._ending.update(dict.fromkeys(uids, by))

    @contextmanager
    def without_ending(self, now: float) -> Iterator[frozenset[str]]:
        """Inside, pods that are to end already do not count: nobody need end for the same again."""
        for uid in [uid for uid, by in self._ending.items() if uid not in self._pods or by < now]:
            del self._ending[uid]
        absent = [found for uid in self._ending if (found := self.remove(uid)) is not None]
        try:
            yield frozenset(one.uid for one in absent)
        finally:
            for one in absent:
                self.put_back(one)

    # -- what the API says ------------------------------------------------------------------

    def set_quota(self, key: Key, quota: ElasticQuota | None) -> bool:
        """A quota came, changed or went; False: nothing that matters is other than before."""
        before = self._quotas.get(key)
        if quota is None:
            if before is None:
                return False
            del self._quotas[key]
        else:
            spec = quota.spec
            low, high = _amounts(spec.min), _amounts(spec.max)
            if before is not None and (before.min, before.max) == (low, high):
                return False
            made = quota.metadata.creation_timestamp or ""
            self._quotas[key] = Share(key, low, high, made)
        self._shares = {}
        for share in sorted(self._quotas.values(), key=lambda share: share.order):
            self._shares.setdefault(share.key.namespace, share)
        self._guaranteed, self._used_by_all = {}, {}
        for namespace, share in self._shares.items():
            self._guaranteed = total(self._guaranteed, share.min)
            self._used_by_all = total(self._used_by_all, self.used(namespace))
        return True

    def set_pod(self, old: Pod | None, new: Pod | None) -> None:
        """A pod came, changed or went."""
        if old is not None and (new is None or identity(old) != identity(new)):
            self.remove(identity(old))
        if new is None:
            return
        uid = identity(new)
        if new.is_terminal:
            self.remove(uid)
        elif new.spec.node_name:
            known = self._pods.get(uid)
            if known is None or not known.is_bound or old is None or old.spec != new.spec:
                requests = {name: v for name, v in pod_requests(new).items() if v}
                self._put(uid, _Counted(new.metadata.namespace, with_pod(requests), True))

    # -- what the scheduler does ------------------------------------------------------------

    def reserve(self, pod: PodInfo) -> None:
        """A pod has a place; it counts."""
        if pod.uid not in self._pods:
            self._put(pod.uid, _Counted(pod.key.namespace, with_pod(pod.requests), False))

    def unreserve(self, pod: PodInfo) -> None:
        """It has none, after all."""
        known = self._pods.get(pod.uid)
        if known is not None and not known.is_bound:
            self.remove(pod.uid)

    def remove(self, uid: str) -> Absent | None:
        """Count a pod no longer; give the answer to `put_back` where it was but a question."""
        known = self._pods.pop(uid, None)
        if known is None:
            return None
        del self._by_namespace[known.namespace][uid]
        self._add(known.namespace, known.requests, -1)
        return Absent(uid, known)

    def put_back(self, absent: Absent) -> None:
        """Count it again, as it was."""
        self._put(absent.uid, absent.counted)

    def _put(self, uid: str, counted: _Counted) -> None:
        self.remove(uid)
        self._pods[uid] = counted
        self._by_namespace.setdefault(counted.namespace, {})[uid] = None
        self._add(counted.namespace, counted.requests, 1)

    def _add(self, namespace: str, requests: Requests, sign: int) -> None:
        used = self._used.setdefault(namespace, {})
        for name, value in requests.items():
            used[name] = used.get(name, 0) + sign * value
        if namespace in self._shares:
            for name, value in requests.items():
                self._used_by_all[name] = self._used_by_all.get(name, 0) + sign * value


def _amounts(listed: Mapping[str, str | int | float]) -> dict[str, int]:
    return {name: amount(name, q) for name, q in listed.items()}


def _above(used: Requests, more: Requests, limits: Requests) -> dict[str, str]:
    """Only what is asked for can be too much: a pod that wants no memory is no reason to mind."""
    found = {}
    for name, wanted in more.items():
        limit = limits.get(name)
        if limit is not None and wanted and used.get(name, 0) + wanted > limit:
            unit = "m" if name == CPU else ""
            found[name] = f"{used.get(name, 0) + wanted}{unit} of {limit}{unit}"
    return found
