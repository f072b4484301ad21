"""What the bridge writes about a job: pure functions that make patches of its status.

Times of conditions change only when the condition does, and fields that no longer hold are taken
away by null, as merge patches do.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from motley.api.views.base import Condition
from motley.api.views.slurm import FINALIZER, FINISHED, PENDING, RUNNING, SlurmJob
from motley.lib import clock as clocks
from motley.slurm import jobs
from motley.slurm.jobs import Verdict

Document = dict[str, Any]
_MESSAGE = 8192  # of a compiler's complaints: the first lines say most, the last say how it ended


def conditions(
    present: Sequence[Condition], changes: Mapping[str, tuple[bool, str, str]], now: float
) -> list[Document]:
    """The list with these changed: type → whether it holds, reason, message."""
    found = {c.type: msgspec.to_builtins(c) for c in present}
    for kind, (holds, reason, message) in changes.items():
        value = "True" if holds else "False"
        before = found.get(kind, {})
        same = before.get("status") == value
        found[kind] = {
            "type": kind,
            "status": value,
            "reason": reason,
            "message": message,
            "lastTransitionTime": before["lastTransitionTime"] if same else clocks.rfc3339(now),
        }
    return list(found.values())


def adopted(job: SlurmJob, annotations: Mapping[str, str]) -> Document:
    """A patch of a job itself: from now on it is ours to clean up after."""
    meta = job.metadata
    return {
        "metadata": {
            "resourceVersion": meta.resource_version,
            "finalizers": [*meta.finalizers, FINALIZER],
            "annotations": dict(annotations),
        }
    }


def conditioned(
    job: SlurmJob, changes: Mapping[str, tuple[bool, str, str]], now: float
) -> Document:
    """These conditions of a job, and nothing else."""
    return {"conditions": conditions(job.status.conditions, changes, now)}


def begun(attempt: int, directory: str) -> Document:
    """An attempt is on record, and nothing of an earlier one any more."""
    cleared = ("jobID", "state", "exitCode", "node", "tasks", "output", "error", "results")
    times = ("submitTime", "startTime", "completionTime", "resultPath")
    return {
        **dict.fromkeys((*cleared, *times)),
        "phase": "Pending",
        "reason": "Staging",
        "message": "files are being brought to the cluster",
        "attempt": attempt,
        "directory": directory,
        "conditions": [],
    }


def submitted(job: SlurmJob, job_id: str, sent: int, is_built: bool, now: float) -> Document:
    """Slurm has it."""
    done = {
        "Staged": (True, "Uploaded", f"{sent} files sent, the rest was there"),
        "Submitted": (True, "Accepted", f"Slurm's job {job_id}"),
        "Reachable": (True, "Connected", ""),
    }
    if is_built:
        done["Built"] = (True, "Built", "")
    return {
        "jobID": job_id,
        "phase": "Pending",
        "reason": "Submitted",
        "message": f"Slurm has it as job {job_id}",
        "submitTime": clocks.rfc3339(now),
        "conditions": conditions(job.status.conditions, done, now),
    }


def ended(job: SlurmJob, phase: str, reason: str, message: str, now: float) -> Document:
    """It is over without Slurm's word for it."""
    how = {"Finished": (True, reason, message[:1024])}
    return {
        "phase": phase,
        "reason": reason,
        "message": shortened(message),
        "completionTime": clocks.rfc3339(now),
        "conditions": conditions(job.status.conditions, how, now),
    }


def followed(job: SlurmJob, verdict: Verdict, now: float) -> Document:
    """What Slurm says now; empty when the object says it already."""
    status = job.status
    changes: dict[str, tuple[bool, str, str]] = {}
    if not job.has("Reachable"):
        changes["Reachable"] = (True, "Connected", "")
    is_over = verdict.phase in FINISHED
    if is_over:
        changes["Finished"] = (True, verdict.reason, verdict.message)
    wanted: Document = {
        "phase": verdict.phase,
        "reason": verdict.reason,
        "message": verdict.message,
        "state": verdict.state,
        "node": verdict.node or None,
        "tasks": verdict.tasks,
        "startTime": clocks.rfc3339(verdict.start) if verdict.start else status.start_time,
    }
    if is_over:
        wanted["completionTime"] = clocks.rfc3339(verdict.end or now)
    if verdict.exit_code != status.exit_code:
        wanted["exitCode"] = verdict.exit_code
    present = msgspec.to_builtins(status)
    changed = {
        k: v
        for k, v in wanted.items()
        if (present.get(k) or None) != (v or None) or k == "exitCode"
    }
    if not changed and not changes:
        return {}
    if "tasks" in changed:  # a merge patch keeps what it does not name
        changed["tasks"] = {**dict.fromkeys(status.tasks), **verdict.tasks}
    if verdict.phase == RUNNING and not job.has("Started"):
        changes["Started"] = (True, "Running", verdict.message)
    return {**changed, "conditions": conditions(status.conditions, changes, now)}


def unreachable(job: SlurmJob, reason: str, message: str, now: float) -> Document:
    """Its cluster cannot be asked, and what is known of the job stays; empty when that was said."""
    told = next((c for c in job.status.conditions if c.type == "Reachable"), None)
    if told is not None and (told.status, told.reason) == ("False", reason):
        return {}
    change = {"Reachable": (False, reason, message)}
    document: Document = {"conditions": conditions(job.status.conditions, change, now)}
    if not job.status.job_id and not job.is_finished:
        document |= {"phase": PENDING, "reason": reason, "message": message}
    return document


def shortened(text: str) -> str:
    """A long text's beginning and end."""
    if len(text) <= _MESSAGE:
        return text
    half = _MESSAGE // 2
    return f"{text[:half]}\n…\n{text[-half:]}"


def heard_of_end(job: SlurmJob) -> float:
    """When we learned that a job has ended, by our own clock: the cluster's may be another."""
    heard = next(
        (c.last_transition_time for c in job.status.conditions if c.type == "Finished"), ""
    )
    return clocks.parse_rfc3339(heard or job.status.completion_time or "1970-01-01T00:00:00Z")


def pause_left(job: SlurmJob, now: float) -> float:
    """How long a job that failed still waits before it is tried again."""
    if not job.is_finished:
        return 0.0
    return heard_of_end(job) + jobs.pause_before(job.status.attempt + 1) - now


def version(job: SlurmJob) -> int:
    """A job's resourceVersion as a number, by which older copies are known; 0 if it is none."""
    text = job.metadata.resource_version
    return int(text) if text.isdigit() else 0
