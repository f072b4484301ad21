"""APIServices: local ones listed, remote ones proxied to a real TLS server on loopback."""

import base64
import json
import ssl
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from motley.apiserver import tls
from motley.lib.clock import SYSTEM

SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
GROUP = "metrics.example.com"


async def until(check, what: str):
    deadline = SYSTEM.monotonic() + 10
    while SYSTEM.monotonic() < deadline:
        if found := await check():
            return found
        await SYSTEM.sleep(0.02)
    raise AssertionError(what)


def api_service(**spec) -> dict:
    return {
        "metadata": {"name": f"v1.{GROUP}"},
        "spec": {
            "group": GROUP,
            "version": "v1",
            "groupPriorityMinimum": 100,
            "versionPriority": 10,
            "service": {"namespace": "demo", "name": "metrics", **spec.pop("service", {})},
            **spec,
        },
    }


@asynccontextmanager
async def extension(directory):
    """An aggregated API server: its port, its authority, and the requests it has seen."""
    pki = tls.ensure(directory, addresses=["127.0.0.1"])
    cert, key = tls.issue_server(pki, "metrics", ["metrics.demo.svc"])
    (directory / "s.crt").write_bytes(cert)
    (directory / "s.key").write_bytes(key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "s.crt", directory / "s.key")
    seen: list[web.Request] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        seen.append(request)
        if request.query.get("watch"):
            stream = web.StreamResponse(headers={"content-type": "application/json"})
            await stream.prepare(request)
            for number in range(2):
                event = {"type": "ADDED", "object": {"metadata": {"name": f"n{number}"}}}
                await stream.write(json.dumps(event).encode() + b"\n")
            return stream
        if request.path == f"/apis/{GROUP}/v1":
            nodes = {
                "name": "nodes",
                "singularName": "",
                "namespaced": False,
                "kind": "NodeMetrics",
            }
            resources = [{**nodes, "verbs": ["get", "list"]}]
            return web.json_response({"kind": "APIResourceList", "resources": resources})
        body = (await request.read()).decode()
        return web.json_response({"path": request.path, "body": body}, status=201)

    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]
    try:
        yield port, base64.b64encode(pki.ca_pem).decode(), seen
    finally:
        await runner.cleanup()


@pytest.fixture
async def metrics(api, tmp_path):
    """The API with an aggregated server behind the Service `metrics`."""
    async with extension(tmp_path) as (port, bundle, seen):
        service = {
            "metadata": {"name": "metrics"},
            "spec": {"type": "ExternalName", "externalName": "127.0.0.1"},
        }
        made = await api.create("/api/v1/namespaces/demo/services", service)
        assert made.code in (201, 422)
        if made.code == 422:  # an address is no name
            service["spec"]["externalName"] = "localhost"
            assert (await api.create("/api/v1/namespaces/demo/services", service)).code == 201
        body = api_service(service={"port": port}, caBundle=bundle)
        assert (await api.create(SERVICES, body)).code == 201

        async def available():
            shown = (await api.get(f"{SERVICES}/v1.{GROUP}")).json
            conditions = shown.get("status", {}).get("conditions") or ()
            return [c["reason"] for c in conditions] == ["Passed"]

        await until(available, "the APIService is available")
        api.seen = seen
        yield api


async def test_everything_served_here_is_listed_as_local(api):
    shown = (await api.get(f"{SERVICES}/v1.apps")).json
    core = (await api.get(f"{SERVICES}/v1.")).json

    assert shown["spec"]["groupPriorityMinimum"] == 17800
    assert shown["status"]["conditions"][0]["reason"] == "Local"
    assert core["spec"] == {"version": "v1", "groupPriorityMinimum": 18000, "versionPriority": 1}


async def test_a_request_for_a_remote_group_carries_the_user_and_no_credentials(metrics):
    url = f"/apis/{GROUP}/v1/nodes"

    answered = await metrics.create(url, {"a": 1}, headers={"x-remote-user": "mallory"})

    assert answered.code == 201
    assert answered.json == {"path": url, "body": '{"a": 1}'}
    asked = metrics.seen[-1]
    assert asked.headers["x-remote-user"] == "admin"
    assert "system:masters" in asked.headers.getall("x-remote-group")
    assert "authorization" not in asked.headers


async def test_a_body_without_a_type_is_passed_on_without_one(metrics):
    """Kubernetes takes it for JSON; any type that was added here it would refuse."""
    url = f"/apis/{GROUP}/v1/nodes"

    answered = await metrics.call("POST", url, {"a": 1}, content_type="")

    assert answered.code == 201
    assert not metrics.seen[-1].headers.get("content-type")


