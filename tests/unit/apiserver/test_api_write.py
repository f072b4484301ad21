"""Creating, changing and patching objects, as clients see it."""

import asyncio

PODS = "/api/v1/namespaces/demo/pods"
MAPS = "/api/v1/namespaces/demo/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/demo/deployments"
DEPLOYMENT = {
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "nginx"}]},
        },
    },
}


async def test_a_created_object_has_what_the_server_owns(api):
    made = await api.create(MAPS, {"metadata": {"name": "a", "uid": "mine"}, "data": {"k": "v"}})

    assert made.code == 201
    metadata = made.json["metadata"]
    assert metadata["namespace"] == "demo"
    assert len(metadata["uid"]) == 36
    assert metadata["creationTimestamp"].endswith("Z")
    assert int(metadata["resourceVersion"]) > 0
    assert (await api.get(f"{MAPS}/a")).json == made.json


async def test_a_taken_name_is_refused(api):
    await api.create(MAPS, {"metadata": {"name": "a"}})

    again = await api.create(MAPS, {"metadata": {"name": "a"}})

    assert (again.code, again.json["reason"]) == (409, "AlreadyExists")
    assert again.message == 'configmaps "a" already exists'


async def test_generate_name_makes_a_new_name_each_time(api):
    first = await api.create(MAPS, {"metadata": {"generateName": "g-"}})
    second = await api.create(MAPS, {"metadata": {"generateName": "g-"}})

    names = [r.json["metadata"]["name"] for r in (first, second)]
    assert names[0] != names[1]
    assert all(n.startswith("g-") and len(n) == 7 for n in names)


async def test_a_dry_run_checks_and_writes_nothing(api):
    dry = await api.create(f"{MAPS}?dryRun=All", {"metadata": {"name": "dry"}})

    assert dry.code == 201
    assert "resourceVersion" not in dry.json["metadata"]
    assert (await api.get(f"{MAPS}/dry")).code == 404
    wrong = await api.create(f"{MAPS}?dryRun=Some", {"metadata": {"name": "dry"}})
    assert (wrong.code, wrong.json["details"]["causes"][0]["field"]) == (422, "dryRun")


async def test_unknown_fields_are_warned_about_refused_or_ignored_as_asked(api):
    body = {"metadata": {"name": "a"}, "dada": {}}

    strict = await api.create(f"{MAPS}?fieldValidation=Strict", body)
    warned = await api.create(MAPS, body)
    body["metadata"] = {"name": "b"}
    ignored = await api.create(f"{MAPS}?fieldValidation=Ignore", body)

    assert strict.code == 400
    assert 'strict decoding error: unknown field "dada"' in strict.message
    assert (warned.code, warned.warnings) == (201, ['299 - "unknown field \\"dada\\""'])
    assert (ignored.code, ignored.warnings) == (201, [])
    assert "dada" not in ignored.json


async def test_unknown_and_repeated_fields_are_named_in_the_order_of_the_document(api):
    body = b"""{"metadata": {"name": "a"}, "spec": {"unknownField": {"x": 1, "x": 2}, "replicas": 2,
        "replicas": 3, "template": {"speck": 1, "metadata": {"name": "a", "name": "b"}}}}"""
    written = b"spec:\n  odd: 1\n  replicas: 2\n  replicas: 3\n"
    operations = b'[{"op": "add", "x": 1, "path": "/data", "path": "/data", "value": {}}]'
    await api.create(MAPS, {"metadata": {"name": "a"}})

    json = await api.create(f"{DEPLOYMENTS}?fieldValidation=Strict", body)
    yaml = await api.create(
        f"{DEPLOYMENTS}?fieldValidation=Strict", written, content_type="application/yaml"
    )
    patch = await api.patch(f"{MAPS}/a", operations, kind="json")

    assert json.message.partition("strict decoding error: ")[2] == (
        'unknown field "spec.unknownField", duplicate field "spec.replicas", '
        'unknown field "spec.template.speck", duplicate field "spec.template.metadata.name"'
    )
    assert yaml.message.partition("strict decoding error: ")[2] == (
        'yaml: unmarshal errors:\n  line 4: key "replicas" already set in map, '
        'unknown field "spec.odd"'
    )
    assert patch.warnings == [
        '299 - "json patch unknown field \\"[0].x\\""',
        '299 - "json patch duplicate field \\"[0].path\\""',
    ]


async def test_a_namespace_must_exist_and_must_not_be_ending(api):
    missing = await api.create("/api/v1/namespaces/nope/configmaps", {"metadata": {"name": "a"}})
    await api.delete("/api/v1/namespaces/demo")
    ending = await api.create(MAPS, {"metadata": {"name": "a"}})

    assert (missing.code, missing.message) == (404, 'namespaces "nope" not found')
    assert ending.code == 403
    assert "because it is being terminated" in ending.message
    assert ending.json["details"]["causes"][0]["reason"] == "NamespaceTerminating"


