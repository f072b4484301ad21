"""What a StatefulSet does next."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.api.views.base import Object
from motley.api.views.pod import Pod
from motley.api.views.storage import PersistentVolumeClaim
from motley.api.views.workloads import ControllerRevision, StatefulSet
from motley.controllers import identity, retention, stateful
from motley.lib import clock as clocks

NOW = 1_000_000.0
OLD = ControllerRevision.of({"metadata": {"name": "web-old"}, "revision": 1})
NEW = ControllerRevision.of({"metadata": {"name": "web-new"}, "revision": 2})


def stateful_set(replicas=3, claims=(), **spec):
    templates = [{"metadata": {"name": name}, "spec": {}} for name in claims]
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"partition": 0, "maxUnavailable": 1}}
    body = {"replicas": replicas, "updateStrategy": rolling, "volumeClaimTemplates": templates}
    body["template"] = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": []}}
    body["selector"] = {"matchLabels": {"app": "web"}}
    meta = {"name": "web", "namespace": "ns", "uid": "set", "generation": 1}
    return StatefulSet.of({"metadata": meta, "spec": {**body, **spec}})


def pod(ordinal, state="ready", revision="web-new", ready_since=0.0):
    name = f"web-{ordinal}"
    labels = {**identity.labels(name, ordinal), "controller-revision-hash": revision}
    meta = {"name": name, "namespace": "ns", "uid": f"u-{ordinal}", "labels": labels}
    phase = {"ready": "Running", "unready": "Running", "going": "Running"}.get(state, state)
    if state == "going":
        meta["deletionTimestamp"] = clocks.rfc3339(NOW)
    ready = "True" if state in ("ready", "going") else "False"
    stamp = clocks.rfc3339(ready_since)
    conditions = [{"type": "Ready", "status": ready, "lastTransitionTime": stamp}]
    return Pod.of({"metadata": meta, "status": {"phase": phase, "conditions": conditions}})


def plan(sts, pods, claims=(), current=NEW):
    held = {c.metadata.name: c for c in claims}
    return stateful.plan(stateful.View(sts, pods, held, current, NEW, NOW))


def names(pods):
    return [p.metadata.name for p in pods]


@pytest.mark.parametrize(
    ("pods", "create", "delete"),
    [
        ([], [0], []),
        ([pod(0)], [1], []),
        ([pod(0, "unready")], [], []),
        ([pod(0, "Pending"), pod(2)], [], []),
        ([pod(0), pod(2)], [1], []),
        ([pod(0), pod(1, "going"), pod(2)], [], []),
        ([pod(0, "Failed"), pod(1), pod(2)], [], ["web-0"]),
        ([pod(0), pod(1), pod(2, "Succeeded")], [], ["web-2"]),
        ([pod(n) for n in range(5)], [], ["web-4"]),
        ([*(pod(n) for n in range(4)), pod(4, "going")], [], []),
        ([*(pod(n) for n in range(3)), pod(3, "unready"), pod(4)], [], ["web-4"]),
        ([*(pod(n) for n in range(3)), pod(3, "unready"), pod(4, "unready")], [], []),
        ([*(pod(n) for n in range(4)), pod(4, "unready")], [], ["web-4"]),
        ([pod(0), pod(1, "unready"), pod(2), pod(3)], [], []),
    ],
)
def test_an_ordered_set_takes_one_step_at_a_time(pods, create, delete):
    steps = plan(stateful_set(), pods)
    assert (steps.create, names(steps.delete)) == (create, delete)


def test_a_pod_counts_only_after_min_ready_seconds():
    pods = [pod(0, ready_since=NOW - 5)]
    assert plan(stateful_set(minReadySeconds=10), pods).create == []
    assert plan(stateful_set(minReadySeconds=4), pods).create == [1]


def test_a_parallel_set_does_everything_at_once():
    sts = stateful_set(podManagementPolicy="Parallel")
    steps = plan(sts, [pod(1, "unready"), pod(3), pod(4, "unready"), pod(5, "going")])
    assert steps.create == [0, 2]
    assert names(steps.delete) == ["web-4", "web-3"]


@pytest.mark.parametrize(
    ("partition", "limit", "states", "deleted"),
    [
        (0, 1, "oooo", ["web-3"]),
        (0, 1, "ooon", ["web-2"]),
        (0, 2, "oooo", ["web-3", "web-2"]),
        (0, "50%", "oooo", ["web-3", "web-2"]),
        (0, "10%", "oooo", ["web-3"]),
        (2, 4, "oooo", ["web-3", "web-2"]),
        (4, 1, "oooo", []),
        (9, 1, "oooo", []),
    ],
)
def test_an_update_deletes_from_the_top_within_its_bounds(partition, limit, states, deleted):
    rolling = {"partition": partition, "maxUnavailable": limit}
    sts = stateful_set(4, updateStrategy={"type": "RollingUpdate", "rollingUpdate": rolling})
    revisions = {"o": "web-old", "n": "web-new"}
    pods = [pod(i, revision=revisions[s]) for i, s in enumerate(states)]
    assert names(plan(sts, pods, current=OLD).delete) == deleted


def test_a_parallel_update_spends_its_budget_on_what_is_down_first():
    rolling = {"partition": 0, "maxUnavailable": 2}
    strategy = {"type": "RollingUpdate", "rollingUpdate": rolling}
    sts = stateful_set(4, updateStrategy=strategy, podManagementPolicy="Parallel")
    pods = [pod(0, "unready", "web-old"), *(pod(n, revision="web-old") for n in (1, 2, 3))]
    assert names(plan(sts, pods, current=OLD).delete) == ["web-0", "web-3"]


def test_on_delete_deletes_nothing():
    sts = stateful_set(updateStrategy={"type": "OnDelete"})
    assert plan(sts, [pod(n, revision="web-old") for n in range(3)], current=OLD).delete == []


def test_what_is_missing_below_the_partition_is_made_of_the_current_revision():
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
    sts = stateful_set(updateStrategy=strategy, ordinals={"start": 10})
    view = stateful.View(sts, [], {}, OLD, NEW, NOW)
    assert [view.revision_for(n) for n in (10, 11, 12)] == [OLD, OLD, NEW]


def test_a_set_that_is_being_deleted_does_nothing():
    sts = stateful_set()
    sts.metadata.deletion_timestamp = clocks.rfc3339(NOW)
    assert plan(sts, []) == stateful.Plan()


def test_the_update_is_complete_when_all_are_new_and_ready():
    sts = stateful_set(2)
    done = stateful.View(sts, [pod(0), pod(1)], {}, OLD, NEW, NOW)
    status = stateful.status(done, 0)
    assert (status.current_revision, status.current_replicas) == ("web-new", 2)
    half = stateful.View(sts, [pod(0, revision="web-old"), pod(1)], {}, OLD, NEW, NOW)
    status = stateful.status(half, 0)
    assert (status.current_revision, status.current_replicas) == ("web-old", 1)
    assert status.updated_replicas == 1


def test_a_pod_says_who_it_is_and_mounts_its_claims():
    sts = stateful_set(claims=["data"], serviceName="svc")
    template = {"spec": {"containers": [], "volumes": [{"name": "data"}, {"name": "tmp"}]}}
    body = identity.pod_document(sts, template, "web-new", 7)
    spec = body["spec"]
    assert (spec["hostname"], spec["subdomain"]) == ("web-7", "svc")
    assert spec["volumes"] == [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-7"}},
        {"name": "tmp"},
    ]
    (claim,) = identity.claim_documents(sts, 7)
    assert claim["metadata"]["labels"] == {"app": "web"}


@pytest.mark.parametrize(
    ("name", "ordinal"),
    [("web-0", 0), ("web-12", 12), ("web-01", None), ("web-x", None), ("other-1", None)],
)
def test_only_the_sets_own_names_have_a_number(name, ordinal):
    named = Pod.of({"metadata": {"name": name}})
    assert identity.ordinal_of(stateful_set(), named) == ordinal


def claim(*references, name="data-web-0", **meta):
    owners = [
        {"apiVersion": "v1" if kind == "Pod" else "apps/v1", "kind": kind, "name": owner}
        | {"uid": uid, "controller": controls}
        for kind, owner, uid, controls in references
    ]
    return PersistentVolumeClaim.of({"metadata": {"name": name, "ownerReferences": owners, **meta}})


SET = ("StatefulSet", "web", "set", True)
POD = ("Pod", "web-0", "u-0", True)


@pytest.mark.parametrize(
    ("deleted", "scaled", "is_wanted", "present", "owners"),
    [
        ("Retain", "Retain", True, [], None),
        ("Retain", "Retain", True, [SET], []),
        ("Delete", "Retain", True, [], ["set"]),
        ("Delete", "Retain", False, [SET], None),
        ("Retain", "Delete", True, [], None),
        ("Retain", "Delete", True, [POD], []),
        ("Retain", "Delete", False, [], ["u-0"]),
        ("Delete", "Delete", True, [SET], None),
        ("Delete", "Delete", False, [SET], ["u-0"]),
        ("Delete", "Delete", True, [POD], ["set"]),
        ("Delete", "Delete", True, [("StatefulSet", "web", "set", False)], ["set"]),
        ("Delete", "Delete", True, [("StatefulSet", "web", "earlier", True)], None),
        ("Delete", "Delete", True, [("Job", "x", "x", True)], None),
        ("Delete", "Delete", True, [("Job", "x", "x", True), SET], ["x"]),
    ],
)
def test_claims_have_the_owner_the_policy_wants(deleted, scaled, is_wanted, present, owners):
    policy = {"whenDeleted": deleted, "whenScaled": scaled}
    sts = stateful_set(persistentVolumeClaimRetentionPolicy=policy)
    found = retention.references(claim(*present), sts, pod(0), is_wanted=is_wanted)
    assert (None if found is None else [r["uid"] for r in found]) == owners


def test_a_new_pod_waits_for_the_claim_that_goes_with_the_old_one():
    policy = {"whenDeleted": "Retain", "whenScaled": "Delete"}
    sts = stateful_set(claims=["data"], persistentVolumeClaimRetentionPolicy=policy)
    stale = claim(("Pod", "web-0", "earlier", True))
    steps = plan(sts, [], [stale])
    assert (steps.create, steps.waits_for_claims) == ([], ["data-web-0"])
    going = claim(deletionTimestamp=clocks.rfc3339(NOW))
    assert plan(sts, [], [going]).create == []
    assert plan(sts, [], [claim()]).create == [0]


STATES = st.sampled_from(["ready", "unready", "Pending", "Failed", "going"])
REVISIONS = st.sampled_from(["web-old", "web-new"])


@st.composite
def situations(draw):
    numbers = draw(st.sets(st.integers(0, 7)))
    pods = [pod(n, draw(STATES), draw(REVISIONS)) for n in sorted(numbers)]
    rolling = {"partition": draw(st.integers(0, 5)), "maxUnavailable": draw(st.integers(1, 3))}
    sts = stateful_set(
        draw(st.integers(0, 6)),
        podManagementPolicy=draw(st.sampled_from(["OrderedReady", "Parallel"])),
        updateStrategy={"type": "RollingUpdate", "rollingUpdate": rolling},
    )
    return stateful.View(sts, pods, dict[str, Object](), OLD, NEW, NOW)


@given(situations())
def test_no_step_breaks_order_or_availability(view):
    steps = stateful.plan(view)
    wanted = identity.ordinals(view.sts)
    placed = {identity.ordinal_of(view.sts, p): p for p in view.pods}
    for ordinal in steps.create:
        assert ordinal in wanted
        assert ordinal not in placed
        if view.is_ordered:
            assert all(view.is_available(placed[n]) for n in range(ordinal))
    assert all(not p.metadata.deletion_timestamp for p in steps.delete)
    assert len(names(steps.delete)) == len(set(names(steps.delete)))
    lost = [
        p
        for p in steps.delete
        if identity.ordinal_of(view.sts, p) in wanted and view.is_available(p)
    ]
    down = [n for n in wanted if n not in placed or not view.is_available(placed[n])]
    if lost:
        assert len(down) + len(lost) <= stateful.max_unavailable(view.sts)
    partition = view.sts.spec.update_strategy.rolling_update.partition
    for p in lost:
        assert identity.revision_of(p) == "web-old"
        assert identity.ordinal_of(view.sts, p) >= partition
    if view.is_ordered:
        surplus = [p for p in steps.delete if identity.ordinal_of(view.sts, p) not in wanted]
        assert len(steps.create) + len(surplus) <= 1
        if surplus:
            assert identity.ordinal_of(view.sts, surplus[0]) == max(placed)
            assert not down


@given(situations())
def test_a_set_always_comes_to_rest_as_asked(view):
    """Steps carried out, and every pod ready soon after: the end is the specification."""
    pods = {identity.ordinal_of(view.sts, p): p for p in view.pods}
    for _ in range(60):
        now = stateful.View(view.sts, list(pods.values()), {}, OLD, NEW, NOW)
        steps = stateful.plan(now)
        for ordinal in steps.create:
            pods[ordinal] = pod(ordinal, "ready", now.revision_for(ordinal).metadata.name)
        gone = {p.metadata.uid for p in steps.delete}
        kept = {
            n: p
            for n, p in pods.items()
            if p.metadata.uid not in gone and not p.metadata.deletion_timestamp
        }
        pods = {
            n: p if p.status.phase == "Failed" else pod(n, "ready", identity.revision_of(p))
            for n, p in kept.items()
        }
    wanted = identity.ordinals(view.sts)
    assert sorted(pods) == list(wanted)
    partition = view.sts.spec.update_strategy.rolling_update.partition
    assert all(identity.revision_of(pods[n]) == "web-new" for n in wanted if n >= partition)
