"""What a container should request, from what its kind has used. Pure.

As Kubernetes' recommender has it: CPU by percentiles of use, memory by percentiles of each day's
peak, the older the lighter (half as heavy every day), plus a margin. Half of the time less than the
lower bound is enough, in one of twenty steps not even the upper one: pods between the two are left
alone. With little to go by the bounds are far apart and close in over the first days.

CPU is in cores of speed 1: what a container uses on a slow node counts for less work there.
Invariant: lower ≤ target ≤ upper, and nothing is below the floor.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from motley.autoscale.past import Past

_DAY_S = 86400.0


@dataclass(frozen=True)
class Settings:
    """What an operator may choose; the defaults are Kubernetes' recommender's, but for the least
    memory, which there is 250 MiB: more than many a container ever uses."""

    every_s: float = 60.0
    lower: float = 0.5
    target: float = 0.9
    upper: float = 0.95
    margin: float = 0.15
    half_life_s: float = _DAY_S
    least_cpu: float = 0.025
    least_memory: float = 32.0 * 2**20
    oom_factor: float = 1.2
    oom_more: float = 100.0 * 2**20
    deferred_s: float = 300.0  # how long a resize may wait for room before a pod is evicted


class Bounds(NamedTuple):
    """CPU in cores of speed 1, memory in bytes."""

    cpu: float
    memory: float


class Oom(NamedTuple):
    """A container was ended for lack of memory: when, and how much would have been enough."""

    at: float
    needed: float


class Recommendation(NamedTuple):
    """What to request, between which bounds pods are left alone, and how much is known."""

    target: Bounds
    lower: Bounds
    upper: Bounds
    confidence: float  # days of samples


class _Weighed(NamedTuple):
    values: list[float]
    weights: list[float]


def recommend(
    mean: Past, highest: Past, now: float, settings: Settings, ooms: Sequence[Oom] = ()
) -> Recommendation | None:
    """From a container's steps: their means for CPU, their peaks for memory, as which those that
    would have been needed count as well. None without a single sample."""
    cpu = _cpu(mean, now, settings)
    memory = _memory(highest, now, settings, ooms)
    if not cpu.values or not memory.values:
        return None
    known = [i for i, pods in enumerate(mean.pods) if pods]
    span_s = mean.moment(known[-1]) - mean.moment(known[0]) + mean.step_s if known else 0.0
    confidence = min(span_s, len(known) * mean.step_s) / _DAY_S
    confidence = max(confidence, 1e-3)

    def at(share: float, factor: float) -> Bounds:
        grown = (1.0 + settings.margin) * factor
        return Bounds(
            max(percentile(cpu, share) * grown, settings.least_cpu),
            max(percentile(memory, share) * grown, settings.least_memory),
        )

    return Recommendation(
        at(settings.target, 1.0),
        at(settings.lower, (1.0 + 0.001 / confidence) ** -2),
        at(settings.upper, 1.0 + 1.0 / confidence),
        confidence,
    )


def _cpu(past: Past, now: float, settings: Settings) -> _Weighed:
    """One value for the largest pod of each step, and one for the mean of the others."""
    found = _Weighed([], [])
    steps = zip(past.cpu_normalized, past.cpu_pod_max, past.pods, strict=True)
    for index, (total, largest, pods) in enumerate(steps):
        if total is None or largest is None or not pods:
            continue
        weight = 0.5 ** ((now - past.moment(index)) / settings.half_life_s)
        found.values.append(largest)
        found.weights.append(weight)
        if pods > 1:
            found.values.append(max(0.0, total - largest) / (pods - 1))
            found.weights.append(weight * (pods - 1))
    return found


def _memory(past: Past, now: float, settings: Settings, ooms: Iterable[Oom]) -> _Weighed:
    """The peak of each of the last days, counted back from now."""
    peaks: dict[int, float] = {}
    for index, peak in enumerate(past.memory_pod_max):
        if peak is not None and past.pods[index]:
            day = int(max(0.0, now - past.moment(index)) // _DAY_S)
            peaks[day] = max(peaks.get(day, 0.0), peak)
    for oom in ooms:
        day = int(max(0.0, now - oom.at) // _DAY_S)
        peaks[day] = max(peaks.get(day, 0.0), oom.needed)
    weights = [0.5 ** (day * _DAY_S / settings.half_life_s) for day in peaks]
    return _Weighed(list(peaks.values()), weights)


def enough(limit: float, settings: Settings) -> float:
    """What a container needs that was ended at this limit, as far as anybody can tell."""
    return max(limit * settings.oom_factor, limit + settings.oom_more)


def percentile(of: _Weighed, share: float) -> float:
    """The least value that this share of the weight does not exceed."""
    enough, reached = share * sum(of.weights) * (1 - 1e-9), 0.0
    listed = sorted(zip(of.values, of.weights, strict=True))
    for value, weight in listed:
        reached += weight
        if reached >= enough:
            return value
    return listed[-1][0]


def differs(have: Bounds, wanted: Recommendation) -> str:
    """Why a pod is to be changed; empty: it may stay as it is. NaN is what it does not control."""
    for name in Bounds._fields:
        now, low, high = (getattr(b, name) for b in (have, wanted.lower, wanted.upper))
        if math.isnan(now):
            continue
        if now < low:
            return f"requests less {name} than the lower bound"
        if now > high:
            return f"requests more {name} than the upper bound"
    return ""
