"""Rules for what keeps workloads alive and large enough: disruption budgets and autoscalers."""

import re
from typing import Any

from motley.api import names, quantity
from motley.api.validation import selector
from motley.api.validation.errors import (
    Document,
    Errors,
    forbidden,
    int_or_percent,
    invalid,
    named,
    not_negative,
    one_of,
    required,
    unsupported,
)

_SOURCES = {
    "ContainerResource": "containerResource",
    "External": "external",
    "Object": "object",
    "Pods": "pods",
    "Resource": "resource",
}
_WINDOW_MAX_S = 3600
_PERIOD_MAX_S = 1800
_OVER = re.compile("[0-9]+%")


def disruption_budget(obj: Document) -> Errors:
    """A PodDisruptionBudget says how many may go or how many must stay, not both."""
    spec = obj.get("spec") or {}
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    if least is not None and most is not None:
        shown = {
            "MinAvailable": least,
            "Selector": spec.get("selector"),
            "MaxUnavailable": most,
            "UnhealthyPodEvictionPolicy": spec.get("unhealthyPodEvictionPolicy"),
        }
        yield invalid("spec", shown, "minAvailable and maxUnavailable cannot be both set")
    for name, value in (("minAvailable", least), ("maxUnavailable", most)):
        if value is not None:
            yield from int_or_percent(f"spec.{name}", value)
            yield from not_over_100(f"spec.{name}", value)
    yield from selector.label_selector("spec.selector", spec.get("selector"))
    policy = spec.get("unhealthyPodEvictionPolicy")
    yield from one_of("spec.unhealthyPodEvictionPolicy", policy, ("AlwaysAllow", "IfHealthyBudget"))


def not_over_100(field: str, value: Any) -> Errors:
    """A share is at most everything."""
    if isinstance(value, str) and _OVER.fullmatch(value) and int(value[:-1]) > 100:
        yield invalid(field, value, "must not be greater than 100%")


def autoscaler(obj: Document) -> Errors:
    """A HorizontalPodAutoscaler."""
    spec = obj.get("spec") or {}
    least, most = spec.get("minReplicas"), spec.get("maxReplicas", 0)
    metrics = spec.get("metrics") or []
    yield from not_negative("spec.minReplicas", least)
    if most < 1:
        if least is not None and most < least:
            yield invalid(
                "spec.maxReplicas", most, "must be greater than or equal to `minReplicas`"
            )
        yield required("spec.maxReplicas")
    elif least is not None and most < least:
        yield invalid("spec.maxReplicas", most, "must be greater than or equal to `minReplicas`")
    yield from _target("spec.scaleTargetRef", spec.get("scaleTargetRef") or {})
    for index, metric in enumerate(metrics):
        yield from _metric(f"spec.metrics[{index}]", metric)
    if least == 0 and not any(m.get("type") in ("Object", "External") for m in metrics):
        yield forbidden(
            "spec.metrics",
            "must specify at least one Object or External metric to support scaling to zero "
            "replicas",
        )
    for direction in ("scaleUp", "scaleDown"):
        rules = (spec.get("behavior") or {}).get(direction)
        if rules is not None:
            yield from _rules(f"spec.behavior.{direction}", rules)


def _target(field: str, target: Document, *, scaled: bool = True) -> Errors:
    for part in ("kind", "name"):
        value = target.get(part, "")
        if not value:
            yield required(f"{field}.{part}")
        else:
            yield from named(f"{field}.{part}", value, names.check_path_segment(value))
    version = target.get("apiVersion", "")
    if not scaled:
        return
    if "/" not in version and not (version == "v1" and target.get("kind") == _CORE_SCALED):
        yield invalid(f"{field}.apiVersion", version, "apiVersion must specify API group")


_CORE_SCALED = "ReplicationController"


