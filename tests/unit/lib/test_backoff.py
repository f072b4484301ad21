"""Back-off: grows, is bounded, spreads."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from motley.lib.backoff import Backoff


@given(
    base_s=st.floats(0.001, 10),
    cap_s=st.floats(0.001, 1000),
    seed=st.integers(),
    attempts=st.integers(1, 100),
)
def test_a_wait_is_always_in_the_upper_half_of_its_step(base_s, cap_s, seed, attempts):
    backoff = Backoff(base_s, cap_s, Random(seed))
    for attempt in range(attempts):
        step = min(cap_s, base_s * 2.0**attempt)
        assert step / 2 <= backoff.next() <= step


def test_waiters_that_fail_together_do_not_come_back_together():
    waits = {round(Backoff(1.0, 30.0, Random(seed)).next(), 3) for seed in range(100)}
    assert len(waits) > 50


def test_after_a_success_waiting_starts_again_from_the_base():
    backoff = Backoff(0.1, 30.0, Random(1))
    for _ in range(10):
        backoff.next()
    backoff.reset()
    assert backoff.next() <= 0.1


def test_many_attempts_do_not_overflow():
    backoff = Backoff(0.1, 30.0, Random(1), attempt=100_000)
    assert 15 <= backoff.next() <= 30
