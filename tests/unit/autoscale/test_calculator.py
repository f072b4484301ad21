"""What one metric asks for, with Kubernetes' treatment of what is not known."""

import pytest

from motley.autoscale import calculator
from motley.autoscale.calculator import MetricError, Pods, Sample, Settings, Tolerances

EXACT = Tolerances(0.1, 0.1)


@pytest.fixture
def world(a_pod, start):
    """Three ready pods that request a core each, and what is to be changed of them."""

    def make(count=3, **changed):
        pods = [a_pod(f"p{i}", **changed.get(f"p{i}", {})) for i in range(count)]
        return Pods(pods, Settings(), start)

    return make


@pytest.fixture
def sampled(start):
    def make(*milli):
        return {f"p{i}": Sample(m, start, 15.0) for i, m in enumerate(milli) if m is not None}

    return make


def by_share(pods, samples, current=3, target=50):
    return calculator.utilization(current, target, "cpu", pods, samples, EXACT)


@pytest.mark.parametrize(
    ("used", "replicas", "percent"),
    [
        ((500, 500, 500), 3, 50),
        ((550, 550, 550), 3, 55),  # within a tenth of the target
        ((560, 560, 560), 4, 56),
        ((450, 450, 450), 3, 45),
        ((300, 300, 300), 2, 30),
        ((1000, 1000, 1000), 6, 100),
        ((0, 0, 0), 0, 0),
    ],
)
def test_a_share_of_the_request_asks_for_the_ratio_to_its_target(
    world, sampled, used, replicas, percent
):
    found = by_share(world(), sampled(*used))
    assert (found.replicas, found.utilization) == (replicas, percent)


def test_an_amount_per_pod_asks_for_the_ratio_to_its_target(world, sampled):
    found = calculator.average_value(3, 400, "cpu", world(), sampled(600, 600, 900), EXACT)
    assert (found.replicas, found.average_milli) == (6, 700)


def test_pods_without_a_sample_count_as_idle_on_the_way_up(world, sampled):
    # Two pods at 100 % alone would ask for 4 of 2; the idle third makes it 66 % of 3.
    assert by_share(world(), sampled(1000, 1000, None)).replicas == 4


def test_pods_without_a_sample_count_as_busy_on_the_way_down(world, sampled):
    # Two idle pods would ask for fewer; one that might use all it requests is 40 % of 3.
    assert by_share(world(), sampled(100, 100, None)).replicas == 3
    assert by_share(world(6), sampled(0, 0, 0, 0, 0, None), current=6).replicas == 2


def test_what_is_assumed_never_turns_the_direction_around(world, sampled):
    # 60 % measured, 40 % if the third is idle: neither up nor down.
    assert by_share(world(), sampled(600, 600, None)).replicas == 3


def test_pods_that_are_not_ready_count_as_idle_on_the_way_up(world, sampled):
    pods = world(p2={"phase": "Pending"})
    assert by_share(pods, sampled(1000, 1000, 1000)).replicas == 4


def test_pods_that_are_not_ready_do_not_count_on_the_way_down(world, sampled):
    pods = world(p2={"phase": "Pending"})
    assert by_share(pods, sampled(100, 100, 100)).replicas == 1


def test_pods_that_end_or_failed_do_not_count_at_all(world, sampled):
    pods = world(p1={"phase": "Failed"}, p2={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    assert by_share(pods, sampled(1000, 1000, 1000), current=1).replicas == 2


@pytest.mark.parametrize(
    ("state", "counts"),
    [
        ({"started_s": 100, "ready_s": 60, "ready": "True"}, True),
        ({"started_s": 100, "ready_s": 60, "ready": "False"}, False),
        # Ready for less than the sample's window: the sample is of the start.
        ({"started_s": 100, "ready_s": 5, "ready": "True"}, False),
        # Later an unready pod counts, unless it never was ready.
        ({"started_s": 900, "ready_s": 60, "ready": "False"}, True),
        ({"started_s": 900, "ready_s": 880, "ready": "False"}, False),
    ],
)
def test_cpu_use_of_a_starting_pod_is_judged_by_its_readiness(a_pod, start, state, counts):
    pods = Pods([a_pod("p", **state)], Settings(), start)
    samples = {"p": Sample(1000, start, 15.0)}
    groups = calculator.group(pods, samples, "cpu")
    assert (groups.ready, groups.unready) == ((1, frozenset()) if counts else (0, frozenset("p")))
    assert calculator.group(pods, samples, "memory").ready == 1


def test_a_container_without_a_request_has_no_share(a_pod, start):
    pods = Pods([a_pod("p", cpu="")], Settings(), start)
    with pytest.raises(MetricError, match="missing request for cpu in container c of Pod p"):
        by_share(pods, {"p": Sample(1, start, 15.0)})


def test_nothing_to_measure_is_an_error(world, sampled):
    with pytest.raises(MetricError, match="no pods returned by selector"):
        by_share(world(0), sampled(1))
    with pytest.raises(MetricError, match="pods might be unready"):
        by_share(world(1, p0={"phase": "Pending"}), sampled(1000))


def test_one_figure_of_the_whole_multiplies_the_ready_pods(world):
    found = calculator.value(3, 1000, 2000, world(p2={"ready": "False"}), EXACT)
    assert found.replicas == 4
    assert calculator.value(3, 1000, 1050, world(), EXACT).replicas == 3
    assert calculator.value(0, 1000, 2500, world(0), EXACT).replicas == 3


def test_one_figure_shared_by_the_pods_divides_by_the_target():
    found = calculator.value_per_pod(4, 1000, 6500, EXACT)
    assert (found.replicas, found.average_milli) == (7, 1625)
    assert calculator.value_per_pod(4, 1000, 4100, EXACT).replicas == 4
    assert calculator.value_per_pod(0, 1000, 2500, EXACT).replicas == 3


def test_a_count_beyond_all_measure_is_cut(world):
    found = calculator.value(3, 1, 10**18, world(), EXACT)
    assert found.replicas == calculator.MAX_REPLICAS
