"""What a CronJob should do now: which start is due, what is known of its Jobs. Pure.

A start that was missed is made up for, but only the latest one, and not after
`startingDeadlineSeconds`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from motley.api.views.base import ObjectReference
from motley.api.views.batch import CronJob, CronJobStatus, Job
from motley.controllers.cron import Schedule, time_zone
from motley.controllers.workload import controller_reference
from motley.lib import clock as clocks

SCHEDULED = "batch.kubernetes.io/cronjob-scheduled-timestamp"
_MANY = 100  # missed starts: more than this is a stopped clock or a stopped controller
_PADDING_S = 0.1  # kube-controller-manager: clocks of machines differ a little


class NeverFires(ValueError):
    """The schedule names a day that does not exist."""


@dataclass(frozen=True)
class Due:
    """The starts since the last one: the latest of them, and roughly how many there were."""

    since: float
    latest: int | None = None
    missed: int = 0

    @property
    def is_many(self) -> bool:
        """Were so many missed that something must be wrong?"""
        return self.missed > _MANY


def due(cron: CronJob, schedule: Schedule, now: float, *, within_deadline: bool) -> Due:
    """The starts that are due and were not made. Raises NeverFires."""
    since = _seconds(cron.status.last_schedule_time or cron.metadata.creation_timestamp)
    deadline_s = cron.spec.starting_deadline_seconds
    if within_deadline and deadline_s is not None:
        since = max(since, now - deadline_s)
    first = schedule.next(since)
    second = schedule.next(first) if first is not None else None
    if first is None or second is None:
        raise NeverFires("time difference between two schedules is less than 1 second")
    if now < first:
        return Due(since)
    if now < second:
        return Due(since, first)
    # A rough count, and one step back, so that irregular schedules are found as well.
    gap_s = second - first
    missed = int(now - first) // gap_s + 1
    latest, at = None, schedule.next(first + (missed - 2) * gap_s)
    while at is not None and at <= now:
        latest, at = at, schedule.next(at)
    return Due(since, latest, missed)


def next_in_s(cron: CronJob, schedule: Schedule, now: float) -> float | None:
    """Seconds until this CronJob must be looked at again."""
    try:
        found = due(cron, schedule, now, within_deadline=False)
    except NeverFires:
        after = now
    else:
        after = found.latest if found.latest is not None else found.since
        if found.latest is None and found.missed:
            after = now
    following = schedule.next(after)
    return None if following is None else following + _PADDING_S - now


def is_too_late(cron: CronJob, scheduled: int, now: float) -> bool:
    """Is the deadline for this start over?"""
    deadline_s = cron.spec.starting_deadline_seconds
    return deadline_s is not None and scheduled + deadline_s < now


def job_name(cron: CronJob, scheduled: int) -> str:
    """The same for the same start, so that no start is made twice, whoever crashes when."""
    return f"{cron.metadata.name}-{scheduled // 60}"


def job_document(cron: CronJob, scheduled: int) -> dict[str, Any]:
    """The Job of one start. Raises UnknownTimeZone."""
    template = cron.spec.job_template
    meta = template.metadata
    local = datetime.fromtimestamp(scheduled, time_zone(cron.spec.time_zone) or UTC)
    stamp = local.isoformat().replace("+00:00", "Z")
    metadata: dict[str, Any] = {
        "name": job_name(cron, scheduled),
        "namespace": cron.metadata.namespace,
        "annotations": {**(meta.get("annotations") or {}), SCHEDULED: stamp},
        "ownerReferences": [controller_reference(cron)],
    }
    if meta.get("labels"):
        metadata["labels"] = dict(meta["labels"])
    return {"metadata": metadata, "spec": template.spec}


def to_delete(cron: CronJob, jobs: Iterable[Job]) -> list[Job]:
    """The oldest ended Jobs above the limits of the history."""
    by_end: dict[str, list[Job]] = {"Complete": [], "Failed": []}
    for job in jobs:
        end = job.ended()
        if end is not None:
            by_end[end.type].append(job)
    limits = {
        "Complete": cron.spec.successful_jobs_history_limit,
        "Failed": cron.spec.failed_jobs_history_limit,
    }
    chosen: list[Job] = []
    for type_, limit in limits.items():
        if limit is not None:
            ordered = sorted(by_end[type_], key=_started)
            chosen += ordered[: max(0, len(ordered) - limit)]
    return chosen


def _started(job: Job) -> tuple[bool, str, str]:
    start = job.status.start_time
    return start is None, start or "", job.metadata.name


def reference(job: Job) -> ObjectReference:
    """A Job in a CronJob's list of active ones."""
    meta = job.metadata
    return ObjectReference(
        api_version=job.API_VERSION,
        kind=job.KIND,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
    )


def without(active: Sequence[ObjectReference], uid: str) -> list[ObjectReference]:
    """The active Jobs but for this one."""
    return [known for known in active if known.uid != uid]


def last_success(known: str | None, jobs: Iterable[Job]) -> str | None:
    """When a Job last succeeded."""
    latest = known
    for job in jobs:
        end, at = job.ended(), job.status.completion_time
        if end is None or end.type != "Complete" or at is None:
            continue
        if latest is None or _seconds(at) > _seconds(latest):
            latest = at
    return latest


def status_document(state: CronJobStatus) -> dict[str, Any]:
    """A status as a merge patch: what is empty is null."""
    return {
        "active": [msgspec.to_builtins(known) for known in state.active] or None,
        "lastScheduleTime": state.last_schedule_time,
        "lastSuccessfulTime": state.last_successful_time,
    }


def _seconds(stamp: str | None) -> float:
    return clocks.parse_rfc3339(stamp) if stamp else 0.0
