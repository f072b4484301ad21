"""A pod's row: READY, STATUS and RESTARTS, told from its containers' states.

The STATUS column is not the phase: it is the most telling reason among the phase, the pod's own
reason, the init containers in order and the containers from the last to the first.
"""

from collections.abc import Sequence
from typing import Any

from motley.apiserver.tables.age import age
from motley.lib.clock import parse_rfc3339

Document = dict[str, Any]

NONE = "<none>"


def cells(pod: Document, now: float) -> list[Any]:
    """The row."""
    metadata, spec, state = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    containers = state.get("containerStatuses") or []
    sidecars = _sidecars(spec)
    initial = state.get("initContainerStatuses") or []
    total = len(spec.get("containers") or ()) + len(sidecars)
    started = [s for s in initial if s.get("name") in sidecars]
    ready = sum(1 for s in containers if s.get("ready") and "running" in (s.get("state") or {}))
    ready += sum(1 for s in started if s.get("ready"))
    addresses = state.get("podIPs") or []
    address = (addresses[0].get("ip") if addresses else "") or state.get("podIP") or NONE
    return [
        metadata.get("name", ""),
        f"{ready}/{total}",
        status_of(pod),
        _restarts(pod, now),
        age(metadata.get("creationTimestamp"), now),
        address,
        spec.get("nodeName") or NONE,
        state.get("nominatedNodeName") or NONE,
        _gates(spec, state),
    ]


def status_of(pod: Document) -> str:
    """The STATUS column."""
    metadata, spec, state = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    phase = str(state.get("phase") or "")
    reason = str(state.get("reason") or phase)
    if any(
        c.get("type") == "PodScheduled" and c.get("reason") == "SchedulingGated"
        for c in state.get("conditions") or ()
    ):
        reason = "SchedulingGated"
    initializing = _init_reason(spec, state)
    if initializing:
        reason = initializing
    if not initializing or _is_initialized(state):
        reason = _container_reason(state, reason, phase)
    if metadata.get("deletionTimestamp"):
        if state.get("reason") == "NodeLost":
            return "Unknown"
        if phase not in ("Succeeded", "Failed"):
            return "Terminating"
    return reason


def _sidecars(spec: Document) -> set[str]:
    """Init containers that stay: they count like ordinary ones."""
    return {
        c["name"] for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"
    }


def _init_reason(spec: Document, state: Document) -> str:
    """`Init:…` of the first init container that is not done; empty when all are."""
    sidecars = _sidecars(spec)
    total = len(spec.get("initContainers") or ())
    for index, container in enumerate(state.get("initContainerStatuses") or ()):
        now = container.get("state") or {}
        if ended := now.get("terminated"):
            if ended.get("exitCode") == 0:
                continue
            return f"Init:{_end_reason(ended)}"
        if container.get("name") in sidecars and container.get("started"):
            continue
        waiting = (now.get("waiting") or {}).get("reason") or ""
        if waiting and waiting != "PodInitializing":
            return f"Init:{waiting}"
        return f"Init:{index}/{total}"
    return ""


def _is_initialized(state: Document) -> bool:
    return any(
        c.get("type") == "Initialized" and c.get("status") == "True"
        for c in state.get("conditions") or ()
    )


def _container_reason(state: Document, reason: str, phase: str) -> str:
    running = False
    for container in reversed(state.get("containerStatuses") or ()):
        now = container.get("state") or {}
        if (waiting := now.get("waiting")) and waiting.get("reason"):
            reason = str(waiting["reason"])
        elif ended := now.get("terminated"):
            reason = _end_reason(ended)
        elif container.get("ready") and "running" in now:
            running = True
    if reason == "Completed" and running:
        return "Running" if _is_ready(state) else "NotReady"
    return reason


def _end_reason(ended: Document) -> str:
    if ended.get("reason"):
        return str(ended["reason"])
    if ended.get("signal"):
        return f"Signal:{ended['signal']}"
    return f"ExitCode:{ended.get('exitCode', 0)}"


def _is_ready(state: Document) -> bool:
    return any(
        c.get("type") == "Ready" and c.get("status") == "True"
        for c in state.get("conditions") or ()
    )


def _restarts(pod: Document, now: float) -> str:
    spec, state = pod.get("spec") or {}, pod.get("status") or {}
    initial: Sequence[Document] = state.get("initContainerStatuses") or []
    counted = list(state.get("containerStatuses") or [])
    initializing = _init_reason(spec, state) and not _is_initialized(state)
    if initializing:
        counted = list(initial)
    else:
        sidecars = _sidecars(spec)
        counted += [s for s in initial if s.get("name") in sidecars]
    total = sum(int(s.get("restartCount") or 0) for s in counted)
    ends = [
        str(ended["finishedAt"])
        for s in counted
        if (ended := (s.get("lastState") or {}).get("terminated")) and ended.get("finishedAt")
    ]
    if not total or not ends:
        return str(total)
    return f"{total} ({age(max(ends, key=parse_rfc3339), now)} ago)"


def _gates(spec: Document, state: Document) -> str:
    gates = [g.get("conditionType") for g in spec.get("readinessGates") or ()]
    if not gates:
        return NONE
    met = {c.get("type") for c in state.get("conditions") or () if c.get("status") == "True"}
    return f"{sum(1 for g in gates if g in met)}/{len(gates)}"
