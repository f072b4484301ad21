"""PodGroup: keeps each group's phase and counts, for `kubectl get podgroups`.

    Pending ─► PreScheduling ─► Scheduling ─► Scheduled ─► Running ─► Finished or Failed

The scheduler decides by the pods themselves and reads nothing of this; the status is for people
and tools. It is made anew from the members each time, so a group may also go back.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from motley.api import status
from motley.api.views.base import Key
from motley.api.views.pod import Pod
from motley.api.views.scheduling import POD_GROUP_LABEL, PodGroup
from motley.client.informer import Change
from motley.client.workqueue import WorkQueue
from motley.controllers.manager import Context
from motley.lib import clock as clocks

_INDEX = "pod group"


def phase(needed: int, members: Sequence[Pod]) -> str:
    """How far a group that needs so many members is."""
    by_phase = [pod.status.phase for pod in members]
    running, succeeded = by_phase.count("Running"), by_phase.count("Succeeded")
    failed = by_phase.count("Failed")
    scheduled = sum(bool(pod.spec.node_name) for pod in members)
    if succeeded >= needed:
        return "Finished"
    if running + succeeded >= needed:
        return "Running"
    if failed and failed + running + succeeded >= needed:
        return "Failed"
    if len(members) < needed:
        return "Pending"
    if scheduled >= needed:
        return "Scheduled"
    return "Scheduling" if scheduled else "PreScheduling"


def state(group: PodGroup, members: Sequence[Pod], now: float) -> dict[str, Any]:
    """The status a group should have; None removes a field."""
    found = phase(group.spec.min_member, members)
    by_phase = [pod.status.phase for pod in members]
    started = group.status.schedule_start_time
    if started is None and found != "Pending":
        started = clocks.rfc3339(now)
    return {
        "phase": found,
        "occupiedBy": ",".join(_owners(members)) or None,
        "scheduled": sum(bool(pod.spec.node_name) for pod in members),
        "running": by_phase.count("Running"),
        "succeeded": by_phase.count("Succeeded"),
        "failed": by_phase.count("Failed"),
        "scheduleStartTime": started,
    }


def _owners(members: Sequence[Pod]) -> list[str]:
    return sorted(
        {
            f"{pod.metadata.namespace}/{owner.name}"
            for pod in members
            for owner in pod.metadata.owner_references
        }
    )


def _group_of(pod: Pod) -> Iterable[str]:
    name = pod.metadata.labels.get(POD_GROUP_LABEL)
    return (str(Key(pod.metadata.namespace, name)),) if name else ()


class PodGroupController:
    """See the module's docstring."""

    name = "podgroup"
    workers = 2

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._clock = context.clock
        self.queue: WorkQueue[Key] = WorkQueue(context.clock)
        self._groups = context.informers.of(PodGroup)
        self._groups.add_handler(lambda change: self.queue.add(change.key))
        self._pods = context.informers.of(Pod)
        self._pods.add_index(_INDEX, _group_of)
        self._pods.add_handler(self._pod_changed)

    def _pod_changed(self, change: Change[Pod]) -> None:
        for pod in (change.old, change.new):
            name = pod.metadata.labels.get(POD_GROUP_LABEL) if pod is not None else None
            if name:
                self.queue.add(Key(change.key.namespace, name))

    async def reconcile(self, key: Key) -> None:
        """Write what has changed. A group that is finished stays so: its pods may be cleaned up."""
        group = self._groups.get(key)
        if group is None or group.metadata.deletion_timestamp:
            return
        if group.status.phase == "Finished":
            return
        members = self._pods.by_index(_INDEX, str(key))
        wanted = state(group, members, self._clock.now())
        if wanted == _written(group):
            return
        try:
            await self._client.patch(
                PodGroup, key.name, key.namespace, {"status": wanted}, subresource="status"
            )
        except status.NotFound:
            return  # deleted meanwhile


def _written(group: PodGroup) -> dict[str, Any]:
    found = group.status
    return {
        "phase": found.phase,
        "occupiedBy": found.occupied_by or None,
        "scheduled": found.scheduled,
        "running": found.running,
        "succeeded": found.succeeded,
        "failed": found.failed,
        "scheduleStartTime": found.schedule_start_time,
    }
