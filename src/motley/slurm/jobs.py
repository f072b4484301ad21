"""What Slurm says of a job, and what is to be done next: pure.

    Pending ─► Running ─► Completed │ Failed │ Cancelled

A step is chosen from the object alone, so that a bridge that was killed anywhere goes on where the
object says it was. `begun` means that the attempt is on record before anything is done for it.
Invariant: a job whose attempt is on record is looked for on the cluster before it is submitted.
"""

import enum
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from motley.api.views.slurm import (
    CANCELLED,
    COMPLETED,
    FAILED,
    FINALIZER,
    PENDING,
    RUNNING,
    SlurmJob,
)

# Slurm's states (squeue(1), sacct(1)) by our phase; what is not here has not begun.
_PHASES = {
    **dict.fromkeys(("RUNNING", "COMPLETING", "SUSPENDED", "STAGE_OUT", "SIGNALING"), RUNNING),
    "STOPPED": RUNNING,
    "COMPLETED": COMPLETED,
    "CANCELLED": CANCELLED,
    **dict.fromkeys(
        (
            "FAILED",
            "TIMEOUT",
            "OUT_OF_MEMORY",
            "NODE_FAIL",
            "BOOT_FAIL",
            "PREEMPTED",
            "DEADLINE",
            "REVOKED",
            "LAUNCH_FAILED",
            "RECONFIG_FAIL",
        ),
        FAILED,
    ),
}
_REASONS = {
    "FAILED": "NonZeroExit",
    "TIMEOUT": "TimeLimit",
    "OUT_OF_MEMORY": "OutOfMemory",
    "NODE_FAIL": "NodeFailed",
    "BOOT_FAIL": "NodeFailed",
    "PREEMPTED": "Preempted",
    "DEADLINE": "Deadline",
    "CANCELLED": "Cancelled",
    "COMPLETED": "Completed",
}
_SEEN_MEMORY = ("exceeded memory limit", "exceeded job memory limit", "oom-kill", "oom_kill")
_NOT_OPENED = 53  # slurmd's "signal" of a job whose output files it could not open
LOST = "Lost"
_LONGEST_PAUSE_S = 300.0  # as kubelet's before it starts a container again


class Row(NamedTuple):
    """One job, or one task of an array, as a command of Slurm's shows it."""

    job_id: str  # of the whole array
    task: str = ""
    name: str = ""
    state: str = ""
    reason: str = ""
    node: str = ""
    exit_code: int = 0
    signal: int = 0
    start: float | None = None
    end: float | None = None

    @property
    def phase(self) -> str:
        """Our word for its state."""
        return _PHASES.get(self.state, PENDING)


@dataclass(frozen=True)
class Verdict:
    """What a job's rows together say."""

    phase: str
    reason: str
    message: str
    state: str
    exit_code: int | None = None
    node: str = ""
    start: float | None = None
    end: float | None = None
    tasks: dict[str, int] = field(default_factory=dict)


def judge(rows: Sequence[Row], *, printed: str = "") -> Verdict:
    """One verdict over the tasks of a job; `printed` is the end of its error output."""
    counted = Counter(row.phase for row in rows)
    phase = next(
        # While one runs, it runs; then the worst end counts.
        p
        for p in (RUNNING, PENDING, FAILED, CANCELLED, COMPLETED)
        if counted[p]
    )
    if phase == PENDING and any(counted[p] for p in (FAILED, CANCELLED, COMPLETED)):
        phase = RUNNING  # of an array, some are done and some have not begun
    telling = next((row for row in rows if row.phase == phase), rows[0])
    code: int | None = None
    end: float | None = None
    if phase in (FAILED, CANCELLED, COMPLETED):
        reason, message = _ended(telling, printed)
        end = max((row.end for row in rows if row.end), default=None)
        code = telling.exit_code or (128 + telling.signal if telling.signal else 0)
    else:
        reason, message = _waiting(telling, phase)
    return Verdict(
        phase=phase,
        reason=reason,
        message=message,
        state=telling.state,
        exit_code=code,
        node=telling.node,
        start=min((row.start for row in rows if row.start and row.phase != PENDING), default=None),
        end=end,
        tasks=dict(counted) if len(rows) > 1 or rows[0].task else {},
    )


def _waiting(row: Row, phase: str) -> tuple[str, str]:
    if phase == RUNNING:
        return "Running", f"runs on {row.node}" if row.node else "runs"
    why = row.reason if row.reason not in ("", "None") else "Queued"
    return why, f"waits in Slurm's queue ({why})"


def _ended(row: Row, printed: str) -> tuple[str, str]:
    which = f"task {row.task}: " if row.task else ""
    reason = _REASONS.get(row.state, "Failed")
    seen = printed.lower()
    if row.state == "FAILED" and row.signal == 9 and any(w in seen for w in _SEEN_MEMORY):
        reason = "OutOfMemory"  # of a cluster that kills by polling instead of by cgroup
    if row.state == "FAILED" and row.signal == _NOT_OPENED:
        reason = "OutputNotOpened"
    if reason == "NonZeroExit":
        how = f"signal {row.signal}" if row.signal else f"exit code {row.exit_code}"
        return reason, f"{which}ended with {how}"
    told = {
        "Completed": "ended well",
        "Cancelled": "was cancelled",
        "TimeLimit": "ran into its time limit; raise spec.timeLimit",
        "OutOfMemory": "used more memory than it asked for; raise spec.memory",
        "NodeFailed": "lost its node",
        "Preempted": "had to make way for another job",
        "Deadline": "could not end before its deadline",
        "OutputNotOpened": "could not begin: its node cannot open files in the job's folder;"
        " workDirectory must be on a disk that all nodes share, with room",
    }
    return reason, which + told.get(reason, f"ended as {row.state}")


