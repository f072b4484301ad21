"""A pod's status from what the runtime has. Pure.

Written so that a controller, `kubectl` and a person read what the kubelet would have told them:
phase, conditions, and for each container the one state it is in and the one before.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from motley.api.views.pod import Container, ContainerStatus, Pod
from motley.lib.clock import rfc3339
from motley.node import pods, resizing
from motley.node.allocation import Pending
from motley.node.containerconfig import spec_hash
from motley.node.model import Notes, Probes, RuntimeContainer, RuntimePod, State

OWN_CONDITIONS = (
    "PodReadyToStartContainers",
    "Initialized",
    "ContainersReady",
    "Ready",
)


@dataclass(frozen=True, slots=True)
class View:
    """Everything a status is computed from."""

    pod: Pod
    observed: RuntimePod
    notes: Notes
    probes: Probes
    now: float
    node_ip: str
    before: Mapping[str, Any] = field(default_factory=dict)  # the status computed last


def compute(view: View) -> dict[str, Any]:
    """The status to report, as JSON; keys with None are to be removed."""
    pod = view.pod
    init = [_container_status(view, c, is_init=True) for c in pod.spec.init_containers]
    main = [_container_status(view, c, is_init=False) for c in pod.spec.containers]
    phase = _phase(view, init, main)
    failed = view.notes.rejected
    ips = _ips(view, phase)
    status: dict[str, Any] = {
        "phase": phase,
        "reason": failed[0] if failed else pod.status.reason or None,
        "message": failed[1] if failed else pod.status.message or None,
        "hostIP": view.node_ip,
        "hostIPs": [{"ip": view.node_ip}],
        "podIP": ips[0] if ips else None,
        "podIPs": [{"ip": ip} for ip in ips],
        "startTime": pod.status.start_time or view.before.get("startTime") or rfc3339(view.now),
        "conditions": [*_conditions(view, phase, init, main), *_disruption(view), *_resize(view)],
        "containerStatuses": main,
    }
    if failed and not _has_begun(view):
        # Nothing waits to be created here: STATUS is to be the reason, as with a kubelet.
        status["containerStatuses"] = init = []
    if init:
        status["initContainerStatuses"] = init
    if pod.spec.ephemeral_containers:
        status["ephemeralContainerStatuses"] = [
            {**_container_status(view, c, is_init=False), "ready": False}
            for c in pod.spec.ephemeral_containers
        ]
    if pod.metadata.generation:
        status["observedGeneration"] = pod.metadata.generation
    return status


def _has_begun(view: View) -> bool:
    return not view.observed.is_empty or bool(view.pod.status.container_statuses)


def _ips(view: View, phase: str) -> list[str]:
    if view.pod.spec.host_network:
        return [view.node_ip]
    sandbox = view.observed.sandbox
    if sandbox is not None and sandbox.is_ready and sandbox.ips:
        return list(sandbox.ips)
    # A pod that ended keeps the address it had, so that its story can be told.
    if phase in ("Succeeded", "Failed") or view.pod.metadata.deletion_timestamp:
        return [p.ip for p in view.pod.status.pod_ips]
    return []


def _terminated(view: View, container: RuntimeContainer) -> dict[str, Any]:
    failure = view.notes.failed_starts.get(container.id)
    code = pods.exit_code(container, view.notes)
    reason = "StartError" if failure else container.reason
    if not reason:
        reason = "Completed" if code == 0 else "Error"
    state: dict[str, Any] = {"exitCode": code, "reason": reason}
    message = failure.message if failure else container.message
    if message:
        state["message"] = message
    state["startedAt"] = rfc3339(container.started_at or container.created_at)
    state["finishedAt"] = rfc3339(pods.ended_at(container, view.notes))
    state["containerID"] = f"containerd://{container.id}"
    return state


def _container_status(view: View, spec: Container, *, is_init: bool) -> dict[str, Any]:
    latest = view.observed.latest(spec.name)
    previous = view.observed.previous(spec.name)
    if latest is None:
        return _never_ran(view, spec, is_init=is_init)
    status: dict[str, Any] = {
        "name": spec.name,
        "image": latest.image or spec.image,
        "imageID": latest.image_ref,
        "containerID": f"containerd://{latest.id}",
        "restartCount": latest.attempt,
        "ready": False,
        "started": False,
        "state": {},
        "lastState": {},
    }
    if spec.image and latest.spec_hash == spec_hash(spec):
        status["image"] = spec.image  # the runtime may only know it by digest
    if previous is not None and pods.has_ended(previous, view.notes):
        status["lastState"] = {"terminated": _terminated(view, previous)}
    if latest.is_running:
        status["state"] = {"running": {"startedAt": rfc3339(latest.started_at)}}
        applied = view.notes.applied.get(latest.id)
        if applied is not None:
            status["resources"] = msgspec.to_builtins(applied)
            status["allocatedResources"] = dict(spec.resources.requests)
        status["started"] = spec.startup_probe is None or latest.id in view.probes.started
        status["ready"] = _is_ready(view, spec, latest, is_init=is_init)
        return status
    waiting = view.notes.waiting.get(spec.name)
    if not pods.has_ended(latest, view.notes):
        reason = {"reason": "ContainerCreating"}
        if waiting is not None:
            reason = {"reason": waiting.reason, "message": waiting.message}
        status["state"] = {"waiting": reason}
        return status
    ended = {"terminated": _terminated(view, latest)}
    if is_init and not pods.is_sidecar(spec):
        status["ready"] = pods.exit_code(latest, view.notes) == 0
    if _will_restart(view, spec, latest, is_init=is_init):
        delay = pods.restart_delay(latest, view.notes)
        is_backing_off = view.now < pods.ended_at(latest, view.notes) + delay
        if waiting is not None:
            status["state"] = {"waiting": {"reason": waiting.reason, "message": waiting.message}}
            status["lastState"] = ended
            return status
        if is_backing_off:
            message = f"back-off {_duration(delay)} restarting failed container={spec.name}"
            status["state"] = {"waiting": {"reason": "CrashLoopBackOff", "message": message}}
            status["lastState"] = ended
            return status
    status["state"] = ended
    return status


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def _reported_end(view: View, spec: Container, *, is_init: bool) -> dict[str, Any] | None:
    """The end of a container the runtime has forgotten, as it was reported."""
    field = "initContainerStatuses" if is_init else "containerStatuses"
    for computed in view.before.get(field, ()):
        if computed["name"] == spec.name and "terminated" in computed["state"]:
            return dict(computed)
    status = view.pod.status
    reported = status.init_container_statuses if is_init else status.container_statuses
    known = next((s for s in reported if s.name == spec.name), None)
    if known is None or known.state.terminated is None:
        return None
    ended: dict[str, Any] = msgspec.to_builtins(known.state.terminated)
    return {
        "name": spec.name,
        "image": known.image,
        "imageID": known.image_id,
        "containerID": known.container_id,
        "restartCount": known.restart_count,
        "ready": False,
        "started": False,
        "state": {"terminated": {**ended, "exitCode": known.state.terminated.exit_code}},
        "lastState": {},
    }


def _never_ran(view: View, spec: Container, *, is_init: bool) -> dict[str, Any]:
    is_over = pods.is_finished(view.pod, view.observed, view.notes)
    if is_over or view.pod.metadata.deletion_timestamp:
        kept = _reported_end(view, spec, is_init=is_init)
        if kept is not None:
            return kept
    waiting = view.notes.waiting.get(spec.name)
    if waiting is not None:
        state = {"reason": waiting.reason, "message": waiting.message}
    elif view.pod.spec.init_containers:
        state = {"reason": "PodInitializing"}
    else:
        state = {"reason": "ContainerCreating"}
    return {
        "name": spec.name,
        "image": spec.image,
        "imageID": "",
        "restartCount": 0,
        "ready": False,
        "started": False,
        "state": {"waiting": state},
        "lastState": {},
    }


def _will_restart(view: View, spec: Container, latest: RuntimeContainer, *, is_init: bool) -> bool:
    pod = view.pod
    if pod.metadata.deletion_timestamp or pods.is_finished(pod, view.observed, view.notes):
        return False
    policy = pod.spec.restart_policy
    if any(c.name == spec.name for c in pod.spec.ephemeral_containers):
        policy = "Never"
    if is_init:
        policy = "Always" if pods.is_sidecar(spec) else pods.init_policy(pod)
    return pods.may_restart(policy, pods.exit_code(latest, view.notes))


def _is_ready(view: View, spec: Container, latest: RuntimeContainer, *, is_init: bool) -> bool:
    if is_init and not pods.is_sidecar(spec):
        return False
    if spec.startup_probe is not None and latest.id not in view.probes.started:
        return False
    return spec.readiness_probe is None or latest.id in view.probes.ready


def _phase(view: View, init: list[dict[str, Any]], main: list[dict[str, Any]]) -> str:
    pod, notes = view.pod, view.notes
    if pod.is_terminal:
        return pod.status.phase
    is_running = any("running" in s["state"] for s in [*init, *main])
    ended = [_ended(s) for s in main]
    if notes.rejected is not None:
        return "Running" if is_running else "Failed"
    if pod.metadata.deletion_timestamp and not is_running and view.observed.is_empty:
        return "Succeeded" if all(e is not None and e["exitCode"] == 0 for e in ended) else "Failed"
    if pods.is_finished(pod, view.observed, notes) and not is_running:
        codes = [None if e is None else e["exitCode"] for e in ended]
        return "Succeeded" if all(c == 0 for c in codes) else "Failed"
    if not _is_initialized(view, init) or any(
        "waiting" in s["state"] and not s["lastState"] for s in main
    ):
        return "Pending"
    return "Running"


def _ended(status: Mapping[str, Any]) -> dict[str, Any] | None:
    ended: dict[str, Any] | None = status["state"].get("terminated")
    return ended


def _has_succeeded(status: Mapping[str, Any]) -> bool:
    ended = _ended(status)
    return ended is not None and ended["exitCode"] == 0


def _is_initialized(view: View, init: list[dict[str, Any]]) -> bool:
    return not _uninitialized(view, init)


def _uninitialized(view: View, init: list[dict[str, Any]]) -> list[str]:
    sandbox = view.observed.sandbox
    mains = {c.name for c in view.pod.spec.containers}
    if sandbox is not None and any(
        c.name in mains and c.sandbox_id == sandbox.id and c.state is not State.CREATED
        for c in view.observed.containers
    ):
        return []
    by_name = {s["name"]: s for s in init}
    missing = []
    for spec in view.pod.spec.init_containers:
        status = by_name[spec.name]
        latest = view.observed.latest(spec.name)
        if pods.is_sidecar(spec):
            is_done = bool(status.get("started"))
        elif sandbox is not None and sandbox.is_ready and latest is not None:
            is_done = latest.sandbox_id == sandbox.id and _has_succeeded(status)
        else:
            is_done = _has_succeeded(status)
        if not is_done:
            missing.append(spec.name)
    return missing


def _conditions(
    view: View, phase: str, init: list[dict[str, Any]], main: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    pod = view.pod
    sandbox = view.observed.sandbox
    has_sandbox = sandbox is not None and sandbox.is_ready
    uninitialized = [] if phase == "Succeeded" else _uninitialized(view, init)
    sidecars = {c.name for c in pod.spec.init_containers if pods.is_sidecar(c)}
    counted = [*main, *(s for s in init if s["name"] in sidecars)]
    unready = [s["name"] for s in counted if not s["ready"]]
    reason, message = "", ""
    if phase == "Succeeded":
        reason = "PodCompleted"
    elif phase == "Failed":
        reason = "PodFailed"
    elif unready:
        reason = "ContainersNotReady"
        message = f"containers with unready status: [{' '.join(unready)}]"
    gates = [g.condition_type for g in pod.spec.readiness_gates]
    unmet = [g for g in gates if (c := pod.status.condition(g)) is None or c.status != "True"]
    ready = (reason, message)
    if not reason and unmet:
        ready = ("ReadinessGatesNotReady", f"the status of pod readiness gate {unmet} is not True")
    init_reason = ("", "")
    if uninitialized:
        listed = " ".join(uninitialized)
        text = f"containers with incomplete status: [{listed}]"
        init_reason = ("ContainersNotInitialized", text)
    return [
        _condition(view, "PodReadyToStartContainers", has_sandbox, "", ""),
        _condition(view, "Initialized", not uninitialized, *init_reason),
        _condition(view, "ContainersReady", not reason, reason, message),
        _condition(view, "Ready", not ready[0], *ready),
    ]


def _resize(view: View) -> list[dict[str, Any]]:
    notes = view.notes
    is_in_progress = bool(resizing.changes(view.pod, view.observed.running(), notes.applied))
    pending = Pending(*notes.resize_pending) if notes.resize_pending else None
    return resizing.conditions(
        view.pod, pending, is_in_progress=is_in_progress, error=notes.resize_error, now=view.now
    )


def _disruption(view: View) -> list[dict[str, Any]]:
    """Controllers may treat a pod that the node ended otherwise than one that failed by itself."""
    if view.notes.rejected is None or view.notes.rejected[0] != "Evicted":
        return []
    message = view.notes.rejected[1]
    return [_condition(view, "DisruptionTarget", True, "TerminationByKubelet", message)]


def _condition(view: View, kind: str, value: bool, reason: str, message: str) -> dict[str, Any]:
    text = "True" if value else "False"
    since = rfc3339(view.now)
    computed = [c for c in view.before.get("conditions", ()) if c["type"] == kind]
    reported = view.pod.status.condition(kind)
    if computed:
        if computed[0]["status"] == text:
            since = computed[0]["lastTransitionTime"]
    elif reported is not None and reported.status == text and reported.last_transition_time:
        since = reported.last_transition_time
    condition: dict[str, Any] = {
        "type": kind,
        "status": text,
        "reason": reason or None,
        "message": message or None,
        "lastProbeTime": None,
        "lastTransitionTime": since,
    }
    return condition


def known_ready(statuses: list[ContainerStatus]) -> dict[str, tuple[bool, bool]]:
    """Container id → (started, ready) as last reported, to go on from after a restart."""
    return {
        s.container_id.partition("://")[2]: (bool(s.started), s.ready)
        for s in statuses
        if s.container_id
    }
