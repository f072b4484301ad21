"""Server-side apply and the record of owners, through the API."""

import pytest

MAPS = "/api/v1/namespaces/default/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
PODS = "/api/v1/namespaces/default/pods"
APPLY = "application/apply-patch+yaml"


async def apply(api, url, body, manager="one", query=""):
    if isinstance(body, str):
        body = body.encode()
    address = f"{url}?fieldManager={manager}{query}"
    return await api.call("PATCH", address, body, content_type=APPLY)


def config_map(data=None, **metadata):
    found = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", **metadata}}
    return found if data is None else {**found, "data": data}


def deployment(**spec):
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [CONTAINER]}}
    wanted = {"selector": {"matchLabels": {"a": "b"}}, "template": template, **spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": wanted,
    }


CONTAINER = {"name": "c", "image": "x:1"}


def owners(reply):
    found = reply.json["metadata"].get("managedFields", ())
    return {(e["manager"], e["operation"], e.get("subresource", "")) for e in found}


async def test_applying_creates_then_changes_then_does_nothing(api):
    created = await apply(api, f"{MAPS}/a", config_map({"x": "1"}))
    same = await apply(api, f"{MAPS}/a", config_map({"x": "1"}))
    changed = await apply(api, f"{MAPS}/a", config_map({"x": "2"}))

    assert [created.code, same.code, changed.code] == [201, 200, 200]
    assert same.json == created.json
    assert changed.json["data"] == {"x": "2"}
    first, second = (int(r.json["metadata"]["resourceVersion"]) for r in (same, changed))
    assert second > first


async def test_conflicts_are_409_and_can_be_forced(api):
    await apply(api, f"{MAPS}/a", config_map({"x": "1"}))
    refused = await apply(api, f"{MAPS}/a", config_map({"x": "2"}), "two")
    forced = await apply(api, f"{MAPS}/a", config_map({"x": "2"}), "two", "&force=true")

    assert (refused.code, refused.json["reason"]) == (409, "Conflict")
    assert refused.json["details"]["causes"][0]["reason"] == "FieldManagerConflict"
    assert owners(forced) == {("two", "Apply", "")}


async def test_the_manager_of_other_writes_is_named_or_known_by_its_program(api):
    agent = {"user-agent": "editor/1.0 (linux)"}
    created = await api.create(MAPS, config_map({"x": "1"}), headers=agent)
    named = await api.patch(f"{MAPS}/a?fieldManager=me", {"data": {"y": "1"}}, headers=agent)
    nameless = await api.patch(f"{MAPS}/a", {"data": {"z": "1"}})

    assert owners(created) == {("editor", "Update", "")}
    assert ("me", "Update", "") in owners(named)
    assert ("unknown", "Update", "") in owners(nameless)


async def test_a_replaced_object_keeps_its_owners_though_the_body_has_none(api):
    await apply(api, f"{MAPS}/a", config_map({"x": "1", "y": "1"}))
    put = await api.put(f"{MAPS}/a?fieldManager=two", config_map({"x": "1", "y": "2"}))

    assert owners(put) == {("one", "Apply", ""), ("two", "Update", "")}


async def test_owners_can_be_cleared_and_are_found_again_by_an_apply(api):
    await api.create(MAPS, config_map({"x": "1"}))
    operation = {"op": "replace", "path": "/metadata/managedFields", "value": [{}]}
    cleared = await api.patch(f"{MAPS}/a", [operation], "json")
    refused = await apply(api, f"{MAPS}/a", config_map({"x": "2"}))

    assert owners(cleared) == set()
    assert "before-first-apply" in refused.message


async def test_what_admission_and_the_server_add_belongs_to_nobody(api):
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [CONTAINER]}}
    created = await api.create(f"{PODS}?fieldManager=me", pod)

    (entry,) = created.json["metadata"]["managedFields"]
    spec = entry["fieldsV1"]["f:spec"]
    assert "f:dnsPolicy" in spec, "defaults are the creator's"
    assert "f:tolerations" not in spec
    assert "f:status" not in entry["fieldsV1"]


async def test_status_and_spec_have_separate_owners(api):
    await apply(api, f"{DEPLOYMENTS}/d", deployment())
    state = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}}
    state["status"] = {"replicas": 3}
    found = await apply(api, f"{DEPLOYMENTS}/d/status", state, "controller")

    assert found.json["status"]["replicas"] == 3
    assert owners(found) == {("one", "Apply", ""), ("controller", "Apply", "status")}


async def test_a_status_is_not_created_by_applying_it(api):
    state = {**deployment(), "status": {"replicas": 1}}
    assert (await apply(api, f"{DEPLOYMENTS}/d/status", state)).code == 404


