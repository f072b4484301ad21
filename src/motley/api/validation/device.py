"""Rules for claims of devices, their classes and what drivers publish."""

from typing import Any

from motley.api import names
from motley.api.validation import expression
from motley.api.validation.errors import (
    Document,
    Errors,
    duplicate,
    invalid,
    named,
    one_of,
    required,
    too_many,
)

_REQUESTS_MAX = 32
_MODES = ("All", "ExactCount")
_EFFECTS = ("NoExecute", "NoSchedule", "None")


def claim(obj: Document) -> Errors:
    """A ResourceClaim."""
    yield from _claim_spec("spec", obj.get("spec") or {})


def claim_template(obj: Document) -> Errors:
    """A ResourceClaimTemplate."""
    yield from _claim_spec("spec.spec", (obj.get("spec") or {}).get("spec") or {})


def claim_update(new: Document, old: Document) -> Errors:
    """What was claimed stays claimed."""
    yield from _fixed_spec(new, old)


def claim_template_update(new: Document, old: Document) -> Errors:
    """A template that changed would make claims that differ."""
    yield from _fixed_spec(new, old)


def _fixed_spec(new: Document, old: Document) -> Errors:
    if new.get("spec") != old.get("spec"):
        yield invalid("spec", None, "field is immutable")


def _claim_spec(field: str, spec: Document) -> Errors:
    devices = spec.get("devices") or {}
    requests = devices.get("requests") or []
    if len(requests) > _REQUESTS_MAX:
        yield too_many(f"{field}.devices.requests", len(requests), _REQUESTS_MAX)
    seen: set[str] = set()
    for index, request in enumerate(requests):
        at = f"{field}.devices.requests[{index}]"
        name = request.get("name", "")
        if not name:
            yield required(f"{at}.name")
        else:
            yield from named(f"{at}.name", name, names.check_dns_label(name))
        yield from _request(at, request)
        if name in seen:
            yield duplicate(at, request)
        seen.add(name)
    for index, constraint in enumerate(devices.get("constraints") or ()):
        at = f"{field}.devices.constraints[{index}]"
        if not constraint.get("matchAttribute") and not constraint.get("distinctAttribute"):
            yield required(f"{at}.matchAttribute")


def _request(field: str, request: Document) -> Errors:
    exactly, choices = request.get("exactly"), request.get("firstAvailable") or []
    if exactly is None and not choices:
        yield required(field, "exactly one of `exactly` or `firstAvailable` is required")
    elif exactly is not None and choices:
        detail = "exactly one of `exactly` or `firstAvailable` is required"
        yield invalid(field, None, detail)
    if exactly is not None:
        yield from _exact(f"{field}.exactly", exactly)
    for index, choice in enumerate(choices):
        at = f"{field}.firstAvailable[{index}]"
        name = choice.get("name", "")
        if not name:
            yield required(f"{at}.name")
        else:
            yield from named(f"{at}.name", name, names.check_dns_label(name))
        yield from _exact(at, choice)


def _exact(field: str, request: Document) -> Errors:
    name = request.get("deviceClassName", "")
    if not name:
        yield required(f"{field}.deviceClassName")
    else:
        yield from named(f"{field}.deviceClassName", name, names.check_dns_subdomain(name))
    yield from selectors(f"{field}.selectors", request.get("selectors") or [])
    mode, count = request.get("allocationMode"), request.get("count", 0)
    yield from one_of(f"{field}.allocationMode", mode, _MODES)
    if mode == "ExactCount" and count <= 0:
        yield invalid(f"{field}.count", count, "must be greater than zero")
    elif mode == "All" and count:
        detail = f"must not be specified when allocationMode is '{mode}'"
        yield invalid(f"{field}.count", count, detail)


def selectors(field: str, given: list[Any]) -> Errors:
    """Expressions that choose devices."""
    for index, selector in enumerate(given):
        at = f"{field}[{index}]"
        if selector.get("cel") is None:
            yield required(f"{at}.cel")
            continue
        text = selector["cel"].get("expression", "")
        if not text:
            yield required(f"{at}.cel.expression")
        else:
            yield from expression.check(f"{at}.cel.expression", text, ("device",), result="bool")


def device_class(obj: Document) -> Errors:
    """A DeviceClass."""
    spec = obj.get("spec") or {}
    yield from selectors("spec.selectors", spec.get("selectors") or [])
    for index, config in enumerate(spec.get("config") or ()):
        opaque = config.get("opaque")
        field = f"spec.config[{index}].opaque"
        if opaque is None:
            yield required(field)
        elif not opaque.get("driver"):
            yield required(f"{field}.driver")
        elif opaque.get("parameters") is None:
            yield required(f"{field}.parameters")


def slice_(obj: Document) -> Errors:
    """A ResourceSlice: what one driver has, on one node, some, or all."""
    spec = obj.get("spec") or {}
    driver = spec.get("driver", "")
    if not driver:
        yield required("spec.driver")
    else:
        yield from named("spec.driver", driver, names.check_dns_subdomain(driver))
    pool = spec.get("pool") or {}
    if not pool.get("name"):
        yield required("spec.pool.name")
    if pool.get("resourceSliceCount", 0) <= 0:
        count = pool.get("resourceSliceCount", 0)
        yield invalid("spec.pool.resourceSliceCount", count, "must be greater than zero")
    places = [
        part
        for part in ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
        if spec.get(part)
    ]
    listed = "`nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection`"
    if len(places) != 1 and (spec.get("devices") or not spec.get("sharedCounters")):
        detail = f"exactly one of {listed} is required"
        yield required("spec", detail) if not places else invalid("spec", places, detail)
    seen: set[str] = set()
    for index, device in enumerate(spec.get("devices") or ()):
        field = f"spec.devices[{index}]"
        name = device.get("name", "")
        if not name:
            yield required(f"{field}.name")
        else:
            yield from named(f"{field}.name", name, names.check_dns_label(name))
        if name in seen:
            yield duplicate(f"{field}.name", name)
        seen.add(name)
        for at, taint in enumerate(device.get("taints") or ()):
            yield from _taint(f"{field}.taints[{at}]", taint)


def slice_update(new: Document, old: Document) -> Errors:
    """A changed ResourceSlice belongs to the same driver, pool and node."""
    yield from slice_(new)
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    for part in ("driver", "nodeName"):
        if spec.get(part) != before.get(part):
            yield invalid(f"spec.{part}", spec.get(part), "field is immutable")
    pools = [(s.get("pool") or {}).get("name") for s in (spec, before)]
    if pools[0] != pools[1]:
        yield invalid("spec.pool.name", pools[0], "field is immutable")


def taint_rule(obj: Document) -> Errors:
    """A DeviceTaintRule."""
    taint = (obj.get("spec") or {}).get("taint")
    if taint is None:
        yield required("spec.taint")
    else:
        yield from _taint("spec.taint", taint)


def taint_rule_update(new: Document, old: Document) -> Errors:
    """A changed DeviceTaintRule."""
    yield from taint_rule(new)


def _taint(field: str, taint: Document) -> Errors:
    key, value, effect = (taint.get(part, "") for part in ("key", "value", "effect"))
    if not key:
        yield required(f"{field}.key")
    else:
        yield from named(f"{field}.key", key, names.check_qualified_name(key))
    if value:
        yield from named(f"{field}.value", value, names.check_label_value(value))
    if not effect:
        yield required(f"{field}.effect")
    else:
        yield from one_of(f"{field}.effect", effect, _EFFECTS)
