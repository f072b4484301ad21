"""Rules for what bounds a namespace: ResourceQuota and LimitRange."""

from fractions import Fraction
from typing import Any

from motley.api import names, quantity
from motley.api.validation import resources
from motley.api.validation.errors import (
    Document,
    Errors,
    duplicate,
    forbidden,
    immutable,
    invalid,
    named,
    required,
)

_SCOPES = (
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
)
_COUNTED = frozenset(
    {
        "configmaps",
        "persistentvolumeclaims",
        "pods",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "services",
        "services.loadbalancers",
        "services.nodeports",
    }
)
_AMOUNTS = frozenset(
    {
        "cpu",
        "memory",
        "ephemeral-storage",
        "storage",
        "requests.cpu",
        "requests.memory",
        "requests.storage",
        "requests.ephemeral-storage",
        "limits.cpu",
        "limits.memory",
        "limits.ephemeral-storage",
    }
)
# What a quota of one scope can be about.
_OF_PODS = frozenset({"pods", "cpu", "memory"}) | {
    f"{part}.{name}" for part in ("requests", "limits") for name in ("cpu", "memory")
}
_OF_SCOPE = {
    "BestEffort": frozenset({"pods"}),
    "VolumeAttributesClass": frozenset({"persistentvolumeclaims", "requests.storage"}),
}
_OPPOSED = (("Terminating", "NotTerminating"), ("BestEffort", "NotBestEffort"))


