"""CustomResourceDefinitions, from the first POST to the last object, without sockets."""

import asyncio

import pytest

from motley.lib.clock import SYSTEM

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = "stable.example.com"
CRONTABS = f"/apis/{GROUP}/v1/namespaces/demo/crontabs"
SPEC = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 10},
        "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
        "name": {"type": "string", "maxLength": 5, "pattern": "^[a-z]*$"},
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "ports": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["port"],
            "items": {
                "type": "object",
                "required": ["port"],
                "properties": {
                    "port": {"type": "integer"},
                    "proto": {"type": "string", "default": "TCP"},
                },
            },
        },
        "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "nul": {"type": "string", "nullable": True, "default": "dflt"},
        "replicas": {"type": "integer", "default": 1},
        "imm": {
            "type": "string",
            "x-kubernetes-validations": [
                {"rule": "self == oldSelf", "message": "imm is immutable"}
            ],
        },
    },
    "x-kubernetes-validations": [
        {
            "rule": 'self.size <= 5 || self.color == "blue"',
            "messageExpression": '"big ones need " + "blue"',
            "fieldPath": ".size",
            "reason": "FieldValueForbidden",
        }
    ],
}
STATUS = {
    "type": "object",
    "properties": {
        "replicas": {"type": "integer"},
        "sel": {"type": "string"},
        "phase": {"type": "string"},
    },
}


