"""How many instances a function needs, on virtual time."""

import itertools

import pytest

from motley.serverless.scaler import Limits, Sample, Scaler

TICK_S = 0.5


class Load:
    """Drives a scaler through time with a number of calls under way."""

    def __init__(self, **limits):
        self.now = 1000.0
        self.scaler = Scaler(Limits(**limits), self.now)
        self.seen = []

    def run(self, seconds, concurrency, arrivals_per_s=0):
        for _ in range(round(seconds / TICK_S)):
            self.now += TICK_S
            arrivals = round(arrivals_per_s * TICK_S)
            self.scaler.observe(Sample(self.now, TICK_S, concurrency, arrivals))
            self.seen.append(self.scaler.decide(self.now))
        return self.seen[-1]


def test_nothing_is_started_where_nobody_calls():
    assert Load().run(120, 0) == 0


def test_the_first_call_gets_an_instance_at_once():
    load = Load()
    assert load.scaler.wake(load.now) == 1


def test_a_steady_load_gets_what_its_concurrency_needs():
    assert Load(concurrency=4).run(60, 9.5) == 3


def test_a_burst_is_seen_within_moments():
    load = Load(concurrency=4, maximum=20)
    load.run(60, 2)
    assert load.run(3, 40) == 10


def test_a_burst_goes_no_further_than_the_maximum():
    assert Load(concurrency=1, maximum=7).run(5, 50) == 7


def test_a_single_short_peak_does_not_undo_the_calm():
    load = Load(concurrency=4)
    load.run(60, 2)
    load.run(TICK_S, 6)
    assert load.run(60, 2) == 1


def test_instances_go_one_at_a_time_and_never_straight_to_the_minimum():
    load = Load(concurrency=1, maximum=10, minimum=2, idle_s=20)
    load.run(30, 10)
    load.seen.clear()
    assert load.run(200, 0) == 2
    steps = [a - b for a, b in itertools.pairwise(load.seen)]
    assert set(steps) == {0, 1}
    assert load.seen[0] == 10


def test_between_two_steps_down_there_is_a_pause():
    load = Load(concurrency=1, maximum=10, idle_s=60)
    load.run(60, 10)
    load.seen.clear()
    load.run(300, 0)
    times = [i * TICK_S for i, (a, b) in enumerate(itertools.pairwise(load.seen)) if a > b]
    pauses = [b - a for a, b in itertools.pairwise(times)]
    assert min(pauses) >= 6.0


def test_the_last_instance_stays_for_the_idle_time():
    load = Load(idle_s=60)
    load.scaler.wake(load.now)
    load.run(1, 1)
    assert load.run(55, 0) == 1
    assert load.run(15, 0) == 0


def test_it_never_oscillates_under_a_constant_load():
    load = Load(concurrency=3)
    load.run(30, 7)
    load.seen.clear()
    load.run(600, 7)
    assert set(load.seen) == {3}


def test_a_rate_per_instance_counts_too():
    load = Load(concurrency=100, rate=10, maximum=20)
    assert load.run(40, 0.5, arrivals_per_s=48) == 5


def test_the_minimum_is_there_before_anybody_calls():
    assert Load(minimum=3).run(TICK_S, 0) == 3


def test_the_initial_number_goes_the_way_of_all_instances():
    scaler = Scaler(Limits(idle_s=10), 0.0, initial=3)
    assert scaler.decide(0.5) == 3
    now, seen = 0.5, []
    while now < 60:
        now += TICK_S
        scaler.observe(Sample(now, TICK_S, 0, 0))
        seen.append(scaler.decide(now))
    assert seen[-1] == 0
    assert {a - b for a, b in itertools.pairwise(seen)} <= {0, 1}


@pytest.mark.parametrize("concurrency", [1, 5, 17, 60])
def test_what_runs_is_always_enough_once_it_has_settled(concurrency):
    load = Load(concurrency=4, maximum=100)
    assert load.run(90, concurrency) * 4 >= concurrency


def test_a_reset_begins_at_the_minimum():
    load = Load(concurrency=1)
    load.run(10, 5)
    load.scaler.reset(load.now)
    assert load.scaler.current == 0
