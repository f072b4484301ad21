"""Versions of a custom resource that a webhook translates: a real HTTPS server does it."""

import asyncio
import base64
import ssl

import pytest
from aiohttp import web

from motley.apiserver import tls

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = "stable.example.com"
V1, V2 = (f"/apis/{GROUP}/{version}/namespaces/demo/hosts" for version in ("v1", "v2"))


class Converter:
    """v1 has `spec.hostPort: "a:1"`, v2 has `spec.host` and `spec.port`."""

    def __init__(self):
        self.reviews = []
        self.port = 0
        self.authority = ""
        self.spoil = lambda response: None

    async def handle(self, incoming):
        review = await incoming.json()
        request = review["request"]
        self.reviews.append(request)
        made = [self.convert(one, request["desiredAPIVersion"]) for one in request["objects"]]
        response = {
            "uid": request["uid"],
            "result": {"status": "Success"},
            "convertedObjects": made,
        }
        self.spoil(response)
        return web.json_response({**review, "response": response})

    @staticmethod
    def convert(found, version):
        spec = found["spec"]
        if version.endswith("/v2") and "hostPort" in spec:
            host, _, port = spec["hostPort"].partition(":")
            spec = {"host": host, "port": int(port)}
        elif version.endswith("/v1") and "host" in spec:
            spec = {"hostPort": f"{spec['host']}:{spec['port']}"}
        metadata = {**found["metadata"], "creationTimestamp": None, "managedFields": None}
        metadata["annotations"] = {"converted-to": version}
        return {**found, "apiVersion": version, "metadata": metadata, "spec": spec}


@pytest.fixture
async def converter(tmp_path):
    pki = tls.ensure(tmp_path, addresses=["127.0.0.1"])
    certificate, key = tls.issue_server(pki, "webhook", ["127.0.0.1"])
    (tmp_path / "hook.pem").write_bytes(certificate + key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "hook.pem")
    found = Converter()
    app = web.Application()
    app.router.add_post("/", found.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    found.port = runner.addresses[0][1]
    found.authority = base64.b64encode(pki.ca_file.read_bytes()).decode()
    yield found
    await runner.cleanup()


def definition(converter, *, kept="v1"):
    fields = {
        "v1": {"hostPort": {"type": "string"}},
        "v2": {"host": {"type": "string"}, "port": {"type": "integer", "minimum": 1}},
    }

    def version(name):
        spec = {"type": "object", "properties": fields[name]}
        schema = {"type": "object", "properties": {"spec": spec}}
        column = {"name": "Port", "type": "integer", "jsonPath": ".spec.port"}
        return {
            "name": name,
            "served": True,
            "storage": name == kept,
            "schema": {"openAPIV3Schema": schema},
            **({"additionalPrinterColumns": [column]} if name == "v2" else {}),
        }

    client = {"url": f"https://127.0.0.1:{converter.port}/", "caBundle": converter.authority}
    return {
        "metadata": {"name": f"hosts.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": "hosts", "kind": "Host", "singular": "host"},
            "versions": [version("v1"), version("v2")],
            "conversion": {
                "strategy": "Webhook",
                "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": client},
            },
        },
    }


@pytest.fixture
async def hosts(api, converter):
    assert (await api.create(CRDS, definition(converter))).code == 201
    async with asyncio.timeout(10):
        while (await api.get(V2)).code != 200:
            await asyncio.to_thread(lambda: None)
    return api


def host(name="a", version="v2", **spec):
    return {
        "apiVersion": f"{GROUP}/{version}",
        "kind": "Host",
        "metadata": {"name": name},
        "spec": spec or {"host": "x", "port": 80},
    }


async def stored(api, name="a"):
    from motley.apiserver import document

    record = await api.store.get(f"/registry/{GROUP}/hosts/demo/{name}")
    return document.decode(record.value)


async def test_an_object_is_kept_in_one_version_and_shown_in_both(hosts):
    made = await hosts.create(V2, host())

    assert (made.code, made.json["spec"]) == (201, {"host": "x", "port": 80})
    assert made.json["apiVersion"] == f"{GROUP}/v2"
    kept = await stored(hosts)
    assert (kept["apiVersion"], kept["spec"]) == (f"{GROUP}/v1", {"hostPort": "x:80"})
    old, new = (await hosts.get(f"{V1}/a")).json, (await hosts.get(f"{V2}/a")).json
    assert (old["spec"], new["spec"]) == ({"hostPort": "x:80"}, {"host": "x", "port": 80})
    # Labels and annotations are the webhook's to change, the rest of the metadata is not.
    assert new["metadata"]["annotations"] == {"converted-to": f"{GROUP}/v2"}
    assert new["metadata"]["creationTimestamp"] == old["metadata"]["creationTimestamp"]
    assert new["metadata"]["managedFields"]
    assert new["metadata"]["resourceVersion"] == old["metadata"]["resourceVersion"]


