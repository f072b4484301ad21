"""The estimator against worlds whose truth is known."""

import math
import random

import pytest

from motley.metrics.speed import Sample, estimate

TRUTH = {"a": 1.0, "b": 0.8, "c": 0.5, "d": 1.3, "e": 0.3}


def world(seed, *, noise=0.1, outliers=0.0, controllers=4, rounds=8, truth=TRUTH):
    """What replicas use under a load that nobody knows, on nodes that not all of them are on."""
    rng = random.Random(seed)
    samples = []
    for controller in range(controllers):
        effort = rng.uniform(0.05, 2.0)
        for moment in range(rounds):
            load = effort * rng.uniform(0.5, 1.5)
            for node, speed in truth.items():
                if rng.random() < 0.3:
                    continue
                replicas = rng.choice([1, 1, 2, 3])
                usage = load / speed * math.exp(rng.gauss(0, noise) / math.sqrt(replicas))
                if rng.random() < outliers:
                    usage *= rng.choice([0.1, 5.0, 10.0])
                samples.append(Sample((controller, moment), node, usage, replicas))
    return samples


@pytest.mark.parametrize("seed", range(5))
def test_speeds_come_within_ten_percent_of_the_truth(seed):
    found = estimate(world(seed), {"a": 1.0})
    assert {n: e.speed for n, e in found.items()} == pytest.approx(TRUTH, rel=0.1)
    assert found["a"] == (1.0, 1.0, 1.0, found["a"].samples)  # the scale itself is exact


@pytest.mark.parametrize("seed", range(5))
def test_outliers_do_not_matter_much(seed):
    found = estimate(world(seed, outliers=0.1, rounds=16), {"a": 1.0})
    assert {n: e.speed for n, e in found.items()} == pytest.approx(TRUTH, rel=0.12)


@pytest.mark.parametrize("outliers", [0.0, 0.05])
def test_the_interval_holds_the_truth_as_often_as_it_says(outliers):
    inside = total = 0
    for seed in range(100):
        found = estimate(world(seed, outliers=outliers), {"a": 1.0})
        for node in "bcde":
            inside += found[node].low <= TRUTH[node] <= found[node].high
            total += 1
    assert 0.90 <= inside / total <= 0.985


def test_more_measurements_make_it_surer():
    few, many = (estimate(world(1, rounds=n), {"a": 1.0})["c"] for n in (3, 48))
    assert many.uncertainty < few.uncertainty / 2
    assert many.samples > few.samples


def test_without_noise_it_is_exact():
    found = estimate(world(3, noise=0.0), {"a": 1.0})
    assert {n: e.speed for n, e in found.items()} == pytest.approx(TRUTH, rel=1e-6)


def test_it_is_as_exact_where_groups_are_wide_as_where_they_are_narrow():
    """A controller on a node is one of few or of very many; these are reckoned in other ways."""
    rng = random.Random(5)
    truth = {f"n{i}": rng.uniform(0.2, 2.0) for i in range(60)}
    wide = world(1, noise=0.0, controllers=2, rounds=2, truth=truth)
    assert len([s for s in wide if s.group == (0, 0)]) > 32
    narrow = [
        Sample(("narrow", i), f"n{n}", 7.0 / truth[f"n{n}"])
        for i in range(60)
        for n in (i, (i + 1) % 60)
    ]
    for samples in (wide, narrow, [*wide, *narrow]):
        found = estimate(samples, {"n0": truth["n0"]})
        speeds = {n: e.speed for n, e in found.items()}
        assert speeds == pytest.approx({n: truth[n] for n in found}, rel=1e-6)
        assert len(found) == 60


def test_nodes_are_compared_through_others():
    """No controller is on both `a` and `c`."""
    samples = [Sample(1, "a", 1.0), Sample(1, "b", 2.0), Sample(2, "b", 10.0), Sample(2, "c", 5.0)]
    found = estimate(samples, {"a": 1.0})
    assert {n: e.speed for n, e in found.items()} == pytest.approx({"a": 1, "b": 0.5, "c": 1})


def test_parts_that_nothing_connects_have_a_scale_each():
    samples = [Sample(1, "a", 1.0), Sample(1, "b", 2.0), Sample(2, "x", 1.0), Sample(2, "y", 4.0)]
    found = estimate(samples, {"b": 0.8})
    speeds = {node: e.speed for node, e in found.items()}
    assert speeds == pytest.approx({"a": 1.6, "b": 0.8, "x": 2.0, "y": 0.5})  # mean of x and y: 1


def test_several_known_speeds_keep_their_mean():
    samples = [Sample(i, n, 1 / s) for i in range(5) for n, s in TRUTH.items()]
    found = estimate(samples, {"a": 2.0, "b": 0.4})
    assert math.sqrt(found["a"].speed * found["b"].speed) == pytest.approx(math.sqrt(0.8))
    assert found["a"].speed / found["b"].speed == pytest.approx(1 / 0.8)


def test_two_measurements_say_nothing_of_their_error():
    found = estimate([Sample(1, "a", 1.0), Sample(1, "b", 2.0)], {"a": 1.0})
    assert (found["b"].low, found["b"].high) == (0.0, math.inf)


@pytest.mark.parametrize(
    "samples",
    [
        [],
        [Sample(1, "a", 1.0)],
        [Sample(1, "a", 1.0), Sample(1, "a", 2.0)],
        [Sample(1, "a", 0.0), Sample(1, "b", 1.0)],
        [Sample(1, "a", 1.0, 0), Sample(1, "b", 1.0)],
    ],
)
def test_what_compares_no_nodes_tells_nothing(samples):
    assert estimate(samples) == {}
