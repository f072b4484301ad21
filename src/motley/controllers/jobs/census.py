"""What a Job's pods amount to at one moment: who works, who ended, which indexes are done. Pure.

A pod is counted once. Until then it carries the tracking finalizer, so it cannot vanish; a pod
without it is history, already in the Job's counters.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from motley.api.views.batch import Job, UncountedTerminatedPods
from motley.api.views.pod import Pod
from motley.controllers.jobs import pods
from motley.controllers.jobs.indexes import Indexes
from motley.controllers.jobs.policies import rule_on


@dataclass(frozen=True)
class Census:
    """See the module's docstring."""

    pods: Sequence[Pod]
    active: Sequence[Pod]
    terminating: Sequence[Pod]
    new_succeeded: Sequence[Pod]  # ended since the Job's status was last written
    new_failed: Sequence[Pod]
    succeeded: int
    failed: int
    # Of an Indexed Job; `failed_indexes` only where each index has its own limit.
    counted_indexes: Indexes
    succeeded_indexes: Indexes
    failed_indexes: Indexes | None
    # By index, the failed pod that is kept until its successor has taken over its count.
    kept: Mapping[int, Pod]

    @property
    def ready(self) -> int:
        """How many of the working pods are ready."""
        return sum(1 for pod in self.active if pod.is_ready)


def uncounted(job: Job) -> UncountedTerminatedPods:
    """The pods that the Job's status holds by uid, not yet in its counters."""
    return job.status.uncounted_terminated_pods or UncountedTerminatedPods()


def take(job: Job, owned: Sequence[Pod]) -> Census:
    """Count the pods that belong to the Job."""
    held = uncounted(job)
    active = [pod for pod in owned if pods.is_active(pod)]
    fresh = [
        pod
        for pod in owned
        if pods.is_tracked(pod) and (not job.is_indexed or pods.valid_index(job, pod) is not None)
    ]
    new_succeeded = [
        pod
        for pod in fresh
        if pod.status.phase == "Succeeded" and pod.metadata.uid not in held.succeeded
    ]
    ended_badly = [pod for pod in fresh if pods.has_failed(job, pod)]
    new_failed = [pod for pod in ended_badly if pod.metadata.uid not in held.failed]
    succeeded = job.status.succeeded + len(new_succeeded) + len(held.succeeded)
    counted, done, failed_indexes = Indexes(), Indexes(), None
    kept: dict[int, Pod] = {}
    if job.is_indexed:
        completions = job.spec.completions or 0
        counted = Indexes.parse(job.status.completed_indexes, completions)
        done = counted | _indexes([p for p in fresh if p.status.phase == "Succeeded"])
        succeeded = len(done)
        if job.spec.backoff_limit_per_index is not None:
            before = Indexes.parse(job.status.failed_indexes or "", completions)
            failed_indexes = before | _indexes([p for p in fresh if _index_failed(job, p)])
            kept = _kept(ended_badly, done | failed_indexes | _indexes(active))
    failures = sum(1 for pod in new_failed if rule_on(job, pod).counts)
    return Census(
        pods=owned,
        active=active,
        terminating=[pod for pod in owned if pods.is_terminating(pod)],
        new_succeeded=new_succeeded,
        new_failed=new_failed,
        succeeded=succeeded,
        failed=job.status.failed + failures + len(held.failed),
        counted_indexes=counted,
        succeeded_indexes=done,
        failed_indexes=failed_indexes,
        kept=kept,
    )


def _indexes(some: Sequence[Pod]) -> Indexes:
    return Indexes.of(i for i in map(pods.index_of, some) if i is not None)


def busy_indexes(job: Job, census: Census) -> Indexes:
    """The indexes that need no new pod."""
    busy = census.succeeded_indexes | _indexes(census.active)
    if pods.waits_for_the_end(job):
        busy |= _indexes(census.terminating)
    return busy | census.failed_indexes if census.failed_indexes is not None else busy


def _index_failed(job: Job, pod: Pod) -> bool:
    if not pods.has_failed(job, pod):
        return False
    ruling = rule_on(job, pod)
    if ruling.action == "FailIndex":
        return True
    limit = job.spec.backoff_limit_per_index
    return ruling.counts and limit is not None and pods.index_failures(pod) >= limit


def _kept(failed: Sequence[Pod], settled: Indexes) -> dict[int, Pod]:
    """The last failed pod of each index that still has to be tried again: it alone knows how
    often the index has failed."""
    kept: dict[int, Pod] = {}
    for pod in failed:
        index = pods.index_of(pod)
        if index is None or index in settled:
            continue
        other = kept.get(index)
        if other is None or _is_later(pod, other):
            kept[index] = pod
    return kept


def _is_later(pod: Pod, other: Pod) -> bool:
    return pods.index_attempts(other) <= pods.index_attempts(pod) and (
        pods.finished_at(other) <= pods.finished_at(pod)
    )
