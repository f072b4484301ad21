"""Forecasts for autoscalers, made from the past that the API serves, once a minute each.

The last week at steps of five minutes, or, while less than three hours are known, the last hour at
steps of half a minute.
"""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from motley.api.views.autoscaling import HorizontalPodAutoscaler
from motley.api.views.base import Key
from motley.autoscale import predicting
from motley.autoscale.past import NoPast, Past, Pasts
from motley.autoscale.predicting import Wish
from motley.lib.clock import Clock

if TYPE_CHECKING:  # NumPy is loaded once there is something to forecast
    from motley.autoscale.forecast import Forecast

_EVERY_S = 60.0
_LONG, _SHORT = ("7d", "5m"), ("1h", "30s")
_LEAST_LONG = 36  # steps: three hours


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
        found = await self._made(hpa, asked)
        self._known[hpa.key] = (now + _EVERY_S, _mark(hpa), found)
        return found

    async def _made(self, hpa: HorizontalPodAutoscaler, asked: Wish) -> Ahead:
        target = hpa.spec.scale_target_ref
        of = (hpa.metadata.namespace, target.kind, target.name)
        try:
            pasts = await self._pasts.workload(*of, *_LONG, "avg")
            if not _is_long(pasts):
                pasts = await self._pasts.workload(*of, *_SHORT, "avg")
        except NoPast as error:
            return Ahead(asked, {}, str(error))
        # A week in steps of five minutes takes a tenth of a second: not on the loop.
        found = await asyncio.to_thread(_forecasts, hpa, pasts, asked)
        return Ahead(asked, found, "" if found else "too little is known of the target's past")


def _mark(hpa: HorizontalPodAutoscaler) -> int:
    return hash((hpa.metadata.uid, hpa.metadata.generation, predicting.wish(hpa)))


def _is_long(pasts: Mapping[str, Past]) -> bool:
    known = [[i for i, v in enumerate(p.cpu) if v is not None] for p in pasts.values()]
    return any(places and places[-1] - places[0] >= _LEAST_LONG for places in known)


def _forecasts(
    hpa: HorizontalPodAutoscaler, pasts: Mapping[str, Past], asked: Wish
) -> "dict[int, Forecast]":
    from motley.autoscale import forecast

    found = {}
    step_s = next((p.step_s for p in pasts.values()), 0.0)
    for index, spec in enumerate(hpa.spec.metrics):
        if step_s and predicting.is_predictable(spec):
            # The step in progress is left out: the little known of it may mislead.
            line = predicting.total(spec, pasts)[:-1]
            made = forecast.forecast(line, step_s, asked.horizon_s + step_s)
            if made is not None:
                found[index] = made
    return found
