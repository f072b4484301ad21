"""autoscaling/v1 HorizontalPodAutoscaler: one target for CPU, all else in annotations.

The oldest version knows a single number, the wanted share of the requested CPU. Other metrics, the
behaviour and what a controller reported of them are kept in annotations, in the form autoscaling/v1
gives them.
"""

from typing import Any

from motley.api import codec, status

Document = dict[str, Any]

_PREFIX = "autoscaling.alpha.kubernetes.io/"
_METRICS, _CURRENT = f"{_PREFIX}metrics", f"{_PREFIX}current-metrics"
_CONDITIONS, _BEHAVIOR = f"{_PREFIX}conditions", f"{_PREFIX}behavior"
_DEFAULT_CPU = 80  # what both versions mean when nobody says how much


def to_v2(obj: Document) -> Document:
    """As autoscaling/v2 keeps it."""
    metadata, spec = dict(obj.get("metadata") or {}), dict(obj.get("spec") or {})
    annotations = dict(metadata.get("annotations") or {})
    usage = spec.pop("targetCPUUtilizationPercentage", None)
    metrics = [_metric_to_v2(m) for m in _listed(annotations, _METRICS)]
    if usage is not None or not metrics:
        metrics.append(_cpu(usage if usage is not None else _DEFAULT_CPU))
    spec["metrics"] = metrics
    if behavior := _read(annotations.pop(_BEHAVIOR, "")):
        spec["behavior"] = behavior
    found = {**obj, "metadata": metadata, "spec": spec}
    if "status" in obj:
        found["status"] = _status_to_v2(obj["status"], annotations)
    else:
        annotations.pop(_CURRENT, None)
        annotations.pop(_CONDITIONS, None)
    metadata.pop("annotations", None)
    if annotations:
        metadata["annotations"] = annotations
    return found


def to_v1(stored: Document) -> Document:
    """As autoscaling/v1 shows it."""
    metadata, spec = dict(stored.get("metadata") or {}), dict(stored.get("spec") or {})
    annotations = dict(metadata.get("annotations") or {})
    metrics: list[Document] = spec.pop("metrics", None) or []
    usages = [m for m in metrics if _cpu_usage(m) is not None]
    others = [_metric_to_v1(m) for m in metrics if _cpu_usage(m) is None]
    if usages:
        spec["targetCPUUtilizationPercentage"] = _cpu_usage(usages[-1])
    if others:
        annotations[_METRICS] = codec.encode(others).decode()
    if behavior := spec.pop("behavior", None):
        annotations[_BEHAVIOR] = codec.encode(behavior).decode()
    found = {**stored, "metadata": metadata, "spec": spec}
    if "status" in stored:
        found["status"] = _status_to_v1(stored["status"], annotations)
    metadata.pop("annotations", None)
    if annotations:
        metadata["annotations"] = annotations
    return found


def _cpu(usage: int) -> Document:
    target = {"type": "Utilization", "averageUtilization": usage}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def _cpu_usage(metric: Document) -> int | None:
    resource = metric.get("resource") or {}
    if metric.get("type") != "Resource" or resource.get("name") != "cpu":
        return None
    usage: int | None = (resource.get("target") or {}).get("averageUtilization")
    return usage


def _read(text: str) -> Any:
    try:
        return codec.decode(text) if text else None
    except status.BadRequest:
        return None  # an annotation that is no JSON says nothing


def _listed(annotations: dict[str, str], name: str) -> list[Document]:
    found = _read(annotations.pop(name, ""))
    return [m for m in found if isinstance(m, dict)] if isinstance(found, list) else []


def _status_to_v2(given: Document, annotations: dict[str, str]) -> Document:
    found = dict(given)
    usage = found.pop("currentCPUUtilizationPercentage", None)
    current = [_current_to_v2(m) for m in _listed(annotations, _CURRENT)]
    if usage is not None and not any(_is_cpu(m) for m in current):
        now = {"averageValue": "0", "averageUtilization": usage}
        current.append({"type": "Resource", "resource": {"name": "cpu", "current": now}})
    found["currentMetrics"] = current or None
    if not found.get("currentReplicas"):
        found.pop("currentReplicas", None)  # always shown by one version, never by the other
    if conditions := _listed(annotations, _CONDITIONS):
        found["conditions"] = conditions
    return found


def _is_cpu(metric: Document) -> bool:
    return metric.get("type") == "Resource" and (metric.get("resource") or {}).get("name") == "cpu"


