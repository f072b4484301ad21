"""Several metrics, failing ones, and what is said about them."""

import pytest

from motley.autoscale import hpa as hpas
from motley.autoscale.calculator import Settings
from motley.autoscale.hpa import Conditions, Failure, Proposal, Scale
from motley.autoscale.rules import History

BROKEN = Failure(
    "FailedGetPodsMetric", "unable to get metric qps", "failed to get pods metric value"
)


@pytest.fixture
def decided(an_autoscaler, start):
    def decide(*outcomes, size=4, **spec):
        conditions = Conditions((), start)
        # A recommendation long ago: nothing is steadied.
        history = History(((start - 1000, size),))
        decision = hpas.decide(
            an_autoscaler(**spec),
            Scale(size, size, "app=web"),
            outcomes,
            conditions,
            history,
            start,
            Settings(),
        )
        return decision, {c["type"]: c for c in conditions.documents()}

    return decide


def test_of_several_metrics_the_largest_wins(decided):
    decision, _ = decided(Proposal(2, "a", {}), Proposal(7, "b", {}), Proposal(5, "c", {}))
    assert (decision.desired, decision.reason) == (7, "b above target")


def test_a_failing_metric_forbids_to_shrink(decided):
    decision, told = decided(Proposal(2, "a", {"type": "Resource"}), BROKEN)
    assert (decision.desired, decision.rescale, decision.has_failed) == (4, False, True)
    active = told["ScalingActive"]
    assert (active["status"], active["reason"]) == ("False", "FailedGetPodsMetric")
    assert active["message"] == (
        "the HPA was unable to compute the replica count: unable to get metric qps"
    )
    assert [(e.reason, e.message) for e in decision.events] == [
        ("FailedGetPodsMetric", "unable to get metric qps"),
        (
            "FailedComputeMetricsReplicas",
            "invalid metrics (1 invalid out of 2), first error is: failed to get pods metric value:"
            " unable to get metric qps",
        ),
    ]
    assert decision.metrics == [{"type": "Resource"}, {"type": ""}]


def test_a_failing_metric_does_not_forbid_to_grow(decided):
    decision, told = decided(Proposal(6, "a", {}), BROKEN)
    assert (decision.desired, decision.rescale) == (6, True)
    assert told["ScalingActive"]["reason"] == "ValidMetricFound"
    assert [e.reason for e in decision.events] == ["FailedGetPodsMetric"]


@pytest.mark.parametrize(
    ("wanted", "desired", "reason"),
    [(20, 8, "ScaleUpLimit"), (0, 1, "TooFewReplicas"), (6, 6, "DesiredWithinRange")],
)
def test_limits_are_told(decided, wanted, desired, reason):
    decision, told = decided(Proposal(wanted, "a", {}))
    assert decision.desired == desired
    assert told["ScalingLimited"]["reason"] == reason
    assert told["ScalingLimited"]["status"] == str(wanted != desired)


def test_the_transition_time_moves_only_with_the_status(start):
    conditions = Conditions((), start)
    conditions.set("ScalingActive", True, "ValidMetricFound", "yes")
    first = conditions.documents()
    later = Conditions(first, start + 60)
    later.set("ScalingActive", True, "ValidMetricFound", "still")
    assert later.documents()[0]["lastTransitionTime"] == first[0]["lastTransitionTime"]
    later.set("ScalingActive", False, "ScalingDisabled", "no")
    assert later.documents()[0]["lastTransitionTime"] != first[0]["lastTransitionTime"]


def test_the_status_keeps_its_number_when_nothing_could_be_computed(an_autoscaler, decided, start):
    decision, _ = decided(BROKEN)
    hpa = an_autoscaler(state={"desiredReplicas": 9, "lastScaleTime": "2026-01-01T00:00:00Z"})
    shown = hpas.status(hpa, 4, decision, Conditions((), start), start)
    assert (shown["currentReplicas"], shown["desiredReplicas"]) == (4, 9)
    assert shown["lastScaleTime"] == "2026-01-01T00:00:00Z"
