"""One look at an autoscaler: from metrics to a number of pods, and the reasons for it. Pure.

    is the target at zero or out of bounds? → one proposal per metric → the largest → `rules`

A metric that fails proposes nothing. If all fail nothing happens; if some do, the others may raise
the number but not lower it: the one that is missing might have been the one that needs the pods.

Invariant: `decide` never goes below `minReplicas` or above `maxReplicas`, unless the target is at
zero and stays there; every change has a reason in words.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from motley.api.views.autoscaling import HorizontalPodAutoscaler
from motley.autoscale import gaps, rules
from motley.autoscale.calculator import Settings
from motley.autoscale.rules import Bounds, History
from motley.lib import clock as clocks

Document = dict[str, Any]

ABLE, ACTIVE, LIMITED, ZERO = "AbleToScale", "ScalingActive", "ScalingLimited", "ScaledToZero"


@dataclass(frozen=True)
class Scale:
    """The target's scale subresource."""

    wanted: int
    present: int
    selector: str


@dataclass(frozen=True)
class Proposal:
    """How many pods one metric asks for, and what is shown of it."""

    replicas: int
    name: str
    current: Document


@dataclass(frozen=True)
class Failure:
    """A metric that could not be read or used."""

    reason: str
    problem: str
    context: str  # what was attempted, in front of the problem

    @property
    def error(self) -> str:
        """The whole story."""
        return f"{self.context}: {self.problem}"