async def test_changes_are_made_and_judged_in_the_version_they_are_written_in(hosts):
    await hosts.create(V1, host(version="v1", hostPort="x:80"))

    wrong = await hosts.patch(f"{V2}/a", {"spec": {"port": 0}})
    assert (wrong.code, "spec.port" in wrong.message) == (422, True)
    patched = await hosts.patch(f"{V2}/a", {"spec": {"port": 81}})
    assert (patched.code, patched.json["spec"]["port"]) == (200, 81)
    dry = await hosts.patch(f"{V2}/a?dryRun=All", {"spec": {"port": 99}})
    assert dry.json["spec"]["port"] == 99
    assert (await stored(hosts))["spec"] == {"hostPort": "x:81"}

    read = (await hosts.get(f"{V2}/a")).json
    read["spec"]["host"] = "y"
    assert (await hosts.put(f"{V2}/a", read)).json["spec"] == {"host": "y", "port": 81}
    assert (await hosts.delete(f"{V2}/a")).code == 200


async def test_a_list_is_one_question_and_a_known_object_none(hosts, converter):
    for name in "abc":
        await hosts.create(V1, host(name, "v1", hostPort="x:80"))
    converter.reviews.clear()

    for _ in range(2):
        items = (await hosts.get(V2)).json["items"]
        assert [i["spec"] for i in items] == [{"host": "x", "port": 80}] * 3
    assert [len(r["objects"]) for r in converter.reviews] == [3]
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    table = (await hosts.get(V2, accept=accept)).json
    assert [row["cells"] for row in table["rows"]] == [["a", 80], ["b", 80], ["c", 80]]


async def test_a_watch_shows_its_own_version(hosts):
    await hosts.create(V1, host("a", "v1", hostPort="x:80"))
    async with hosts.watch(f"{V2}?watch=true") as watching:
        first = await watching.event()
        await hosts.create(V1, host("b", "v1", hostPort="y:81"))
        second = await watching.event()
        await hosts.delete(f"{V1}/b")
        third = await watching.event()

    assert [e["type"] for e in (first, second, third)] == ["ADDED", "ADDED", "DELETED"]
    assert first["object"]["spec"] == {"host": "x", "port": 80}
    for event in (second, third):
        assert event["object"]["spec"] == {"host": "y", "port": 81}


async def test_an_object_from_before_the_kept_version_changed_is_translated(hosts, converter):
    await hosts.create(V1, host("a", "v1", hostPort="x:80"))
    found = (await hosts.get(f"{CRDS}/hosts.{GROUP}")).json
    found["spec"]["versions"] = definition(converter, kept="v2")["spec"]["versions"]
    assert (await hosts.put(f"{CRDS}/hosts.{GROUP}", found)).code == 200

    async with asyncio.timeout(10):
        while (await hosts.create(V1, host("b", "v1", hostPort="y:1"))).code != 201 or (
            await stored(hosts, "b")
        )["apiVersion"] != f"{GROUP}/v2":
            await hosts.delete(f"{V1}/b")
            await asyncio.to_thread(lambda: None)  # let the server notice
    assert (await stored(hosts))["apiVersion"] == f"{GROUP}/v1"
    assert (await hosts.get(f"{V2}/a")).json["spec"] == {"host": "x", "port": 80}
    assert (await hosts.get(f"{V1}/a")).json["spec"] == {"hostPort": "x:80"}


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda r: r.update(result={"status": "Failed", "message": "cannot"}), "cannot"),
        (lambda r: r.update(uid="other"), "expected response.uid"),
        (lambda r: r.update(convertedObjects=[]), "expected 1 converted objects, got 0"),
        (lambda r: r["convertedObjects"][0].update(apiVersion="x/v9"), "got x/v9"),
        (lambda r: r["convertedObjects"][0]["metadata"].update(name="b"), "metadata.name must not"),
    ],
)
async def test_an_answer_that_is_none_is_told_and_nothing_is_written(
    hosts, converter, spoil, words
):
    converter.spoil = spoil

    reply = await hosts.create(V2, host())

    assert (reply.code, words in reply.message) == (503, True), reply.message
    assert reply.message.startswith(f"conversion webhook for {GROUP}/v1, Kind=Host failed: ")
    assert (await hosts.get(f"{V1}/a")).code == 404


async def test_nobody_there_is_told_and_the_kept_version_still_works(hosts, api, converter):
    await hosts.create(V1, host("a", "v1", hostPort="x:80"))
    found = (await hosts.get(f"{CRDS}/hosts.{GROUP}")).json
    client = found["spec"]["conversion"]["webhook"]["clientConfig"]
    client["url"] = "https://127.0.0.1:1/"
    assert (await hosts.put(f"{CRDS}/hosts.{GROUP}", found)).code == 200

    async with asyncio.timeout(10):
        while (reply := await hosts.get(f"{V2}/a")).code == 200:
            await asyncio.to_thread(lambda: None)
    assert (reply.code, "connection refused" in reply.message) == (503, True)
    assert (await hosts.get(f"{V1}/a")).code == 200