async def test_a_body_of_another_kind_or_place_is_refused(api):
    kind = await api.create(MAPS, {"kind": "Secret", "apiVersion": "v1"})
    place = await api.create(MAPS, {"metadata": {"name": "a", "namespace": "other"}})
    version = await api.create(MAPS, {"metadata": {"name": "a", "resourceVersion": "3"}})

    assert kind.code == place.code == version.code == 400
    assert "cannot be handled as a ConfigMap" in kind.message
    assert "does not match the namespace sent on the request" in place.message


async def test_a_stale_update_is_refused_in_kubernetes_words(api):
    made = (await api.create(MAPS, {"metadata": {"name": "a"}})).json
    await api.patch(f"{MAPS}/a", {"data": {"x": "1"}})

    stale = await api.put(f"{MAPS}/a", made)

    assert (stale.code, stale.json["reason"]) == (409, "Conflict")
    assert stale.message == (
        'Operation cannot be fulfilled on configmaps "a": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )


async def test_an_update_without_a_version_wins(api):
    await api.create(MAPS, {"metadata": {"name": "a"}, "data": {"x": "1"}})

    done = await api.put(f"{MAPS}/a", {"metadata": {"name": "a"}, "data": {"x": "2"}})

    assert (done.code, done.json["data"]) == (200, {"x": "2"})


async def test_an_update_that_changes_nothing_writes_nothing(api):
    made = (await api.create(MAPS, {"metadata": {"name": "a"}, "data": {"x": "1"}})).json
    reordered = {"data": {"x": "1"}, "metadata": {"name": "a"}}

    done = await api.put(f"{MAPS}/a", reordered)

    assert done.json["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_an_update_never_creates(api):
    done = await api.put(f"{MAPS}/new", {"metadata": {"name": "new"}})

    assert (done.code, done.message) == (404, 'configmaps "new" not found')


async def test_an_update_names_the_object_of_its_path(api):
    await api.create(MAPS, {"metadata": {"name": "a"}})

    other = await api.put(f"{MAPS}/a", {"metadata": {"name": "b"}})
    nameless = await api.put(f"{MAPS}/a", {"data": {}})
    reborn = await api.put(f"{MAPS}/a", {"metadata": {"name": "a", "uid": "another"}})

    assert other.message == ("the name of the object (b) does not match the name on the URL (a)")
    assert "name must be provided" in nameless.message
    assert (reborn.code, reborn.json["reason"]) == (409, "Conflict")


async def test_generation_counts_changes_of_the_spec_only(api):
    await api.create(DEPLOYMENTS, DEPLOYMENT)

    labelled = await api.patch(f"{DEPLOYMENTS}/web", {"metadata": {"labels": {"a": "b"}}})
    scaled = await api.patch(f"{DEPLOYMENTS}/web", {"spec": {"replicas": 3}})
    reported = await api.patch(f"{DEPLOYMENTS}/web/status", {"status": {"replicas": 3}})
    noted = await api.patch(f"{DEPLOYMENTS}/web", {"metadata": {"annotations": {"a": "b"}}})

    assert labelled.json["metadata"]["generation"] == 1
    assert scaled.json["metadata"]["generation"] == 2
    assert reported.json["metadata"]["generation"] == 2
    assert noted.json["metadata"]["generation"] == 3  # Deployments alone count annotations


async def test_status_is_written_through_its_subresource_only(api):
    made = await api.create(DEPLOYMENTS, {**DEPLOYMENT, "status": {"replicas": 9}})
    main = await api.patch(f"{DEPLOYMENTS}/web", {"status": {"replicas": 8}})
    sub = await api.patch(
        f"{DEPLOYMENTS}/web/status", {"status": {"replicas": 7}, "spec": {"replicas": 99}}
    )

    assert made.json["status"] == {}
    assert main.json["status"] == {}
    assert sub.json["status"]["replicas"] == 7
    assert sub.json["spec"]["replicas"] == 2


async def test_the_three_patches_do_what_their_names_say(api):
    await api.create(DEPLOYMENTS, DEPLOYMENT)
    container = {"name": "c", "env": [{"name": "A", "value": "1"}]}
    sidecar = {"name": "d", "image": "busybox"}

    def template(containers):
        return {"spec": {"template": {"spec": {"containers": containers}}}}

    strategic = await api.patch(
        f"{DEPLOYMENTS}/web", template([container, sidecar]), kind="strategic"
    )
    merged = await api.patch(f"{DEPLOYMENTS}/web", template([{**container, "image": "x"}]))
    replaced = await api.patch(
        f"{DEPLOYMENTS}/web",
        [{"op": "replace", "path": "/spec/replicas", "value": 5}],
        kind="json",
    )

    def containers(reply):
        return reply.json["spec"]["template"]["spec"]["containers"]

    assert {c["name"]: c["image"] for c in containers(strategic)} == {
        "c": "nginx",
        "d": "busybox",
    }
    assert [c["image"] for c in containers(merged)] == ["x"]
    assert replaced.json["spec"]["replicas"] == 5


async def test_unknown_patches_are_refused_clearly(api):
    await api.create(MAPS, {"metadata": {"name": "a"}})

    plain = await api.call("PATCH", f"{MAPS}/a", {}, content_type="application/json")

    assert plain.code == 415


async def test_a_patch_cannot_turn_an_object_into_another(api):
    await api.create(MAPS, {"metadata": {"name": "a"}})

    renamed = await api.patch(f"{MAPS}/a", {"metadata": {"name": "b"}})
    stolen = await api.patch(f"{MAPS}/a", {"metadata": {"uid": "another"}})
    stale = await api.patch(f"{MAPS}/a", {"metadata": {"resourceVersion": "1"}})

    buried = await api.patch(
        f"{MAPS}/a", {"metadata": {"deletionTimestamp": "2024-01-01T00:00:00Z"}}
    )

    assert (renamed.code, stolen.code, stale.code) == (400, 422, 409)
    assert stolen.message == (
        'ConfigMap "a" is invalid: metadata.uid: Invalid value: "another": field is immutable'
    )
    assert (buried.code, buried.json["details"]["causes"][0]["field"]) == (
        422,
        "metadata.deletionTimestamp",
    )


async def test_carelessness_in_a_patch_is_told(api):
    await api.create(MAPS, {"metadata": {"name": "a"}})
    twice = b'{"data": {"k": "1", "k": "2"}, "nosuch": 1}'
    merge = "application/merge-patch+json"
    operations = [{"op": "add", "path": "/data", "value": {}, "bogus": 1}]

    merged = await api.call("PATCH", f"{MAPS}/a", twice, content_type=merge)
    patched = await api.patch(f"{MAPS}/a", operations, kind="json")
    strict = await api.patch(f"{MAPS}/a?fieldValidation=Strict", operations, kind="json")
    silent = await api.patch(f"{MAPS}/a?fieldValidation=Ignore", operations, kind="json")

    assert merged.warnings == [
        '299 - "duplicate field \\"data.k\\""',
        '299 - "unknown field \\"nosuch\\""',
    ]
    assert patched.warnings == ['299 - "json patch unknown field \\"[0].bogus\\""']
    assert strict.code == 422
    assert strict.message.endswith('strict decoding error: json patch unknown field "[0].bogus"')
    assert (silent.code, silent.warnings) == (200, [])


async def test_patches_that_race_all_succeed(api):
    await api.create(MAPS, {"metadata": {"name": "a"}})

    replies = await asyncio.gather(
        *(api.patch(f"{MAPS}/a", {"data": {f"k{i}": "v"}}) for i in range(20))
    )

    assert {r.code for r in replies} == {200}
    assert len((await api.get(f"{MAPS}/a")).json["data"]) == 20


async def test_a_new_pod_is_complete(api, a_pod):
    made = (await api.create(PODS, a_pod())).json

    spec, state = made["spec"], made["status"]
    assert state == {"phase": "Pending", "qosClass": "BestEffort"}
    assert spec["serviceAccountName"] == "default"
    assert spec["priority"] == 0
    assert spec["terminationGracePeriodSeconds"] == 30
    sick = {t["key"]: t["tolerationSeconds"] for t in spec["tolerations"]}
    assert sick == {
        "node.kubernetes.io/not-ready": 300,
        "node.kubernetes.io/unreachable": 300,
    }


async def test_a_broken_pod_is_refused_with_every_cause(api):
    body = {"metadata": {"name": "p"}, "spec": {"containers": [{"image": "x"}]}}

    refused = await api.create(PODS, body)

    assert (refused.code, refused.json["reason"]) == (422, "Invalid")
    fields = {c["field"] for c in refused.json["details"]["causes"]}
    assert "spec.containers[0].name" in fields


async def test_a_patch_whose_outcome_fits_no_schema_is_invalid(api):
    await api.create(DEPLOYMENTS, DEPLOYMENT)

    wrong = await api.patch(f"{DEPLOYMENTS}/web", {"spec": {"replicas": "many"}})
    strict = await api.patch(f"{DEPLOYMENTS}/web?fieldValidation=Strict", {"spek": {}})

    assert (wrong.code, strict.code) == (422, 422)
    assert wrong.json["details"]["causes"][0]["field"] == "patch"
    assert 'strict decoding error: unknown field "spek"' in strict.message


async def test_an_address_is_its_objects_name(api):
    addresses = "/apis/networking.k8s.io/v1/ipaddresses"
    spec = {"parentRef": {"resource": "services", "name": "s", "namespace": "demo"}}

    made = await api.create(addresses, {"metadata": {"name": "fe80::42"}, "spec": spec})
    refused = await api.create(addresses, {"metadata": {"name": "fe80:0::42"}, "spec": spec})

    assert made.code == 201
    assert (await api.get(f"{addresses}/fe80::42")).json == made.json
    assert (refused.code, refused.json["details"]["causes"][0]["field"]) == (422, "metadata.name")


async def test_an_empty_text_counts_as_not_given_where_the_type_has_no_pointer(api):
    port = {"name": "", "port": 80, "protocol": ""}
    subset = {"addresses": [{"ip": "10.0.0.9"}], "ports": [port]}
    endpoints = "/api/v1/namespaces/demo/endpoints"

    made = await api.create(endpoints, {"metadata": {"name": "e"}, "subsets": [subset]})

    assert made.json["subsets"][0]["ports"] == [{"port": 80, "protocol": "TCP"}]