def _status_to_v1(kept: Document, annotations: dict[str, str]) -> Document:
    found = dict(kept)
    current: list[Document] = found.pop("currentMetrics", None) or []
    for metric in current:
        usage = ((metric.get("resource") or {}).get("current") or {}).get("averageUtilization")
        if _is_cpu(metric) and usage is not None:
            found["currentCPUUtilizationPercentage"] = usage
    if current:
        annotations[_CURRENT] = codec.encode([_current_to_v1(m) for m in current]).decode()
    if conditions := found.pop("conditions", None):
        annotations[_CONDITIONS] = codec.encode(conditions).decode()
    found.setdefault("currentReplicas", 0)
    found.setdefault("desiredReplicas", 0)
    return found


def _compact(**parts: Any) -> Document:
    return {name: value for name, value in parts.items() if value is not None}


def _metric_to_v1(metric: Document) -> Document:
    kind = metric.get("type", "")
    part = kind[:1].lower() + kind[1:]
    source = metric.get(part) or {}
    target, named = source.get("target") or {}, source.get("metric") or {}
    average = target.get("averageValue")
    if part in ("resource", "containerResource"):
        shown = _compact(
            name=source.get("name"),
            targetAverageUtilization=target.get("averageUtilization"),
            targetAverageValue=average,
            container=source.get("container"),
        )
    elif part == "pods":
        shown = _compact(
            metricName=named.get("name"),
            targetAverageValue=average or "0",
            selector=named.get("selector"),
        )
    elif part == "object":
        shown = _compact(
            target=source.get("describedObject"),
            metricName=named.get("name"),
            targetValue=target.get("value") or "0",
            selector=named.get("selector"),
            averageValue=average,
        )
    else:
        shown = _compact(
            metricName=named.get("name"),
            metricSelector=named.get("selector"),
            targetValue=target.get("value"),
            targetAverageValue=average,
        )
    return {"type": kind, part: shown}


def _metric_to_v2(metric: Document) -> Document:
    kind = metric.get("type", "")
    part = kind[:1].lower() + kind[1:]
    source = metric.get(part) or {}
    chosen = source.get("selector") or source.get("metricSelector")
    named = _compact(name=source.get("metricName", ""), selector=chosen)
    if part in ("resource", "containerResource"):
        usage = source.get("targetAverageUtilization")
        target = _compact(
            type="AverageValue" if usage is None else "Utilization",
            averageValue=source.get("targetAverageValue"),
            averageUtilization=usage,
        )
        name, container = source.get("name", ""), source.get("container")
        return {"type": kind, part: _compact(name=name, target=target, container=container)}
    if part == "pods":
        target = {"type": "AverageValue", "averageValue": source.get("targetAverageValue", "0")}
        return {"type": kind, part: {"metric": named, "target": target}}
    average = source.get("averageValue") or source.get("targetAverageValue")
    value = source.get("targetValue")
    if part == "object":
        target = _compact(
            type="Value" if average is None else "AverageValue",
            value=None if average is not None and value in ("0", 0) else value,
            averageValue=average,
        )
        described = source.get("target") or {}
        return {
            "type": kind,
            part: {"describedObject": described, "target": target, "metric": named},
        }
    kind_of = "AverageValue" if value is None else "Value"
    target = _compact(type=kind_of, value=value, averageValue=average)
    return {"type": kind, part: {"metric": named, "target": target}}


def _current_to_v1(metric: Document) -> Document:
    kind = metric.get("type", "")
    part = kind[:1].lower() + kind[1:]
    source = metric.get(part) or {}
    now, named = source.get("current") or {}, source.get("metric") or {}
    shown = _compact(
        name=source.get("name"),
        container=source.get("container"),
        target=source.get("describedObject"),
        metricName=named.get("name"),
        selector=named.get("selector"),
        currentAverageUtilization=now.get("averageUtilization"),
        currentAverageValue=now.get("averageValue"),
        currentValue=now.get("value"),
    )
    return {"type": kind, part: shown}


def _current_to_v2(metric: Document) -> Document:
    kind = metric.get("type", "")
    part = kind[:1].lower() + kind[1:]
    source = metric.get(part) or {}
    now = _compact(
        averageUtilization=source.get("currentAverageUtilization"),
        averageValue=source.get("currentAverageValue"),
        value=source.get("currentValue"),
    )
    named = _compact(name=source.get("metricName"), selector=source.get("selector"))
    shown = _compact(
        name=source.get("name"),
        container=source.get("container"),
        describedObject=source.get("target"),
        metric=named or None,
        current=now,
    )
    return {"type": kind, part: shown}
