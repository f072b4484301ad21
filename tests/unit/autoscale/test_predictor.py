"""Forecasts for autoscalers out of pasts that are not as whole as one would like."""

import math
from types import SimpleNamespace

from motley.api.views.autoscaling import HorizontalPodAutoscaler
from motley.autoscale.past import Past
from motley.autoscale.predicting import Wish
from motley.autoscale.predictor import Predictor

STEP = 300.0
NOW = 1_700_000_000.0 // 3600 * 3600


def load(at):
    """Every hour the same: ten minutes at five cores, the rest at one."""
    return 5.0 if at % 3600 < 600 else 1.0


class Pasts:
    """Two days, of which the end may be missing."""

    def __init__(self, now, missing_s=0.0):
        self.now, self.missing_s = now, missing_s
        self.asked = 0

    async def workload(self, *_):
        self.asked += 1
        start = math.floor((self.now - 2 * 86400) / STEP) * STEP
        moments = [start + i * STEP for i in range(int((self.now - start) // STEP) + 1)]
        figures = [load(at) if at < self.now - self.missing_s else None for at in moments]
        return {"c": Past(start, STEP, figures, figures, figures, figures, figures, figures)}


def an_autoscaler():
    target = {"type": "AverageValue", "averageValue": "1"}
    metric = {"type": "Resource", "resource": {"name": "cpu", "target": target}}
    return HorizontalPodAutoscaler.of(
        {
            "metadata": {"name": "web", "namespace": "d", "uid": "u"},
            "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "metrics": [metric]},
        }
    )


async def expected(now, missing_s, horizon_s=600):
    clock = SimpleNamespace(now=lambda: now, monotonic=lambda: 0.0)
    predictor = Predictor(Pasts(now, missing_s), clock)
    found = await predictor.look(an_autoscaler(), Wish(horizon_s, False))
    return found.forecasts[0].peak


async def test_a_forecast_is_of_the_time_to_come_also_where_the_last_half_hour_is_missing():
    for missing_s in (0.0, 1800.0, 3000.0):
        assert await expected(NOW + 1500, missing_s) < 2.0, "calm from 12:25 to 12:40"
        assert await expected(NOW + 3300, missing_s) > 4.0, "busy at 13:00"


async def test_a_forecast_is_made_once_per_step_of_the_past():
    """It takes a tenth of a second of a processor: every minute would be too often for many."""
    pasts = Pasts(NOW + 10)
    clock = SimpleNamespace(now=lambda: pasts.now, monotonic=lambda: pasts.now)
    predictor, peaks = Predictor(pasts, clock), []
    while pasts.now < NOW + 3600:
        found = await predictor.look(an_autoscaler(), Wish(600, False))
        peaks.append(found.forecasts[0].peak > 4.0)
        pasts.now += 15.0
    assert pasts.asked <= 13, "an hour of five-minute steps"
    assert (peaks[0], peaks[-1]) == (True, True), "busy at the full hour"
    assert not any(peaks[60:160])
