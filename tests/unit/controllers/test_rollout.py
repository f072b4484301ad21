import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motley.controllers import rollout
from motley.controllers.workload import Deployment, ReplicaSet


def deployment(replicas, surge="25%", unavailable="25%", *, type_="RollingUpdate", **spec):
    strategy = {"type": type_}
    if type_ == "RollingUpdate":
        strategy["rollingUpdate"] = {"maxSurge": surge, "maxUnavailable": unavailable}
    return Deployment.of(
        {"metadata": {"name": "d"}, "spec": {"replicas": replicas, "strategy": strategy, **spec}}
    )


def rs(name, replicas, available=None, *, revision=0, desired=None, maximum=None, age=0, **status):
    annotations = {}
    if revision:
        annotations[rollout.REVISION] = str(revision)
    if desired is not None:
        annotations[rollout.DESIRED] = str(desired)
    if maximum is not None:
        annotations[rollout.MAXIMUM] = str(maximum)
    return ReplicaSet.of(
        {
            "metadata": {
                "name": name,
                "annotations": annotations,
                "creationTimestamp": f"2026-01-01T00:00:{age:02d}Z",
            },
            "spec": {"replicas": replicas},
            "status": {
                "replicas": replicas,
                "availableReplicas": replicas if available is None else available,
                **status,
            },
        }
    )


@pytest.mark.parametrize(
    ("replicas", "surge", "unavailable", "expected"),
    [
        (3, "25%", "25%", (1, 0)),  # up and down
        (4, "25%", "25%", (1, 1)),
        (10, "25%", "25%", (3, 2)),
        (10, 0, 0, (0, 1)),  # would never move
        (10, "0%", "0%", (0, 1)),
        (1, "0%", "25%", (0, 1)),
        (2, 5, 7, (5, 2)),  # never more unavailable than there are
        (0, "25%", "25%", (0, 0)),
        (3, "100%", "34%", (3, 1)),
    ],
)
def test_surge_rounds_up_and_unavailable_down(replicas, surge, unavailable, expected):
    assert rollout.bounds(deployment(replicas, surge, unavailable)) == expected


def test_recreate_has_no_bounds():
    assert rollout.bounds(deployment(3, type_="Recreate")) == (0, 0)


@pytest.mark.parametrize(
    ("current", "everything", "expected"),
    [(0, 10, 3), (0, 13, 0), (5, 13, 5), (9, 10, 10), (12, 12, 10), (8, 8, 10)],
)
def test_the_new_set_grows_into_the_surge(current, everything, expected):
    assert rollout.new_size(deployment(10), current, everything) == expected


def test_recreate_grows_at_once():
    assert rollout.new_size(deployment(10, type_="Recreate"), 0, 0) == 10


def sizes(changes):
    return {change.rs.metadata.name: change.replicas for change in changes}


def test_old_pods_go_only_when_new_ones_are_available():
    d = deployment(10)  # surge 3, unavailable 2: at least 8
    assert sizes(rollout.shrink_old(d, rs("new", 3, 0), [rs("old", 10)])) == {"old": 8}
    assert sizes(rollout.shrink_old(d, rs("new", 5, 0), [rs("old", 8)])) == {}
    assert sizes(rollout.shrink_old(d, rs("new", 5, 3), [rs("old", 8)])) == {"old": 5}


def test_broken_old_pods_go_first():
    d = deployment(10)
    old = [rs("working", 5, 5, age=1), rs("broken", 5, 1, age=2)]
    assert sizes(rollout.shrink_old(d, rs("new", 3, 3), old)) == {"broken": 1, "working": 4}


def test_a_set_that_still_reports_pods_it_is_losing_is_not_counted_twice():
    d = deployment(4, 1, 1)
    stale = rs("old", 3, 4)  # asked for three, its status still says four
    assert sizes(rollout.shrink_old(d, rs("new", 1, 1), [stale])) == {"old": 2}


def test_a_changed_number_is_a_scaling_event():
    assert rollout.is_scaling(deployment(5), [rs("a", 3, desired=3)])
    assert not rollout.is_scaling(deployment(5), [rs("a", 5, desired=5)])
    assert not rollout.is_scaling(deployment(5), [rs("a", 0, desired=3)])


def test_a_single_active_set_takes_the_whole_number():
    assert sizes(rollout.scale(deployment(7), rs("new", 3), [rs("old", 0)])) == {"new": 7}
    assert sizes(rollout.scale(deployment(7), rs("new", 0), [rs("old", 3)])) == {"old": 7}
    assert sizes(rollout.scale(deployment(3), rs("new", 3), [])) == {}
    assert sizes(rollout.scale(deployment(4), None, [rs("a", 0, age=1), rs("b", 0, age=2)])) == {
        "b": 4
    }


