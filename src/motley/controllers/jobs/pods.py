"""The pods of a Job: how they look, how they ended, and which index they work on. Pure."""

from copy import deepcopy
from typing import Any

from motley.api.views.batch import Job
from motley.api.views.pod import ContainerStatus, Pod
from motley.controllers.jobs import policies
from motley.controllers.workload import controller_reference
from motley.lib import clock as clocks

TRACKING = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"
_INDEX_FAILURES = "batch.kubernetes.io/job-index-failure-count"
_INDEX_IGNORED = "batch.kubernetes.io/job-index-ignored-failure-count"
_INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
_PREFIX_MAX = 58  # the server adds five characters to a generated name of at most 63
_INT32_MAX = 2**31 - 1


def is_tracked(pod: Pod) -> bool:
    """Is the pod still to be counted?"""
    return TRACKING in pod.metadata.finalizers


def is_active(pod: Pod) -> bool:
    """Does the pod work, or will it?"""
    return not pod.is_terminal and pod.metadata.deletion_timestamp is None


def is_terminating(pod: Pod) -> bool:
    """Is the pod on its way out, but not out yet?"""
    return not pod.is_terminal and pod.metadata.deletion_timestamp is not None


def waits_for_the_end(job: Job) -> bool:
    """Is a pod replaced only once it has ended for good?"""
    return job.spec.pod_replacement_policy == "Failed"


def has_failed(job: Job, pod: Pod) -> bool:
    """Did the pod fail? One that is being deleted counts as failed at once, unless the Job
    replaces pods only after their end: nobody may be left to report the end."""
    if pod.status.phase == "Failed":
        return True
    if waits_for_the_end(job):
        return False
    return pod.metadata.deletion_timestamp is not None and pod.status.phase != "Succeeded"


def index_of(pod: Pod) -> int | None:
    """The pod's completion index, if it has a usable one."""
    text = pod.metadata.annotations.get(INDEX, "")
    return int(text) if text.isascii() and text.isdigit() else None


def valid_index(job: Job, pod: Pod) -> int | None:
    """The pod's index if the Job (still) has it."""
    index = index_of(pod)
    return index if index is not None and index < (job.spec.completions or 0) else None


def index_failures(pod: Pod) -> int:
    """How many counted failures of its index came before this pod."""
    return _count(pod, _INDEX_FAILURES)


def index_attempts(pod: Pod) -> int:
    """How many failures of its index came before this pod, ignored ones included."""
    return _count(pod, _INDEX_FAILURES) + _count(pod, _INDEX_IGNORED)


def _count(pod: Pod, annotation: str) -> int:
    text = pod.metadata.annotations.get(annotation, "")
    number = int(text) if text.isascii() and text.isdigit() else 0
    return number if number <= _INT32_MAX else 0


def finished_at(pod: Pod) -> float:
    """When the pod ended: its containers' last end, else when it stopped being ready, else when
    its deletion was asked for, else when it was made."""
    sidecars = {c.name for c in pod.spec.init_containers if c.restart_policy == "Always"}
    statuses = pod.status.container_statuses
    ends = [_end(s) for s in statuses]
    ends += [_end(s) for s in pod.status.init_container_statuses if s.name in sidecars]
    known = [end for end in ends if end is not None]
    if statuses and len(known) == len(ends):
        return max(clocks.parse_rfc3339(end) for end in known)
    ready = pod.status.condition("Ready")
    if ready is not None and ready.status == "False" and ready.last_transition_time:
        return clocks.parse_rfc3339(ready.last_transition_time)
    meta = pod.metadata
    if meta.deletion_timestamp is not None:
        grace_s = meta.deletion_grace_period_seconds or 0
        return clocks.parse_rfc3339(meta.deletion_timestamp) - grace_s
    return clocks.parse_rfc3339(meta.creation_timestamp) if meta.creation_timestamp else 0.0


def _end(container: ContainerStatus) -> str | None:
    ended = container.state.terminated
    return ended.finished_at if ended else None


def document(job: Job, index: int | None = None, replaced: Pod | None = None) -> dict[str, Any]:
    """A pod of this Job, to be created; `replaced` is the index's last failed pod."""
    template = deepcopy(job.spec.template)
    given = template.get("metadata") or {}
    labels, annotations = dict(given.get("labels") or {}), dict(given.get("annotations") or {})
    spec = template.get("spec") or {}
    name = job.metadata.name
    prefix = f"{name[: _PREFIX_MAX - 1]}-"
    if index is not None:
        labels[INDEX] = annotations[INDEX] = str(index)
        spec["hostname"] = f"{name}-{index}"
        suffix = f"-{index}-"
        prefix = name[: _PREFIX_MAX - len(suffix)] + suffix
        if job.spec.backoff_limit_per_index is not None:
            annotations |= _failure_counts(job, replaced)
    if job.is_indexed:
        for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
            _add_index_variable(container)
    finalizers = [f for f in given.get("finalizers") or () if f != TRACKING]
    metadata: dict[str, Any] = {
        "generateName": prefix,
        "namespace": job.metadata.namespace,
        "labels": labels,
        "finalizers": [*finalizers, TRACKING],
        "ownerReferences": [controller_reference(job)],
    }
    if annotations:
        metadata["annotations"] = annotations
    return {"metadata": metadata, "spec": spec}


def _failure_counts(job: Job, replaced: Pod | None) -> dict[str, str]:
    """The index's failures so far travel from pod to pod: no other place outlives them all."""
    if replaced is None:
        return {_INDEX_FAILURES: "0"}
    counts = policies.rule_on(job, replaced).counts
    failures = _count(replaced, _INDEX_FAILURES) + counts
    ignored = _count(replaced, _INDEX_IGNORED) + (not counts)
    result = {_INDEX_FAILURES: str(failures)}
    if ignored:
        result[_INDEX_IGNORED] = str(ignored)
    return result


def _add_index_variable(container: dict[str, Any]) -> None:
    variables = container.get("env") or []
    if all(v.get("name") != _INDEX_VARIABLE for v in variables):
        source = {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX}']"}}
        container["env"] = [*variables, {"name": _INDEX_VARIABLE, "valueFrom": source}]
