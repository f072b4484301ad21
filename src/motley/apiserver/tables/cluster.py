"""Rows of the kinds that extend, guard or configure a cluster: definitions, policies, webhooks,
certificates, storage drivers, devices, fairness and scaling."""

from collections.abc import Callable, Sequence
from typing import Any

from motley.apiserver.tables.age import UNKNOWN, age, duration

Document = dict[str, Any]
NONE, UNSET = "<none>", "<unset>"
_SHOWN_METRICS = 2  # as many as kubectl's column holds before it says how many more there are


def _name(shown: Document) -> str:
    return str(shown["metadata"].get("name", ""))


def _age(shown: Document, now: float) -> str:
    return age(shown["metadata"].get("creationTimestamp"), now)


def _part(shown: Document, name: str) -> Document:
    part: Document = shown.get(name) or {}
    return part


def _condition(shown: Document, type_: str) -> Document | None:
    conditions = _part(shown, "status").get("conditions") or ()
    return next((c for c in conditions if c.get("type") == type_), None)


def _named(shown: Document, now: float) -> list[Any]:
    return [_name(shown), _age(shown, now)]


def _webhooks(shown: Document, now: float) -> list[Any]:
    return [_name(shown), len(shown.get("webhooks") or ()), _age(shown, now)]


def _policy(shown: Document, now: float) -> list[Any]:
    spec = _part(shown, "spec")
    rules = spec.get("validations") or spec.get("mutations") or ()
    parameters = spec.get("paramKind")
    shown_kind = f"{parameters['apiVersion']}/{parameters['kind']}" if parameters else UNSET
    return [_name(shown), len(rules), shown_kind, _age(shown, now)]


def _policy_binding(shown: Document, now: float) -> list[Any]:
    spec = _part(shown, "spec")
    return [_name(shown), spec.get("policyName", ""), _parameters(spec), _age(shown, now)]


def _parameters(spec: Document) -> str:
    given = spec.get("paramRef")
    if given is None:
        return UNSET
    name = str(given.get("name") or "*")
    return f"{given['namespace']}/{name}" if given.get("namespace") else name


def _definition(shown: Document, now: float) -> list[Any]:
    spec = _part(shown, "spec")
    names = spec.get("names") or {}
    served = [
        f"{v['name']}(storage)" if v.get("storage") else v["name"]
        for v in spec.get("versions") or ()
        if v.get("served")
    ]
    established = _condition(shown, "Established")
    return [
        _name(shown),
        spec.get("scope", ""),
        ",".join(served),
        shown["metadata"].get("creationTimestamp"),
        spec.get("group", ""),
        names.get("kind", ""),
        ",".join(names.get("shortNames") or ()),
        established is not None and established.get("status") == "True",
    ]


def _api_service(shown: Document, now: float) -> list[Any]:
    service = _part(shown, "spec").get("service")
    where = f"{service.get('namespace')}/{service.get('name')}" if service else "Local"
    found = _condition(shown, "Available")
    available = str(found.get("status")) if found else "Unknown"
    if found and available != "True" and found.get("reason"):
        available = f"{available} ({found['reason']})"
    return [_name(shown), where, available, _age(shown, now)]


def _signing_request(shown: Document, now: float) -> list[Any]:
    spec = _part(shown, "spec")
    seconds = spec.get("expirationSeconds")
    return [
        _name(shown),
        _age(shown, now),
        spec.get("signerName") or NONE,
        spec.get("username", ""),
        duration(float(seconds)) if seconds is not None else NONE,
        _signing_state(shown),
    ]


def _signing_state(shown: Document) -> str:
    if _condition(shown, "Denied"):
        words = ["Denied"]
    else:
        words = ["Approved" if _condition(shown, "Approved") else "Pending"]
    if _condition(shown, "Failed"):
        words.append("Failed")
    if _part(shown, "status").get("certificate"):
        words.append("Issued")
    return ",".join(words)


def _trust_bundle(shown: Document, now: float) -> list[Any]:
    return [_name(shown), _part(shown, "spec").get("signerName") or NONE]


def _pod_certificate_request(shown: Document, now: float) -> list[Any]:
    spec = _part(shown, "spec")
    state = "Pending"
    for condition in _part(shown, "status").get("conditions") or ():
        if condition.get("type") in ("Issued", "Denied", "Failed"):
            state = condition["type"]
    told = spec.get("unverifiedUserAnnotations") or {}
    return [
        _name(shown),
        spec.get("podName", ""),
        spec.get("serviceAccountName", ""),
        spec.get("nodeName", ""),
        spec.get("signerName", ""),
        state,
        ",".join(f"{key}={told[key]}" for key in sorted(told)) or NONE,
    ]