def resource_quota(obj: Document) -> Errors:
    """A ResourceQuota."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    for name, amount in (spec.get("hard") or {}).items():
        yield from _amount(f"spec.hard[{name}]", name, amount)
    yield from _scopes(spec)
    for part in ("hard", "used"):
        for name, amount in (status.get(part) or {}).items():
            yield from _amount(f"status.{part}[{name}]", name, amount)


def resource_quota_update(new: Document, old: Document) -> Errors:
    """A changed ResourceQuota counts the same objects."""
    yield from resource_quota(new)
    scopes, before = ((o.get("spec") or {}).get("scopes") for o in (new, old))
    if set(scopes or ()) != set(before or ()):
        yield from immutable("spec.scopes", scopes, before)


def _is_whole(name: str) -> bool:
    return name in _COUNTED or name.startswith("count/")


def _amount(field: str, name: str, amount: str) -> Errors:
    yield from named(field, name, names.check_qualified_name(name))
    known = "/" in name or name in _COUNTED or name in _AMOUNTS
    if not known and not name.startswith(("hugepages-", "requests.hugepages-")):
        yield invalid(field, name, "must be a standard resource type or fully qualified")
        yield invalid(field, name, "must be a standard resource for quota")
    exact = quantity.parse(amount)
    if exact < 0:
        yield invalid(field, amount, "must be greater than or equal to 0")
    elif _is_whole(name) and exact.denominator != 1:
        yield invalid(field, amount, "must be an integer")


def _scopes(spec: Document) -> Errors:
    scopes: list[str] = spec.get("scopes") or []
    unknown = [s for s in scopes if s not in _SCOPES]
    if unknown:
        yield invalid("spec.scopes", scopes, "unsupported scope")
    for scope in scopes:
        for name in spec.get("hard") or {}:
            standard = name in _COUNTED or name in _AMOUNTS
            if scope in _SCOPES and standard and name not in _OF_SCOPE.get(scope, _OF_PODS):
                detail = "unsupported scope applied to resource"
                yield invalid("spec.scopes", scopes, detail)
    for pair in _OPPOSED:
        if set(pair) <= set(scopes):
            yield invalid("spec.scopes", scopes, "conflicting scopes")
    expressions = (spec.get("scopeSelector") or {}).get("matchExpressions") or []
    for index, expression in enumerate(expressions):
        field = f"spec.scopeSelector.matchExpressions[{index}]"
        if expression.get("scopeName") not in _SCOPES:
            yield invalid(
                f"{field}.scopeName", expression.get("scopeName", ""), "unsupported scope"
            )
        yield from _scope_operator(field, expression)


def _scope_operator(field: str, expression: Document) -> Errors:
    operator, values = expression.get("operator"), expression.get("values") or []
    if operator in ("In", "NotIn"):
        if not values:
            yield required(
                f"{field}.values",
                "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
            )
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            yield invalid(
                f"{field}.values",
                values,
                "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
            )
    else:
        yield invalid(f"{field}.operator", operator or "", "not a valid selector operator")


def limit_range(obj: Document) -> Errors:
    """A LimitRange: its numbers must not contradict each other."""
    seen: set[str] = set()
    for index, limit in enumerate((obj.get("spec") or {}).get("limits") or ()):
        field = f"spec.limits[{index}]"
        kind = limit.get("type", "")
        yield from named(f"{field}.type", kind, names.check_qualified_name(kind))
        known = "/" in kind or kind in ("Pod", "Container", "PersistentVolumeClaim")
        if not known and not names.check_qualified_name(kind):
            detail = "must be a standard limit type or fully qualified"
            yield invalid(f"{field}.type", kind, detail)
        if kind in seen:
            yield duplicate(f"{field}.type", kind)
        seen.add(kind)
        yield from _limit(field, kind, limit)


def _limit(field: str, kind: str, limit: Document) -> Errors:
    parts: dict[str, dict[str, Any]] = {
        name: limit.get(name) or {}
        for name in ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")
    }
    if kind == "Pod":
        for part in ("default", "defaultRequest"):
            if parts[part]:
                yield forbidden(f"{field}.{part}", "may not be specified when `type` is 'Pod'")
                parts[part] = {}
    bounded = "storage" in parts["min"] or "storage" in parts["max"]
    if kind == "PersistentVolumeClaim" and not bounded:
        detail = "either minimum or maximum storage value is required, but neither was provided"
        yield required(f"{field}.limits", detail)
    for part, given in parts.items():
        for name, amount in given.items():
            yield from resources.resource_amount(f"{field}.{part}[{name}]", name, amount)
    for name in sorted({n for given in parts.values() for n in given}):
        yield from _consistent(field, name, {p: g.get(name) for p, g in parts.items()})


def _consistent(field: str, name: str, given: dict[str, str | None]) -> Errors:
    exact = {p: quantity.parse(v) for p, v in given.items() if v is not None}
    low, high = given["min"], given["max"]
    request, default = given["defaultRequest"], given["default"]

    def above(smaller: str, larger: str) -> bool:
        return smaller in exact and larger in exact and exact[smaller] > exact[larger]

    if above("min", "max"):
        yield invalid(
            f"{field}.min[{name}]", low, f"min value {low} is greater than max value {high}"
        )
    if above("min", "defaultRequest"):
        yield invalid(
            f"{field}.defaultRequest[{name}]",
            request,
            f"min value {low} is greater than default request value {request}",
        )
    if above("defaultRequest", "max"):
        yield invalid(
            f"{field}.defaultRequest[{name}]",
            request,
            f"default request value {request} is greater than max value {high}",
        )
    if above("defaultRequest", "default"):
        yield invalid(
            f"{field}.defaultRequest[{name}]",
            request,
            f"default request value {request} is greater than default limit value {default}",
        )
    # In the next two Kubernetes shows the other number as the wrong value.
    if above("min", "default"):
        yield invalid(
            f"{field}.default[{name}]",
            low,
            f"min value {low} is greater than default value {default}",
        )
    if above("default", "max"):
        yield invalid(
            f"{field}.default[{name}]",
            high,
            f"default value {default} is greater than max value {high}",
        )
    yield from _ratio(field, name, given["maxLimitRequestRatio"], exact)


def _ratio(field: str, name: str, ratio: str | None, exact: dict[str, Fraction]) -> Errors:
    if ratio is None:
        return
    at = f"{field}.maxLimitRequestRatio[{name}]"
    if exact["maxLimitRequestRatio"] < 1:
        yield invalid(at, ratio, f"ratio {ratio} is less than 1")
    if "min" in exact and "max" in exact and exact["min"]:
        most = exact["max"] / exact["min"]
        if exact["maxLimitRequestRatio"] > most:
            yield invalid(
                at,
                ratio,
                f"ratio {ratio} is greater than max/min = {float(most):f}",
            )