@dataclass(frozen=True)
class Event:
    """What `kubectl describe` is to tell."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


@dataclass
class Decision:
    """What to do, and what to say about it."""

    desired: int
    history: History
    reason: str = ""
    rescale: bool = False
    has_failed: bool = False  # the status keeps the number it had
    metrics: list[Document] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)


class Conditions:
    """The conditions of an autoscaler; a transition time moves only with the status."""

    def __init__(self, have: Sequence[Document], now: float) -> None:
        self._list = [dict(c) for c in have]
        self._stamp = clocks.rfc3339(now)

    def set(self, type_: str, is_true: bool, reason: str, message: str) -> None:
        """Say something anew."""
        found = next((c for c in self._list if c.get("type") == type_), None)
        if found is None:
            found = {"type": type_}
            self._list.append(found)
        status = "True" if is_true else "False"
        if found.get("status") != status:
            found["lastTransitionTime"] = self._stamp
        found |= {"status": status, "reason": reason, "message": message}

    def drop(self, type_: str) -> None:
        """Say nothing of it any more."""
        self._list = [c for c in self._list if c.get("type") != type_]

    def is_true(self, type_: str) -> bool:
        """Is the condition there, and True?"""
        return any(c.get("type") == type_ and c.get("status") == "True" for c in self._list)

    def documents(self) -> list[Document]:
        """As the status holds them."""
        return [dict(c) for c in self._list]


def least(hpa: HorizontalPodAutoscaler) -> int:
    """The lower bound."""
    return 1 if hpa.spec.min_replicas is None else hpa.spec.min_replicas


def _may_wake(hpa: HorizontalPodAutoscaler, conditions: Conditions) -> bool:
    """At zero: did this autoscaler put the target there, and can it tell when to come back?"""
    if not conditions.is_true(ZERO):
        return False
    return least(hpa) != 0 or _can_sleep(hpa)


def _can_sleep(hpa: HorizontalPodAutoscaler) -> bool:
    return any(m.type in ("Object", "External") for m in hpa.spec.metrics)


def needs_metrics(hpa: HorizontalPodAutoscaler, scale: Scale, conditions: Conditions) -> bool:
    """Whether the decision depends on metrics at all."""
    if scale.wanted == 0:
        return _may_wake(hpa, conditions)
    return least(hpa) <= scale.wanted <= hpa.spec.max_replicas


def without_metrics(
    hpa: HorizontalPodAutoscaler, scale: Scale, conditions: Conditions, history: History
) -> Decision:
    """A target that is switched off, or outside its bounds."""
    if scale.wanted == 0:
        text = "scaling is disabled since the replica count of the target is zero"
        conditions.set(ACTIVE, False, "ScalingDisabled", text)
        return Decision(0, history)
    if scale.wanted > hpa.spec.max_replicas:
        reason = "Current number of replicas above Spec.MaxReplicas"
        return Decision(hpa.spec.max_replicas, history, reason, rescale=True)
    reason = "Current number of replicas below Spec.MinReplicas"
    return Decision(least(hpa), history, reason, rescale=True)


def decide(
    hpa: HorizontalPodAutoscaler,
    scale: Scale,
    outcomes: Sequence[Proposal | Failure],
    conditions: Conditions,
    history: History,
    now: float,
    settings: Settings,
) -> Decision:
    """The number of pods for these outcomes of the metrics, in the order of the spec."""
    current = scale.wanted
    failures = [o for o in outcomes if isinstance(o, Failure)]
    proposals = [o for o in outcomes if isinstance(o, Proposal)]
    shown = [o.current if isinstance(o, Proposal) else {"type": ""} for o in outcomes]
    events = [Event("Warning", f.reason, f.problem) for f in failures]
    best = max(proposals, key=lambda p: p.replicas, default=None)
    if best is None or (failures and best.replicas < current):
        first = failures[0]
        text = f"the HPA was unable to compute the replica count: {first.problem}"
        conditions.set(ACTIVE, False, first.reason, text)
        count = f"{len(failures)} invalid out of {len(outcomes)}"
        error = f"invalid metrics ({count}), first error is: {first.error}"
        events.append(Event("Warning", "FailedComputeMetricsReplicas", error))
        return Decision(current, history, has_failed=True, metrics=shown, events=events)
    text = f"the HPA was able to successfully calculate a replica count from {best.name}"
    conditions.set(ACTIVE, True, "ValidMetricFound", text)
    reason = ""
    if best.replicas > current:
        reason = f"{best.name} above target"
    elif best.replicas < current:
        reason = "All metrics below target"
    limited = _limited(
        hpa, Bounds(current, least(hpa), hpa.spec.max_replicas), best, history, now, settings
    )
    conditions.set(ABLE, limited.is_able, *limited.able)
    conditions.set(LIMITED, limited.is_limited, *limited.limited)
    desired = limited.replicas
    if current == 0 and desired < least(hpa):
        desired = least(hpa)
    if not reason and desired > current:
        reason = "Current number of replicas below Spec.MinReplicas"
    return Decision(desired, limited.history, reason, desired != current, False, shown, events)


def _limited(
    hpa: HorizontalPodAutoscaler,
    bounds: Bounds,
    best: Proposal,
    history: History,
    now: float,
    settings: Settings,
) -> rules.Limited:
    if not gaps.is_asked_for(hpa):
        return rules.limit(hpa.spec.behavior, bounds, best.replicas, history, now, settings)
    written = hpa.status.get("lastScaleTime")
    last = clocks.parse_rfc3339(written) if written else float("-inf")
    behavior = gaps.behavior(hpa.spec.behavior)
    return gaps.limit(behavior, bounds, best.replicas, history, last, now)


def remembered_s(hpa: HorizontalPodAutoscaler) -> float:
    """How long a change of the target matters to later decisions."""
    if not gaps.is_asked_for(hpa):
        return rules.longest_period_s(hpa.spec.behavior)
    behavior = gaps.behavior(hpa.spec.behavior)
    windows = [
        r.stabilization_window_seconds or 0 for r in (behavior.scale_up, behavior.scale_down) if r
    ]
    return max(rules.longest_period_s(behavior), *windows)


def rescaled(
    hpa: HorizontalPodAutoscaler, current: int, decision: Decision, conditions: Conditions
) -> Event:
    """What is said after the target was changed."""
    text = f"the HPA controller was able to update the target scale to {decision.desired}"
    conditions.set(ABLE, True, "SucceededRescale", text)
    if current > 0 and decision.desired == 0 and least(hpa) == 0 and _can_sleep(hpa):
        text = "the HPA controller scaled the workload to zero"
        conditions.set(ZERO, True, "ScaledToZero", text)
    else:
        text = "the HPA controller did not scale the workload to zero"
        conditions.set(ZERO, False, "NotScaledToZero", text)
    message = f"New size: {decision.desired}; reason: {decision.reason}"
    return Event("Normal", "SuccessfulRescale", message)


def status(
    hpa: HorizontalPodAutoscaler,
    current: int,
    decision: Decision | None,
    conditions: Conditions,
    now: float,
) -> Document:
    """The whole status after one look; `decision` is None when there was not even a scale."""
    have = dict(hpa.status)
    have["conditions"] = conditions.documents()
    if decision is None:
        return have
    shown: Document = {
        "observedGeneration": hpa.metadata.generation,
        "currentReplicas": current,
        "desiredReplicas": have.get("desiredReplicas", 0)
        if decision.has_failed
        else decision.desired,
        "currentMetrics": decision.metrics or None,
        "conditions": have["conditions"],
    }
    if decision.rescale:
        shown["lastScaleTime"] = clocks.rfc3339(now)
    elif "lastScaleTime" in have:
        shown["lastScaleTime"] = have["lastScaleTime"]
    return shown
