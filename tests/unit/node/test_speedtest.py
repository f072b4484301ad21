"""The machine's own measurement: same work, CPU time, best of several rounds."""

import itertools

import pytest

from motley.node import speedtest


def test_the_best_round_counts_whatever_neighbours_do():
    took = [0.14, 0.07, 0.9, 0.2, 0.3, 0.4, 0.5]
    times = itertools.accumulate(itertools.chain.from_iterable((0.0, t) for t in took))
    speed = speedtest.measure(cpu_time=lambda: next(times), run=lambda: 0)
    assert speed == pytest.approx(speedtest.REFERENCE_S / 0.07)


def test_the_work_is_the_same_every_time():
    assert speedtest.work() == speedtest.work()


def test_a_machine_measures_about_the_same_twice():
    one, two = speedtest.measure(), speedtest.measure()
    assert one == pytest.approx(two, rel=0.6)