async def test_scaling_takes_the_replica_count_over(api):
    await apply(api, f"{DEPLOYMENTS}/d", deployment(replicas=1))
    scaled = await api.patch(f"{DEPLOYMENTS}/d/scale?fieldManager=hpa", {"spec": {"replicas": 3}})
    refused = await apply(api, f"{DEPLOYMENTS}/d", deployment(replicas=1))
    without = await apply(api, f"{DEPLOYMENTS}/d", deployment())

    assert scaled.json["spec"]["replicas"] == 3
    assert 'conflict with "hpa" with subresource "scale"' in refused.message
    assert without.json["spec"]["replicas"] == 3
    assert owners(without) == {("one", "Apply", ""), ("hpa", "Update", "scale")}


async def test_a_scale_can_be_applied(api):
    await apply(api, f"{DEPLOYMENTS}/d", deployment(replicas=1))
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 4}}
    refused = await apply(api, f"{DEPLOYMENTS}/d/scale", scale, "two")
    forced = await apply(api, f"{DEPLOYMENTS}/d/scale", scale, "two", "&force=true")

    assert refused.code == 409
    assert forced.json["spec"] == {"replicas": 4}
    read = await api.get(f"{DEPLOYMENTS}/d")
    assert owners(read) == {("one", "Apply", ""), ("two", "Apply", "scale")}


async def test_configurations_are_yaml_and_keys_given_twice_are_warned_of(api):
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  x: '1'\n  x: '2'\n"
    warned = await apply(api, f"{MAPS}/a", text)
    strict = await apply(api, f"{MAPS}/a", text, query="&fieldValidation=Strict")

    assert (warned.code, warned.json["data"]) == (201, {"x": "2"})
    assert 'key \\"x\\" already set in map' in warned.warnings[0]
    assert (strict.code, strict.json["reason"]) == (400, "BadRequest")


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("", "fieldManager: Required value: is required for apply patch"),
        ("?fieldManager=" + "m" * 129, "fieldManager: Too long: may not be more than 128 bytes"),
        ("?fieldManager=a%07b", "fieldManager: Invalid value"),
    ],
)
async def test_an_apply_names_its_manager(api, query, problem):
    reply = await api.call("PATCH", f"{MAPS}/a{query}", config_map(), content_type=APPLY)
    assert (reply.code, problem in reply.message) == (422, True)


async def test_only_an_apply_can_be_forced(api):
    await api.create(MAPS, config_map())
    reply = await api.patch(f"{MAPS}/a?force=true", {"data": {"x": "1"}})
    assert (reply.code, reply.json["details"]["causes"][0]["field"]) == (422, "force")


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ("[]", 400, "cannot unmarshal array into Go value"),
        ("text", 400, "cannot unmarshal string into Go value"),
        ("", 400, "invalid object type: /, Kind="),
        ("a: [", 400, "error decoding patch: "),
        (config_map(name="b"), 400, "does not match the name on the URL (a)"),
        (config_map(namespace="other"), 400, "does not match the namespace sent on the request"),
        (config_map(resourceVersion="1"), 409, "the object has been modified"),
        (config_map(uid="9"), 422, "metadata.uid: Invalid value"),
        ({**config_map(), "x": 1}, 400, ".x: field not declared in schema"),
    ],
)
async def test_what_cannot_be_applied_is_refused_clearly(api, body, code, message):
    await apply(api, f"{MAPS}/a", config_map({"x": "1"}))
    reply = await apply(api, f"{MAPS}/a", body)
    assert (reply.code, message in reply.message) == (code, True), reply.message


async def test_a_dry_run_shows_what_would_be_and_keeps_nothing(api):
    shown = await apply(api, f"{MAPS}/a", config_map({"x": "1"}), query="&dryRun=All")
    assert (shown.code, (await api.get(f"{MAPS}/a")).code) == (201, 404)
    await apply(api, f"{MAPS}/a", config_map({"x": "1"}))
    shown = await apply(api, f"{MAPS}/a", config_map({"x": "2"}), query="&dryRun=All")
    assert shown.json["data"] == {"x": "2"}
    assert (await api.get(f"{MAPS}/a")).json["data"] == {"x": "1"}


async def test_a_patch_that_changes_nothing_writes_nothing(api):
    created = await api.create(f"{MAPS}?fieldManager=me", config_map({"x": "1"}))
    operation = {"op": "test", "path": "/data/x", "value": "1"}
    same = await api.patch(f"{MAPS}/a?fieldManager=another", [operation], "json")
    assert same.json == created.json


async def test_lists_and_partial_objects_carry_the_record(api):
    await apply(api, f"{MAPS}/a", config_map({"x": "1"}))
    (item,) = (await api.get(MAPS)).json["items"]
    partial = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    alone = (await api.get(f"{MAPS}/a", accept=partial)).json
    assert item["metadata"]["managedFields"] == alone["metadata"]["managedFields"]
    assert item["metadata"]["managedFields"][0]["manager"] == "one"