def definition(**changes) -> dict:
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {
            "openAPIV3Schema": {
                "type": "object",
                "required": ["spec"],
                "properties": {"spec": SPEC, "status": STATUS},
            }
        },
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.sel",
            },
        },
        "additionalPrinterColumns": [
            {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
            {"name": "Tags", "type": "string", "jsonPath": ".spec.tags[*]"},
            {"name": "Made", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ],
        "selectableFields": [{"jsonPath": ".spec.color"}],
    }
    beta = {
        "name": "v1beta1",
        "served": True,
        "storage": False,
        "deprecated": True,
        "schema": {
            "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        },
    }
    spec = {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": "crontabs", "kind": "CronTab", "shortNames": ["ct"]},
        "versions": [version, beta],
    }
    return {"metadata": {"name": f"crontabs.{GROUP}"}, "spec": {**spec, **changes}}


def crontab(name: str = "a", **spec) -> dict:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "CronTab",
        "metadata": {"name": name},
        "spec": {"size": 1, **spec},
    }


async def until(check, what: str):
    """Poll until the condition holds."""
    deadline = SYSTEM.monotonic() + 5
    while SYSTEM.monotonic() < deadline:
        if found := await check():
            return found
        await SYSTEM.sleep(0.01)
    raise AssertionError(what)


async def established(api, body: dict) -> dict:
    made = await api.create(CRDS, body)
    assert made.code == 201, made.message
    url = f"{CRDS}/{body['metadata']['name']}"

    async def check():
        shown = (await api.get(url)).json
        conditions = shown["status"]["conditions"] or ()
        return shown if any(c["type"] == "Established" for c in conditions) else None

    return await until(check, "established")


@pytest.fixture
async def crontabs(api):
    await established(api, definition())
    return api


async def test_a_definition_is_established_and_served_at_once(api):
    shown = await established(api, definition())

    conditions = [(c["type"], c["status"], c["reason"]) for c in shown["status"]["conditions"]]
    assert conditions == [
        ("NamesAccepted", "True", "NoConflicts"),
        ("Established", "True", "InitialNamesAccepted"),
    ]
    assert shown["status"]["storedVersions"] == ["v1"]
    assert shown["status"]["acceptedNames"]["listKind"] == "CronTabList"
    listed = (await api.get(CRONTABS)).json
    assert (listed["kind"], listed["items"]) == ("CronTabList", [])
    group = (await api.get(f"/apis/{GROUP}")).json
    assert [v["version"] for v in group["versions"]] == ["v1", "v1beta1"]
    names = [r["name"] for r in (await api.get(f"/apis/{GROUP}/v1")).json["resources"]]
    assert sorted(names) == ["crontabs", "crontabs/scale", "crontabs/status"]
    aggregated = "application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io"
    items = (await api.get("/apis", accept=aggregated)).json["items"]
    assert GROUP in [i["metadata"]["name"] for i in items]


async def test_objects_are_defaulted_and_pruned(crontabs):
    body = crontab(extra=1, any={"x": 1}, ports=[{"port": 1, "q": 1}], nul=None)

    made = await crontabs.create(CRONTABS, body)

    assert made.code == 201
    assert made.json["spec"] == {
        "size": 1,
        "any": {"x": 1},
        "color": "red",
        "nul": None,
        "ports": [{"port": 1, "proto": "TCP"}],
        "replicas": 1,
    }
    assert made.warnings == [
        '299 - "unknown field \\"spec.extra\\""',
        '299 - "unknown field \\"spec.ports[0].q\\""',
    ]
    strict = await crontabs.create(f"{CRONTABS}?fieldValidation=Strict", crontab("b", extra=1))
    assert strict.code == 400
    assert 'strict decoding error: unknown field "spec.extra"' in strict.message


REFUSED = {
    "required": ({"size": None}, "spec.size: Required value"),
    "type": (
        {"size": "x"},
        'spec.size: Invalid value: "string": spec.size in body must be of type integer: "string"',
    ),
    "maximum": ({"size": 11}, "spec.size in body should be less than or equal to 10"),
    "minimum": ({"size": 0}, "spec.size in body should be greater than or equal to 1"),
    "enum": (
        {"color": "green"},
        'spec.color: Unsupported value: "green": supported values: "red", "blue"',
    ),
    "maxLength": ({"name": "toolong"}, "spec.name: Too long: may not be more than 5 bytes"),
    "pattern": ({"name": "A1"}, "spec.name in body should match '^[a-z]*$'"),
    "set": ({"tags": ["a", "a"]}, 'spec.tags[1]: Duplicate value: "a"'),
    "map": ({"ports": [{"port": 1}, {"port": 1}]}, 'spec.ports[1]: Duplicate value: {"port":1}'),
    "rule": ({"size": 7}, "spec.size: Forbidden: big ones need blue"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_objects_are_validated_with_kubernetes_words(crontabs, case):
    spec, words = REFUSED[case]

    body = {**crontab(), "spec": {"size": 1, **spec}}
    refused = await crontabs.create(CRONTABS, body)

    assert refused.code == 422
    assert words in refused.message


async def test_rules_are_not_asked_about_broken_objects(crontabs):
    refused = await crontabs.create(CRONTABS, crontab(size="x"))

    assert refused.json["details"]["causes"][-1]["message"].startswith(
        "Invalid value: null: some validation rules were not checked"
    )


async def test_transition_rules_see_the_old_value(crontabs):
    await crontabs.create(CRONTABS, crontab(imm="x"))

    refused = await crontabs.patch(f"{CRONTABS}/a", {"spec": {"imm": "y"}})
    accepted = await crontabs.patch(f"{CRONTABS}/a", {"spec": {"size": 2}})

    assert (refused.code, accepted.code) == (422, 200)
    assert 'spec.imm: Invalid value: "y": imm is immutable' in refused.message


async def test_generation_counts_the_spec_and_status_has_its_own_door(crontabs):
    await crontabs.create(CRONTABS, {**crontab(), "status": {"phase": "no"}})
    url = f"{CRONTABS}/a"

    grown = (await crontabs.patch(url, {"spec": {"size": 2}, "status": {"phase": "no"}})).json
    labelled = (await crontabs.patch(url, {"metadata": {"labels": {"l": "1"}}})).json
    body = {"spec": {"size": 9}, "status": {"phase": "Ready", "replicas": 2, "sel": "app=x"}}
    shown = (await crontabs.patch(f"{url}/status", body)).json
    wrong = await crontabs.patch(f"{url}/status", {"status": {"replicas": "x"}})

    assert (grown["metadata"]["generation"], labelled["metadata"]["generation"]) == (2, 2)
    assert "status" not in grown
    assert (shown["spec"]["size"], shown["status"]["phase"]) == (2, "Ready")
    assert shown["metadata"]["generation"] == 2
    assert wrong.code == 422
    assert "replicas in body must be of type integer" in wrong.message


async def test_custom_objects_can_be_scaled(crontabs):
    await crontabs.create(CRONTABS, crontab())
    await crontabs.patch(f"{CRONTABS}/a/status", {"status": {"replicas": 2, "sel": "app=x"}})

    shown = (await crontabs.get(f"{CRONTABS}/a/scale")).json
    body = {"metadata": {"name": "a"}, "spec": {"replicas": 5}}
    changed = (await crontabs.put(f"{CRONTABS}/a/scale", body)).json

    assert (shown["spec"], shown["status"]) == (
        {"replicas": 1},
        {"replicas": 2, "selector": "app=x"},
    )
    assert changed["spec"] == {"replicas": 5}
    assert (await crontabs.get(f"{CRONTABS}/a")).json["spec"]["replicas"] == 5


async def test_versions_differ_in_their_name_alone(crontabs):
    await crontabs.create(CRONTABS, crontab())
    old = CRONTABS.replace("/v1/", "/v1beta1/")

    shown = await crontabs.get(f"{old}/a")
    body = {**crontab("b"), "apiVersion": f"{GROUP}/v1beta1", "other": 1}
    written = await crontabs.create(old, body)
    patched = await crontabs.patch(f"{old}/b", {"metadata": {"labels": {"x": "y"}}})
    listed = (await crontabs.get(old)).json

    assert shown.json["apiVersion"] == f"{GROUP}/v1beta1"
    assert shown.warnings == [
        f'299 - "{GROUP}/v1beta1 CronTab is deprecated; use {GROUP}/v1 CronTab"'
    ]
    assert (written.code, patched.code) == (201, 200)
    assert written.json["apiVersion"] == patched.json["apiVersion"] == f"{GROUP}/v1beta1"
    assert {i["apiVersion"] for i in listed["items"]} == {f"{GROUP}/v1beta1"}
    kept = (await crontabs.get(f"{CRONTABS}/b")).json
    assert kept["apiVersion"] == f"{GROUP}/v1"
    assert "other" not in kept
    async with crontabs.watch(f"{old}?watch=true&resourceVersion=0") as watching:
        event = await watching.event()
        assert event["object"]["apiVersion"] == f"{GROUP}/v1beta1"
        watching.leave()


async def test_a_strategic_patch_is_refused_and_a_put_names_its_version(crontabs):
    await crontabs.create(CRONTABS, crontab())

    strategic = await crontabs.patch(f"{CRONTABS}/a", {"spec": {"size": 2}}, "strategic")
    unpinned = await crontabs.put(f"{CRONTABS}/a", crontab())
    missing = await crontabs.put(f"{CRONTABS}/new", crontab("new"))
    json_patch = [{"op": "replace", "path": "/spec/size", "value": 3}]
    patched = await crontabs.patch(f"{CRONTABS}/a", json_patch, "json")

    assert (strategic.code, unpinned.code, missing.code) == (415, 422, 404)
    assert "metadata.resourceVersion: Invalid value: 0: must be specified" in unpinned.message
    assert patched.json["spec"]["size"] == 3


async def test_wrong_kinds_and_versions_are_refused(crontabs):
    kind = await crontabs.create(CRONTABS, {**crontab(), "kind": "Gadget"})
    version = await crontabs.create(CRONTABS, {**crontab(), "apiVersion": "other/v1"})

    assert (kind.code, version.code) == (422, 400)
    assert kind.message.endswith('kind: Invalid value: "Gadget": must be CronTab')
    assert "does not match the expected API version" in version.message


async def test_tables_have_the_columns_of_the_definition(crontabs):
    await crontabs.create(CRONTABS, crontab(tags=["x", "y"]))

    table = (
        await crontabs.get(CRONTABS, accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    ).json

    assert [c["name"] for c in table["columnDefinitions"]] == ["Name", "Size", "Tags", "Made"]
    assert table["rows"][0]["cells"][:3] == ["a", 1, "x"]


async def test_selectable_fields_select(crontabs):
    await crontabs.create(CRONTABS, crontab("r"))
    await crontabs.create(CRONTABS, crontab("b", color="blue"))

    blue = (await crontabs.get(f"{CRONTABS}?fieldSelector=spec.color%3Dblue")).json
    refused = await crontabs.get(f"{CRONTABS}?fieldSelector=spec.size%3D1")

    assert [i["metadata"]["name"] for i in blue["items"]] == ["b"]
    assert (refused.code, refused.message) == (400, "field label not supported: spec.size")


async def test_openapi_publishes_the_schema_at_once(crontabs):
    paths = (await crontabs.get("/openapi/v3")).json["paths"]
    document = (await crontabs.get(f"/openapi/v3/apis/{GROUP}/v1")).json
    swagger = (await crontabs.get("/openapi/v2")).json

    assert f"apis/{GROUP}/v1" in paths
    schema = document["components"]["schemas"]["com.example.stable.v1.CronTab"]
    assert schema["properties"]["spec"]["properties"]["size"]["maximum"] == 10
    assert schema["x-kubernetes-group-version-kind"][0]["kind"] == "CronTab"
    assert "com.example.stable.v1.CronTab" in swagger["definitions"]


async def test_new_defaults_reach_old_objects(crontabs):
    await crontabs.create(CRONTABS, crontab())
    path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/fresh"
    value = {"type": "string", "default": "new"}
    patch = [{"op": "add", "path": path, "value": value}]
    changed = await crontabs.patch(f"{CRDS}/crontabs.{GROUP}", patch, "json")
    assert changed.code == 200, changed.message

    async def check():
        return (await crontabs.get(f"{CRONTABS}/a")).json["spec"].get("fresh")

    assert await until(check, "the new default") == "new"
    listed = (await crontabs.get(CRONTABS)).json
    assert listed["items"][0]["spec"]["fresh"] == "new"


async def test_a_deleted_definition_takes_its_objects_and_watches_along(crontabs):
    await crontabs.create(CRONTABS, crontab())
    url = f"{CRDS}/crontabs.{GROUP}"
    async with crontabs.watch(f"{CRONTABS}?watch=true&resourceVersion=0") as watching:
        assert await watching.events(1) == [("ADDED", "a")]

        marked = (await crontabs.delete(url)).json
        assert await watching.events(1) == [("DELETED", "a")]
        assert await watching.event() is None

    assert marked["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    assert marked["status"]["conditions"][-1]["reason"] == "InstanceDeletionPending"

    async def check():
        return (await crontabs.get(url)).code == 404

    await until(check, "the definition is gone")
    gone = await crontabs.get(CRONTABS)
    assert (gone.code, gone.body) == (404, b"404 page not found\n")
    again = await established(crontabs, definition())
    assert again["status"]["conditions"][1]["status"] == "True"
    assert (await crontabs.get(CRONTABS)).json["items"] == []


async def test_objects_with_finalizers_hold_their_definition(crontabs):
    body = crontab()
    body["metadata"]["finalizers"] = ["example.com/hold"]
    await crontabs.create(CRONTABS, body)
    url = f"{CRDS}/crontabs.{GROUP}"
    await crontabs.delete(url)

    async def terminating():
        return (await crontabs.get(f"{CRONTABS}/a")).json["metadata"].get("deletionTimestamp")

    await until(terminating, "the object is asked to go")
    refused = await crontabs.create(CRONTABS, crontab("late"))
    assert refused.code == 405
    await crontabs.patch(f"{CRONTABS}/a", {"metadata": {"finalizers": None}})

    async def gone():
        return (await crontabs.get(url)).code == 404

    await until(gone, "the definition is gone")


async def test_names_that_are_taken_are_not_accepted(crontabs):
    rival = definition(names={"plural": "tabs", "kind": "CronTab"})
    rival["metadata"]["name"] = f"tabs.{GROUP}"

    shown = await established(crontabs, rival)

    conditions = {c["type"]: (c["status"], c["reason"]) for c in shown["status"]["conditions"]}
    assert conditions["NamesAccepted"][0] == "False"
    assert conditions["Established"] == ("False", "NotAccepted")
    assert (await crontabs.get(f"/apis/{GROUP}/v1/namespaces/demo/tabs")).code == 404
    await crontabs.delete(f"{CRDS}/crontabs.{GROUP}")

    async def accepted():
        return (await crontabs.get(f"/apis/{GROUP}/v1/namespaces/demo/tabs")).code == 200

    await until(accepted, "the names are free")


async def test_what_a_definition_is_called_stays(crontabs):
    url = f"{CRDS}/crontabs.{GROUP}"

    kind = await crontabs.patch(url, {"spec": {"names": {"kind": "Other"}}})
    emptied = await crontabs.patch(f"{url}/status", {"status": {"storedVersions": []}})

    assert kind.code == 422
    assert 'spec.names.kind: Invalid value: "Other": field is immutable' in kind.message
    assert emptied.json["status"]["storedVersions"] == ["v1"]


async def test_many_watchers_of_a_new_resource_share_a_cache(crontabs):
    async def watch_one(name):
        async with crontabs.watch(
            f"{CRONTABS}?watch=true&fieldSelector=metadata.name%3D{name}"
        ) as w:
            found = await w.events(1)
            w.leave()
            return found

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(watch_one(n)) for n in ("a", "b")]
        for name in ("a", "b"):
            await crontabs.create(CRONTABS, crontab(name))
    assert [t.result() for t in tasks] == [[("ADDED", "a")], [("ADDED", "b")]]
