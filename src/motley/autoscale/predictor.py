"""Forecasts for autoscalers, made from the past that the API serves: once per step of it, and at
most once a minute."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from motley.api.views.autoscaling import HorizontalPodAutoscaler
from motley.api.views.base import Key
from motley.autoscale import past, predicting
from motley.autoscale.past import NoPast, Past, Pasts
from motley.autoscale.predicting import Wish
from motley.lib.clock import Clock

if TYPE_CHECKING:  # NumPy is loaded once there is something to forecast
    from motley.autoscale.forecast import Forecast

_EVERY_S = 60.0


class Ahead(NamedTuple):
    """What is expected of each metric, by its place in the spec; or why nothing is."""

    wish: Wish
    forecasts: "Mapping[int, Forecast]"
    problem: str = ""


class Predictor:
    """Remembers forecasts for a while."""

    def __init__(self, pasts: Pasts, clock: Clock) -> None:
        self._pasts = pasts
        self._clock = clock
        self._known: dict[Key, tuple[float, int, Ahead]] = {}

    def forget(self, key: Key) -> None:
        """The autoscaler is gone."""
        self._known.pop(key, None)

    async def look(self, hpa: HorizontalPodAutoscaler, asked: Wish) -> Ahead:
        """What is expected for this autoscaler's target."""
        now = self._clock.monotonic()
        known = self._known.get(hpa.key)
        if known is not None and now < known[0] and known[1] == _mark(hpa):
            return known[2]
        found, holds_s = await self._made(hpa, asked)
        self._known[hpa.key] = (now + max(_EVERY_S, holds_s), _mark(hpa), found)
        return found

    async def _made(self, hpa: HorizontalPodAutoscaler, asked: Wish) -> tuple[Ahead, float]:
        """And for how long it is the best that can be said: until the past is a step longer."""
        target = hpa.spec.scale_target_ref
        of = (hpa.metadata.namespace, target.kind, target.name)
        try:
            pasts = await past.longest(self._pasts, *of)
        except NoPast as error:
            return Ahead(asked, {}, str(error)), 0.0
        # A week in steps of five minutes takes a tenth of a second: not on the loop.
        now = self._clock.now()
        found = await asyncio.to_thread(_forecasts, hpa, pasts, asked, now)
        if not found:
            return Ahead(asked, {}, "too little is known of the target's past"), 0.0
        first = next(iter(pasts.values()))
        left_s = first.moment(len(first.cpu)) - now
        return Ahead(asked, found), min(left_s, first.step_s)


def _mark(hpa: HorizontalPodAutoscaler) -> int:
    return hash((hpa.metadata.uid, hpa.metadata.generation, predicting.wish(hpa)))


def _forecasts(
    hpa: HorizontalPodAutoscaler, pasts: Mapping[str, Past], asked: Wish, now: float
) -> "dict[int, Forecast]":
    from motley.autoscale import forecast

    found = {}
    first = next(iter(pasts.values()), None)
    for index, spec in enumerate(hpa.spec.metrics):
        if first is not None and predicting.is_predictable(spec):
            line = predicting.total(spec, pasts)
            until = first.moment(len(line)) + asked.horizon_s
            made = forecast.coming(line, first.start, first.step_s, until, now)
            if made is not None:
                found[index] = made
    return found
