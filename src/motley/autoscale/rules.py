"""How fast to follow a recommendation: stabilisation, rates and bounds. Pure.

A recommendation is first steadied: of the recent ones the highest counts on the way down and the
lowest on the way up. Then the rates bound it: so many pods, or such a share, in a period.
Without `spec.behavior` the older, fixed rules hold: double (or four) at most, and the operator's
window on the way down.

Invariant: the result lies between the bounds whenever the target did, and no period of a policy
sees a larger change than its policy allows.
"""

import math
from dataclasses import dataclass, replace

from motley.api import quantity
from motley.api.views.autoscaling import (
    Behavior,
    HorizontalPodAutoscaler,
    ScalingPolicy,
    ScalingRules,
)
from motley.autoscale.calculator import MAX_REPLICAS, Settings, Tolerances

_UP_FACTOR, _UP_AT_LEAST = 2, 4
WITHIN = ("DesiredWithinRange", "the desired count is within the acceptable range")
_READY = ("ReadyForNewScale", "recommended size matches current size")
TOO_MANY = ("TooManyReplicas", "the desired replica count is more than the maximum replica count")
TOO_FEW = ("TooFewReplicas", "the desired replica count is less than the minimum replica count")
UP_LIMIT = (
    "ScaleUpLimit",
    "the desired replica count is increasing faster than the maximum scale rate",
)
DOWN_LIMIT = (
    "ScaleDownLimit",
    "the desired replica count is decreasing faster than the maximum scale rate",
)
_UP_STEADIED = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
)
_DOWN_STEADIED = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent"
    " recommendation",
)

Words = tuple[str, str]
"""Reason and message of a condition."""


@dataclass(frozen=True)
class History:
    """What was recommended and done for one autoscaler, as (moment, pods)."""

    recommendations: tuple[tuple[float, int], ...] = ()
    ups: tuple[tuple[float, int], ...] = ()
    downs: tuple[tuple[float, int], ...] = ()

    def begun(self, current: int, now: float) -> "History":
        """At first sight the present size counts as recommended: a restart shrinks nothing, nor
        does a clock that is put back."""
        if any(at <= now for at, _ in self.recommendations):
            return self
        return replace(self, recommendations=((now, current),))

    def recommended(self, replicas: int, now: float, keep_s: float) -> "History":
        """With one more recommendation, without those nobody asks for any longer."""
        # Those of the future were made before the clock was put back: nobody would forget them.
        kept = tuple(r for r in self.recommendations if now - keep_s <= r[0] <= now)
        return replace(self, recommendations=(*kept, (now, replicas)))

    def scaled(self, before: int, after: int, now: float, keep_s: float) -> "History":
        """With one more change of the target."""
        ups, downs = (
            tuple(e for e in listed if now - keep_s <= e[0] <= now)
            for listed in (self.ups, self.downs)
        )
        if after > before:
            return replace(self, ups=(*ups, (now, after - before)), downs=downs)
        return replace(self, ups=ups, downs=(*downs, (now, before - after)))

    def last_scaled(self, now: float) -> float:
        """When the target was last changed; never is minus infinity."""
        changes = (at for at, _ in (*self.ups, *self.downs) if at <= now)
        return max(changes, default=-math.inf)


@dataclass(frozen=True)
class Limited:
    """What rules made of a recommendation, and how they say so."""

    replicas: int
    history: History
    able: Words  # condition AbleToScale
    limited: Words  # condition ScalingLimited
    is_limited: bool
    is_able: bool = True


@dataclass(frozen=True)
class Bounds:
    """Where the target is and where it may go."""

    current: int
    least: int
    most: int


def tolerances(hpa: HorizontalPodAutoscaler, settings: Settings) -> Tolerances:
    """The operator's, unless the autoscaler brings its own."""
    behavior = hpa.spec.behavior or Behavior()

    def of(rules: ScalingRules | None) -> float:
        if rules is None or rules.tolerance is None:
            return settings.tolerance
        return float(quantity.parse(rules.tolerance))

    return Tolerances(of(behavior.scale_down), of(behavior.scale_up))


