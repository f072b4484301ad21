"""Many writes in one request: each is judged, written and recorded as if it had come alone."""

import pytest

from motley.apiserver import audit
from motley.lib.clock import SYSTEM

BINDINGS = "/apis/motley.io/v1/bindings"
BATCHES = "/apis/motley.io/v1/batches"
PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/api/v1/namespaces/default/events"
STRATEGIC = "application/strategic-merge-patch+json"


def item(name, node="n1", namespace="default", **more):
    return {"metadata": {"namespace": namespace, "name": name}, "target": {"name": node}, **more}


@pytest.fixture
async def pods(api):
    for name in ("a", "b", "c"):
        spec = {"containers": [{"name": "c", "image": "i"}]}
        made = await api.create(PODS, {"metadata": {"name": name}, "spec": spec})
        assert made.code == 201, made.json
    return api


async def node_of(api, name):
    return (await api.get(f"{PODS}/{name}")).json["spec"].get("nodeName")


async def test_discovery_lists_both_as_things_that_are_only_created(api):
    resources = (await api.get("/apis/motley.io/v1")).json["resources"]
    found = {r["name"]: r["verbs"] for r in resources}
    assert found["bindings"] == ["create"]
    assert found["batches"] == ["create"]


async def test_bindings_are_written_together_and_each_gets_its_own_answer(pods):
    items = [item("a"), item("nobody"), item("b", node="n2"), item("")]
    reply = await pods.create(BINDINGS, {"items": items})
    assert reply.code == 200
    answers = reply.json["items"]
    assert [answer["code"] for answer in answers] == [201, 404, 201, 400]
    assert answers[1]["message"] == 'pods "nobody" not found'
    assert (await node_of(pods, "a"), await node_of(pods, "b")) == ("n1", "n2")
    scheduled = (await pods.get(f"{PODS}/a")).json["status"]["conditions"]
    assert ("PodScheduled", "True") in [(c["type"], c["status"]) for c in scheduled]


async def test_a_pod_is_bound_at_most_once_also_within_a_batch(pods):
    reply = await pods.create(BINDINGS, {"items": [item("a"), item("a", node="n2")]})
    assert sorted(answer["code"] for answer in reply.json["items"]) == [201, 409]
    other = item("b")
    other["metadata"]["uid"] = "another"
    reply = await pods.create(BINDINGS, {"items": [item("a", node="n3"), other]})
    assert [answer["reason"] for answer in reply.json["items"]] == ["Conflict", "Conflict"]
    assert await node_of(pods, "b") is None


async def test_the_event_comes_along_with_a_binding_and_only_with_one_that_succeeds(pods):
    note = {"reason": "Scheduled", "message": "to n1", "component": "default-scheduler"}
    await pods.create(BINDINGS, {"items": [item("a", event=note), item("nobody", event=note)]})
    (event,) = (await pods.get(EVENTS)).json["items"]
    assert event["involvedObject"]["name"] == "a"
    assert (event["reason"], event["message"], event["count"]) == ("Scheduled", "to n1", 1)
    assert event["source"] == {"component": "default-scheduler"}


