"""Rows of the kinds that make pods, and of those that bound them."""

from collections.abc import Callable
from typing import Any

from motley.api import selectors
from motley.apiserver.tables.age import age, duration
from motley.lib.clock import parse_rfc3339

Document = dict[str, Any]
NONE = "<none>"


def _name(shown: Document) -> str:
    return str(shown["metadata"].get("name", ""))


def _age(shown: Document, now: float) -> str:
    return age(shown["metadata"].get("creationTimestamp"), now)


def _template(spec: Document) -> tuple[str, str]:
    """Container names and images, each joined by commas."""
    containers = ((spec.get("template") or {}).get("spec") or {}).get("containers") or []
    names = ",".join(str(c.get("name", "")) for c in containers)
    return names, ",".join(str(c.get("image", "")) for c in containers)


def _selector(spec: Document) -> str:
    return str(selectors.Selector.of(spec.get("selector") or {})) or NONE


def _deployment(shown: Document, now: float) -> list[Any]:
    spec, state = shown.get("spec") or {}, shown.get("status") or {}
    return [
        _name(shown),
        f"{state.get('readyReplicas', 0)}/{spec.get('replicas', 0)}",
        state.get("updatedReplicas", 0),
        state.get("availableReplicas", 0),
        _age(shown, now),
        *_template(spec),
        _selector(spec),
    ]


def _replica_set(shown: Document, now: float) -> list[Any]:
    spec, state = shown.get("spec") or {}, shown.get("status") or {}
    return [
        _name(shown),
        spec.get("replicas", 0),
        state.get("replicas", 0),
        state.get("readyReplicas", 0),
        _age(shown, now),
        *_template(spec),
        _selector(spec),
    ]


def _replication_controller(shown: Document, now: float) -> list[Any]:
    *cells, _ = _replica_set({**shown, "spec": {**(shown.get("spec") or {}), "selector": {}}}, now)
    return [*cells, _labels((shown.get("spec") or {}).get("selector"))]


def _pod_template(shown: Document, now: float) -> list[Any]:
    metadata = (shown.get("template") or {}).get("metadata") or {}
    return [_name(shown), *_template(shown), _labels(metadata.get("labels"))]


def _stateful_set(shown: Document, now: float) -> list[Any]:
    spec, state = shown.get("spec") or {}, shown.get("status") or {}
    ready = f"{state.get('readyReplicas', 0)}/{spec.get('replicas', 0)}"
    return [_name(shown), ready, _age(shown, now), *_template(spec)]


def _daemon_set(shown: Document, now: float) -> list[Any]:
    spec, state = shown.get("spec") or {}, shown.get("status") or {}
    pod = (spec.get("template") or {}).get("spec") or {}
    return [
        _name(shown),
        state.get("desiredNumberScheduled", 0),
        state.get("currentNumberScheduled", 0),
        state.get("numberReady", 0),
        state.get("updatedNumberScheduled", 0),
        state.get("numberAvailable", 0),
        _labels(pod.get("nodeSelector")),
        _age(shown, now),
        *_template(spec),
        _selector(spec),
    ]


def _labels(labels: Document | None) -> str:
    return ",".join(f"{k}={v}" for k, v in sorted((labels or {}).items())) or NONE


def _controller_revision(shown: Document, now: float) -> list[Any]:
    owners = shown["metadata"].get("ownerReferences") or ()
    owner = next((o for o in owners if o.get("controller")), None)
    controller = NONE
    if owner is not None:
        group = str(owner.get("apiVersion", "")).rpartition("/")[0]
        kind = str(owner.get("kind", "")).lower()
        controller = f"{kind}.{group}/{owner.get('name')}" if group else f"{kind}/{owner['name']}"
    return [_name(shown), controller, shown.get("revision", 0), _age(shown, now)]


def _job(shown: Document, now: float) -> list[Any]:
    spec, state = shown.get("spec") or {}, shown.get("status") or {}
    succeeded = state.get("succeeded", 0)
    if spec.get("completions") is not None:
        completions = f"{succeeded}/{spec['completions']}"
    elif (spec.get("parallelism") or 0) > 1:
        completions = f"{succeeded}/1 of {spec['parallelism']}"
    else:
        completions = f"{succeeded}/1"
    return [
        _name(shown),
        _job_status(shown),
        completions,
        _job_duration(state, now),
        _age(shown, now),
        *_template(spec),
        _selector(spec),
    ]


def _job_status(shown: Document) -> str:
    held = {
        c.get("type")
        for c in (shown.get("status") or {}).get("conditions") or ()
        if c.get("status") == "True"
    }
    for condition, text in (
        ("Complete", "Complete"),
        ("Failed", "Failed"),
        ("Suspended", "Suspended"),
        ("FailureTarget", "FailureTarget"),
        ("SuccessCriteriaMet", "SuccessCriteriaMet"),
    ):
        if condition in held:
            return text
    return "Terminating" if shown["metadata"].get("deletionTimestamp") else "Running"


def _job_duration(state: Document, now: float) -> str:
    if not state.get("startTime"):
        return ""
    end = parse_rfc3339(state["completionTime"]) if state.get("completionTime") else now
    return duration(end - parse_rfc3339(state["startTime"]))


def _cron_job(shown: Document, now: float) -> list[Any]:
    spec, state = shown.get("spec") or {}, shown.get("status") or {}
    job = (spec.get("jobTemplate") or {}).get("spec") or {}
    last = state.get("lastScheduleTime")
    return [
        _name(shown),
        spec.get("schedule", ""),
        spec.get("timeZone") or NONE,
        "True" if spec.get("suspend") else "False",
        len(state.get("active") or ()),
        age(last, now) if last else NONE,
        _age(shown, now),
        *_template(job),
        _selector(job),
    ]


def _disruption_budget(shown: Document, now: float) -> list[Any]:
    spec, state = shown.get("spec") or {}, shown.get("status") or {}
    return [
        _name(shown),
        str(spec.get("minAvailable", "N/A")),
        str(spec.get("maxUnavailable", "N/A")),
        state.get("disruptionsAllowed", 0),
        _age(shown, now),
    ]


ROWS: dict[tuple[str, str], Callable[[Document, float], list[Any]]] = {
    ("", "podtemplates"): _pod_template,
    ("", "replicationcontrollers"): _replication_controller,
    ("apps", "deployments"): _deployment,
    ("apps", "replicasets"): _replica_set,
    ("apps", "statefulsets"): _stateful_set,
    ("apps", "daemonsets"): _daemon_set,
    ("apps", "controllerrevisions"): _controller_revision,
    ("batch", "jobs"): _job,
    ("batch", "cronjobs"): _cron_job,
    ("policy", "poddisruptionbudgets"): _disruption_budget,
}
