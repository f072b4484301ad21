"""The books of a Job: its status, and how an ended pod gets into the counters exactly once. Pure.

    pod ended ─► its uid in uncountedTerminatedPods (written) ─► finalizer off the pod
              ─► uid out, counter up (written)

Whatever crashes in between, the next pass sees from the uid and the finalizer how far it came.
A succeeded index is its own uid: it is written into completedIndexes instead.
Invariant: a uid leaves the uncounted lists and enters a counter in the same write.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from motley.api.views.base import Condition
from motley.api.views.batch import Job
from motley.api.views.pod import Pod
from motley.controllers.jobs import pods
from motley.controllers.jobs.census import Census, uncounted
from motley.controllers.jobs.plan import COMPLETE, FAILED, INTERIM, Finish
from motley.controllers.jobs.policies import rule_on
from motley.controllers.workload import condition
from motley.lib import clock as clocks

_UNCOUNTED_MAX = 500  # keeps the status under 20 KB


@dataclass
class Ledger:
    """A Job's status, to be changed and written."""

    active: int
    ready: int
    terminating: int
    succeeded: int
    failed: int
    start_time: str | None
    completion_time: str | None
    completed_indexes: str
    failed_indexes: str | None
    uncounted_succeeded: list[str]
    uncounted_failed: list[str]
    conditions: list[Condition]

    @classmethod
    def of(cls, job: Job) -> "Ledger":
        """The status as it was last written."""
        now, held = job.status, uncounted(job)
        return cls(
            now.active,
            now.ready or 0,
            now.terminating or 0,
            now.succeeded,
            now.failed,
            now.start_time,
            now.completion_time,
            now.completed_indexes,
            now.failed_indexes,
            list(held.succeeded),
            list(held.failed),
            list(now.conditions),
        )

    def document(self) -> dict[str, Any]:
        """The status as a merge patch: what Kubernetes leaves out is null."""
        return {
            "active": self.active or None,
            "ready": self.ready,
            "terminating": self.terminating,
            "succeeded": self.succeeded or None,
            "failed": self.failed or None,
            "startTime": self.start_time,
            "completionTime": self.completion_time,
            "completedIndexes": self.completed_indexes or None,
            "failedIndexes": self.failed_indexes,
            "uncountedTerminatedPods": {
                "succeeded": self.uncounted_succeeded or None,
                "failed": self.uncounted_failed or None,
            },
            "conditions": [msgspec.to_builtins(c) for c in self.conditions] or None,
        }

    def set_condition(self, type_: str, value: str, reason: str, message: str, now: float) -> bool:
        """Set a condition; False when it was so already. Nothing becomes False that never was."""
        stamp = clocks.rfc3339(now)
        fresh = Condition(
            type=type_,
            status=value,
            reason=reason,
            message=message,
            last_probe_time=stamp,
            last_transition_time=stamp,
        )
        known = condition(self.conditions, type_)
        if known is None:
            if value == "False":
                return False
            self.conditions.append(fresh)
            return True
        if (known.status, known.reason, known.message) == (value, reason, message):
            return False
        self.conditions[self.conditions.index(known)] = fresh
        return True

    def settle(self, still_tracked: Collection[str]) -> None:
        """Move the uncounted pods that have lost their finalizer into the counters."""
        waiting = [uid for uid in self.uncounted_succeeded if uid in still_tracked]
        self.succeeded += len(self.uncounted_succeeded) - len(waiting)
        self.uncounted_succeeded = waiting
        waiting = [uid for uid in self.uncounted_failed if uid in still_tracked]
        self.failed += len(self.uncounted_failed) - len(waiting)
        self.uncounted_failed = waiting

    def announce(self, finish: Finish, now: float) -> None:
        """Say how the Job will end, before its pods are let go."""
        if condition(self.conditions, INTERIM[finish.type]) is None:
            self.set_condition(INTERIM[finish.type], "True", finish.reason, finish.message, now)

    def close(self, finish: Finish, now: float) -> bool:
        """End the Job, unless a pod is still uncounted or on its way out."""
        if self.uncounted_succeeded or self.uncounted_failed or self.terminating:
            return False
        self.set_condition(finish.type, "True", finish.reason, finish.message, now)
        if finish.type == COMPLETE:
            self.completion_time = clocks.rfc3339(now)
        return True


@dataclass(frozen=True)
class Entry:
    """Pods to be let go once the ledger is written."""

    release: Sequence[Pod]
    is_whole: bool  # False: there are more, for the next pass


def enter(job: Job, census: Census, ledger: Ledger, finish: Finish | None) -> Entry:
    """Write the pods that ended into the ledger; they are to be released after it is stored."""
    tracked = [pod for pod in census.pods if pods.is_tracked(pod)]
    tracked.sort(key=lambda pod: -1 if (i := pods.index_of(pod)) is None else i)
    ledger.settle({pod.metadata.uid for pod in tracked})
    release: list[Pod] = []
    indexes = 0
    is_whole = True
    for pod in tracked:
        if not _may_go(job, census, pod, finish):
            continue
        release.append(pod)
        indexes += _enter_one(job, census, ledger, pod, finish)
        if indexes + len(ledger.uncounted_succeeded) + len(ledger.uncounted_failed) >= (
            _UNCOUNTED_MAX
        ):
            is_whole = False
            break
    if job.is_indexed:
        ledger.succeeded = len(census.succeeded_indexes)
        ledger.completed_indexes = str(census.succeeded_indexes)
        failed = census.failed_indexes
        ledger.failed_indexes = None if failed is None else str(failed)
    return Entry(release, is_whole)


def _may_go(job: Job, census: Census, pod: Pod, finish: Finish | None) -> bool:
    if job.metadata.deletion_timestamp or finish or pod.status.phase == "Succeeded":
        return True
    if not pods.has_failed(job, pod):
        return False
    return all(pod.metadata.uid != kept.metadata.uid for kept in census.kept.values())


def _enter_one(job: Job, census: Census, ledger: Ledger, pod: Pod, finish: Finish | None) -> int:
    """Enter one pod; 1 if it completed an index."""
    uid, index = pod.metadata.uid, pods.valid_index(job, pod)
    if pod.status.phase == "Succeeded" and uid not in ledger.uncounted_failed:
        if job.is_indexed:
            return int(index is not None and index not in census.counted_indexes)
        if uid not in ledger.uncounted_succeeded:
            ledger.uncounted_succeeded.append(uid)
        return 0
    # When a Job has failed, every pod that had not ended counts as failed.
    failed = pods.has_failed(job, pod) or (finish is not None and finish.type == FAILED)
    belongs = index is not None or not job.is_indexed
    if failed and belongs and uid not in ledger.uncounted_failed and rule_on(job, pod).counts:
        ledger.uncounted_failed.append(uid)
    return 0