def test_a_saturated_new_set_empties_the_old_ones():
    new = rs("new", 5, 5, desired=5)
    assert sizes(rollout.scale(deployment(5), new, [rs("old", 2)])) == {"old": 0}


def test_scaling_in_the_middle_of_a_rollout_is_proportional():
    # Kubernetes' documentation: 10 + 3 surge, 8 old and 5 new; scaled to 15 the five extra go
    # three to the bigger and two to the smaller.
    d = deployment(15, 3, 2)
    old, new = rs("old", 8, desired=10, maximum=13), rs("new", 5, 0, desired=10, maximum=13)
    assert sizes(rollout.scale(d, new, [old])) == {"old": 11, "new": 7}


def test_scaling_to_nothing_in_a_rollout_empties_all():
    old, new = rs("old", 8, desired=10, maximum=13), rs("new", 5, desired=10, maximum=13)
    assert sizes(rollout.scale(deployment(0), new, [old])) == {"old": 0, "new": 0}


@given(
    wanted=st.integers(0, 60),
    before=st.integers(1, 60),
    parts=st.lists(st.integers(1, 30), min_size=2, max_size=5),
    surge=st.integers(0, 10),
)
def test_proportional_scaling_adds_up(wanted, before, parts, surge):
    d = deployment(wanted, surge, 1)
    sets = [
        rs(f"s{i}", n, 0, desired=before, maximum=before + surge, age=i)
        for i, n in enumerate(parts)
    ]
    after = {s.metadata.name: s.spec.replicas for s in sets} | sizes(
        rollout.scale(d, sets[0], sets[1:])
    )
    assert sum(after.values()) == (wanted + surge if wanted else 0)
    assert min(after.values()) >= 0


def test_history_keeps_the_newest_revisions_and_never_a_set_with_pods():
    d = deployment(1, revisionHistoryLimit=1)
    old = [rs("a", 0, revision=1), rs("b", 1, revision=2), rs("c", 0, revision=3)]
    assert [r.metadata.name for r in rollout.to_clean(d, old)] == ["a"]
    assert rollout.to_clean(deployment(1), old) == []
    assert rollout.to_clean(deployment(1, revisionHistoryLimit=5), old) == []


@settings(max_examples=150)
@given(data=st.data())
def test_a_rollout_keeps_its_promises_and_ends(data):
    """Play rollouts with pods that become ready in any order and status that lags."""
    wanted = data.draw(st.integers(1, 12))
    surge = data.draw(st.integers(0, 4))
    unavailable = data.draw(st.integers(0, 4))
    d = deployment(wanted, surge, unavailable)
    limits = rollout.bounds(d)
    spec = {"old": wanted, "new": 0}
    ready = {"old": wanted, "new": 0}  # what really is available
    seen = dict(ready)  # what the status says
    for _ in range(400):
        act = data.draw(st.sampled_from(["ready", "status", "step", "step"]))
        if act == "ready" and ready["new"] < spec["new"]:
            ready["new"] += 1
        elif act == "status":
            seen = {name: ready[name] for name in spec}
        elif act == "step":
            old = rs("old", spec["old"], seen["old"], age=1)
            new = rs("new", spec["new"], seen["new"], age=2)
            size = rollout.new_size(d, spec["new"], spec["old"] + spec["new"])
            if size != spec["new"]:
                spec["new"] = size
            else:
                for change in rollout.shrink_old(d, new, [old]):
                    spec[change.rs.metadata.name] = change.replicas
            ready["old"] = min(ready["old"], spec["old"])
        assert spec["old"] + spec["new"] <= wanted + limits.surge
        assert ready["old"] + ready["new"] >= wanted - limits.unavailable
        if spec == {"old": 0, "new": wanted}:
            break
    for _ in range(100):  # left alone it finishes
        ready["new"] = spec["new"]
        seen = dict(ready)
        new = rs("new", spec["new"], seen["new"], age=2)
        spec["new"] = rollout.new_size(d, spec["new"], spec["old"] + spec["new"])
        for change in rollout.shrink_old(d, new, [rs("old", spec["old"], seen["old"])]):
            spec["old"] = change.replicas
        ready["old"] = min(ready["old"], spec["old"])
    assert spec == {"old": 0, "new": wanted}


def test_pods_about_to_be_deleted_still_take_room():
    shrinking = ReplicaSet.of({"spec": {"replicas": 5}, "status": {"replicas": 6}})
    growing = ReplicaSet.of({"spec": {"replicas": 3}, "status": {"replicas": 1}})
    assert rollout.present([shrinking, growing]) == 9
