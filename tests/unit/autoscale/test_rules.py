"""Rates, windows and bounds hold whatever is recommended, whenever."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.api.views.autoscaling import Behavior, ScalingPolicy, ScalingRules
from motley.autoscale import gaps, rules
from motley.autoscale.calculator import Settings
from motley.autoscale.rules import Bounds, History

POLICIES = st.lists(
    st.builds(
        ScalingPolicy,
        type=st.sampled_from(["Pods", "Percent"]),
        value=st.integers(1, 200),
        period_seconds=st.integers(1, 300),
    ),
    min_size=1,
    max_size=3,
)
RULES = st.builds(
    ScalingRules,
    stabilization_window_seconds=st.integers(0, 300),
    select_policy=st.sampled_from(["Max", "Min", "Disabled"]),
    policies=POLICIES,
)
BEHAVIORS = st.builds(Behavior, scale_up=RULES, scale_down=RULES)
# Seconds to wait, and what is recommended then.
COURSES = st.lists(st.tuples(st.integers(1, 60), st.integers(0, 120)), min_size=1, max_size=40)
LEAST, MOST, KEEP_S = 2, 60, 3600.0


def follow(behavior, size, course, limit):
    """The sizes over time, as (moment, size), by a function of the rules."""
    history, now = History().begun(size, 0.0), 0.0
    sizes = [(now, size)]
    for wait_s, desired in course:
        now += wait_s
        limited = limit(behavior, Bounds(size, LEAST, MOST), desired, history, now)
        history = limited.history
        if limited.replicas != size:
            history = history.scaled(size, limited.replicas, now, KEEP_S)
        size = limited.replicas
        sizes.append((now, size))
    return sizes


def kubernetes(behavior, bounds, desired, history, now):
    return rules.limit(behavior, bounds, desired, history, now, Settings())


def minik8s(behavior, bounds, desired, history, now):
    return gaps.limit(behavior, bounds, desired, history, float("-inf"), now)


@pytest.mark.parametrize("limit", [kubernetes, minik8s])
@given(behavior=BEHAVIORS, size=st.integers(LEAST, MOST), course=COURSES)
def test_the_bounds_are_never_left(limit, behavior, size, course):
    assert all(LEAST <= size <= MOST for _, size in follow(behavior, size, course, limit))


@given(size=st.integers(LEAST, MOST), course=COURSES)
def test_the_bounds_are_never_left_without_a_behavior(size, course):
    assert all(LEAST <= size <= MOST for _, size in follow(None, size, course, kubernetes))


def allowed_up(policy, start):
    return (
        start + policy.value if policy.type == "Pods" else -(-start * (100 + policy.value) // 100)
    )


def allowed_down(policy, start):
    return start - policy.value if policy.type == "Pods" else start * (100 - policy.value) // 100


@given(behavior=BEHAVIORS, size=st.integers(LEAST, MOST), course=COURSES)
def test_no_period_sees_more_change_than_a_policy_allows(behavior, size, course):
    sizes = follow(behavior, size, course, kubernetes)
    up, down = behavior.scale_up, behavior.scale_down
    for (_, before), (now, after) in itertools.pairwise(sizes):
        if after > before:
            limits = [
                allowed_up(p, size_at(sizes, now - p.period_seconds, now)) for p in up.policies
            ]
            assert up.select_policy != "Disabled"
            assert after <= (min if up.select_policy == "Min" else max)(limits)
        elif after < before:
            limits = [
                allowed_down(p, size_at(sizes, now - p.period_seconds, now)) for p in down.policies
            ]
            assert down.select_policy != "Disabled"
            assert after >= (max if down.select_policy == "Min" else min)(limits)


def size_at(sizes, moment, now):
    """The size at a moment; a change at exactly that moment lies before it."""
    return [size for at, size in sizes if at <= max(moment, 0.0) and at < now][-1]


@given(behavior=BEHAVIORS, size=st.integers(LEAST, MOST), course=COURSES)
def test_a_change_never_goes_past_what_was_recommended_in_the_window(behavior, size, course):
    sizes = follow(behavior, size, course, kubernetes)
    recommended = [(0.0, size)]
    now = 0.0
    for (wait_s, desired), (before, after) in zip(
        course, itertools.pairwise(s for _, s in sizes), strict=True
    ):
        now += wait_s
        recommended.append((now, desired))
        if after > before:
            window_s = behavior.scale_up.stabilization_window_seconds
            assert after <= min(r for at, r in recommended if at > now - window_s or at == now)
        elif after < before:
            window_s = behavior.scale_down.stabilization_window_seconds
            highest = max(r for at, r in recommended if at > now - window_s or at == now)
            assert after >= min(before, max(LEAST, highest))


@given(behavior=BEHAVIORS, size=st.integers(LEAST, MOST), course=COURSES)
def test_in_the_other_reading_changes_are_at_least_the_window_apart(behavior, size, course):
    sizes = follow(behavior, size, course, minik8s)
    last = float("-inf")
    for (_, before), (now, after) in itertools.pairwise(sizes):
        if after == before:
            continue
        direction = behavior.scale_up if after > before else behavior.scale_down
        assert direction.select_policy != "Disabled"
        assert now - last >= direction.stabilization_window_seconds
        free = [p for p in direction.policies if now - last >= p.period_seconds]
        steps = [p.value if p.type == "Pods" else before * p.value // 100 for p in free]
        assert abs(after - before) <= max(steps)
        last = now


def a_policy(type_, value, period_s):
    return ScalingPolicy(type=type_, value=value, period_seconds=period_s)


def test_a_policy_that_waits_does_not_forbid_what_another_allows():
    behavior = Behavior(
        scale_up=ScalingRules(
            stabilization_window_seconds=0,
            policies=[a_policy("Pods", 1, 15), a_policy("Percent", 100, 60)],
        )
    )
    history = History(ups=((0.0, 1),))
    bounds = Bounds(8, LEAST, MOST)
    assert gaps.limit(behavior, bounds, 30, history, float("-inf"), 20.0).replicas == 9
    assert gaps.limit(behavior, bounds, 30, history, float("-inf"), 60.0).replicas == 16
    assert gaps.limit(behavior, bounds, 30, history, float("-inf"), 10.0).replicas == 8


def test_the_other_reading_brings_its_own_defaults_for_what_nobody_wrote():
    ours = gaps.behavior(None)
    assert [(p.type, p.value, p.period_seconds) for p in ours.scale_up.policies] == [
        ("Pods", 1, 15),
        ("Percent", 100, 60),
    ]
    assert ours.scale_up.stabilization_window_seconds == 0
    assert [(p.type, p.value, p.period_seconds) for p in ours.scale_down.policies] == [
        ("Pods", 100, 15)
    ]
    assert ours.scale_down.stabilization_window_seconds == 300
    # What the API server adds to a manifest that speaks of one direction only.
    written = ScalingRules(stabilization_window_seconds=7, policies=[a_policy("Pods", 2, 5)])
    added = ScalingRules(policies=[a_policy("Percent", 100, 15)])
    mixed = gaps.behavior(Behavior(scale_up=written, scale_down=added))
    assert mixed.scale_up == written
    assert mixed.scale_down == ours.scale_down


def test_an_autoscalers_own_tolerances_count(an_autoscaler):
    hpa = an_autoscaler(behavior={"scaleUp": {"tolerance": "50m"}, "scaleDown": {"tolerance": "0"}})
    assert rules.tolerances(hpa, Settings()) == (0.0, 0.05)
    assert rules.tolerances(an_autoscaler(), Settings()) == (0.1, 0.1)


def test_recommendations_from_before_the_clock_was_put_back_are_forgotten():
    history = History().begun(9, 4000.0).recommended(9, 4015.0, 300.0)
    after = history.recommended(2, 415.0, 300.0)
    assert after.recommendations == ((415.0, 2),)
    plain = rules.limit(None, Bounds(9, 1, 20), 2, history.begun(9, 415.0), 415.0, Settings())
    assert plain.replicas == 9, "but nothing shrinks for it"


@pytest.mark.parametrize("put_back_s", [0.0, 3600.0, 86400.0])
def test_changes_from_before_the_clock_was_put_back_hold_up_nothing_for_long(put_back_s):
    behavior = Behavior(
        scale_up=ScalingRules(policies=[a_policy("Pods", 2, 60)]),
        scale_down=ScalingRules(stabilization_window_seconds=0, policies=[a_policy("Pods", 2, 60)]),
    )
    history = History().begun(4, 1000.0).scaled(4, 6, 1000.0, 60.0).scaled(6, 4, 1001.0, 60.0)
    now = 1100.0 - put_back_s
    up = kubernetes(behavior, Bounds(6, 1, 20), 20, history, now)
    assert up.replicas == 8, "two more in this minute"
    down = kubernetes(behavior, Bounds(6, 1, 20), 1, History().begun(1, now), now)
    assert down.replicas == 4
    after = history.scaled(6, 8, now, 60.0)
    assert [at for at, _ in (*after.ups, *after.downs) if at > now] == []


@pytest.mark.parametrize("put_back_s", [3600.0, 86400.0])
def test_in_the_other_reading_a_clock_put_back_does_not_stop_the_autoscaler(put_back_s):
    behavior = gaps.behavior(None)
    history = History().begun(4, 1000.0).scaled(2, 4, 1000.0, 300.0)
    now = 1000.0 - put_back_s
    assert gaps.limit(behavior, Bounds(4, 1, 20), 8, history, 1000.0, now).replicas == 8
    assert gaps.limit(behavior, Bounds(4, 1, 20), 8, history, 1000.0, 1010.0).replicas == 4
