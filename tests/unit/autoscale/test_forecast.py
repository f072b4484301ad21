"""Forecasts on loads whose future is known, and what an autoscaler makes of them."""

import math
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motley.api.views.autoscaling import HorizontalPodAutoscaler, MetricSpec
from motley.api.views.pod import Pod
from motley.autoscale import forecast as forecasts
from motley.autoscale import predicting
from motley.autoscale.calculator import MetricError, Tolerances
from motley.autoscale.forecast import Forecast, forecast
from motley.autoscale.hpa import Proposal
from motley.autoscale.past import Past
from motley.autoscale.predicting import Wish

STEP = 300.0
TOLERANCES = Tolerances(0.1, 0.1)


def day(step, base=4.0, swing=3.0):
    return base + swing * math.sin(2 * math.pi * step * STEP / 86400)


def noisy(line, seed=1, share=0.03):
    rng = random.Random(seed)
    return [max(0.0, v * (1 + rng.gauss(0, share))) for v in line]


def test_a_daily_wave_is_foreseen():
    past = noisy([day(i) for i in range(2016)])
    found = forecast(past, STEP, 3600)
    assert found is not None
    assert found.season_s == 86400
    coming = [day(2016 + i) for i in range(12)]
    assert found.values == pytest.approx(coming, rel=0.08)
    assert found.error < 0.08
    naive = sum(abs(past[-1] - v) / v for v in coming) / 12
    mine = sum(abs(f - v) / v for f, v in zip(found.values, coming, strict=True)) / 12
    assert mine < naive / 2, "better than to think that nothing changes"


def test_a_season_that_nobody_named_is_found():
    past = noisy([5 + 4 * math.sin(2 * math.pi * i / 30) for i in range(400)], share=0.05)
    found = forecast(past, STEP, 1500)
    assert found is not None
    assert found.season_s == pytest.approx(30 * STEP, abs=STEP)
    assert found.error < 0.15


def test_growth_goes_on_but_not_for_ever():
    past = noisy([1 + i / 50 for i in range(200)], share=0.01)
    found = forecast(past, STEP, 1800)
    assert found is not None
    assert found.season_s == 0
    assert past[-1] * 0.99 < found.peak <= 1 + 210 / 50


def test_what_does_not_change_is_expected_to_stay():
    found = forecast([2.0] * 100, STEP, 600)
    assert found is not None
    assert found.values == pytest.approx((2.0, 2.0))
    assert found.error == pytest.approx(0.0)


def test_noise_is_told_to_be_hard_to_foresee():
    rng = random.Random(3)
    found = forecast([rng.expovariate(1.0) for _ in range(500)], STEP, 300)
    assert found is not None
    assert found.error > 0.5


def test_little_history_gives_no_forecast():
    assert forecast([1.0] * 10, STEP, 300) is None
    assert forecast([], STEP, 300) is None
    assert forecast([None] * 100, STEP, 300) is None


def test_gaps_are_bridged():
    line = [1.0, None, 3.0, None, None, 6.0, None]
    assert list(forecasts.filled(line)) == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.one_of(st.none(), st.floats(0, 1e3)), min_size=0, max_size=150),
    st.integers(1, 20),
)
def test_whatever_was_used_nothing_negative_or_endless_is_expected(line, ahead):
    found = forecast(line, STEP, ahead * STEP)
    if found is not None:
        assert len(found.values) == ahead
        assert all(v >= 0 and math.isfinite(v) for v in found.values)
        assert math.isfinite(found.error)


def a_metric(percent=50, name="cpu", **more):
    target = {"type": "Utilization", "averageUtilization": percent}
    resource = {"name": name, "target": target, **more}
    return msgspec.convert({"type": "Resource", "resource": resource}, MetricSpec)


def a_pod(cpu="200m"):
    resources = {"requests": {"cpu": cpu}}
    spec = {"containers": [{"name": "app", "resources": resources}]}
    return Pod.of({"metadata": {"name": "p", "namespace": "default"}, "spec": spec})


def expecting(peak, error=0.1):
    return Forecast("Holt-Winters", 3600.0, (peak,), error, 10)


def ahead(peak, now, current=4, error=0.1, may_lower=False):
    proposal = Proposal(now, "cpu", {"type": "Resource"})
    found = predicting.ahead(
        a_metric(),
        proposal,
        expecting(peak, error),
        [a_pod()],
        current,
        TOLERANCES,
        Wish(300, may_lower),
    )
    assert found.current == proposal.current
    return found


def test_pods_are_asked_for_before_the_load_is_there():
    # 100m per pod is what half of the request means.
    found = ahead(peak=1.2, now=4)
    assert found.replicas == 12
    assert found.name == "forecast of cpu for the next 300 s"


def test_a_forecast_takes_no_pod_away_unless_it_may():
    assert ahead(peak=0.1, now=6).replicas == 6
    assert ahead(peak=0.1, now=6, may_lower=True).replicas == 1


def test_a_forecast_that_was_wrong_by_more_than_half_counts_for_nothing():
    assert ahead(peak=1.2, now=4, error=0.6).replicas == 4


def test_within_the_tolerance_nothing_changes():
    assert ahead(peak=0.43, now=4).replicas == 4


def test_without_a_request_there_is_nothing_to_compare_with():
    with pytest.raises(MetricError):
        predicting.target_per_pod(a_metric(), [])


def an_autoscaler(**annotations):
    metadata = {"name": "web", "namespace": "default", "annotations": annotations}
    return HorizontalPodAutoscaler.of({"metadata": metadata})


def test_annotations_say_how_far_ahead():
    assert predicting.wish(an_autoscaler()) is None
    assert predicting.wish(an_autoscaler(**{predicting.AHEAD: "5m"})) == Wish(300, False)
    both = {predicting.AHEAD: "1h", predicting.DOWN: "true"}
    assert predicting.wish(an_autoscaler(**both)) == Wish(3600, True)
    for wrong in ("soon", "5", "1s", "48h"):
        with pytest.raises(ValueError, match="predict"):
            predicting.wish(an_autoscaler(**{predicting.AHEAD: wrong}))


def test_the_use_of_all_containers_or_of_the_one_that_is_meant():
    def a_past(cpu):
        same = [0.0] * len(cpu)
        return Past(0.0, STEP, cpu, same, same, same, same, same)

    pasts = {"app": a_past([1.0, None, 3.0]), "proxy": a_past([0.5, None, None])}
    assert predicting.total(a_metric(), pasts) == [1.5, None, 3.0]
    assert predicting.total(a_metric(container="proxy"), pasts) == [0.5, None, None]
    assert predicting.total(a_metric(), {}) == []
