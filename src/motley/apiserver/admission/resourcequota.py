"""ResourceQuota: a namespace gets no more than its share, whoever asks at the same moment.

A write that a quota counts carries the quota's new `status.used` in its own transaction: both
happen or neither. Within this server such writes of one namespace wait for each other; a change
of the quota from elsewhere makes the transaction fail and be tried again.

Invariant: `used` never exceeds `hard` through admission, and an admitted object is in `used`
from the very revision that created it. Deletions are counted by the quota controller.
"""

import asyncio
from typing import Any

from motley.api import amounts, quota
from motley.api.amounts import Amounts
from motley.api.fields import tracking
from motley.apiserver import document
from motley.apiserver.admission.change import Change, interest
from motley.apiserver.admission.lookup import Lookup, kind_of
from motley.lib.clock import SYSTEM, Clock, rfc3339
from motley.store.contract import Put

Document = dict[str, Any]

_MANAGER = "kube-apiserver"  # who owns what is charged here, as Kubernetes calls it


class ResourceQuota:
    """Charges quotas; the last plugin, because what it reserves is for a write that happens."""

    name = "ResourceQuota"
    interests = (
        interest("create"),
        interest("update", *quota.CHANGING),
        interest("update", "pods", subresources="resize"),
    )

    def __init__(self, lookup: Lookup, clock: Clock = SYSTEM) -> None:
        self._lookup = lookup
        self._clock = clock
        self._kind = kind_of("", "resourcequotas")
        self._turns: dict[str, asyncio.Lock] = {}

    async def validate(self, change: Change) -> None:
        """403 when a quota does not have what the change takes."""
        kind, new = change.kind, change.new
        if not change.namespace or new is None or (kind.group, kind.plural) in quota.UNCOUNTED:
            return
        if not await self._lookup.list(self._kind, change.namespace):
            return
        if change.dry_run:
            await self._charge(change, new)
            return
        turn = self._turns.setdefault(change.namespace, asyncio.Lock())
        await turn.acquire()
        try:
            await self._charge(change, new)
        except BaseException:
            turn.release()
            raise
        change.notes[self.name] = turn

    def settle(self, change: Change, *, committed: bool) -> None:
        """The next one's turn."""
        turn = change.notes.pop(self.name, None)
        if turn is not None:
            turn.release()

    async def _charge(self, change: Change, new: Document) -> None:
        group, plural = change.kind.group, change.kind.plural
        asked = quota.usage(group, plural, new)
        given_back = quota.usage(group, plural, change.old) if change.old is not None else {}
        for known in await self._lookup.list(self._kind, change.namespace):
            name = known["metadata"]["name"]
            record = await self._lookup.fresh(self._kind, change.namespace, name)
            if record is None:
                continue
            found = document.decode(record.value)
            delta = amounts.subtract(asked, given_back)
            if change.old is not None and not quota.is_in_scope(found, group, plural, change.old):
                delta = asked
            if not quota.is_in_scope(found, group, plural, new):
                continue
            used = charged(change, found, delta)
            if used is not None and not change.dry_run:
                state = {**(found.get("status") or {}), "used": used}
                after = {**found, "metadata": dict(found["metadata"]), "status": state}
                now = rfc3339(self._clock.now())
                tracking.updated(self._kind, found, after, _MANAGER, "status", now)
                value = document.encode(self._kind, after)
                change.also.append(Put(record.key, value, record.revision))


def charged(change: Change, found: Document, delta: Amounts) -> dict[str, str] | None:
    """The quota's `used` after the change; None when it is no business of this quota."""
    name, state = found["metadata"]["name"], found.get("status") or {}
    hard = amounts.read(state.get("hard") or (found.get("spec") or {}).get("hard"))
    used = amounts.read(state.get("used"))
    if change.kind.plural == "pods" and not change.kind.group and change.old is None:
        missing = quota.unspecified(change.new or {}, hard)
        if missing:
            listed = "; ".join(f"{what} for: {','.join(c)}" for what, c in sorted(missing.items()))
            raise change.forbidden(f"failed quota: {name}: must specify {listed}")
    counted = {what: amount for what, amount in delta.items() if what in hard and amount.nano}
    if not counted:
        return None
    unknown = sorted(what for what in counted if what not in used)
    if unknown:
        raise change.forbidden(f"status unknown for quota: {name}, resources: {','.join(unknown)}")
    after = amounts.add(used, counted)
    exceeded = [
        what
        for what, amount in counted.items()
        if amount.nano > 0 and after[what].nano > hard[what].nano
    ]
    if exceeded:
        raise change.forbidden(
            f"exceeded quota: {name}, requested: {amounts.written(counted, exceeded)}, "
            f"used: {amounts.written(used, exceeded)}, limited: {amounts.written(hard, exceeded)}"
        )
    return {what: str(amount) for what, amount in sorted(after.items())}
