"""The past at its edges: steps that have just begun, clocks that were wrong, many series."""

import numpy as np
import pytest

from motley.metrics import follower
from motley.metrics.history import NODE, POD, WORKLOAD, History, Question, Sample, Series
from motley.metrics.history_ring import COARSE, FINE, QUANTITIES, Ring

START = 1_700_000_100.0 // 300 * 300


def a_sample(value):
    return Sample(value, value, value, value, value, 1.0)


@pytest.mark.parametrize(("step_s", "level_s"), [(10.0, 10), (300.0, 300)])
def test_a_step_that_began_a_moment_ago_is_part_of_the_answer(step_s, level_s):
    history = History(Ring(series=4))
    node = Series(NODE, "", "n")
    history.write(START - level_s, {node: a_sample(1.0)})
    history.write(START + 0.2, {node: a_sample(2.0)})
    now = START + 0.5
    window = history.read(node, Question(START - level_s, now, step_s), now)
    assert window.figures["cpu"].tolist() == [1.0, 2.0]


def naive(records, start, step_s, steps, aggregation):
    """As it is meant, figure by figure."""
    figures = np.full((steps, len(QUANTITIES)), np.nan)
    places = (records.starts - start) // step_s
    for place in set(places.tolist()):
        chosen = places == place
        means = records.means[chosen].astype(np.float64)
        if aggregation == "max":
            figures[place] = records.highest[chosen].max(axis=0)
        elif aggregation == "min":
            figures[place] = means.min(axis=0)
        elif aggregation == "avg":
            figures[place] = np.average(means, axis=0, weights=records.counts[chosen])
        else:
            figures[place] = np.percentile(means, float(aggregation[1:]), axis=0)
    return figures


@pytest.mark.parametrize("aggregation", ["avg", "max", "min", "p50", "p95"])
@pytest.mark.parametrize("step_s", [10.0, 30.0, 70.0, 300.0, 3600.0])
def test_every_step_has_the_figure_of_its_own_records(aggregation, step_s):
    ring = Ring(series=4)
    history, node = History(ring), Series(NODE, "", "n")
    rng = np.random.default_rng(3)
    for at in np.sort(rng.uniform(0, 3500, 300)):  # some steps have many, some none
        if not 900 < at < 1800:
            history.write(START + at, {node: a_sample(float(rng.uniform(0, 8)))})
    now = START + 3500.0
    window = history.read(node, Question(START, now, step_s, aggregation), now)
    level = FINE if step_s < COARSE.step_s else COARSE
    records = ring.read(node.key, level, window.start, now)
    steps = len(window.figures["cpu"])
    expected = naive(records, window.start, window.step_s, steps, aggregation)
    for i, name in enumerate(QUANTITIES):
        np.testing.assert_allclose(window.figures[name], expected[:, i], rtol=1e-6)


def test_series_are_found_by_each_of_their_parts():
    history = History(Ring(series=8))
    web = Series(WORKLOAD, "a", "web", "Deployment", "c")
    others = [
        web._replace(container="d"),
        web._replace(owner="StatefulSet"),
        web._replace(name="web-2"),
        web._replace(namespace="ab"),
        Series(POD, "a", "web", container="c"),
    ]
    history.write(START, dict.fromkeys([web, *others], a_sample(1.0)))
    assert history.find(WORKLOAD, "a", "web", "Deployment") == [web, others[0]]
    assert history.find(WORKLOAD, "a", "web") == [web, others[0], others[1]]
    assert history.find(WORKLOAD, "", "web", "Deployment") == [web, others[0], others[3]]
    assert history.find(WORKLOAD, "a", "", "StatefulSet") == [others[1]]
    assert history.find(POD) == [others[4]]


def test_series_of_a_clock_that_was_ahead_do_not_keep_their_rows():
    ring = Ring(series=2)
    ring.write(START + 10 * 86400, {"a": a_sample(1.0), "b": a_sample(1.0)})
    ring.write(START, {"b": a_sample(1.0)})  # the clock was put right, and `a` is gone
    ring.write(START + 10, {"b": a_sample(1.0), "c": a_sample(1.0)})
    assert sorted(ring.listed()) == ["b", "c"]


def test_a_name_too_long_for_the_ring_takes_nobody_elses_row():
    ring = Ring(series=1)
    ring.write(START, {"a": a_sample(1.0)})
    ring.write(START + 3600, {"x" * 600: a_sample(1.0)})
    assert ring.listed() == ["a"]


@pytest.mark.parametrize(
    "answer",
    [
        None,
        "text",
        {"items": 5},
        {"items": [None, 1, {}, {"metadata": 1}, {"metadata": {"name": 5}}]},
        {"items": [{"metadata": {"name": "a"}, "containers": 5}]},
        {"items": [{"metadata": {"name": "a"}, "containers": [None, {"usage": {"cpu": "x"}}]}]},
        {"items": [{"usage": {"cpu": "1", "memory": "1"}, "timestamp": "2026-01-01T00:00:00Z"}]},
    ],
)
def test_an_answer_that_is_no_measurement_ends_nothing(answer):
    assert follower.node_uses(answer) == {}
    assert follower.pod_uses(answer) == {}


@pytest.mark.parametrize(
    ("start", "end", "step_s"),
    [
        (-1.0, START, 1e9),
        (START - 10, 1e15, 1e12),
        (START - 10, float("inf"), float("inf")),
        (START - 10, START, float("inf")),
        (START - 10, START, float("nan")),
        (float("nan"), START, 10.0),
    ],
)
def test_a_question_that_has_no_answer_is_refused(start, end, step_s):
    with pytest.raises(ValueError, match=r"step|from"):
        Question(start, end, step_s)
