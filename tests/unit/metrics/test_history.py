"""Questions about the past, and what the samples are made of."""

import math

import pytest

from motley.api import status
from motley.metrics import history_rollup
from motley.metrics.export import points, text
from motley.metrics.history import NODE, POD, WORKLOAD, History, Question, Sample, Series
from motley.metrics.history_group import question
from motley.metrics.history_ring import Ring
from motley.metrics.history_rollup import Fact, Owner
from motley.metrics.history_times import duration_s, moment
from motley.metrics.usage import PodUse, Use

NOW = 1_800_000_000
WEB = Series(WORKLOAD, "default", "web", "Deployment", "app")


def a_use(milli, mebi):
    return Use(NOW, 10.0, milli * 10**6, mebi << 20)


@pytest.fixture
def history():
    made = History(Ring(None, 8))
    for i in range(60):
        cpu = float(i % 10)
        made.write(NOW + 10 * i, {WEB: Sample(cpu, cpu * 2, 1.0, cpu, 1.0, 2.0)})
    return made


@pytest.mark.parametrize(
    ("aggregation", "wanted"),
    [("avg", 4.5), ("max", 9.0), ("min", 0.0), ("p50", 4.5), ("p90", 8.1), ("p99.9", 8.991)],
)
def test_steps_are_summed_up_as_asked(history, aggregation, wanted):
    window = history.read(WEB, Question(NOW, NOW + 600, 100, aggregation), NOW + 600)
    assert window.step_s == 100
    assert window.figures["cpu"][1:] == pytest.approx([wanted] * 5)
    assert window.figures["cpuNormalized"][1] == pytest.approx(2 * wanted)


def test_what_is_not_known_is_a_gap(history):
    window = history.read(WEB, Question(NOW - 100, NOW + 50, 50), NOW + 600)
    assert [math.isnan(v) for v in window.figures["cpu"]] == [True, True, False]


def test_beyond_the_last_hour_a_step_is_five_minutes_at_least(history):
    window = history.read(WEB, Question(NOW, NOW + 600, 10), NOW + 7200)
    assert window.step_s == 300
    assert window.figures["cpu"] == pytest.approx([4.5, 4.5])


@pytest.mark.parametrize(
    "asked",
    [
        (NOW, NOW, 10, "avg"),
        (NOW, NOW + 10, 0, "avg"),
        (NOW, NOW + 10, 10, "p100x"),
        (0, NOW, 10, "avg"),
    ],
)
def test_a_question_that_is_none_is_refused(asked):
    with pytest.raises(ValueError, match=r"from|step|aggregation"):
        Question(*asked)


def test_a_request_is_a_question():
    asked = {"from": "-2h", "to": "-1h", "step": "1m", "aggregation": "max"}
    found = question(lambda name: asked.get(name, ""), NOW)
    assert found == Question(NOW - 7200, NOW - 3600, 60, "max")
    assert question(lambda _: "", NOW) == Question(NOW - 3600, NOW, 60, "avg")
    with pytest.raises(status.BadRequest, match="no duration"):
        question(lambda name: "soon" if name == "step" else "", NOW)


def test_moments_and_durations_are_read_as_people_write_them():
    assert duration_s("1h30m") == 5400
    assert duration_s("7d") == 604800
    assert moment("2027-01-15T08:00:00Z", NOW) == NOW
    assert moment(str(NOW), 0) == NOW
    with pytest.raises(ValueError, match="no moment"):
        moment("yesterday", NOW)


def test_a_workload_is_the_sum_of_its_pods_over_replicas_and_nodes():
    pods = {
        ("default", "web-1"): PodUse("default", "web-1", {"app": a_use(100, 10)}),
        ("default", "web-2"): PodUse("default", "web-2", {"app": a_use(300, 30)}),
        ("default", "gone"): PodUse("default", "gone", {"app": a_use(900, 90)}),
    }
    owner = Owner("Deployment", "web")
    facts = {("default", "web-1"): Fact("fast", owner), ("default", "web-2"): Fact("slow", owner)}
    nodes = {"fast": a_use(1000, 100), "slow": a_use(400, 50)}
    found = history_rollup.samples(nodes, pods, facts, {"fast": 2.0, "slow": 0.5})
    web = found[WEB]
    assert web.cpu == pytest.approx(0.4)
    assert web.cpu_normalized == pytest.approx(0.1 * 2 + 0.3 * 0.5)
    assert web.cpu_pod_max == pytest.approx(0.2)
    assert (web.memory, web.memory_pod_max, web.pods) == (40 << 20, 30 << 20, 2.0)
    assert found[Series(NODE, "", "slow")].cpu_normalized == pytest.approx(0.2)
    assert found[Series(POD, "default", "web-1", container="app")].cpu == pytest.approx(0.1)
    assert not [s for s in found if s.name == "gone"]


def test_a_speed_is_what_a_person_says_else_an_estimate_else_one():
    label, estimate = {"hice.kj": "0.5"}, {"motley.io/estimated-speed": "0.7"}
    assert history_rollup.speed(label, estimate) == 0.5
    assert history_rollup.speed({}, estimate) == 0.7
    assert history_rollup.speed({"hice.kj": "fast"}, {}) == 1.0
    assert history_rollup.speed({"hice.kj": "-1"}, {}) == 1.0


def test_the_text_to_scrape_names_node_and_workload_and_escapes_values():
    sample = Sample(0.25, 0.125, 1024.0, 0.125, 1024.0, 1.0)
    series = Series(POD, "default", "web-1", container='a"b')
    facts = {("default", "web-1"): Fact("n-1", Owner("Deployment", "web"))}
    written = text(points({series: sample}, facts, {"n-1": 0.5}), NOW)
    labels = (
        'container="a\\"b",namespace="default",node="n-1",pod="web-1",'
        'workload="web",workload_kind="Deployment"'
    )
    stamp = f"{NOW}000"
    assert f"motley_container_cpu_usage_cores{{{labels}}} 0.25 {stamp}\n" in written
    assert f"motley_container_cpu_usage_normalized_cores{{{labels}}} 0.125 {stamp}\n" in written
    assert f'motley_node_speed{{node="n-1"}} 0.5 {stamp}\n' in written