async def test_the_scheduler_may_and_who_may_not_bind_a_pod_may_not_in_a_batch(pods):
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    rule = {"verbs": ["create"], "apiGroups": ["motley.io"], "resources": ["bindings", "batches"]}
    await pods.create(f"{rbac}/clusterroles", {"metadata": {"name": "r"}, "rules": [rule]})
    bound = {
        "metadata": {"name": "r"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"},
        "subjects": [{"kind": "User", "name": "alice", "apiGroup": "rbac.authorization.k8s.io"}],
    }
    await pods.create(f"{rbac}/clusterrolebindings", bound)
    (answer,) = (await pods.create(BINDINGS, {"items": [item("a")]}, token="alice")).json["items"]
    assert answer["code"] == 403
    assert 'cannot create resource "pods/binding"' in answer["message"]
    write = {"method": "DELETE", "path": f"{PODS}/a"}
    (entry,) = (await pods.create(BATCHES, {"items": [write]}, token="alice")).json["items"]
    assert (entry["code"], entry["status"]["reason"]) == (403, "Forbidden")
    reply = await pods.create(BINDINGS, {"items": [item("a")]}, token="scheduler")
    assert reply.json["items"][0]["code"] == 201


async def test_a_batch_without_the_right_to_send_one_is_refused_as_a_whole(pods):
    reply = await pods.create(BINDINGS, {"items": [item("a")]}, token="alice")
    assert reply.code == 403
    assert await node_of(pods, "a") is None


@pytest.mark.parametrize("body", [b"{", {"items": [{"target": {}}]}, {"items": 3}, b""])
async def test_a_body_that_is_no_batch_is_refused(api, body):
    assert (await api.create(BINDINGS, body)).code == 400
    assert (await api.create(BATCHES, body)).code == 400


async def test_too_many_items_are_refused(api):
    reply = await api.create(BINDINGS, {"items": [item("a")] * 501})
    assert reply.code == 413


async def test_a_dry_run_binds_nothing(pods):
    note = {"reason": "Scheduled"}
    reply = await pods.create(f"{BINDINGS}?dryRun=All", {"items": [item("a", event=note)]})
    assert reply.json["items"][0]["code"] == 201
    assert await node_of(pods, "a") is None
    assert not (await pods.get(EVENTS)).json["items"]


async def test_each_binding_is_in_the_audit_log(pods):
    events = []
    pods.app._auditor = audit.Auditor(events.append, SYSTEM)
    await pods.create(BINDINGS, {"items": [item("a"), item("nobody")]}, token="scheduler")
    found = [
        (e["objectRef"].get("name"), e["objectRef"].get("subresource"), e["responseStatus"]["code"])
        for e in events
        if e["objectRef"]["resource"] == "pods"
    ]
    assert sorted(found) == [("a", "binding", 201), ("nobody", "binding", 404)]
    assert {e["user"]["username"] for e in events} == {"system:kube-scheduler"}


async def test_other_writes_go_together_too(pods):
    patch = {"status": {"conditions": [{"type": "DisruptionTarget", "status": "True"}]}}
    made = {"metadata": {"name": "made"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    writes = [
        {"method": "PATCH", "path": f"{PODS}/a/status", "contentType": STRATEGIC, "body": patch},
        {"method": "DELETE", "path": f"{PODS}/b"},
        {"method": "DELETE", "path": f"{PODS}/nobody"},
        {"method": "POST", "path": PODS, "body": made},
    ]
    entries = (await pods.create(BATCHES, {"items": writes})).json["items"]
    assert [entry["code"] for entry in entries] == [200, 200, 404, 201]
    assert entries[2]["status"]["reason"] == "NotFound"
    assert entries[3]["metadata"]["name"] == "made"
    conditions = (await pods.get(f"{PODS}/a")).json["status"]["conditions"]
    assert "DisruptionTarget" in [condition["type"] for condition in conditions]
    assert (await pods.get(f"{PODS}/b")).code == 404


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", PODS),
        ("POST", BATCHES),
        ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
        ("POST", f"{PODS}/a/exec"),
        ("POST", "/healthz"),
    ],
)
async def test_what_is_no_plain_write_is_not_taken_in_a_batch(pods, method, path):
    reply = await pods.create(BATCHES, {"items": [{"method": method, "path": path, "body": {}}]})
    assert reply.json["items"][0]["code"] == 400


VICTIM = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}


async def end(api, name, token=None, **more):
    write = {"method": "DELETE", "path": f"{PODS}/{name}", "condition": VICTIM, **more}
    tokens = {} if token is None else {"token": token}
    (entry,) = (await api.create(BATCHES, {"items": [write]}, **tokens)).json["items"]
    return entry


async def test_a_pod_that_ends_for_another_says_why_before_it_goes(pods):
    await pods.create(BINDINGS, {"items": [item("a")]})
    assert (await end(pods, "a"))["code"] == 200
    ending = (await pods.get(f"{PODS}/a")).json  # bound: it has its grace period
    assert ending["metadata"]["deletionTimestamp"]
    (condition,) = [c for c in ending["status"]["conditions"] if c["type"] == VICTIM["type"]]
    assert {name: condition[name] for name in VICTIM} == VICTIM
    assert condition["lastTransitionTime"]
    assert (await end(pods, "b"))["code"] == 200  # nobody has begun to run it: it goes at once
    assert (await pods.get(f"{PODS}/b")).code == 404


async def test_a_pod_of_another_uid_is_neither_told_nor_ended(pods):
    body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": "another"}}
    assert (await end(pods, "a", body=body))["code"] == 409
    found = (await pods.get(f"{PODS}/a")).json
    conditions = found["status"].get("conditions") or ()
    assert VICTIM["type"] not in [c["type"] for c in conditions]
    assert (await end(pods, "nobody"))["code"] == 404


async def test_who_may_not_write_a_status_ends_no_pod_with_a_condition(pods):
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    rules = [
        {"verbs": ["create"], "apiGroups": ["motley.io"], "resources": ["batches"]},
        {"verbs": ["delete"], "apiGroups": [""], "resources": ["pods"]},
    ]
    await pods.create(f"{rbac}/clusterroles", {"metadata": {"name": "r"}, "rules": rules})
    bound = {
        "metadata": {"name": "r"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"},
        "subjects": [{"kind": "User", "name": "alice", "apiGroup": "rbac.authorization.k8s.io"}],
    }
    await pods.create(f"{rbac}/clusterrolebindings", bound)
    assert (await end(pods, "a", token="alice"))["code"] == 403
    assert (await pods.get(f"{PODS}/a")).code == 200
    assert (await end(pods, "a", token="alice", condition=None))["code"] == 200


async def test_only_a_pods_end_takes_a_condition(pods):
    patch = {"method": "PATCH", "path": f"{PODS}/a", "contentType": STRATEGIC, "body": {}}
    config = {"method": "DELETE", "path": "/api/v1/namespaces/default/configmaps/c"}
    items = [{**write, "condition": VICTIM} for write in (patch, config)]
    entries = (await pods.create(BATCHES, {"items": items})).json["items"]
    assert [entry["code"] for entry in entries] == [400, 400]
