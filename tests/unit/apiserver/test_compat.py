"""`--compat minik8s` on the wire: what is rewritten, what is told, what stays as it is."""

import pytest

from motley.apiserver import document
from motley.store.memory import MemoryStore

PODS = "/api/v1/namespaces/default/pods"
DNS = "/api/v1/namespaces/default/dns"


@pytest.fixture
async def minik8s(serve):
    async with serve(MemoryStore(document.stamp), compat="minik8s") as api:
        yield api


def pod(**container):
    containers = [{"name": "a", "image": "i", **container}]
    return {"metadata": {"name": "p"}, "spec": {"containers": containers}}


def dns(**more):
    mappings = [{"address": "web:80", "path": "/x"}]
    return {
        "apiVersion": "v1",
        "kind": "DNS",
        "spec": {"hostname": "a.b", "mappings": mappings},
        **more,
    }


async def test_a_spelling_is_read_with_a_warning_under_strict_validation(minik8s):
    new = pod(imagePullPolicy="PullNever", env=[{"name": "x", "value": 1}])

    made = await minik8s.create(f"{PODS}?fieldValidation=Strict", new)

    assert made.code == 201
    assert len(made.warnings) == 2
    assert made.json["spec"]["containers"][0]["imagePullPolicy"] == "Never"
    patch = {"spec": {"containers": [{"name": "a", "imagePullPolicy": "PullNever"}]}}
    patched = await minik8s.patch(f"{PODS}/p", patch, "strategic")
    assert (patched.code, len(patched.warnings)) == (200, 1)


async def test_yaml_is_read_as_well_and_broken_bodies_are_told_as_ever(minik8s):
    spec = b"{restartPolicy: RestartNever, containers: [{name: a, image: i}]}"
    text = b"metadata: {name: written}\nspec: " + spec
    made = await minik8s.create(PODS, text, content_type="application/yaml")
    assert made.json["spec"]["restartPolicy"] == "Never"

    broken = await minik8s.create(PODS, b"{")
    assert broken.code == 400


async def test_what_is_plain_kubernetes_is_told_nothing(minik8s, api):
    for server in (minik8s, api):
        made = await server.create(PODS, pod(imagePullPolicy="Never"))
        assert (made.code, made.warnings) == (201, [])


async def test_without_the_switch_nothing_is_read_otherwise(api):
    assert (await api.create(PODS, pod(imagePullPolicy="PullNever"))).code == 422
    assert (await api.create(DNS, dns(name="d"))).code == 404
    names = {r["name"] for r in (await api.get("/api/v1")).json["resources"]}
    assert not {"dns", "slurmjobs"} & names


async def test_a_dns_is_a_route_under_either_path(minik8s):
    made = await minik8s.create(DNS, dns(name="d"))
    assert (made.code, made.json["kind"]) == (201, "Route")
    ours = "/apis/motley.io/v1/namespaces/default/routes/d"
    assert (await minik8s.get(ours)).json == (await minik8s.get(f"{DNS}/d")).json

    changed = dns(metadata={"name": "d"})
    changed["spec"] = {"hostname": "c.d"}
    assert (await minik8s.patch(f"{DNS}/d", changed)).json["spec"]["host"] == "c.d"
    assert (await minik8s.delete(f"{DNS}/d")).code == 200


async def test_the_rights_are_those_on_the_kind_that_is_meant(minik8s):
    refused = await minik8s.create(DNS, dns(name="d"), token="alice")

    assert refused.code == 403
    assert 'cannot create resource "routes" in API group "motley.io"' in refused.message


async def test_discovery_lists_the_kinds_in_both_forms(minik8s):
    listed = (await minik8s.get("/api/v1")).json["resources"]
    found = {r["name"]: r["kind"] for r in listed}
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    core = (await minik8s.get("/api", accept=accept)).json["items"][0]["versions"][0]
    aggregated = {r["resource"]: r["responseKind"]["kind"] for r in core["resources"]}

    for shown in (found, aggregated):
        assert (shown["dns"], shown["slurmjobs"], shown["pods"]) == ("DNS", "Job", "Pod")


async def test_an_object_is_named_by_its_uid_as_well_as_by_its_name(minik8s):
    uid = (await minik8s.create(PODS, pod())).json["metadata"]["uid"]

    found = await minik8s.get(f"{PODS}/{uid}")

    assert (found.code, found.json["metadata"]["name"]) == (200, "p")
    assert uid in found.warnings[0]
    assert (await minik8s.get(f"{PODS}/p")).warnings == []
    patched = await minik8s.patch(f"{PODS}/{uid}", {"metadata": {"labels": {"a": "b"}}}, "merge")
    assert patched.json["metadata"]["labels"] == {"a": "b"}
    assert (await minik8s.get(f"/api/v1/namespaces/other/pods/{uid}")).code == 404
    assert (await minik8s.delete(f"{PODS}/{uid}")).code == 200
    assert (await minik8s.get(f"{PODS}/{uid}")).code == 404


async def test_a_name_that_looks_like_a_uid_is_a_name_first(minik8s):
    uid = (await minik8s.create(PODS, pod())).json["metadata"]["uid"]
    maps = "/api/v1/namespaces/default/configmaps"
    other = (await minik8s.create(maps, {"metadata": {"name": "other"}})).json["metadata"]["uid"]
    await minik8s.create(maps, {"metadata": {"name": other}, "data": {"a": "by name"}})
    assert (await minik8s.get(f"{maps}/{other}")).json["data"] == {"a": "by name"}
    # Another kind's UID is nobody's here, and so is an owner's.
    assert (await minik8s.get(f"{maps}/{uid}")).code == 404
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid}
    await minik8s.create(maps, {"metadata": {"name": "owned", "ownerReferences": [owner]}})
    assert (await minik8s.get(f"{maps}/{uid}")).code == 404


async def test_without_the_switch_a_uid_is_no_name(api):
    uid = (await api.create(PODS, pod())).json["metadata"]["uid"]
    assert (await api.get(f"{PODS}/{uid}")).code == 404
