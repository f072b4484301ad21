"""What to do for a Job now: end it, make pods, delete pods, or wait. Pure.

Failures are looked at before successes, and what an earlier pass decided stays decided: the
conditions FailureTarget and SuccessCriteriaMet are written before anything irreversible happens.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from motley.api.views.batch import Job
from motley.api.views.pod import Pod
from motley.controllers import replicas
from motley.controllers.jobs import backoff, pods, policies
from motley.controllers.jobs.census import Census, busy_indexes
from motley.controllers.workload import condition
from motley.lib import clock as clocks

_BURST = 500  # kube-controller-manager's limit on changes in one pass

COMPLETE, FAILED = "Complete", "Failed"
# What says so until the last pod is counted and gone.
INTERIM = {COMPLETE: "SuccessCriteriaMet", FAILED: "FailureTarget"}


@dataclass(frozen=True)
class Finish:
    """The end of a Job: `type` is Complete or Failed."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True)
class Plan:
    """Pods to make (each for an index, or None) or to delete, or how long to wait for that."""

    create: Sequence[int | None] = ()
    delete: Sequence[Pod] = ()
    wait_s: float = 0.0


def verdict(job: Job, census: Census, started_at: float | None, now: float) -> Finish | None:
    """Is the Job over, though pods may still work on it?"""
    decided = _decided(job)
    if decided is not None:
        return decided
    for pod in census.pods:
        ruling = policies.rule_on(job, pod) if pods.has_failed(job, pod) else None
        if ruling and ruling.message:
            return Finish(FAILED, "PodFailurePolicy", ruling.message)
    if census.failed > job.spec.backoff_limit or _restarted_too_often(job, census.pods):
        message = "Job has reached the specified backoff limit"
        return Finish(FAILED, "BackoffLimitExceeded", message)
    left_s = deadline_in_s(job, started_at, now)
    if left_s is not None and left_s <= 0:
        message = "Job was active longer than specified deadline"
        return Finish(FAILED, "DeadlineExceeded", message)
    return _by_indexes(job, census)


def _decided(job: Job) -> Finish | None:
    for final, interim in INTERIM.items():
        known = condition(job.status.conditions, interim)
        if known is not None and known.status == "True":
            return Finish(final, known.reason, known.message)
    return None


def _restarted_too_often(job: Job, owned: Sequence[Pod]) -> bool:
    """Containers that are restarted in place count towards the limit as well."""
    if (job.spec.template.get("spec") or {}).get("restartPolicy") != "OnFailure":
        return False
    restarts = sum(
        container.restart_count
        for pod in owned
        if pod.status.phase in ("Running", "Pending")
        for container in (*pod.status.container_statuses, *pod.status.init_container_statuses)
    )
    return restarts >= max(1, job.spec.backoff_limit)


def deadline_in_s(job: Job, started_at: float | None, now: float) -> float | None:
    """Seconds until the Job has been active for too long, if that can happen."""
    allowed_s = job.spec.active_deadline_seconds
    if allowed_s is None or started_at is None or job.spec.suspend:
        return None
    return started_at + allowed_s - now


def _by_indexes(job: Job, census: Census) -> Finish | None:
    if not job.is_indexed:
        return None
    if census.failed_indexes:
        failed, limit = len(census.failed_indexes), job.spec.max_failed_indexes
        if limit is not None and failed > limit:
            message = "Job has exceeded the specified maximal number of failed indexes"
            return Finish(FAILED, "MaxFailedIndexesExceeded", message)
        if failed + len(census.succeeded_indexes) >= (job.spec.completions or 0):
            return Finish(FAILED, "FailedIndexes", "Job has failed indexes")
    why = policies.success(job, census.succeeded_indexes)
    return Finish(COMPLETE, "SuccessPolicy", why) if why else None


def completed(job: Job, census: Census, active: int) -> Finish | None:
    """Has the Job reached its completions, with nothing left running?"""
    wanted = 1 if job.spec.completions is None else job.spec.completions
    if active or census.succeeded < wanted:
        return None
    message = "Reached expected number of succeeded pods"
    return Finish(COMPLETE, "CompletionsReached", message)


def pods_for(job: Job, census: Census, record: backoff.Record, now: float) -> Plan:
    """The pods to make or to delete while the Job runs or is suspended."""
    active = len(census.active)
    if job.spec.suspend:
        return Plan(delete=_to_delete(job, census.active, active))
    wanted = _wanted(job, census.succeeded, active)
    surplus = _to_delete(job, census.active, max(0, active - wanted))
    if surplus:
        return Plan(delete=surplus[:_BURST])
    leaving = len(census.terminating) if pods.waits_for_the_end(job) else 0
    missing = min(wanted - active - leaving, _BURST)
    if missing <= 0:
        return Plan()
    per_index = job.spec.backoff_limit_per_index is not None
    if not per_index and (wait_s := record.wait_s(now)):
        return Plan(wait_s=wait_s)
    if not job.is_indexed:
        return Plan(create=[None] * missing)
    indexes = busy_indexes(job, census).first_missing(missing, job.spec.completions or 0)
    if per_index:
        ready, wait_s = backoff.ready_indexes(indexes, dict(census.kept), now)
        return Plan(create=ready, wait_s=wait_s)
    return Plan(create=indexes)


def _wanted(job: Job, succeeded: int, active: int) -> int:
    if job.spec.completions is None:
        # A work queue: the first success says that the queue is empty; let the others end.
        return active if succeeded else job.spec.parallelism
    return max(0, min(job.spec.completions - succeeded, job.spec.parallelism))


def _to_delete(job: Job, active: Sequence[Pod], at_least: int) -> list[Pod]:
    """Pods whose loss hurts least; of an Indexed Job first those that no index needs."""
    rest = list(active)
    surplus: list[Pod] = []
    if job.is_indexed:
        by_index: dict[int | None, list[Pod]] = {}
        for pod in active:
            by_index.setdefault(pods.valid_index(job, pod), []).append(pod)
        surplus = by_index.pop(None, [])
        rest = []
        for same in by_index.values():
            ordered = replicas.to_delete(same, len(same), ())
            surplus += ordered[:-1]
            rest.append(ordered[-1])
    more = max(0, at_least - len(surplus))
    return surplus + replicas.to_delete(rest, more, ())


def start_of(job: Job, now: float) -> str | None:
    """The Job's start: now, if it starts with this pass; never while it is suspended."""
    if job.status.start_time is None and not job.spec.suspend:
        return clocks.rfc3339(now)
    return job.status.start_time
