"""Deleting: at once, with grace, with finalizers, and what depends on the deleted."""

import pytest

from motley.api import scheme
from motley.apiserver import deletion
from motley.apiserver.options import DeleteOptions
from motley.lib.clock import parse_rfc3339

PODS = "/api/v1/namespaces/demo/pods"
MAPS = "/api/v1/namespaces/demo/configmaps"
UNKNOWN_UID = "99999999-0000-1111-2222-333333333333"


async def test_a_deletion_is_answered_with_a_status(api):
    made = (await api.create(MAPS, {"metadata": {"name": "a"}})).json

    gone = await api.delete(f"{MAPS}/a")

    assert gone.json["status"] == "Success"
    assert gone.json["details"] == {
        "name": "a",
        "kind": "configmaps",
        "uid": made["metadata"]["uid"],
    }
    assert (await api.delete(f"{MAPS}/a")).code == 404


async def test_preconditions_protect_the_object_somebody_else_made(api):
    made = (await api.create(MAPS, {"metadata": {"name": "a"}})).json["metadata"]

    uid = await api.delete(f"{MAPS}/a", {"preconditions": {"uid": UNKNOWN_UID}})
    version = await api.delete(f"{MAPS}/a", {"preconditions": {"resourceVersion": "1"}})
    right = {"uid": made["uid"], "resourceVersion": made["resourceVersion"]}
    done = await api.delete(f"{MAPS}/a", {"preconditions": right})

    assert uid.code == version.code == 409
    assert "the UID in the precondition" in uid.message
    assert done.code == 200


async def test_finalizers_hold_an_object_until_the_last_is_gone(api):
    await api.create(MAPS, {"metadata": {"name": "a", "finalizers": ["example.com/f"]}})

    marked = await api.delete(f"{MAPS}/a")
    assert marked.json["metadata"]["deletionGracePeriodSeconds"] == 0
    again = await api.create(MAPS, {"metadata": {"name": "a"}})
    assert again.message == 'object is being deleted: configmaps "a" already exists'
    more = await api.patch(f"{MAPS}/a", {"metadata": {"finalizers": ["example.com/f", "b.c/d"]}})
    assert more.code == 422
    await api.patch(f"{MAPS}/a", {"metadata": {"finalizers": None}})

    assert (await api.get(f"{MAPS}/a")).code == 404


async def test_a_pod_that_runs_nowhere_goes_at_once(api, a_pod):
    await api.create(PODS, a_pod())

    gone = await api.delete(f"{PODS}/p")

    assert gone.json["kind"] == "Pod"
    assert gone.json["metadata"]["deletionGracePeriodSeconds"] == 0
    assert (await api.get(f"{PODS}/p")).code == 404


async def test_a_running_pod_has_its_grace_which_can_only_be_shortened(api, a_pod):
    await api.create(PODS, a_pod(nodeName="n1"))

    async def grace(query: str = "") -> int:
        reply = await api.delete(f"{PODS}/p{query}")
        return reply.json["metadata"]["deletionGracePeriodSeconds"]

    assert await grace() == 30
    assert await grace("?gracePeriodSeconds=60") == 30
    assert await grace("?gracePeriodSeconds=5") == 5
    assert (await api.get(f"{PODS}/p")).code == 200
    assert await grace("?gracePeriodSeconds=0") == 0
    assert (await api.get(f"{PODS}/p")).code == 404


def test_a_grace_period_is_never_shortened_into_the_past():
    kind = scheme.resource("", "v1", "pods")
    metadata = {
        "name": "p",
        "deletionTimestamp": "2026-01-01T00:00:30Z",
        "deletionGracePeriodSeconds": 30,
    }
    pod = {"metadata": metadata, "spec": {"nodeName": "n"}}

    def hurried(grace_s, *, after_s):
        now = parse_rfc3339("2026-01-01T00:00:00Z") + after_s
        options = DeleteOptions(grace_period_seconds=grace_s)
        found = deletion.plan(kind, pod, options, now).document["metadata"]
        return found["deletionTimestamp"], found["deletionGracePeriodSeconds"]

    assert hurried(10, after_s=5) == ("2026-01-01T00:00:10Z", 10)
    assert hurried(10, after_s=20) == ("2026-01-01T00:00:20Z", 1)
    assert hurried(0, after_s=20) == ("2026-01-01T00:00:20Z", 0)


async def test_a_finished_pod_has_no_grace(api, a_pod):
    await api.create(PODS, a_pod(nodeName="n1"))
    await api.patch(f"{PODS}/p/status", {"status": {"phase": "Succeeded"}})

    await api.delete(f"{PODS}/p")

    assert (await api.get(f"{PODS}/p")).code == 404


@pytest.mark.parametrize(
    ("policy", "finalizer"), [("Foreground", "foregroundDeletion"), ("Orphan", "orphan")]
)
async def test_propagation_policies_leave_word_for_the_garbage_collector(api, policy, finalizer):
    await api.create(MAPS, {"metadata": {"name": "a"}})

    marked = await api.delete(f"{MAPS}/a?propagationPolicy={policy}")

    assert marked.json["metadata"]["finalizers"] == [finalizer]
    background = await api.delete(f"{MAPS}/a?propagationPolicy=Background")
    assert background.json["status"] == "Success"


async def test_delete_options_that_make_no_sense_are_refused(api):
    await api.create(MAPS, {"metadata": {"name": "a"}})

    assert (await api.delete(f"{MAPS}/a?propagationPolicy=Nope")).code == 422
    assert (await api.delete(f"{MAPS}/a?gracePeriodSeconds=x")).code == 400
    assert (await api.delete(f"{MAPS}/a", b"nonsense")).code == 400
    assert (await api.delete(f"{MAPS}/a", {"kind": "Pod", "apiVersion": "v1"})).code == 400


async def test_a_dry_run_deletes_nothing(api):
    await api.create(MAPS, {"metadata": {"name": "a"}})

    assert (await api.delete(f"{MAPS}/a?dryRun=All")).code == 200
    assert (await api.get(f"{MAPS}/a")).code == 200


async def test_a_namespace_goes_when_it_is_finalized(api):
    url = "/api/v1/namespaces/demo"

    ending = (await api.delete(url)).json
    assert ending["status"]["phase"] == "Terminating"
    assert "deletionGracePeriodSeconds" not in ending["metadata"]
    assert (await api.delete(url)).code == 200
    finalized = await api.put(f"{url}/finalize", {**ending, "spec": {"finalizers": []}})

    assert finalized.code == 200
    assert (await api.get(url)).code == 404


async def test_the_first_namespaces_cannot_be_deleted(api):
    refused = await api.delete("/api/v1/namespaces/kube-system")

    assert (refused.code, refused.json["reason"]) == (403, "Forbidden")
    assert refused.message.endswith("this namespace may not be deleted")
