"""What clients are told is served: discovery, OpenAPI, health, version, metrics."""

import gzip
import json

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


async def test_groups_and_resources_are_listed(api):
    groups = (await api.get("/apis")).json
    core = (await api.get("/api/v1")).json

    assert (await api.get("/api")).json["versions"] == ["v1"]
    assert "apps" in [g["name"] for g in groups["groups"]]
    pods = next(r for r in core["resources"] if r["name"] == "pods")
    assert pods["shortNames"] == ["po"]
    assert "watch" in pods["verbs"]
    names = [r["name"] for r in core["resources"]]
    assert "pods/binding" in names
    assert names == sorted(names)


async def test_only_subresources_with_a_handler_are_advertised(api):
    names = [r["name"] for r in (await api.get("/api/v1")).json["resources"]]

    assert "pods/exec" in names
    assert "pods/scale" not in names
    assert (await api.get("/api/v1/namespaces/demo/pods/x/scale")).code == 404


async def test_aggregated_discovery_has_everything_and_an_etag(api):
    first = await api.get("/apis", accept=AGGREGATED)
    again = await api.get(
        "/apis", accept=AGGREGATED, headers={"if-none-match": first.headers["etag"]}
    )

    assert first.headers["content-type"] == AGGREGATED
    apps = next(g for g in first.json["items"] if g["metadata"]["name"] == "apps")
    names = [r["resource"] for r in apps["versions"][0]["resources"]]
    assert names == sorted(names)
    assert again.code == 304


async def test_openapi_says_that_fields_are_validated(api):
    index = (await api.get("/openapi/v3")).json
    url = index["paths"]["apis/apps/v1"]["serverRelativeURL"]
    document = (await api.get(url)).json

    path = document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]
    assert "fieldValidation" in [p["name"] for p in path["patch"]["parameters"]]
    schemas = document["components"]["schemas"]
    deployment = schemas["io.k8s.api.apps.v1.Deployment"]
    assert deployment["x-kubernetes-group-version-kind"] == [
        {"group": "apps", "kind": "Deployment", "version": "v1"}
    ]
    reference = json.dumps(document).count('"$ref"')
    assert reference > 100


async def test_every_openapi_reference_leads_somewhere(api):
    index = (await api.get("/openapi/v3")).json
    for entry in index["paths"].values():
        document = (await api.get(entry["serverRelativeURL"])).json
        schemas = document["components"]["schemas"]
        text = json.dumps(document)
        for part in text.split('"#/components/schemas/')[1:]:
            assert part.split('"', 1)[0] in schemas


async def test_openapi_documents_are_compressed_and_cacheable(api):
    index = (await api.get("/openapi/v3")).json
    url = index["paths"]["api/v1"]["serverRelativeURL"]

    reply = await api.get(url, headers={"accept-encoding": "gzip"})

    assert reply.headers["content-encoding"] == "gzip"
    assert "immutable" in reply.headers["cache-control"]
    assert json.loads(gzip.decompress(reply.body))["openapi"] == "3.0.0"
    assert (await api.get("/openapi/v3/apis/nosuch/v1")).code == 404


async def test_health_is_told_in_words_when_asked(api):
    verbose = await api.get("/readyz?verbose")

    assert (await api.get("/readyz")).body == b"ok"
    assert verbose.body.startswith(b"[+]ping ok\n[+]etcd ok\n")
    assert b"[+]poststarthook/rbac/bootstrap-roles ok\n" in verbose.body
    assert verbose.body.endswith(b"[+]shutdown ok\nreadyz check passed\n")
    assert b"shutdown" not in (await api.get("/livez?verbose")).body
    assert (await api.get("/readyz/informer-sync")).code == 200
    assert (await api.get("/readyz/nosuch")).code == 404
    api.app.end_streams()
    stopping = await api.get("/readyz")
    assert stopping.code == 500
    assert b"[-]shutdown failed: reason withheld\n" in stopping.body
    assert stopping.body.endswith(b"readyz check failed\n")
    without = await api.get("/readyz?verbose&exclude=shutdown&exclude=moon")
    assert without.code == 200
    assert b"[+]shutdown excluded: ok\n" in without.body
    assert b'warn: some health checks cannot be excluded: no matches for "moon"\n' in without.body
    asked = await api.get("/readyz/shutdown")
    assert (asked.code, asked.body) == (500, b"internal server error: shutting down\n")
    assert (await api.get("/readyz/poststarthook/rbac/bootstrap-roles")).body == b"ok"
    assert (await api.get("/livez")).code == 200


async def test_the_version_is_kubernetes_with_our_name(api):
    version = (await api.get("/version")).json

    assert (version["major"], version["minor"]) == ("1", "37")
    assert version["gitVersion"] == "v1.37.0+motley"


async def test_metrics_count_requests(api):
    await api.get("/api/v1/namespaces/demo/pods")

    text = (await api.get("/metrics")).body.decode()

    assert 'apiserver_request_total{code="200",group="",resource="pods"' in text


async def test_the_cluster_is_bootstrapped(api):
    listed = (await api.get("/api/v1/namespaces")).json["items"]
    names = {n["metadata"]["name"] for n in listed}
    assert {"default", "kube-system", "kube-public", "kube-node-lease"} <= names

    slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes"
    assert (await api.get(slices)).json["endpoints"][0]["addresses"] == ["10.0.0.1"]
    older = (await api.get("/api/v1/namespaces/default/endpoints/kubernetes")).json
    assert older["subsets"][0]["addresses"] == [{"ip": "10.0.0.1"}]
    # The slice is there already.
    assert older["metadata"]["labels"] == {"endpointslice.kubernetes.io/skip-mirror": "true"}
