"""A VerticalPodAutoscaler's recommendation, put on containers. Pure.

The API server does it to pods that are being created, the controller to pods that run, and both
must come to the same. Limits keep their ratio to requests unless the policy says RequestsOnly, so a
pod keeps its QoS class. CPU is recommended in cores of speed 1; on a node of another speed the same
work takes `1 / speed` as many.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from motley.api import quantity

Document = dict[str, Any]

RESOURCES = ("cpu", "memory")
_MIB = 1 << 20


class Policy(NamedTuple):
    """What may be done to one container."""

    mode: str = "Auto"
    least: Mapping[str, float] = {}
    most: Mapping[str, float] = {}
    resources: tuple[str, ...] = RESOURCES
    limits_too: bool = True


class Range(NamedTuple):
    """What a LimitRange allows a container."""

    least: Mapping[str, float]
    most: Mapping[str, float]


def ranges(limit_range: Document) -> list[Range]:
    """What a LimitRange says of containers."""
    listed = (limit_range.get("spec") or {}).get("limits") or ()
    return [
        Range(amounts(one.get("min")), amounts(one.get("max")))
        for one in listed
        if one.get("type") == "Container"
    ]


def policy(autoscaler: Document, container: str) -> Policy:
    """The container's own policy, else that of `*`, else none at all."""
    spec = autoscaler.get("spec") or {}
    listed = (spec.get("resourcePolicy") or {}).get("containerPolicies") or ()
    by_name = {p.get("containerName", "*"): p for p in listed}
    found = by_name.get(container, by_name.get("*"))
    if found is None:
        return Policy()
    controlled = found.get("controlledResources")
    return Policy(
        found.get("mode") or "Auto",
        amounts(found.get("minAllowed")),
        amounts(found.get("maxAllowed")),
        RESOURCES if controlled is None else tuple(r for r in RESOURCES if r in controlled),
        found.get("controlledValues") != "RequestsOnly",
    )


def amounts(listed: Mapping[str, Any] | None) -> dict[str, float]:
    """CPU in cores, memory in bytes; what cannot be read is left out."""
    found = {}
    for name in RESOURCES:
        if listed and name in listed:
            try:
                found[name] = quantity.quantity(listed[name]).nano / 1e9
            except ValueError:
                continue
    return found


def capped(wanted: Mapping[str, float], bounds: Policy) -> dict[str, float]:
    """Within the policy's bounds, and only what it controls."""
    return {
        name: max(min(wanted[name], bounds.most.get(name, math.inf)), bounds.least.get(name, 0.0))
        for name in bounds.resources
        if name in wanted
    }


def written(wanted: Mapping[str, float]) -> dict[str, str]:
    """As quantities: whole thousandths of a core, whole MiB; never less than was meant."""
    found = {}
    if "cpu" in wanted:
        found["cpu"] = f"{max(1, math.ceil(round(wanted['cpu'] * 1000, 3)))}m"
    if "memory" in wanted:
        found["memory"] = f"{max(1, math.ceil(wanted['memory'] / _MIB))}Mi"
    return found


def _whole(name: str, amount: float) -> float:
    """The most that can be written and is not above an amount."""
    if name == "memory":
        return max(1.0, math.floor(amount / _MIB)) * _MIB
    return max(1.0, math.floor(round(amount * 1000, 3))) / 1000


def targets(autoscaler: Document, bound: str = "target") -> dict[str, dict[str, float]]:
    """By container: what the status recommends."""
    state = autoscaler.get("status") or {}
    listed = (state.get("recommendation") or {}).get("containerRecommendations") or ()
    return {r.get("containerName", ""): amounts(r.get(bound)) for r in listed}


def resources(
    have: Document,
    wanted: Mapping[str, float],
    bounds: Policy,
    speed: float,
    allowed: Iterable[Range] = (),
) -> Document:
    """A container's resources with the wanted requests; limits in the ratio they had to requests.

    A container that has only a limit requests that much. One without limits gets none. Where the
    namespace allows less, or not as little, it gets as much as is allowed.
    """
    requests, limits = dict(have.get("requests") or {}), dict(have.get("limits") or {})
    before, most = amounts(requests), amounts(limits)
    physical = {**wanted, **({"cpu": wanted["cpu"] / speed} if "cpu" in wanted else {})}
    new = {name: physical[name] for name in bounds.resources if name in physical}
    for name, amount in new.items():
        is_raised = bounds.limits_too and name in most and before.get(name)
        ratio = most[name] / before[name] if is_raised else 1.0
        for one in allowed:
            if name in one.most:
                amount = min(amount, _whole(name, one.most[name] / ratio))
            amount = max(amount, one.least.get(name, 0.0))
        new[name] = amount
    if bounds.limits_too:
        raised = {
            name: amount * most[name] / (before.get(name) or most[name])
            for name, amount in new.items()
            if name in most and (before.get(name) or most[name])
        }
        for one in allowed:
            tops = {n: _whole(n, one.most[n]) for n in raised.keys() & one.most.keys()}
            raised |= {n: min(raised[n], amount) for n, amount in tops.items()}
        limits |= written(raised)
    else:
        new = {name: min(amount, most.get(name, math.inf)) for name, amount in new.items()}
    found = {**have, "requests": {**requests, **written(new)}}
    return {**found, "limits": limits} if limits else found


def containers(
    autoscaler: Document,
    listed: Iterable[Document],
    speed: float = 1.0,
    allowed: Sequence[Range] = (),
) -> list[Document]:
    """Name and new resources of every container that is to be changed."""
    recommended = targets(autoscaler)
    found = []
    for container in listed:
        name = container.get("name", "")
        bounds = policy(autoscaler, name)
        wanted = recommended.get(name)
        if not wanted or bounds.mode == "Off":
            continue
        have = container.get("resources") or {}
        new = resources(have, wanted, bounds, speed, allowed)
        if new != have:
            found.append({"name": name, "resources": new})
    return found