def _metric(field: str, metric: Document) -> Errors:
    kind = metric.get("type", "")
    if not kind:
        yield required(f"{field}.type", "must specify a metric source type")
    elif kind not in _SOURCES:
        yield unsupported(f"{field}.type", kind, tuple(_SOURCES))
    given = [name for name in _SOURCES.values() if metric.get(name) is not None]
    expected = _SOURCES.get(kind)
    if expected is None:
        return
    if expected not in given:
        yield required(
            f"{field}.{expected}", "must populate information for the given metric source"
        )
    for name in given:
        if name != expected:
            yield forbidden(f"{field}.{name}", "must populate the given metric source only")
    if expected in given:
        yield from _source(f"{field}.{expected}", expected, metric[expected])


def _source(field: str, kind: str, source: Document) -> Errors:
    target = source.get("target") or {}
    if kind in ("resource", "containerResource"):
        if not source.get("name"):
            yield required(f"{field}.name", "must specify a resource name")
        if kind == "containerResource" and not source.get("container"):
            yield required(f"{field}.container", "must specify a container")
        yield from _amount(field, target)
        usage, value = target.get("averageUtilization"), target.get("averageValue")
        if usage is None and value is None:
            yield required(
                f"{field}.target.averageUtilization",
                "must set either a target raw value or a target utilization",
            )
        elif usage is not None and value is not None:
            yield forbidden(
                f"{field}.target.averageValue",
                "may not set both a target raw value and a target utilization",
            )
        return
    if kind == "object":
        described = source.get("describedObject") or {}
        yield from _target(f"{field}.describedObject", described, scaled=False)
    metric = source.get("metric") or {}
    if not metric.get("name"):
        yield required(f"{field}.metric.name", "must specify a metric name")
    else:
        wrong = names.check_path_segment(metric["name"])
        yield from named(f"{field}.metric.name", metric["name"], wrong)
    yield from selector.label_selector(f"{field}.metric.selector", metric.get("selector"))
    yield from _amount(field, target)
    if kind == "pods":
        if target.get("averageValue") is None:
            detail = "must specify a positive target averageValue"
            yield required(f"{field}.target.averageValue", detail)
    elif target.get("value") is None and target.get("averageValue") is None:
        detail = "must set either a target value or averageValue"
        yield required(f"{field}.target.averageValue", detail)


def _amount(field: str, target: Document) -> Errors:
    kind = target.get("type", "")
    if not kind:
        yield required(f"{field}.target.type", "must specify a metric target type")
    else:
        kinds = ("Utilization", "Value", "AverageValue")
        if kind not in kinds:
            yield invalid(
                f"{field}.target.type", kind, "must be either Utilization, Value, or AverageValue"
            )
    usage = target.get("averageUtilization")
    if usage is not None and usage < 1:
        yield invalid(f"{field}.target.averageUtilization", usage, "must be greater than 0")
    for part in ("value", "averageValue"):
        if target.get(part) is not None and quantity.parse(target[part]) <= 0:
            yield invalid(f"{field}.target.{part}", target[part], "must be positive")


def _rules(field: str, rules: Document) -> Errors:
    window = rules.get("stabilizationWindowSeconds")
    yield from not_negative(f"{field}.stabilizationWindowSeconds", window)
    if window is not None and window > _WINDOW_MAX_S:
        yield invalid(
            f"{field}.stabilizationWindowSeconds",
            window,
            f"must be less than or equal to {_WINDOW_MAX_S}",
        )
    yield from one_of(
        f"{field}.selectPolicy", rules.get("selectPolicy"), ("Disabled", "Max", "Min")
    )
    policies = rules.get("policies") or []
    if not policies:
        yield required(f"{field}.policies", "must specify at least one Policy")
    for index, policy in enumerate(policies):
        at = f"{field}.policies[{index}]"
        if policy.get("type") not in ("Percent", "Pods"):
            yield unsupported(f"{at}.type", policy.get("type", ""), ("Percent", "Pods"))
        for part in ("value", "periodSeconds"):
            if policy.get(part, 0) <= 0:
                yield invalid(f"{at}.{part}", policy.get(part, 0), "must be greater than zero")
        if policy.get("periodSeconds", 0) > _PERIOD_MAX_S:
            yield invalid(
                f"{at}.periodSeconds",
                policy["periodSeconds"],
                f"must be less than or equal to {_PERIOD_MAX_S}",
            )