def _flow_schema(shown: Document, now: float) -> list[Any]:
    spec = _part(shown, "spec")
    dangling = _condition(shown, "Dangling")
    return [
        _name(shown),
        (spec.get("priorityLevelConfiguration") or {}).get("name", ""),
        spec.get("matchingPrecedence", 0),
        (spec.get("distinguisherMethod") or {}).get("type") or NONE,
        _age(shown, now),
        dangling.get("status", "?") if dangling else "?",
    ]


def _priority_level(shown: Document, now: float) -> list[Any]:
    spec = _part(shown, "spec")
    limited = spec.get("limited") or {}
    queuing = (limited.get("limitResponse") or {}).get("queuing") or {}
    return [
        _name(shown),
        spec.get("type", ""),
        limited.get("nominalConcurrencyShares", NONE),
        *(queuing.get(field, NONE) for field in ("queues", "handSize", "queueLengthLimit")),
        _age(shown, now),
    ]


def _address(shown: Document, now: float) -> list[Any]:
    parent = _part(shown, "spec").get("parentRef") or {}
    resource = parent.get("resource", "")
    if parent.get("group"):
        resource = f"{resource}.{parent['group']}"
    where = "/".join(p for p in (resource, parent.get("namespace"), parent.get("name")) if p)
    return [_name(shown), where]


def _service_range(shown: Document, now: float) -> list[Any]:
    return [_name(shown), ",".join(_part(shown, "spec").get("cidrs") or ()), _age(shown, now)]


def _attachment(shown: Document, now: float) -> list[Any]:
    spec = _part(shown, "spec")
    return [
        _name(shown),
        spec.get("attacher", ""),
        (spec.get("source") or {}).get("persistentVolumeName", ""),
        spec.get("nodeName", ""),
        bool(_part(shown, "status").get("attached")),
        _age(shown, now),
    ]


def _storage_driver(shown: Document, now: float) -> list[Any]:
    spec = _part(shown, "spec")
    tokens = ",".join(str(t.get("audience", "")) for t in spec.get("tokenRequests") or ())
    return [
        _name(shown),
        spec.get("attachRequired", True),
        bool(spec.get("podInfoOnMount")),
        bool(spec.get("storageCapacity")),
        tokens or UNSET,
        bool(spec.get("requiresRepublish")),
        ",".join(spec.get("volumeLifecycleModes") or ()) or NONE,
        _age(shown, now),
    ]


def _storage_node(shown: Document, now: float) -> list[Any]:
    return [_name(shown), len(_part(shown, "spec").get("drivers") or ()), _age(shown, now)]


def _attributes_class(shown: Document, now: float) -> list[Any]:
    return [_name(shown), shown.get("driverName", ""), _age(shown, now)]


def _device_claim(shown: Document, now: float) -> list[Any]:
    return [_name(shown), _claim_state(shown), _age(shown, now)]


def _claim_state(shown: Document) -> str:
    state = _part(shown, "status")
    ending = bool(shown["metadata"].get("deletionTimestamp"))
    words = ["deleted"] if ending else []
    if state.get("allocation"):
        words.append("allocated")
        if state.get("reservedFor"):
            words.append("reserved")
    elif not ending:
        words.append("pending")
    return ",".join(words)


def _device_slice(shown: Document, now: float) -> list[Any]:
    spec = _part(shown, "spec")
    return [
        _name(shown),
        spec.get("nodeName") or UNSET,
        spec.get("driver", ""),
        (spec.get("pool") or {}).get("name", ""),
        _age(shown, now),
    ]


def _device_taint(shown: Document, now: float) -> list[Any]:
    taint = _part(shown, "spec").get("taint") or {}
    return [
        _name(shown),
        *(taint.get(field, "") for field in ("key", "value", "effect")),
        age(taint.get("timeAdded"), now),
        _age(shown, now),
    ]


def _migration(shown: Document, now: float) -> list[Any]:
    resource = _part(shown, "spec").get("resource") or {}
    named = ".".join(p for p in (resource.get("resource"), resource.get("group")) if p)
    held = (t for t in ("Succeeded", "Failed", "Running") if _is_true(_condition(shown, t)))
    return [_name(shown), named, next(held, "Unknown")]


def _is_true(condition: Document | None) -> bool:
    return condition is not None and condition.get("status") == "True"


def _component(shown: Document, now: float) -> list[Any]:
    state, message, error = "Unknown", "", ""
    for condition in shown.get("conditions") or ():
        if condition.get("type") == "Healthy":
            state = "Healthy" if condition.get("status") == "True" else "Unhealthy"
            message, error = condition.get("message", ""), condition.get("error", "")
    return [_name(shown), state, message, error]


def _scale(shown: Document, now: float) -> list[Any]:
    spec, state = _part(shown, "spec"), _part(shown, "status")
    return [_name(shown), spec.get("replicas", 0), state.get("replicas", 0), _age(shown, now)]