def limit(
    behavior: Behavior | None,
    bounds: Bounds,
    desired: int,
    history: History,
    now: float,
    settings: Settings,
) -> Limited:
    """Steady and bound a recommendation, by Kubernetes' rules."""
    if behavior is None:
        return _limit_plainly(bounds, desired, history, now, settings)
    up = behavior.scale_up or ScalingRules()
    down = behavior.scale_down or ScalingRules()
    steady, after = _steadied(up, down, bounds, desired, history, now, settings)
    able = _READY
    if steady != desired:
        able = _UP_STEADIED if desired >= bounds.current else _DOWN_STEADIED
    replicas, words = _at_rate(up, down, bounds, steady, history, now)
    return Limited(replicas, after, able, words, replicas != steady)


def longest_period_s(behavior: Behavior | None) -> float:
    """How long changes must be remembered."""
    rules = [] if behavior is None else [behavior.scale_up, behavior.scale_down]
    return max((p.period_seconds for r in rules if r for p in r.policies), default=0)


def _limit_plainly(
    bounds: Bounds, desired: int, history: History, now: float, settings: Settings
) -> Limited:
    window_s = settings.downscale_stabilization_s
    recent = [r for at, r in history.recommendations if now - window_s <= at <= now]
    steady = max([desired, *recent])
    after = history.recommended(desired, now, window_s)
    able = _READY if steady == desired else _DOWN_STEADIED
    ceiling = max(_UP_FACTOR * bounds.current, _UP_AT_LEAST)
    most, words = (ceiling, UP_LIMIT) if bounds.most > ceiling else (bounds.most, TOO_MANY)
    if steady < bounds.least:
        return Limited(bounds.least, after, able, TOO_FEW, True)
    if steady > most:
        return Limited(most, after, able, words, True)
    return Limited(steady, after, able, WITHIN, False)


def _steadied(
    up: ScalingRules,
    down: ScalingRules,
    bounds: Bounds,
    desired: int,
    history: History,
    now: float,
    settings: Settings,
) -> tuple[int, History]:
    up_s = float(up.stabilization_window_seconds or 0)
    given = down.stabilization_window_seconds
    down_s = settings.downscale_stabilization_s if given is None else float(given)
    lowest = min([desired, *(r for at, r in history.recommendations if now - up_s < at <= now)])
    highest = max([desired, *(r for at, r in history.recommendations if now - down_s < at <= now)])
    steady = min(max(bounds.current, lowest), highest)
    return steady, history.recommended(desired, now, max(up_s, down_s))


def _at_rate(
    up: ScalingRules, down: ScalingRules, bounds: Bounds, steady: int, history: History, now: float
) -> tuple[int, Words]:
    current = bounds.current
    if steady > current:
        ceiling = max(current, _up_limit(up, current, history, now))
        most, words = (ceiling, UP_LIMIT) if bounds.most > ceiling else (bounds.most, TOO_MANY)
        if steady > most:
            return most, words
    elif steady < current:
        floor = min(current, _down_limit(down, current, history, now))
        least, words = (floor, DOWN_LIMIT) if bounds.least < floor else (bounds.least, TOO_FEW)
        if steady < least:
            return least, words
    return steady, WITHIN


def _at_start(policy: ScalingPolicy, current: int, history: History, now: float) -> int:
    """How many there were when the period began that ends now."""
    since = now - policy.period_seconds
    added = sum(n for at, n in history.ups if since < at <= now)
    taken = sum(n for at, n in history.downs if since < at <= now)
    return current - added + taken


def _up_limit(rules: ScalingRules, current: int, history: History, now: float) -> int:
    if rules.select_policy == "Disabled":
        return current
    limits = []
    for policy in rules.policies:
        start = _at_start(policy, current, history, now)
        if policy.type == "Pods":
            limits.append(start + policy.value)
        else:  # rounded up: a share of a few pods must still be able to grow
            limits.append(-(-start * (100 + policy.value) // 100))
    choose = min if rules.select_policy == "Min" else max
    return choose(limits, default=MAX_REPLICAS)


def _down_limit(rules: ScalingRules, current: int, history: History, now: float) -> int:
    if rules.select_policy == "Disabled":
        return current
    limits = []
    for policy in rules.policies:
        start = _at_start(policy, current, history, now)
        if policy.type == "Pods":
            limits.append(start - policy.value)
        else:
            limits.append(int(start * (100 - policy.value) / 100))
    choose = max if rules.select_policy == "Min" else min
    return choose(limits, default=0)