def lost() -> Verdict:
    """The verdict over a job that neither queue, accounts nor folder know any more."""
    return Verdict(
        FAILED,
        LOST,
        "left the queue without a trace: the cluster keeps no accounts, and the job was killed"
        " before it could note how it ended",
        "",
    )


def noted(job_id: str, code: int, task: str = "") -> Row:
    """What the script's own note of its end says."""
    return Row(job_id, task, state="COMPLETED" if code == 0 else "FAILED", exit_code=code)


def task_count(array: str) -> int:
    """How many tasks `0-9:2,12%4` makes; 1 for no array."""
    count = 0
    for part in array.partition("%")[0].split(","):
        first, dash, rest = part.partition("-")
        last, _, step = rest.partition(":")
        count += len(range(int(first), int(last) + 1, int(step or 1))) if dash else 1
    return count


class Step(enum.Enum):
    """What comes next for a job."""

    ADOPT = "put our finalizer on it"
    BEGIN = "record an attempt"
    SUBMIT = "stage, build and submit"
    FOLLOW = "see how it fares"
    CANCEL = "stop it"
    COLLECT = "bring its results back"
    EXPIRE = "delete it, its time is over"
    RELEASE = "stop it, clean up and let it go"
    REST = "nothing"


def next_step(job: SlurmJob) -> Step:
    """What to do for the job, from what its object says."""
    status = job.status
    if job.metadata.deletion_timestamp:
        return Step.RELEASE if FINALIZER in job.metadata.finalizers else Step.REST
    if FINALIZER not in job.metadata.finalizers:
        return Step.ADOPT
    if job.is_finished:
        return _after_the_end(job)
    if job.is_cancelled:
        return Step.CANCEL
    if not status.attempt:
        return Step.BEGIN
    return Step.FOLLOW if status.job_id else Step.SUBMIT


def _after_the_end(job: SlurmJob) -> Step:
    status = job.status
    if status.job_id and not job.has("Downloaded"):
        return Step.COLLECT
    if may_retry(job):
        return Step.BEGIN
    return Step.EXPIRE if job.spec.ttl_seconds_after_finished is not None else Step.REST


def may_retry(job: SlurmJob) -> bool:
    """Is it to be submitted again? What cannot go better the next time is not."""
    status = job.status
    hopeless = ("CompileError", "Refused")
    return (
        status.phase == FAILED
        and not job.is_cancelled
        and status.reason not in hopeless
        and 0 < status.attempt <= job.spec.retries
    )


def is_full(most: int, mine: Iterable[SlurmJob], begun: Collection[str]) -> bool:
    """Has a cluster as many jobs of ours as it may have (0: any)? `begun` are uids of jobs that
    were begun although their objects do not say so yet."""
    there = [
        job
        for job in mine
        if job.metadata.uid in begun or (job.status.attempt and not job.is_finished)
    ]
    return bool(most) and len(there) >= most


def is_wanted(job: SlurmJob, now: SlurmJob | None) -> bool:
    """Does somebody still wait for the files of a job, as it is now? Not of one that was deleted
    or, before its end, cancelled."""
    if now is None or now.metadata.uid != job.metadata.uid or now.metadata.deletion_timestamp:
        return False
    return job.is_finished or not now.is_cancelled


def has_left(old: SlurmJob | None, new: SlurmJob | None) -> bool:
    """Does a change of a job mean that it takes no place any more?"""
    return old is not None and not old.is_finished and (new is None or new.is_finished)


def pause_before(attempt: int) -> float:
    """How long to wait before a later attempt: what fails at once must not flood the queue."""
    return min(2.0 ** min(attempt - 2, 10), _LONGEST_PAUSE_S)


def mails(job: SlurmJob) -> list[str]:
    """What is to be written about now by SMTP: `begin`, `end`, `fail`."""
    mail, status = job.spec.mail, job.status
    if mail is None or mail.via == "Slurm":
        return []
    due = ["begin"] if status.start_time or status.phase == RUNNING else []
    if job.is_finished and not may_retry(job):
        due.append("end")
        if status.phase != COMPLETED:
            due.append("fail")
    wanted = {"begin", "end"} if mail.type == "all" else {mail.type}
    if mail.type == "all" and "fail" in due:
        wanted = {"begin", "fail"}  # one mail about the end is enough
    return [kind for kind in due if kind in wanted and kind not in status.mailed]


class Depends(NamedTuple):
    """What another job means for one that comes after it."""

    option: str = ""  # for sbatch
    wait: str = ""  # why it cannot be submitted yet
    never: str = ""  # why it never will be


def depends(kind: str, name: str, other: SlurmJob | None) -> Depends:
    """How a dependency stands. What has ended is judged here: Slurm forgets such jobs."""
    if other is None:
        return Depends(wait=f"SlurmJob {name} does not exist yet")
    phase = other.status.phase
    if other.is_finished and not may_retry(other):
        is_met = {
            "afterok": phase == COMPLETED,
            "afternotok": phase != COMPLETED,
            "afterany": True,
            "after": True,
        }[kind]
        return Depends() if is_met else Depends(never=f"SlurmJob {name} is {phase}, not {kind}")
    if other.spec.retries or not other.status.job_id:
        return Depends(wait=f"SlurmJob {name} is {phase or PENDING}")
    return Depends(option=f"{kind}:{other.status.job_id}")