def _autoscaler(shown: Document, now: float) -> list[Any]:
    spec, state = _part(shown, "spec"), _part(shown, "status")
    target = spec.get("scaleTargetRef") or {}
    minimum = spec.get("minReplicas")
    return [
        _name(shown),
        f"{target.get('kind')}/{target.get('name')}",
        _metrics(spec, state),
        UNSET if minimum is None else str(minimum),
        spec.get("maxReplicas", 0),
        state.get("currentReplicas", 0),
        _age(shown, now),
    ]


def _metrics(spec: Document, state: Document) -> str:
    """Every metric's present and wanted value."""
    if "targetCPUUtilizationPercentage" in spec:  # autoscaling/v1 knows this one only
        found = state.get("currentCPUUtilizationPercentage")
        present = UNKNOWN if found is None else f"{found}%"
        return f"cpu: {present}/{spec['targetCPUUtilizationPercentage']}%"
    wanted: Sequence[Document] = spec.get("metrics") or ()
    if not wanted:
        return NONE
    current: Sequence[Document] = state.get("currentMetrics") or ()
    texts = [
        _metric(metric, current[i] if i < len(current) else {}) for i, metric in enumerate(wanted)
    ]
    more = len(texts) - _SHOWN_METRICS
    text = ", ".join(texts[:_SHOWN_METRICS])
    return f"{text} + {more} more..." if more > 0 else text


def _metric(metric: Document, status: Document) -> str:
    kind = str(metric.get("type", ""))
    source = kind[:1].lower() + kind[1:]
    given = metric.get(source) or {}
    target = given.get("target") or {}
    current = (status.get(source) or {}).get("current") or {}
    of_resource = kind in ("Resource", "ContainerResource")
    prefix = f"{given.get('name')}: " if of_resource else ""
    if "averageValue" in target:
        suffix = " (avg)" if kind in ("External", "Object") else ""
        present = current.get("averageValue") or UNKNOWN
        return f"{prefix}{present}/{target['averageValue']}{suffix}"
    if of_resource:
        used, goal = current.get("averageUtilization"), target.get("averageUtilization")
        present = UNKNOWN if used is None else f"{used}%"
        return f"{prefix}{present}/{'<auto>' if goal is None else f'{goal}%'}"
    return f"{current.get('value') or UNKNOWN}/{target.get('value')}"


_ADMISSION = "admissionregistration.k8s.io"
_DEVICES = "resource.k8s.io"
_FLOW = "flowcontrol.apiserver.k8s.io"
_STORAGE = "storage.k8s.io"

# Converted by Kubernetes' generic code.
GENERIC = (_definition,)

ROWS: dict[tuple[str, str], Callable[[Document, float], list[Any]]] = {
    ("", "componentstatuses"): _component,
    (_ADMISSION, "validatingwebhookconfigurations"): _webhooks,
    (_ADMISSION, "mutatingwebhookconfigurations"): _webhooks,
    (_ADMISSION, "validatingadmissionpolicies"): _policy,
    (_ADMISSION, "validatingadmissionpolicybindings"): _policy_binding,
    (_ADMISSION, "mutatingadmissionpolicies"): _policy,
    (_ADMISSION, "mutatingadmissionpolicybindings"): _policy_binding,
    ("apiextensions.k8s.io", "customresourcedefinitions"): _definition,
    ("apiregistration.k8s.io", "apiservices"): _api_service,
    ("autoscaling", "horizontalpodautoscalers"): _autoscaler,
    ("autoscaling", "scale"): _scale,
    ("certificates.k8s.io", "certificatesigningrequests"): _signing_request,
    ("certificates.k8s.io", "clustertrustbundles"): _trust_bundle,
    ("certificates.k8s.io", "podcertificaterequests"): _pod_certificate_request,
    (_FLOW, "flowschemas"): _flow_schema,
    (_FLOW, "prioritylevelconfigurations"): _priority_level,
    ("networking.k8s.io", "ipaddresses"): _address,
    ("networking.k8s.io", "servicecidrs"): _service_range,
    (_DEVICES, "deviceclasses"): _named,
    (_DEVICES, "resourceclaims"): _device_claim,
    (_DEVICES, "resourceclaimtemplates"): _named,
    (_DEVICES, "resourceslices"): _device_slice,
    (_DEVICES, "devicetaintrules"): _device_taint,
    (_STORAGE, "volumeattachments"): _attachment,
    (_STORAGE, "csidrivers"): _storage_driver,
    (_STORAGE, "csinodes"): _storage_node,
    (_STORAGE, "volumeattributesclasses"): _attributes_class,
    ("storagemigration.k8s.io", "storageversionmigrations"): _migration,
}
