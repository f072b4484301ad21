import msgspec
import pytest

from motley.api.views.base import Condition
from motley.controllers import progress, rollout, template
from motley.controllers.workload import POD_TEMPLATE_HASH, Deployment, ReplicaSet, condition
from motley.lib import clock as clocks

NOW = 1_000_000.0
POD = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


def deployment(replicas=3, *, status=None, annotations=None, generation=1, **spec):
    return Deployment.of(
        {
            "metadata": {
                "name": "d",
                "namespace": "n",
                "uid": "u",
                "generation": generation,
                "annotations": annotations or {},
            },
            "spec": {
                "replicas": replicas,
                "progressDeadlineSeconds": 600,
                "selector": {"matchLabels": {"app": "a"}},
                "template": POD,
                **spec,
            },
            "status": status or {},
        }
    )


def rs(name="d-1", replicas=3, available=3, ready=None, conditions=(), **meta):
    return ReplicaSet.of(
        {
            "metadata": {"name": name, **meta},
            "spec": {"replicas": replicas, "template": POD},
            "status": {
                "replicas": replicas,
                "availableReplicas": available,
                "readyReplicas": available if ready is None else ready,
                "conditions": list(conditions),
            },
        }
    )


def progressing(status):
    found = condition(status.conditions, "Progressing")
    return (found.status, found.reason) if found else None


def with_status(d, status):
    return msgspec.structs.replace(d, status=status)


def test_counts_are_the_sums_of_the_sets():
    new, old = rs("new", 2, 1), rs("old", 2, 2)
    status = progress.judge(deployment(3), new, [old, new], NOW)
    assert (status.replicas, status.updated_replicas, status.available_replicas) == (4, 2, 3)
    assert (status.unavailable_replicas, status.observed_generation) == (1, 1)


def test_available_needs_the_minimum():
    d = deployment(3, strategy={"rollingUpdate": {"maxUnavailable": 1, "maxSurge": 1}})
    for available, expected in ((1, "False"), (2, "True")):
        new = rs("new", 3, available)
        status = progress.judge(d, new, [new], NOW)
        assert condition(status.conditions, "Available").status == expected


def test_a_finished_rollout_says_new_replica_set_available():
    new = rs("new")
    status = progress.judge(deployment(3), new, [new], NOW)
    assert progressing(status) == ("True", "NewReplicaSetAvailable")
    assert 'ReplicaSet "new" has successfully progressed.' in status.conditions[-1].message


def test_progress_restarts_the_clock_and_standing_still_runs_it_out():
    d = deployment(3)
    first = progress.judge(d, rs("new", 3, 1), [rs("new", 3, 1)], NOW)
    assert progressing(first) == ("True", "ReplicaSetUpdated")
    d = with_status(d, first)
    assert progress.deadline_in_s(d, first.conditions, NOW) == 600
    stuck = progress.judge(d, rs("new", 3, 1), [rs("new", 3, 1)], NOW + 601)
    assert progressing(stuck) == ("False", "ProgressDeadlineExceeded")
    d = with_status(d, stuck)
    assert progress.deadline_in_s(d, stuck.conditions, NOW) is None
    moved = progress.judge(d, rs("new", 3, 2), [rs("new", 3, 2)], NOW + 700)
    assert progressing(moved) == ("True", "ReplicaSetUpdated")
    assert condition(moved.conditions, "Progressing").last_update_time == clocks.rfc3339(NOW + 700)


def test_a_settled_deployment_that_loses_a_pod_does_not_start_a_deadline():
    new = rs("new")
    settled = progress.judge(deployment(3), new, [new], NOW)
    d = with_status(deployment(3), settled)
    later = progress.judge(d, rs("new", 3, 2), [rs("new", 3, 2)], NOW + 5000)
    assert progressing(later) == ("True", "NewReplicaSetAvailable")


def test_a_paused_deployment_has_no_deadline():
    stamp = clocks.rfc3339(NOW)
    conditions = [Condition(type="Progressing", status="Unknown", last_update_time=stamp)]
    assert progress.deadline_in_s(deployment(paused=True), conditions, NOW + 9999) is None


def test_the_failure_of_a_set_is_shown_on_the_deployment():
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "q"}
    new = rs("new", 3, 1, conditions=[failure])
    status = progress.judge(deployment(3), new, [new], NOW)
    found = condition(status.conditions, "ReplicaFailure")
    assert (found.reason, found.message) == ("FailedCreate", "q")
    healed = progress.judge(with_status(deployment(3), status), rs("new"), [rs("new")], NOW)
    assert condition(healed.conditions, "ReplicaFailure") is None


def test_the_patch_removes_counts_that_fell_to_zero():
    document = progress.document(progress.judge(deployment(0), None, [], NOW))
    assert document["replicas"] is None
    assert document["readyReplicas"] is None
    assert document["observedGeneration"] == 1


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({}, True),
        ({"metadata": {"labels": {"app": "a", POD_TEMPLATE_HASH: "x"}}}, True),
        ({"metadata": {"labels": {"app": "a"}, "creationTimestamp": None}}, True),
        ({"metadata": {"labels": {"app": "b"}}}, False),
        ({"spec": {"containers": [{"name": "c", "image": "j"}]}}, False),
    ],
)
def test_templates_are_equal_but_for_the_hash(change, same):
    changed = {**POD, **change}
    assert (template.bare(changed) == template.bare(POD)) is same
    assert (template.hash_of(changed) == template.hash_of(POD)) is same


def test_a_hash_is_stable_and_changes_with_collisions():
    assert template.hash_of(POD) == template.hash_of(dict(reversed(POD.items())))
    assert template.hash_of(POD, 1) != template.hash_of(POD)
    assert len(template.hash_of(POD)) == 10


def test_the_new_set_carries_hash_owner_revision_and_sizes():
    d = deployment(4, annotations={"note": "x", rollout.REVISION: "1"}, minReadySeconds=5)
    body = template.replica_set(d, "hash", 2, 3)
    assert body["metadata"]["name"] == "d-hash"
    labels = {"app": "a", POD_TEMPLATE_HASH: "hash"}
    assert body["metadata"]["labels"] == labels
    assert body["spec"]["selector"]["matchLabels"] == labels
    assert body["spec"]["template"]["metadata"]["labels"] == labels
    assert (body["spec"]["replicas"], body["spec"]["minReadySeconds"]) == (3, 5)
    assert body["metadata"]["annotations"] == {
        "note": "x",
        rollout.REVISION: "2",
        rollout.DESIRED: "4",
        rollout.MAXIMUM: "5",
    }
    assert body["metadata"]["ownerReferences"][0]["uid"] == "u"
    assert POD_TEMPLATE_HASH not in d.spec.template["metadata"]["labels"]


def test_a_set_that_is_used_again_remembers_its_revisions():
    old = rs(annotations={rollout.REVISION: "2", rollout.REVISION_HISTORY: "1"})
    after = template.annotations(deployment(), old, 5)
    assert (after[rollout.REVISION], after[rollout.REVISION_HISTORY]) == ("5", "1,2")
    assert template.annotations(deployment(), old, 2)[rollout.REVISION] == "2"
