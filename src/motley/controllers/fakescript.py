"""What a pod on a fake node does, by annotations of the pod. Pure.

| annotation | |
|---|---|
| `fake.motley.io/run-seconds` | how long its containers run before they end |
| `fake.motley.io/exit-code` | the code they end with; without `run-seconds` they end at once |
| `fake.motley.io/exit-code.N` | the same for the pod of completion index N |
| `fake.motley.io/stop-seconds` | how long it takes to stop once deleted, at most its grace period |

With neither of the first two a pod runs for ever. The restart policy decides what follows an end:
the pod Succeeded or Failed, or its containers run again with one restart more.
A value nobody can read counts as absent.
"""

from collections.abc import Mapping
from typing import Any

from motley.api.views.pod import Pod
from motley.lib import clock as clocks

_PREFIX = "fake.motley.io/"
_INDEX = "batch.kubernetes.io/job-completion-index"
_RESTART_S = 1.0  # a container that ends at once and is restarted must not keep us busy
_KILLED = 137  # 128 + SIGKILL


def exit_code(pod: Pod) -> int:
    """The code the pod's containers end with."""
    given = pod.metadata.annotations
    own = given.get(f"{_PREFIX}exit-code.{given.get(_INDEX, '')}")
    text = (own or given.get(_PREFIX + "exit-code", "0")).strip()
    return int(text) if text.isascii() and text.isdigit() else 0


def ends_in_s(pod: Pod, now: float) -> float | None:
    """Seconds until the running pod's containers end; None: they run for ever."""
    run_s = _seconds(pod.metadata.annotations, "run-seconds")
    if run_s is None:
        if not any(name.startswith(_PREFIX + "exit-code") for name in pod.metadata.annotations):
            return None
        run_s = 0.0
    if any(container.restart_count for container in pod.status.container_statuses):
        run_s = max(run_s, _RESTART_S)
    starts = (
        container.state.running.started_at
        for container in pod.status.container_statuses
        if container.state.running
    )
    started = max((s for s in starts if s), default=pod.status.start_time)
    return max(0.0, (clocks.parse_rfc3339(started) if started else now) + run_s - now)


def stops_in_s(pod: Pod, now: float) -> float:
    """Seconds until the deleted pod has stopped."""
    meta = pod.metadata
    stop_s = _seconds(meta.annotations, "stop-seconds")
    grace_s = meta.deletion_grace_period_seconds or 0
    if not stop_s or not grace_s or meta.deletion_timestamp is None:
        return 0.0
    asked = clocks.parse_rfc3339(meta.deletion_timestamp) - grace_s
    return max(0.0, asked + min(stop_s, grace_s) - now)


def _seconds(annotations: Mapping[str, str], name: str) -> float | None:
    try:
        return max(0.0, float(annotations[_PREFIX + name]))
    except (KeyError, ValueError):
        return None


def ended(pod: Pod, now: float) -> dict[str, Any]:
    """The status after the containers' end: the pod's own, or that of the next run."""
    code = exit_code(pod)
    policy = pod.spec.restart_policy
    if policy == "Always" or (policy == "OnFailure" and code != 0):
        return _restarted(pod, code, clocks.rfc3339(now))
    return final(pod, code, now)


def final(pod: Pod, code: int | None, now: float) -> dict[str, Any]:
    """The status of a pod that is over; without a code it was stopped from outside."""
    stamp = clocks.rfc3339(now)
    code = _KILLED if code is None else code
    unready = {"status": "False", "reason": "PodCompleted", "lastTransitionTime": stamp}
    conditions = [
        {"type": c.type, "status": c.status, "lastTransitionTime": c.last_transition_time}
        | ({"reason": c.reason} if c.reason else {})
        | ({"message": c.message} if c.message else {})
        for c in pod.status.conditions
        if c.type not in ("Ready", "ContainersReady")
    ]
    conditions += [{"type": type_, **unready} for type_ in ("Ready", "ContainersReady")]
    return {
        "phase": "Failed" if code else "Succeeded",
        "conditions": conditions,
        "containerStatuses": [
            {
                **_identity(pod, container.name, container.image),
                "ready": False,
                "started": False,
                "restartCount": _restarts(pod, container.name),
                "state": _terminated(code, stamp),
                "lastState": {},
            }
            for container in pod.spec.containers
        ],
    }


def _restarted(pod: Pod, code: int, stamp: str) -> dict[str, Any]:
    return {
        "phase": "Running",
        "containerStatuses": [
            {
                **_identity(pod, container.name, container.image),
                "ready": True,
                "started": True,
                "restartCount": _restarts(pod, container.name) + 1,
                "state": {"running": {"startedAt": stamp}},
                "lastState": _terminated(code, stamp),
            }
            for container in pod.spec.containers
        ],
    }


def _identity(pod: Pod, name: str, image: str) -> dict[str, str]:
    return {
        "name": name,
        "image": image,
        "imageID": f"fake://{image}",
        "containerID": f"fake://{pod.metadata.uid}/{name}",
    }


def _restarts(pod: Pod, name: str) -> int:
    known = (s.restart_count for s in pod.status.container_statuses if s.name == name)
    return next(known, 0)


def _terminated(code: int, stamp: str) -> dict[str, Any]:
    reason = "Error" if code else "Completed"
    return {"terminated": {"exitCode": code, "reason": reason, "finishedAt": stamp}}
