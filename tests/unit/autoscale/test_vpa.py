"""What containers should request, from what was used."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motley.api import recommendation
from motley.autoscale import vpa
from motley.autoscale.past import Past
from motley.autoscale.vpa import Bounds, Oom, Settings

DAY = 86400.0
NOW = 20 * DAY
MIB = float(1 << 20)


def a_past(cpu, memory=100 * MIB, steps=288, pods=1.0, step_s=300.0, until=NOW):
    """A container that used this; `cpu` and `memory` may be functions of the step."""
    one = cpu if callable(cpu) else lambda _: cpu
    size = memory if callable(memory) else lambda _: memory
    cpus = [one(i) for i in range(steps)]
    sizes = [size(i) for i in range(steps)]
    total = [c * pods for c in cpus]
    return Past(
        until - steps * step_s,
        step_s,
        total,
        total,
        [s * pods for s in sizes],
        cpus,
        sizes,
        [pods] * steps,
    )


def recommended(past, ooms=(), **options):
    found = vpa.recommend(past, past, NOW, Settings(**options), ooms)
    assert found is not None
    return found


def test_the_target_is_the_ninetieth_percentile_and_a_margin():
    past = a_past(lambda i: 1.0 if i % 10 else 3.0, steps=2000)
    assert recommended(past).target.cpu == pytest.approx(1.15)
    past = a_past(lambda i: 1.0 if i % 5 else 3.0, steps=2000)
    assert recommended(past).target.cpu == pytest.approx(3.45)


def test_memory_goes_by_the_peak():
    past = a_past(0.1, lambda i: 900 * MIB if i == 270 else 100 * MIB)
    assert recommended(past).target.memory == pytest.approx(1.15 * 900 * MIB)


def test_what_was_long_ago_weighs_little():
    past = a_past(lambda i: 4.0 if i < 1300 else 1.0, steps=2016)
    assert recommended(past).target.cpu == pytest.approx(4.6), "a sixth of the weight"
    past = a_past(lambda i: 4.0 if i < 576 else 1.0, steps=2016)
    assert recommended(past).target.cpu == pytest.approx(1.15)


def test_the_bounds_close_in_with_what_is_known():
    widths = []
    for steps in (1, 12, 288, 2016):
        found = recommended(a_past(1.0, steps=steps))
        assert found.lower.cpu <= found.target.cpu <= found.upper.cpu
        widths.append(found.upper.cpu - found.lower.cpu)
    assert widths == sorted(widths, reverse=True)
    assert widths[0] > 100
    assert widths[-1] < 0.2


def test_of_many_pods_the_largest_counts_as_one_of_them():
    calm = a_past(0.1, pods=20.0)
    one_busy = calm._replace(cpu_pod_max=[2.0] * 288, cpu_normalized=[0.1 * 19 + 2.0] * 288)
    assert recommended(one_busy).target.cpu == pytest.approx(0.115)
    few = one_busy._replace(pods=[5.0] * 288, cpu_normalized=[0.1 * 4 + 2.0] * 288)
    assert recommended(few).target.cpu == pytest.approx(2.3)


def test_nothing_is_recommended_below_the_floor_or_from_nothing():
    found = recommended(a_past(0.0001, 1000.0))
    assert found.target == Bounds(0.025, 32 * MIB)
    empty = a_past(0.1)._replace(cpu_normalized=[None] * 288, pods=[None] * 288)
    assert vpa.recommend(empty, empty, NOW, Settings()) is None


def test_a_container_that_ran_out_of_memory_gets_more_than_it_had():
    past = a_past(0.1, 500 * MIB, steps=2016)
    needed = vpa.enough(512 * MIB, Settings())
    assert needed == pytest.approx(614.4 * MIB)
    for days, expected in ((0, 614.4), (2, 614.4), (6, 500)):
        ooms = [Oom(NOW - (days + 0.5) * DAY, needed)]
        found = recommended(past, ooms).target.memory
        assert found == pytest.approx(1.15 * expected * MIB), "what was long ago weighs little"
    assert vpa.enough(64 * MIB, Settings()) == pytest.approx(164 * MIB)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 64), st.floats(0, 1e11)), min_size=1, max_size=100),
    st.integers(1, 50),
)
def test_the_bounds_are_in_order_whatever_was_used(used, pods):
    past = a_past(lambda i: used[i][0], lambda i: used[i][1], len(used), float(pods))
    found = recommended(past)
    for name in Bounds._fields:
        low, target, high = (getattr(b, name) for b in (found.lower, found.target, found.upper))
        assert low <= target <= high
        assert math.isfinite(high)
        peak = max(u[0 if name == "cpu" else 1] for u in used)
        floor = Settings().least_cpu if name == "cpu" else Settings().least_memory
        assert target <= max(1.15 * peak * (1 + 1e-9), floor)


def an_autoscaler(target, **policy):
    listed = [{"containerName": "app", "target": target}]
    spec = {"resourcePolicy": {"containerPolicies": [{"containerName": "*", **policy}]}}
    return {"spec": spec, "status": {"recommendation": {"containerRecommendations": listed}}}


def resources(requests, limits=None):
    made = {"requests": requests, **({"limits": limits} if limits else {})}
    return [{"name": "app", "resources": made}]


def test_limits_keep_their_ratio_to_requests():
    scaler = an_autoscaler({"cpu": "300m", "memory": "90Mi"})
    have = resources({"cpu": "100m", "memory": "60Mi"}, {"cpu": "200m", "memory": "60Mi"})
    assert recommendation.containers(scaler, have) == resources(
        {"cpu": "300m", "memory": "90Mi"}, {"cpu": "600m", "memory": "90Mi"}
    )


@pytest.mark.parametrize(
    ("have", "most", "expected"),
    [
        (
            resources({"cpu": "100m", "memory": "60Mi"}, {"cpu": "200m", "memory": "60Mi"}),
            {"cpu": "500m", "memory": "80Mi"},
            resources({"cpu": "250m", "memory": "80Mi"}, {"cpu": "500m", "memory": "80Mi"}),
        ),
        (
            resources({"memory": "60Mi"}, {"memory": "90Mi"}),
            {"memory": "100M"},  # no whole number of MiB
            resources({"cpu": "300m", "memory": "63Mi"}, {"memory": "95Mi"}),
        ),
        (
            resources({"memory": "60Mi"}),
            {"memory": "80Mi"},
            resources({"cpu": "300m", "memory": "80Mi"}),
        ),
    ],
)
def test_a_container_gets_no_more_than_its_namespace_allows(have, most, expected):
    scaler = an_autoscaler({"cpu": "300m", "memory": "90Mi"})
    limits = {"spec": {"limits": [{"type": "Container", "max": most}, {"type": "Pod", "max": {}}]}}
    allowed = recommendation.ranges(limits)
    assert recommendation.containers(scaler, have, allowed=allowed) == expected


def test_a_container_gets_no_less_than_its_namespace_allows():
    scaler = an_autoscaler({"cpu": "300m", "memory": "90Mi"})
    limits = {"spec": {"limits": [{"type": "Container", "min": {"cpu": "400m"}}]}}
    have = resources({"cpu": "100m", "memory": "90Mi"}, {"cpu": "200m"})
    assert recommendation.containers(
        scaler, have, allowed=recommendation.ranges(limits)
    ) == resources({"cpu": "400m", "memory": "90Mi"}, {"cpu": "800m"})


def test_only_requests_move_where_the_policy_says_so_and_never_above_limits():
    scaler = an_autoscaler({"cpu": "300m", "memory": "90Mi"}, controlledValues="RequestsOnly")
    have = resources({"cpu": "100m", "memory": "60Mi"}, {"cpu": "200m"})
    assert recommendation.containers(scaler, have) == resources(
        {"cpu": "200m", "memory": "90Mi"}, {"cpu": "200m"}
    )


def test_only_what_is_controlled_moves():
    scaler = an_autoscaler({"cpu": "300m", "memory": "90Mi"}, controlledResources=["memory"])
    assert recommendation.containers(scaler, resources({"cpu": "1"})) == resources(
        {"cpu": "1", "memory": "90Mi"}
    )
    assert recommendation.containers(an_autoscaler({"cpu": "1"}, mode="Off"), resources({})) == []


def test_a_slow_node_gives_more_cores_for_the_same_work():
    scaler = an_autoscaler({"cpu": "300m"})
    found = recommendation.containers(scaler, resources({"cpu": "100m"}), speed=0.5)
    assert found[0]["resources"]["requests"]["cpu"] == "600m"


def test_bounds_of_the_policy_come_last():
    bounds = recommendation.policy(
        an_autoscaler({}, minAllowed={"cpu": "500m"}, maxAllowed={"memory": "1Gi"}), "app"
    )
    capped = recommendation.capped({"cpu": 0.1, "memory": 4e9}, bounds)
    assert recommendation.written(capped) == {"cpu": "500m", "memory": "1024Mi"}
