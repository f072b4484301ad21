"""One metric of an autoscaler, from what was read to a proposal. Pure.

Names and failures are in Kubernetes' words: people search for them.
"""

from collections.abc import Mapping
from typing import Any

from motley.api import quantity
from motley.api.quantity import Quantity
from motley.api.views.autoscaling import (
    CustomMetricSource,
    MetricSpec,
    MetricTarget,
    ResourceMetricSource,
)
from motley.autoscale import calculator
from motley.autoscale.calculator import Measured, MetricError, Pods, Sample, Tolerances
from motley.autoscale.hpa import Failure, Proposal, Scale

Document = dict[str, Any]
Reading = Mapping[str, Sample] | int
"""Samples by pod, or one amount in thousandths."""

_MILLI = 10**6  # nano-units in one milli-unit


def resource_source(spec: MetricSpec) -> ResourceMetricSource:
    """The source of a Resource or ContainerResource metric."""
    return spec.resource or spec.container_resource or ResourceMetricSource()


def custom_source(spec: MetricSpec) -> CustomMetricSource:
    """The source of any other metric."""
    return spec.pods or spec.object or spec.external or CustomMetricSource()


def propose(
    spec: MetricSpec, reading: Reading, scale: Scale, pods: Pods, tolerances: Tolerances
) -> Proposal:
    """How many pods the metric asks for. Raises MetricError."""
    if spec.type in ("Resource", "ContainerResource"):
        assert not isinstance(reading, int)
        return _resource(spec, reading, scale, pods, tolerances)
    if spec.type == "Pods":
        assert not isinstance(reading, int)
        return _pods(spec, reading, scale, pods, tolerances)
    if spec.type in ("Object", "External"):
        assert isinstance(reading, int)
        return _whole(spec, reading, scale, pods, tolerances)
    raise MetricError(f'unknown metric source type "{spec.type}"')


def _resource(
    spec: MetricSpec,
    samples: Mapping[str, Sample],
    scale: Scale,
    pods: Pods,
    tolerances: Tolerances,
) -> Proposal:
    source = resource_source(spec)
    target = source.target
    words = "container resource" if spec.type == "ContainerResource" else "resource"
    if target.average_value is not None:
        milli = quantity.cpu_milli(target.average_value)
        found = calculator.average_value(
            scale.wanted, milli, source.name, pods, samples, tolerances
        )
        name = f"{source.name} resource"
    elif target.average_utilization is not None:
        found = calculator.utilization(
            scale.wanted,
            target.average_utilization,
            source.name,
            pods,
            samples,
            tolerances,
            source.container,
        )
        name = f"{source.name} {words} utilization (percentage of request)"
    else:
        raise MetricError(
            "invalid resource metric source: neither an average utilization target nor an average"
            " value (usage) target was set"
        )
    now: Document = {"averageValue": _amount(source.name, found.average_milli)}
    if found.utilization is not None:
        now["averageUtilization"] = found.utilization
    shown: Document = {"name": source.name, "current": now}
    if spec.type == "ContainerResource":
        shown["container"] = source.container
    return Proposal(found.replicas, name, {"type": spec.type, _field(spec): shown})


def _pods(
    spec: MetricSpec,
    samples: Mapping[str, Sample],
    scale: Scale,
    pods: Pods,
    tolerances: Tolerances,
) -> Proposal:
    source = custom_source(spec)
    milli = _target(source.target.average_value)
    found = calculator.average_value(scale.wanted, milli, "", pods, samples, tolerances)
    now = {"averageValue": quantity.format_milli(found.average_milli)}
    return Proposal(found.replicas, f"pods metric {source.metric.name}", _shown(spec, now))


def _whole(
    spec: MetricSpec, usage_milli: int, scale: Scale, pods: Pods, tolerances: Tolerances
) -> Proposal:
    source = custom_source(spec)
    name = f"external metric {source.metric.name}({selector_text(source.metric.selector)})"
    found: Measured
    if source.target.value is not None and not _is_average(spec.type, source.target):
        milli = _target(source.target.value)
        found = calculator.value(scale.wanted, milli, usage_milli, pods, tolerances)
        field = "value"
        if spec.type == "Object":
            name = f"{source.described_object.kind} metric {source.metric.name}"
    elif source.target.average_value is not None:
        milli = _target(source.target.average_value)
        found = calculator.value_per_pod(scale.present, milli, usage_milli, tolerances)
        field = "averageValue"
    else:
        raise MetricError(
            f"invalid {spec.type.lower()} metric source: neither a value target nor an average"
            " value target was set"
        )
    now = {field: quantity.format_milli(found.average_milli)}
    return Proposal(found.replicas, name, _shown(spec, now))


def _is_average(type_: str, target: MetricTarget) -> bool:
    if type_ == "Object":
        return target.type == "AverageValue"
    return target.average_value is not None


def _target(amount: str | int | float | None) -> int:
    milli = quantity.cpu_milli(amount) if amount is not None else 0
    if milli <= 0:
        raise MetricError("the metric's target is not a positive amount")
    return milli


def _amount(resource: str, milli: int) -> str:
    family = "BinarySI" if resource == "memory" else "DecimalSI"
    return str(Quantity(milli * _MILLI, "BinarySI" if family == "BinarySI" else "DecimalSI"))


def _field(spec: MetricSpec) -> str:
    return spec.type[:1].lower() + spec.type[1:]


def _shown(spec: MetricSpec, now: Document) -> Document:
    source = custom_source(spec)
    metric: Document = {"name": source.metric.name}
    if source.metric.selector is not None:
        metric["selector"] = source.metric.selector
    shown: Document = {"metric": metric, "current": now}
    if spec.type == "Object":
        described = source.described_object
        shown["describedObject"] = {"kind": described.kind, "name": described.name}
        if described.api_version:
            shown["describedObject"]["apiVersion"] = described.api_version
    return {"type": spec.type, _field(spec): shown}


def failed(spec: MetricSpec, problem: str) -> Failure:
    """A metric's failure, as its event, its condition and the log tell it."""
    name = custom_source(spec).metric.name
    if spec.type in ("Resource", "ContainerResource"):
        source = resource_source(spec)
        what = "usage" if source.target.average_value is not None else "utilization"
        told = f"failed to get {source.name} {what}: {problem}"
        context = f"failed to get {source.name} resource metric value"
        if spec.type == "ContainerResource":
            context = f"failed to get {source.container} container metric value"
        return Failure(f"FailedGet{spec.type}Metric", told, context)
    if spec.type == "Pods":
        return Failure("FailedGetPodsMetric", problem, "failed to get pods metric value")
    if spec.type == "Object":
        return Failure("FailedGetObjectMetric", problem, "failed to get object metric value")
    if spec.type == "External":
        context = f"failed to get {name} external metric value"
        return Failure("FailedGetExternalMetric", problem, context)
    return Failure("InvalidMetricSourceType", problem, "failed to compute a metric")


def selector_text(selector: Mapping[str, Any] | None) -> str:
    """A label selector as Go prints it, which is how autoscalers name such metrics."""
    if selector is None:
        return "nil"
    labels = selector.get("matchLabels") or {}
    pairs = "".join(f"{key}: {labels[key]}," for key in sorted(labels))
    listed = "".join(
        f"LabelSelectorRequirement{{Key:{e.get('key', '')},Operator:{e.get('operator', '')},"
        f"Values:[{' '.join(e.get('values') or ())}],}},"
        for e in selector.get("matchExpressions") or ()
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{pairs}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{listed}}},}}"
    )
