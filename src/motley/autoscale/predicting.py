"""How many pods a load will need, and who wants that known ahead of time. Pure.

An autoscaler asks by the annotation `autoscaling.motley.io/predict: "5m"`. For each metric of CPU
or memory the whole use of the target is forecast, and the pods it takes are proposed where they are
more than the load of the moment asks for. With `autoscaling.motley.io/predict-down: "true"` they
also count where they are fewer.

Invariant: without that second annotation a forecast never takes a pod away; one that was wrong by
more than half in its back-test counts for nothing.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from motley.api import quantity
from motley.api.views.autoscaling import HorizontalPodAutoscaler, MetricSpec
from motley.api.views.pod import Pod
from motley.autoscale import past
from motley.autoscale.calculator import MetricError, Tolerances, requested
from motley.autoscale.hpa import Proposal
from motley.autoscale.past import Figures, Past
from motley.autoscale.proposals import resource_source

if TYPE_CHECKING:  # NumPy is loaded once there is something to forecast
    from motley.autoscale.forecast import Forecast

AHEAD = "autoscaling.motley.io/predict"
DOWN = "autoscaling.motley.io/predict-down"
CONDITION = "Predicting"
WORST = 0.5
_DURATION = re.compile(r"([0-9]{1,6})(s|m|h)")
_UNITS = {"s": 1, "m": 60, "h": 3600}
LONGEST_S = 6 * 3600


class Wish(NamedTuple):
    """How far ahead to look, and whether that may also take pods away."""

    horizon_s: int
    may_lower: bool


def wish(hpa: HorizontalPodAutoscaler) -> Wish | None:
    """What the annotations ask for; None: nothing. Raises ValueError."""
    text = hpa.metadata.annotations.get(AHEAD)
    if not text or text in ("0", "0s"):
        return None
    return Wish(horizon_s(AHEAD, text), hpa.metadata.annotations.get(DOWN) == "true")


def horizon_s(asked_by: str, text: str) -> int:
    """How far ahead a text such as `5m` asks to look. Raises ValueError."""
    matched = _DURATION.fullmatch(text)
    if matched is None:
        raise ValueError(f"{asked_by}: {text!r} is no duration such as 5m")
    found = int(matched[1]) * _UNITS[matched[2]]
    if not 10 <= found <= LONGEST_S:
        raise ValueError(f"{asked_by}: {text} is not between 10s and {LONGEST_S // 3600}h")
    return found


def is_predictable(spec: MetricSpec) -> bool:
    """Is there a past of this metric?"""
    return spec.type in ("Resource", "ContainerResource") and (
        resource_source(spec).name in ("cpu", "memory")
    )


def total(spec: MetricSpec, pasts: Mapping[str, Past]) -> Figures:
    """What the target used as a whole: of the container that is meant, or of all."""
    source = resource_source(spec)
    return past.whole(pasts, source.name, source.container)


def target_per_pod(spec: MetricSpec, pods: Sequence[Pod]) -> float:
    """What one pod is to use, in cores or bytes. Raises MetricError."""
    source = resource_source(spec)
    if source.target.average_value is not None:
        amount = quantity.quantity(source.target.average_value).nano / 1e9
    elif source.target.average_utilization is not None and pods:
        asked = [requested(p, source.name, source.container) for p in pods]
        amount = sum(asked) / len(asked) / 1000 * source.target.average_utilization / 100
    else:
        amount = 0.0
    if amount <= 0:
        raise MetricError("what one pod is to use is not known")
    return amount


def ahead(
    spec: MetricSpec,
    proposal: Proposal,
    expected: "Forecast",
    pods: Sequence[Pod],
    current: int,
    tolerances: Tolerances,
    asked: Wish,
) -> Proposal:
    """The proposal, with the forecast where that counts. Raises MetricError."""
    if expected.error > WORST:
        return proposal
    needed = expected.peak / target_per_pod(spec, pods)
    replicas = math.ceil(round(needed, 6))
    if current and tolerances.allow(needed / current):
        replicas = current
    if replicas <= proposal.replicas and not asked.may_lower:
        return proposal
    name = f"forecast of {resource_source(spec).name} for the next {asked.horizon_s} s"
    return proposal if replicas == proposal.replicas else Proposal(replicas, name, proposal.current)


def told(
    hpa: HorizontalPodAutoscaler, forecasts: Mapping[int, "Forecast"], problem: str
) -> tuple[bool, str, str]:
    """The condition: is something expected, and how far could it be wrong?"""
    if not forecasts:
        return False, "NoForecast", problem or "no metric of CPU or memory to forecast"
    parts, is_used = [], False
    for index, expected in forecasts.items():
        name = resource_source(hpa.spec.metrics[index]).name
        peak = f"{expected.peak:.3g} cores" if name == "cpu" else f"{expected.peak / 2**20:.0f}Mi"
        parts.append(f"{name}: up to {peak} by {expected}")
        is_used = is_used or expected.error <= WORST
    reason = "ForecastAvailable" if is_used else "ForecastTooInaccurate"
    return is_used, reason, "; ".join(parts)
