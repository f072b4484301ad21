"""The other reading of `spec.behavior`: gaps since the last change. Pure.

Minik8s, whose manifests these are, gives the same fields another meaning. A stabilisation window is
the time that must pass since the last change before the next one; a policy takes part once its
period has passed since then, and allows one change of at most so many pods, or of at most that
share of the present ones. Its defaults are its own, too.

An autoscaler asks for this reading with the annotation `autoscaling.motley.io/semantics: minik8s`.
Defaults of the API server that nobody wrote count as not given.

Invariant: two changes in one direction are at least its window apart. A policy that waits is left
out; it does not forbid what the others allow.
"""

import math

from motley.api.views.autoscaling import (
    Behavior,
    HorizontalPodAutoscaler,
    ScalingPolicy,
    ScalingRules,
)
from motley.autoscale.rules import (
    DOWN_LIMIT,
    TOO_FEW,
    TOO_MANY,
    UP_LIMIT,
    WITHIN,
    Bounds,
    History,
    Limited,
    Words,
)

ANNOTATION = "autoscaling.motley.io/semantics"
NAME = "minik8s"

_UP = ScalingRules(
    stabilization_window_seconds=0,
    policies=[
        ScalingPolicy(type="Pods", value=1, period_seconds=15),
        ScalingPolicy(type="Percent", value=100, period_seconds=60),
    ],
)
_DOWN = ScalingRules(
    stabilization_window_seconds=300,
    policies=[ScalingPolicy(type="Pods", value=100, period_seconds=15)],
)
# What the API server writes where a manifest says nothing.
_SERVER_UP = [
    ScalingPolicy(type="Pods", value=4, period_seconds=15),
    ScalingPolicy(type="Percent", value=100, period_seconds=15),
]
_SERVER_DOWN = [ScalingPolicy(type="Percent", value=100, period_seconds=15)]
_READY = ("ReadyForNewScale", "the time since the previous scale allows another one")


def is_asked_for(hpa: HorizontalPodAutoscaler) -> bool:
    """Does the autoscaler want this reading?"""
    return hpa.metadata.annotations.get(ANNOTATION) == NAME


def behavior(given: Behavior | None) -> Behavior:
    """What was written, with this reading's defaults for what was not."""
    given = given or Behavior()
    return Behavior(
        scale_up=_or_default(given.scale_up, _UP, _SERVER_UP),
        scale_down=_or_default(given.scale_down, _DOWN, _SERVER_DOWN),
    )


def _or_default(
    given: ScalingRules | None, ours: ScalingRules, servers: list[ScalingPolicy]
) -> ScalingRules:
    if given is None:
        return ours
    window = given.stabilization_window_seconds
    return ScalingRules(
        stabilization_window_seconds=(
            ours.stabilization_window_seconds if window is None else window
        ),
        select_policy=given.select_policy,
        policies=ours.policies if given.policies in ([], servers) else given.policies,
    )


def limit(
    rules: Behavior,
    bounds: Bounds,
    desired: int,
    history: History,
    last_scaled: float,
    now: float,
) -> Limited:
    """Bound a recommendation by the time since the last change, whoever remembers it."""
    wanted = min(max(desired, bounds.least), bounds.most)
    words = WITHIN
    if wanted != desired:
        words = TOO_MANY if desired > bounds.most else TOO_FEW
    is_up = wanted > bounds.current
    if wanted == bounds.current:
        return Limited(wanted, history, _READY, words, wanted != desired)
    direction = rules.scale_up if is_up else rules.scale_down
    assert direction is not None
    if last_scaled > now:  # written before the clock was put back
        last_scaled = -math.inf
    gap_s = now - max(last_scaled, history.last_scaled(now))
    if gap_s < (direction.stabilization_window_seconds or 0):
        return Limited(
            bounds.current, history, _backing_off(is_up), words, wanted != desired, is_able=False
        )
    step = _step(direction, bounds.current, gap_s)
    if abs(wanted - bounds.current) <= step:
        return Limited(wanted, history, _READY, words, wanted != desired)
    reached = bounds.current + (step if is_up else -step)
    return Limited(reached, history, _READY, UP_LIMIT if is_up else DOWN_LIMIT, True)


def _backing_off(is_up: bool) -> Words:
    name, way = ("BackoffUpscale", "upscale") if is_up else ("BackoffDownscale", "downscale")
    return name, f"the time since the previous scale is still within the {way} forbidden window"


def _step(rules: ScalingRules, current: int, gap_s: float) -> int:
    """How many pods one change may add or take now."""
    if rules.select_policy == "Disabled":
        return 0
    steps = [
        policy.value if policy.type == "Pods" else current * policy.value // 100
        for policy in rules.policies
        if gap_s >= policy.period_seconds
    ]
    choose = min if rules.select_policy == "Min" else max
    return choose(steps, default=0)
