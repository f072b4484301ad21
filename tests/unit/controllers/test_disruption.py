"""What a disruption budget allows: the arithmetic."""

import pytest

from motley.api.views.pod import Pod
from motley.api.views.policy import PodDisruptionBudget
from motley.controllers import budget

NOW = 1_800_000_000.0
AT = "2027-01-15T08:00:00Z"  # NOW


def a_budget(status=None, **spec):
    return PodDisruptionBudget.of(
        {"metadata": {"name": "b", "generation": 3}, "spec": spec, "status": status or {}}
    )


def a_pod(name="p", *, ready=True, leaving=False):
    metadata = {"name": name}
    if leaving:
        metadata["deletionTimestamp"] = AT
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    return Pod.of({"metadata": metadata, "status": {"conditions": conditions}})


@pytest.mark.parametrize(
    ("spec", "pods", "scale", "expected", "desired"),
    [
        ({"minAvailable": 2}, 5, 0, 5, 2),
        ({"minAvailable": "50%"}, 2, 5, 5, 3),  # of what is asked for, rounded up
        ({"minAvailable": "100%"}, 3, 3, 3, 3),
        ({"maxUnavailable": 1}, 3, 4, 4, 3),
        ({"maxUnavailable": "30%"}, 10, 10, 10, 7),
        ({"maxUnavailable": "34%"}, 3, 3, 3, 1),  # 1.02 of three is two
        ({"maxUnavailable": 9}, 3, 3, 3, 0),
        ({}, 3, 3, 0, 0),
    ],
)
def test_a_budget_stands_for_numbers(spec, pods, scale, expected, desired):
    assert budget.count(a_budget(**spec), pods, scale) == budget.Count(expected, desired)


def test_only_shares_and_absences_need_the_size_of_the_owners():
    assert not budget.needs_scale(a_budget(minAvailable=1))
    assert budget.needs_scale(a_budget(minAvailable="10%"))
    assert budget.needs_scale(a_budget(maxUnavailable=1))


def test_a_share_that_is_none_is_refused():
    with pytest.raises(ValueError, match="neither a number nor a percentage"):
        budget.share("half", 3)


def test_pods_that_go_or_are_granted_to_go_are_not_healthy():
    pods = [a_pod("a"), a_pod("b", ready=False), a_pod("c", leaving=True), a_pod("d")]

    assert budget.healthy(pods, {"d": AT}) == 1


def test_a_granted_eviction_counts_until_its_pod_goes_or_two_minutes_have_passed():
    granted = {"a": AT, "b": AT, "gone": AT, "old": "2027-01-15T07:57:00Z"}
    pods = [a_pod("a"), a_pod("b", leaving=True), a_pod("old")]

    found = budget.disrupted(a_budget({"disruptedPods": granted}), pods, NOW + 20)

    assert found == budget.Disrupted({"a": AT}, ("old",), 100.0)


def test_the_status_allows_what_is_over_the_desired_number():
    shown = budget.status_document(
        a_budget({"disruptedPods": {"x": AT}}, minAvailable=2), budget.Count(4, 2), 4, {}, NOW
    )

    assert shown["disruptionsAllowed"] == 2
    assert shown["observedGeneration"] == 3
    assert shown["disruptedPods"] == {"x": None}  # a merge patch removes it
    condition = shown["conditions"][0]
    assert (condition["status"], condition["reason"]) == ("True", "SufficientPods")


def test_nothing_may_go_where_too_few_are_healthy_or_nothing_is_expected():
    few = budget.status_document(a_budget(minAvailable=2), budget.Count(2, 2), 1, {}, NOW)
    none = budget.status_document(a_budget(maxUnavailable=1), budget.Count(0, 0), 1, {}, NOW)

    assert (few["disruptionsAllowed"], none["disruptionsAllowed"]) == (0, 0)
    assert few["conditions"][0]["reason"] == "InsufficientPods"


def test_a_condition_keeps_its_date_while_its_status_stays():
    known = [{"type": "DisruptionAllowed", "status": "False", "lastTransitionTime": "earlier"}]
    before = a_budget({"conditions": known}, minAvailable=1)

    same = budget.conditions(before, False, "InsufficientPods", "", NOW)
    other = budget.conditions(before, True, "SufficientPods", "", NOW)

    assert same[0]["lastTransitionTime"] == "earlier"
    assert other[0]["lastTransitionTime"] == AT


def test_a_status_that_says_it_all_is_not_written_again():
    wanted = budget.status_document(a_budget(minAvailable=1), budget.Count(2, 1), 2, {}, NOW)
    stored = a_budget({k: v for k, v in wanted.items() if v is not None}, minAvailable=1)

    assert budget.is_current(stored, wanted)
    assert not budget.is_current(stored, {**wanted, "currentHealthy": 1})
