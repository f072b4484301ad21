"""Forecasts as autoscalers of any Kubernetes ask for them, and what is said where there is none."""

import asyncio
import json
import math
import random
from pathlib import Path

import msgspec
import pytest
import yaml

from motley.api import status
from motley.api.views.autoscaling import MetricSpec
from motley.apiserver import request
from motley.autoscale import expecting
from motley.autoscale.expecting import Expectations, UnknownWorkload, Wanted
from motley.autoscale.past import NoPast, Past
from motley.autoscale.readers import Readers
from motley.autoscale.scales import Mapper
from motley.metrics.forecast_api import METRICS, ForecastMetrics, amount, chosen
from motley.metrics.forecast_extension import reader_role
from motley.metrics.history_times import duration_s

ROOT = "/apis/external.metrics.k8s.io/v1beta1"
NOON = 1_700_006_400.0 - 1_700_006_400.0 % 86400 + 43200
MIB = 1 << 20


class Clock:
    def __init__(self, at):
        self.at = at

    def now(self):
        return self.at

    def monotonic(self):
        return self.at


class Remembered:
    """The past of Deployment shop/web: what `load` says, from `since` to `until`."""

    def __init__(self, clock, load, since, until=math.inf, containers=("app",)):
        self.clock, self.load = clock, load
        self.since, self.until = since, until
        self.containers = containers
        self.asked = []

    async def workload(self, namespace, kind, name, back, step, aggregation):
        self.asked.append((back, step))
        if (namespace, kind, name) != ("shop", "Deployment", "web"):
            return {}
        now, step_s = self.clock.now(), int(duration_s(step))
        start = int(now - duration_s(back)) // step_s * step_s
        count = -(-int(now - start) // step_s)
        moments = [start + i * step_s for i in range(count)]
        cpu = [self.load(at) if self.since <= at <= self.until else None for at in moments]
        memory = [None if v is None else v * 100 * MIB for v in cpu]
        half = [None if v is None else v / 2 for v in cpu]
        one = Past(float(start), float(step_s), cpu, half, memory, cpu, memory, cpu)
        return dict.fromkeys(self.containers, one)


def an_hour(at):
    """Lowest at noon, highest half an hour later."""
    return 2.5 - 2.0 * math.cos(2 * math.pi * (at - NOON) / 3600)


def metrics(load=an_hour, at=NOON + 20, days=2.0, until=math.inf, containers=("app",)):
    clock = Clock(at)
    pasts = Remembered(clock, load, at - days * 86400, until, containers)
    return ForecastMetrics(pasts, clock), pasts, clock


async def get(served, path, selector=None):
    query = b"" if selector is None else f"labelSelector={selector}".encode()
    info = request.parse("GET", f"{ROOT}{path}", query)
    return json.loads((await served.handle(info, {})).body)


async def value(served, metric="motley_forecast_cpu", selector="workload=web"):
    listed = await get(served, f"/namespaces/shop/{metric}", selector)
    assert listed["kind"] == "ExternalMetricValueList"
    assert listed["apiVersion"] == "external.metrics.k8s.io/v1beta1"
    (item,) = listed["items"]
    assert item["metricName"] == metric
    return item


async def test_a_peak_that_comes_every_hour_is_told_before_it_comes():
    served, _, _ = metrics()
    item = await value(served, selector="workload=web,kind=Deployment,ahead=30m")
    cores = int(item["value"].removesuffix("m")) / 1000
    assert cores == pytest.approx(4.5, rel=0.1)
    labels = item["metricLabels"]
    assert (labels["workload"], labels["ahead"]) == ("web", "30m")
    assert (labels["source"], labels["measured"]) == ("forecast", "500m")
    assert (labels["season"], labels["model"]) == ("1h", "Holt-Winters")
    assert float(labels["error"].removesuffix("%")) < 10
    assert item["timestamp"] == "2023-11-15T12:00:20Z"


async def test_who_looks_less_far_ahead_sees_less():
    served, _, _ = metrics()
    found = [await value(served, selector=f"workload=web,ahead={a}") for a in ("5m", "15m", "30m")]
    cores = [int(item["value"].removesuffix("m")) for item in found]
    assert cores == sorted(cores)
    assert cores[0] < 1500 < cores[1] < 3500 < cores[2]


async def test_memory_is_in_bytes_and_cpu_also_in_cores_of_speed_one():
    served, _, _ = metrics(load=lambda at: 2.0)
    assert (await value(served, "motley_forecast_memory"))["value"] == str(200 * MIB)
    assert (await value(served, "motley_forecast_cpu_normalized"))["value"] == "1"
    assert (await value(served, "motley_forecast_cpu"))["value"] == "2"


async def test_containers_are_added_up_or_one_is_meant():
    served, _, _ = metrics(load=lambda at: 2.0, containers=("app", "sidecar"))
    assert (await value(served))["value"] == "4"
    assert (await value(served, selector="workload=web,container=app"))["value"] == "2"
    with pytest.raises(status.NotFound, match="container none"):
        await value(served, selector="workload=web,container=none")


async def test_of_a_load_that_falls_what_is_used_now_is_told():
    served, _, _ = metrics(at=NOON + 1820)
    item = await value(served, selector="workload=web,ahead=10m")
    assert item["value"] == item["metricLabels"]["measured"] == "4500m"
    assert item["metricLabels"]["source"] == "forecast"


async def test_while_little_is_known_what_is_used_now_is_told():
    served, _, _ = metrics(load=lambda at: 0.7, days=5 / 60 / 24)
    item = await value(served)
    assert item["value"] == "700m"
    assert item["metricLabels"]["source"] == "measured"
    assert item["metricLabels"]["reason"] == "too little history"


async def test_a_forecast_that_was_wrong_by_more_than_half_counts_for_nothing():
    rng = random.Random(1)
    noise = {}

    def wild(at):
        return noise.setdefault(at // 300, 10 ** rng.uniform(-3, 1))

    served, _, _ = metrics(load=wild)
    item = await value(served)
    labels = item["metricLabels"]
    assert float(labels["error"].removesuffix("%")) > 50
    assert (labels["source"], labels["reason"]) == ("measured", "too inaccurate")
    assert item["value"] == labels["measured"] != labels["expected"]


@pytest.mark.parametrize(
    ("selector", "said"),
    [
        ("", "workload=NAME"),
        ("workload=", "workload=NAME"),
        ("kind=Deployment", "workload=NAME"),
        ("workload!=web", "one value"),
        ("workload in (web,api)", "one value"),
        ("workload", "one value"),
        ("workload=web,workload=api", "one value"),
        ("workload=web,app=web", "no label app"),
        ("workload=web,ahead=soon", "no duration"),
        ("workload=web,ahead=7h", "between 10s and 6h"),
        ("workload=web,ahead=1s", "between 10s and 6h"),
        ("workload=web,", "identifier after"),
        ("=web", "found '='"),
    ],
)
async def test_a_selector_that_does_not_choose_one_forecast_is_refused(selector, said):
    served, _, _ = metrics()
    with pytest.raises(status.BadRequest, match=said):
        await value(served, selector=selector)


def test_a_selector_may_be_written_as_a_set():
    assert chosen("workload in (web)") == chosen("workload==web")
    assert chosen("workload=web") == {
        "workload": "web",
        "kind": "Deployment",
        "ahead": "5m",
        "container": "",
    }


async def test_of_a_workload_nobody_measured_an_error_tells():
    """An empty list or nought would be taken for no load."""
    served, _, _ = metrics()
    with pytest.raises(status.NotFound, match="nothing was measured of Deployment shop/wep"):
        await value(served, selector="workload=wep")
    with pytest.raises(status.NotFound, match="StatefulSet shop/web"):
        await value(served, selector="workload=web,kind=StatefulSet")


async def test_where_measuring_has_stopped_an_error_tells():
    served, _, _ = metrics(until=NOON - 900)
    with pytest.raises(status.ServiceUnavailable, match="for ten minutes"):
        await value(served)


async def test_what_cannot_be_read_is_said_to_be_unavailable():
    class Broken:
        async def workload(self, *asked):
            raise NoPast("the disk is gone")

    with pytest.raises(status.ServiceUnavailable, match="the disk is gone"):
        await value(ForecastMetrics(Broken(), Clock(NOON)))


async def test_discovery_lists_the_metrics_as_adapters_do():
    served, _, _ = metrics()
    listed = await get(served, "")
    assert listed["kind"] == "APIResourceList"
    assert listed["groupVersion"] == "external.metrics.k8s.io/v1beta1"
    assert [r["name"] for r in listed["resources"]] == list(METRICS)
    assert {r["kind"] for r in listed["resources"]} == {"ExternalMetricValueList"}
    assert all(r["namespaced"] and r["verbs"] == ["get"] for r in listed["resources"])


@pytest.mark.parametrize(
    "path",
    [
        "/namespaces/shop/queue_length",
        "/namespaces/shop/motley_forecast_cpu/web",
        "/motley_forecast_cpu",
        "/namespaces/shop",
    ],
)
async def test_other_metrics_and_other_paths_are_not_found(path):
    served, _, _ = metrics()
    with pytest.raises(status.NotFound):
        await get(served, path, "workload=web")


async def test_a_metric_is_only_read():
    served, _, _ = metrics()
    path = f"{ROOT}/namespaces/shop/motley_forecast_cpu"
    for method, query in (("POST", b""), ("DELETE", b""), ("GET", b"watch=true")):
        with pytest.raises(status.MethodNotAllowed):
            await served.handle(request.parse(method, path, query), {})


@pytest.mark.parametrize(
    ("name", "amount_", "text"),
    [
        ("cpu", 0.0, "0"),
        ("cpu", 0.0001, "1m"),
        ("cpu", 0.5, "500m"),
        ("cpu", 0.5001, "501m"),
        ("cpu", 0.1 + 0.2, "300m"),
        ("cpu", 3.0, "3"),
        ("cpu_normalized", 12.345, "12345m"),
        ("memory", 1.5, "2"),
        ("memory", 3.0 * MIB, "3145728"),
    ],
)
def test_amounts_are_rounded_up(name, amount_, text):
    assert amount(name, amount_) == text


@pytest.mark.parametrize("at", [NOON, NOON + 0.5, NOON + 150, NOON + 299.5])
async def test_the_moment_of_asking_within_a_step_does_not_matter(at, fits):
    clock = Clock(at)
    expectations = Expectations(Remembered(clock, an_hour, NOON - 86400), clock)
    first = await expectations.look(wanted())
    assert (await expectations.look(wanted())).forecast is first.forecast
    assert len(fits) == 1
    assert first.value >= an_hour(NOON + 300) - 1e-6


def test_motley_and_the_manifest_let_the_same_people_look():
    path = Path(__file__).parents[3] / "deploy/forecasts/external-metrics.yaml"
    mine = reader_role()
    (theirs,) = [
        document
        for document in yaml.safe_load_all(path.read_text())
        if document["metadata"]["name"] == "motley-history:forecast-reader"
    ]
    assert theirs["rules"] == mine["rules"]
    assert theirs["metadata"]["labels"] == mine["metadata"]["labels"]
    # Who takes the manifest away again must not take Motley's own role.
    assert theirs["metadata"]["name"] != mine["metadata"]["name"]


def wanted(ahead_s=600, name="web"):
    return Wanted("shop", "Deployment", name, "cpu", ahead_s)


@pytest.fixture
def fits(monkeypatch):
    """Counts the forecasts that are really made."""
    made = []
    real = expecting._made

    def counted(pasts, asked, now):
        made.append(asked)
        return real(pasts, asked, now)

    monkeypatch.setattr(expecting, "_made", counted)
    return made


async def test_a_forecast_is_made_once_per_step_of_its_past(fits):
    clock = Clock(NOON)
    expectations = Expectations(Remembered(clock, an_hour, NOON - 86400), clock)
    first = await expectations.look(wanted())
    clock.at = NOON + 299
    again = await expectations.look(wanted())
    assert again.forecast is first.forecast
    assert again.measured > first.measured, "what is used now is looked at every time"
    assert len(fits) == 1
    clock.at = NOON + 301
    later = await expectations.look(wanted())
    assert len(fits) == 2
    assert later.value > first.value


async def test_who_asks_for_the_same_at_the_same_time_waits_for_one_forecast(fits):
    clock = Clock(NOON)
    expectations = Expectations(Remembered(clock, an_hour, NOON - 86400), clock)
    found = await asyncio.gather(*(expectations.look(wanted()) for _ in range(20)))
    assert len({e.forecast for e in found}) == 1
    assert len(fits) == 1


async def test_only_so_many_forecasts_are_remembered_and_those_asked_for_stay(fits):
    clock = Clock(NOON)
    pasts = Remembered(clock, lambda at: 1.0, NOON - 86400)
    expectations = Expectations(pasts, clock, most=2)
    for ahead_s in (60, 120, 60, 180, 60, 120):
        await expectations.look(wanted(ahead_s))
    assert [w.ahead_s for w in fits] == [60, 120, 180, 120]


async def test_unknown_workloads_are_not_remembered():
    clock = Clock(NOON)
    expectations = Expectations(Remembered(clock, an_hour, NOON), clock)
    for i in range(10):
        with pytest.raises(UnknownWorkload):
            await expectations.look(wanted(name=f"w{i}"))
    assert not expectations._known


async def test_a_clock_that_is_set_back_does_not_keep_a_forecast_for_ever(fits):
    clock = Clock(NOON)
    expectations = Expectations(Remembered(clock, an_hour, NOON - 3 * 86400), clock)
    await expectations.look(wanted())
    clock.at = NOON - 3600
    await expectations.look(wanted())
    assert len(fits) == 2


async def test_after_a_pause_in_measuring_the_pause_is_looked_over():
    """What is ahead is counted from now, not from the last that is known."""
    clock = Clock(NOON)

    def paused(at):
        return None if NOON - 1500 <= at < NOON - 300 else an_hour(at)

    expectations = Expectations(Remembered(clock, paused, NOON - 2 * 86400), clock)
    found = await expectations.look(wanted(1200))
    assert found.is_trusted
    assert found.value == pytest.approx(an_hour(NOON + 1200), rel=0.05)


async def test_motleys_own_autoscaler_reads_the_metric():
    served, _, _ = metrics()

    class Server:
        async def raw(self, method, path, *, params=None, body=None):
            query = "&".join(f"{k}={v}" for k, v in (params or {}).items()).encode()
            info = request.parse(method, path, query)
            return json.loads((await served.handle(info, {})).body)

    labels = {"workload": "web", "kind": "Deployment", "ahead": "30m"}
    spec = {
        "type": "External",
        "external": {
            "metric": {"name": "motley_forecast_cpu", "selector": {"matchLabels": labels}},
            "target": {"type": "AverageValue", "averageValue": "500m"},
        },
    }
    readers = Readers(Server(), Mapper(Server()))
    milli = await readers.read(msgspec.convert(spec, MetricSpec), "shop", "app=web")
    assert milli == pytest.approx(4500, rel=0.1)
