from dataclasses import dataclass

import pytest

from motley.api.selectors import Selector
from motley.api.views.pod import Pod
from motley.controllers import claim, replicas
from motley.controllers.workload import ReplicaSet
from motley.controllers.written import Written

NOW = 1_000_000.0


def pod(
    name="p",
    *,
    node="n1",
    phase="Running",
    ready=True,
    since="2026-01-01T00:00:00Z",
    created="2026-01-01T00:00:00Z",
    restarts=0,
    cost=None,
    owner=None,
    labels=None,
    deleted=False,
    version="1",
):
    meta = {
        "name": name,
        "namespace": "ns",
        "uid": name,
        "creationTimestamp": created,
        "labels": labels if labels is not None else {"app": "a"},
        "resourceVersion": version,
    }
    if cost is not None:
        meta["annotations"] = {"controller.kubernetes.io/pod-deletion-cost": str(cost)}
    if owner:
        meta["ownerReferences"] = [{"kind": "ReplicaSet", "uid": owner, "controller": True}]
    if deleted:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": since}
    return Pod.of(
        {
            "metadata": meta,
            "spec": {"nodeName": node},
            "status": {
                "phase": phase,
                "conditions": [condition],
                "containerStatuses": [{"name": "c", "restartCount": restarts}],
            },
        }
    )


def replica_set(n=3, **meta):
    return ReplicaSet.of(
        {
            "metadata": {"name": "rs", "namespace": "ns", "uid": "rs", "generation": 4, **meta},
            "spec": {
                "replicas": n,
                "selector": {"matchLabels": {"app": "a"}},
                "template": {
                    "metadata": {"labels": {"app": "a"}, "annotations": {"x": "y"}},
                    "spec": {"containers": [{"name": "c", "unheard": {"of": 1}}]},
                },
            },
        }
    )


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"node": ""}, {"node": "n1", "phase": "Pending"}),
        ({"phase": "Pending"}, {"phase": "Unknown"}),
        ({"phase": "Unknown"}, {"phase": "Running"}),
        ({"ready": False}, {"ready": True}),
        ({"cost": -5}, {}),
        ({}, {"cost": 10}),
        ({"since": "2026-01-02T00:00:00Z"}, {"since": "2026-01-01T00:00:00Z"}),
        ({"restarts": 3}, {"restarts": 1}),
        ({"created": "2026-01-02T00:00:00Z"}, {"created": "2026-01-01T00:00:00Z"}),
        # an earlier rule beats a later one
        ({"node": "", "cost": 100}, {"cost": -100}),
        ({"ready": False, "restarts": 0}, {"ready": True, "restarts": 9}),
    ],
)
def test_the_pod_whose_loss_hurts_least_goes_first(first, second):
    one, two = pod("one", **first), pod("two", **second)
    for order in ([one, two], [two, one]):
        assert replicas.to_delete(order, 1, []) == [one]


def test_a_node_that_runs_many_relatives_loses_one_first():
    one, two = pod("one", node="full"), pod("two", node="empty")
    related = [one, two, pod("x", node="full"), pod("y", node="full")]
    assert replicas.to_delete([two, one], 1, related) == [one]


def test_ended_and_ending_pods_do_not_count():
    assert replicas.is_active(pod())
    assert not replicas.is_active(pod(phase="Failed"))
    assert not replicas.is_active(pod(phase="Succeeded"))
    assert not replicas.is_active(pod(deleted=True))


def test_availability_comes_with_time():
    ready = pod(since="1970-01-12T13:46:40Z")  # NOW
    assert replicas.available_in_s(ready, 0, NOW) == 0
    assert replicas.available_in_s(ready, 30, NOW + 10) == 20
    assert replicas.available_in_s(ready, 30, NOW + 31) == 0
    assert replicas.available_in_s(pod(ready=False), 0, NOW) is None


@pytest.mark.parametrize(("count", "batches"), [(0, []), (1, [1]), (10, [1, 2, 4, 3]), (3, [1, 2])])
def test_batches_grow(count, batches):
    assert list(replicas.slow_start(count)) == batches


def test_a_pod_gets_the_whole_template_and_its_owner():
    document = replicas.pod_document(replica_set())
    assert document["spec"] == {"containers": [{"name": "c", "unheard": {"of": 1}}]}
    assert document["metadata"]["labels"] == {"app": "a"}
    assert document["metadata"]["annotations"] == {"x": "y"}
    assert document["metadata"]["generateName"] == "rs-"
    (owner,) = document["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == ("rs", True, True)


def test_the_status_counts():
    pods = [pod("a"), pod("b", ready=False), pod("c", labels={"other": "x"})]
    status = replicas.status_document(replica_set(), pods, NOW, None)
    assert status == {
        "replicas": 3,
        "fullyLabeledReplicas": 2,
        "readyReplicas": 2,
        "availableReplicas": 2,
        "observedGeneration": 4,
        "conditions": None,
    }


def test_claims_sort_by_owner_and_labels():
    owner = replica_set()
    mine, lost = pod("mine", owner="rs"), pod("lost", owner="rs", labels={"app": "b"})
    stray, other = pod("stray"), pod("other", owner="another")
    ending, unlike = pod("ending", deleted=True), pod("unlike", labels={})
    claims = claim.plan(
        owner,
        Selector.of(owner.spec.selector),
        [mine, lost, stray, other, ending, unlike],
    )
    assert (claims.keep, claims.release, claims.adopt) == ([mine], [lost], [stray])


def test_an_owner_that_is_being_deleted_adopts_nothing():
    owner = replica_set(deletionTimestamp="2026-01-01T00:00:00Z")
    claims = claim.plan(owner, Selector.of(owner.spec.selector), [pod("stray")])
    assert claims.adopt == []


@dataclass
class Cache:
    objects: dict
    resource_version: str = "10"

    def get(self, key):
        return self.objects.get(key)


@dataclass
class Frozen:
    at: float = 0.0

    def now(self):
        return self.at

    def monotonic(self):
        return self.at


def names(pods):
    return sorted(p.metadata.name for p in pods)


def test_a_created_object_is_seen_before_its_event_and_forgotten_after():
    cache = Cache({})
    written = Written(cache, Frozen())
    written.put(pod("new", version="12"), "rs")
    assert names(written.over([], "rs")) == ["new"]
    assert names(written.over([], "other")) == []
    cache.resource_version = "12"  # the informer is past it: created, and deleted again since
    assert names(written.over([], "rs")) == []


def test_a_deleted_object_is_not_seen_although_the_cache_still_has_it():
    written = Written(Cache({}), Frozen())
    old = pod("old")
    written.delete(old)
    assert written.over([old, pod("kept")], "rs") == [pod("kept")]
    ending = pod("old", deleted=True)
    assert written.over([ending], "rs") == [ending]  # now its own state says so


def test_the_newer_of_cache_and_write_is_seen():
    written = Written(Cache({}), Frozen())
    written.put(pod("a", version="12", restarts=1), "rs")
    (seen,) = written.over([pod("a", version="11")], "rs")
    assert seen.metadata.resource_version == "12"
    (seen,) = written.over([pod("a", version="13")], "rs")
    assert seen.metadata.resource_version == "13"


def test_a_write_is_not_believed_for_ever():
    clock = Frozen()
    written = Written(Cache({}, resource_version="3"), clock)  # the store started anew
    written.put(pod("ghost", version="999"), "rs")
    clock.at = 600
    assert written.over([], "rs") == []