async def test_remote_watches_are_streams(metrics):
    async with metrics.watch(f"/apis/{GROUP}/v1/nodes?watch=true") as watching:
        assert await watching.events(2) == [("ADDED", "n0"), ("ADDED", "n1")]
        assert await watching.event() is None


async def test_remote_groups_are_discovered(metrics):
    async def listed():
        groups = (await metrics.get("/apis")).json["groups"]
        return GROUP in [g["name"] for g in groups]

    await until(listed, "the group is listed")
    assert (await metrics.get(f"/apis/{GROUP}")).json["preferredVersion"]["version"] == "v1"
    accept = "application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io"
    items = (await metrics.get("/apis", accept=accept)).json["items"]
    remote = next(i for i in items if i["metadata"]["name"] == GROUP)
    assert remote["versions"][0]["resources"][0]["resource"] == "nodes"
    resources = (await metrics.get(f"/apis/{GROUP}/v1")).json["resources"]
    assert resources[0]["name"] == "nodes"


async def test_a_server_that_comes_after_its_registration_is_soon_found(api, tmp_path):
    async with extension(tmp_path) as (port, bundle, _):
        await api.create(SERVICES, api_service(service={"port": port}, caBundle=bundle))

        async def reason():
            shown = (await api.get(f"{SERVICES}/v1.{GROUP}")).json
            return [c["reason"] for c in shown.get("status", {}).get("conditions") or ()]

        async def is_missed():
            return await reason() == ["ServiceNotFound"]

        async def is_found():
            return await reason() == ["Passed"]

        await until(is_missed, "it is missed")
        spec = {"type": "ExternalName", "externalName": "localhost"}
        service = {"metadata": {"name": "metrics"}, "spec": spec}
        assert (await api.create("/api/v1/namespaces/demo/services", service)).code == 201
        await until(is_found, "it is found, though nobody touched its registration")


async def test_a_service_that_is_not_there_is_said_and_answered_503(api):
    await api.create(SERVICES, api_service(insecureSkipTLSVerify=True))

    async def condition():
        shown = (await api.get(f"{SERVICES}/v1.{GROUP}")).json
        return (shown.get("status", {}).get("conditions") or [None])[0]

    found = await until(condition, "the condition is written")
    assert (found["status"], found["reason"]) == ("False", "ServiceNotFound")
    assert found["message"] == 'service/metrics in "demo" is not present'
    asked = await api.get(f"/apis/{GROUP}/v1/nodes")
    assert (asked.code, asked.body) == (503, b"service unavailable\n")
    assert (await api.delete(f"{SERVICES}/v1.{GROUP}")).code == 200

    async def gone():
        return (await api.get(f"/apis/{GROUP}/v1/nodes")).code == 404

    await until(gone, "the group is gone")


async def test_a_certificate_of_another_authority_is_not_trusted(metrics, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    bundle = base64.b64encode(tls.ensure(other, addresses=["127.0.0.1"]).ca_pem).decode()

    changed = await metrics.patch(f"{SERVICES}/v1.{GROUP}", {"spec": {"caBundle": bundle}})
    assert changed.code == 200

    async def refused():
        return (await metrics.get(f"/apis/{GROUP}/v1/nodes")).code == 503

    await until(refused, "the other server is not trusted")


async def test_names_and_priorities_of_api_services_are_checked(api):
    wrong = api_service(insecureSkipTLSVerify=True, groupPriorityMinimum=0)
    wrong["metadata"]["name"] = "wrong"

    refused = await api.create(SERVICES, wrong)

    assert refused.code == 422
    fields = [c["field"] for c in refused.json["details"]["causes"]]
    assert fields == ["metadata.name", "spec.groupPriorityMinimum"]


async def test_custom_groups_come_and_go_as_local_services(api):
    name = "crds.demo.example.com"
    crd = {
        "metadata": {"name": name},
        "spec": {
            "group": "demo.example.com",
            "scope": "Namespaced",
            "names": {"plural": "crds", "kind": "Crd"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object"}},
                }
            ],
        },
    }
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert (await api.create(crds, crd)).code == 201

    async def listed():
        return (await api.get(f"{SERVICES}/v1.demo.example.com")).code == 200

    await until(listed, "the group is listed")
    await api.delete(f"{crds}/{name}")

    async def gone():
        return (await api.get(f"{SERVICES}/v1.demo.example.com")).code == 404

    await until(gone, "the group is gone")
