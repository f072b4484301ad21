"""Webhooks: a real HTTPS server decides."""

import asyncio
import base64
import json
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from motley.apiserver import tls
from motley.apiserver.request import parse
from motley.apiserver.subresources import connect
from motley.lib.clock import SYSTEM

GROUP = "/apis/admissionregistration.k8s.io/v1"
MAPS = "/api/v1/namespaces/demo/configmaps"
RULE = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE", "UPDATE"],
    "resources": ["configmaps"],
}
Decide = Callable[[dict[str, Any]], Any]


class Hook:
    """An HTTPS server; `decide` makes the response of each request."""

    def __init__(self, port: int, authority: str) -> None:
        self.port = port
        self.authority = authority
        self.asked: list[dict[str, Any]] = []
        self.decide: Decide = lambda request: {"allowed": True}

    def client(self, path: str = "/") -> dict[str, str]:
        return {"url": f"https://127.0.0.1:{self.port}{path}", "caBundle": self.authority}

    async def handle(self, incoming: web.Request) -> web.StreamResponse:
        review = await incoming.json()
        request = review["request"]
        self.asked.append(request)
        answer = self.decide(request)
        if isinstance(answer, Awaitable):
            answer = await answer
        if isinstance(answer, web.Response):
            return answer
        review["response"] = {"uid": request["uid"], **answer}
        del review["request"]
        return web.json_response(review)


@pytest.fixture
async def hook(tmp_path):
    pki = tls.ensure(tmp_path, addresses=["127.0.0.1"])
    certificate, key = tls.issue_server(pki, "webhook", ["127.0.0.1"])
    (tmp_path / "hook.crt").write_bytes(certificate)
    (tmp_path / "hook.key").write_bytes(key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "hook.crt", tmp_path / "hook.key")
    app = web.Application()
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    found = Hook(0, base64.b64encode(pki.ca_file.read_bytes()).decode())
    app.router.add_post("/{path:.*}", found.handle)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    found.port = runner.addresses[0][1]
    yield found
    await runner.cleanup()


async def configure(api, kind, *webhooks, name="hooks"):
    defaults = {
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 2,
        "rules": [RULE],
    }
    listed = [{**defaults, **webhook} for webhook in webhooks]
    plural = f"{kind}webhookconfigurations"
    made = await api.create(f"{GROUP}/{plural}", {"metadata": {"name": name}, "webhooks": listed})
    assert made.code == 201, made.json


async def configmap(api, name="a", query="", **data):
    return await api.create(f"{MAPS}{query}", {"metadata": {"name": name}, "data": data})


def patch(*operations):
    encoded = base64.b64encode(json.dumps(operations).encode()).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": encoded}


def label(name, value="yes"):
    return {"op": "add", "path": "/metadata/labels", "value": {name: value}}


async def test_a_webhook_sees_the_whole_request(api, hook):
    await configure(api, "validating", {"name": "w.example.com", "clientConfig": hook.client()})

    assert (await configmap(api, x="1")).code == 201
    await api.patch(f"{MAPS}/a", {"data": {"x": "2"}})

    first, second = hook.asked
    assert first["operation"] == "CREATE"
    assert first["kind"] == {"group": "", "version": "v1", "kind": "ConfigMap"}
    assert first["resource"] == {"group": "", "version": "v1", "resource": "configmaps"}
    assert (first["namespace"], first["name"], first["dryRun"]) == ("demo", "a", False)
    assert first["userInfo"]["username"] == "admin"
    assert first["object"]["kind"] == "ConfigMap"
    assert first["oldObject"] is None
    assert second["operation"] == "UPDATE"
    assert (second["oldObject"]["data"], second["object"]["data"]) == ({"x": "1"}, {"x": "2"})


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        ({"message": "no"}, 400, 'admission webhook "w.example.com" denied the request: no'),
        (
            {"code": 403, "reason": "Forbidden"},
            403,
            'admission webhook "w.example.com" denied the request: Forbidden',
        ),
        (None, 400, 'admission webhook "w.example.com" denied the request without explanation'),
    ],
)
async def test_a_refusal_is_told_as_the_webhook_says_it(api, hook, status, code, message):
    hook.decide = lambda request: {"allowed": False, **({"status": status} if status else {})}
    await configure(api, "validating", {"name": "w.example.com", "clientConfig": hook.client()})

    reply = await configmap(api)

    assert (reply.code, reply.message) == (code, message)


async def test_warnings_reach_the_client(api, hook):
    hook.decide = lambda request: {"allowed": True, "warnings": ["mind the gap"]}
    await configure(api, "validating", {"name": "w.example.com", "clientConfig": hook.client()})

    assert (await configmap(api)).warnings == ['299 - "mind the gap"']


async def test_mutating_webhooks_see_each_others_patches(api, hook):
    def decide(request):
        if "labels" not in request["object"]["metadata"]:
            return patch(label("first"))
        return patch({"op": "add", "path": "/metadata/labels/second", "value": "yes"})

    hook.decide = decide
    one = {"name": "a.example.com", "clientConfig": hook.client("/a")}
    two = {"name": "b.example.com", "clientConfig": hook.client("/b")}
    await configure(api, "mutating", one, two)

    found = (await configmap(api)).json

    assert found["metadata"]["labels"] == {"first": "yes", "second": "yes"}
    assert (found["metadata"]["name"], found["metadata"]["namespace"]) == ("a", "demo")


async def test_a_webhook_that_wants_to_is_asked_again_after_a_change(api, hook):
    def decide(request):
        labels = request["object"]["metadata"].get("labels") or {}
        if "seen" not in labels:
            return patch(label("seen", "1"))
        if "late" in labels or request["object"].get("data"):
            return {"allowed": True}
        return patch({"op": "add", "path": "/data", "value": {"by": "second"}})

    hook.decide = decide
    again = {"clientConfig": hook.client("/a"), "reinvocationPolicy": "IfNeeded"}
    once = {"name": "b.example.com", "clientConfig": hook.client("/b")}
    await configure(api, "mutating", {"name": "a.example.com", **again}, once)

    assert (await configmap(api)).code == 201

    assert len(hook.asked) == 3  # a, b, and a again because b changed the object


async def test_a_pod_changed_by_a_webhook_is_completed_once_more(api, hook, a_pod):
    extra = {"name": "sidecar", "image": "proxy"}
    hook.decide = lambda request: patch({"op": "add", "path": "/spec/containers/-", "value": extra})
    pods = {**RULE, "operations": ["CREATE"], "resources": ["pods"]}
    client = {"clientConfig": hook.client(), "rules": [pods]}
    await configure(api, "mutating", {"name": "w.example.com", **client})

    reply = await api.create("/api/v1/namespaces/demo/pods", a_pod())

    assert reply.code == 201, reply.json
    sidecar = reply.json["spec"]["containers"][1]
    assert sidecar["imagePullPolicy"] == "Always"  # defaulted
    assert sidecar["volumeMounts"]  # and given the account's token
    assert len(reply.json["spec"]["volumes"]) == 1


async def custom(api):
    """A kind of which only `data.known` and `data.size` are known, served."""
    fields = {"known": {"type": "string"}, "size": {"type": "integer", "default": 3}}
    data = {"type": "object", "properties": fields}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"data": data}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    names = {"plural": "things", "kind": "Thing"}
    spec = {"group": "x.io", "scope": "Cluster", "names": names, "versions": [version]}
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    await api.create(crds, {"metadata": {"name": "things.x.io"}, "spec": spec})
    deadline = SYSTEM.monotonic() + 5
    while (await api.get("/apis/x.io/v1/things")).code != 200:
        assert SYSTEM.monotonic() < deadline
        await SYSTEM.sleep(0.01)


async def test_what_webhooks_add_to_a_custom_object_is_pruned_and_defaulted_at_the_end(api, hook):
    def decide(request):
        data = request["object"].get("data") or {}
        if "known" not in data:
            return patch({"op": "add", "path": "/data", "value": {"known": "a", "unknown": "b"}})
        if "unknown" in data:  # the second still sees what the first added
            return patch({"op": "add", "path": "/data/known", "value": "seen"})
        return {"allowed": True}

    await custom(api)
    hook.decide = decide
    rule = {**RULE, "apiGroups": ["x.io"], "resources": ["things"]}
    both = {"rules": [rule], "reinvocationPolicy": "IfNeeded"}
    one = {"name": "a.example.com", "clientConfig": hook.client("/a"), **both}
    two = {"name": "b.example.com", "clientConfig": hook.client("/b"), **both}
    await configure(api, "mutating", one, two)

    made = await api.create(
        "/apis/x.io/v1/things",
        {"apiVersion": "x.io/v1", "kind": "Thing", "metadata": {"name": "t"}},
    )

    assert made.json["data"] == {"known": "seen", "size": 3}
    assert len(hook.asked) == 3  # the second has seen all there is to see


async def test_what_a_webhook_makes_of_an_object_must_fit_its_type(api, hook):
    hook.decide = lambda request: patch(
        {"op": "add", "path": "/dada", "value": 1},
        {"op": "add", "path": "/immutable", "value": True},
    )
    await configure(api, "mutating", {"name": "w.example.com", "clientConfig": hook.client()})

    made = await configmap(api)
    hook.decide = lambda request: patch({"op": "add", "path": "/data", "value": [1]})
    refused = await configmap(api, "b")

    assert (made.code, made.json["immutable"]) == (201, True)
    assert "dada" not in made.json
    assert refused.code == 500
    assert "cannot unmarshal array into Go struct field ConfigMap.data" in refused.message


async def test_who_matches_is_decided_by_rules_selectors_and_conditions(api, hook):
    only = {"matchLabels": {"watched": "yes"}}
    condition = {"name": "not-b", "expression": "object.metadata.name != 'b'"}
    await configure(
        api,
        "validating",
        {
            "name": "w.example.com",
            "clientConfig": hook.client(),
            "objectSelector": only,
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "demo"}},
            "matchConditions": [condition],
        },
    )

    async def create(name, namespace="demo", **labels):
        body = {"metadata": {"name": name, "labels": labels}}
        await api.create(f"/api/v1/namespaces/{namespace}/configmaps", body)

    await create("a", watched="yes")
    await create("b", watched="yes")
    await create("c")
    await create("d", "default", watched="yes")
    await api.create("/api/v1/namespaces/demo/secrets", {"metadata": {"name": "s"}})

    assert [request["name"] for request in hook.asked] == ["a"]


async def test_a_webhook_nobody_answers_refuses_or_is_ignored(api, hook):
    nowhere = {"url": "https://127.0.0.1:9/x"}
    strict = {"name": "w.example.com", "clientConfig": nowhere, "timeoutSeconds": 1}
    await configure(api, "validating", strict)
    text = (
        'failed calling webhook "w.example.com": failed to call webhook: '
        'Post "https://127.0.0.1:9/x?timeout=1s": dial tcp 127.0.0.1:9: connect: '
        "connection refused"
    )

    refused = await configmap(api)

    assert refused.code == 500
    assert refused.json["reason"] == "InternalError"
    assert refused.message == f"Internal error occurred: {text}"
    assert refused.json["details"] == {"causes": [{"message": text}]}
    await api.delete(f"{GROUP}/validatingwebhookconfigurations/hooks")
    lax = {**strict, "failurePolicy": "Ignore"}
    await configure(api, "validating", lax)
    assert (await configmap(api)).code == 201


async def test_a_slow_webhook_is_not_waited_for_longer_than_it_asks(api, hook):
    gone = asyncio.Event()

    async def never(request):
        await gone.wait()
        return {"allowed": True}

    hook.decide = never
    slow = {"name": "w.example.com", "clientConfig": hook.client(), "timeoutSeconds": 1}
    await configure(api, "validating", slow)

    reply = await configmap(api)
    gone.set()

    assert reply.code == 500
    assert reply.message.endswith('?timeout=1s": context deadline exceeded')


async def test_answers_that_are_none_count_as_failures(api, hook):
    await configure(api, "validating", {"name": "w.example.com", "clientConfig": hook.client()})
    wrong_uid = {"uid": "other", "allowed": True}
    for answer, problem in (
        (wrong_uid, "expected response.uid"),
        (web.Response(status=500, text="broken"), 'an error on the server ("broken")'),
        (web.Response(text="[]"), "the answer is no object"),
        (web.json_response({"kind": "Other"}), "expected webhook response of"),
    ):
        hook.decide = lambda request, answer=answer: answer
        reply = await configmap(api)
        assert reply.code == 500
        assert problem in reply.message


async def test_an_unknown_authority_is_not_trusted(api, hook):
    client = {"url": hook.client()["url"]}
    await configure(api, "validating", {"name": "w.example.com", "clientConfig": client})

    reply = await configmap(api)

    assert reply.code == 500
    assert "x509: certificate signed by unknown authority" in reply.message


async def test_a_dry_run_reaches_only_webhooks_without_side_effects(api, hook):
    dry = {"name": "w.example.com", "clientConfig": hook.client()}
    await configure(api, "validating", {**dry, "sideEffects": "NoneOnDryRun"})

    assert (await configmap(api, query="?dryRun=All")).code == 201
    assert hook.asked[0]["dryRun"] is True


async def test_a_service_is_called_at_its_cluster_address(api, hook):
    service = {"name": "missing", "namespace": "demo"}
    client = {"service": service, "caBundle": hook.authority}
    await configure(api, "validating", {"name": "w.example.com", "clientConfig": client})

    reply = await configmap(api)

    assert reply.message.endswith(
        'Post "https://missing.demo.svc:443/?timeout=2s": service "missing" not found'
    )


async def test_webhook_configurations_never_pass_through_webhooks(api, hook):
    hook.decide = lambda request: {"allowed": False}
    everything = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}
    client = {"clientConfig": hook.client(), "rules": [everything]}
    await configure(api, "validating", {"name": "w.example.com", **client})

    assert (await configmap(api)).code == 400
    assert (await api.delete(f"{GROUP}/validatingwebhookconfigurations/hooks")).code == 200
    assert (await configmap(api)).code == 201


def connections(*resources):
    return [{**RULE, "operations": ["CONNECT"], "resources": list(resources)}]


async def test_who_calls_through_the_proxy_is_asked_about_first(api, hook):
    hook.decide = lambda request: {"allowed": False, "status": {"message": "not through here"}}
    webhook = {"name": "w.example.com", "clientConfig": hook.client()}
    await configure(api, "validating", {**webhook, "rules": connections("services/proxy")})

    refused = await api.get("/api/v1/namespaces/demo/services/web:80/proxy/a/b?x=1")

    assert (refused.code, "not through here" in refused.message) == (400, True)
    (asked,) = hook.asked
    assert (asked["operation"], asked["resource"]["resource"]) == ("CONNECT", "services")
    assert (asked["name"], asked["subResource"], asked["options"]) == ("web:80", "proxy", None)
    assert asked["kind"] == {"group": "", "version": "v1", "kind": "ServiceProxyOptions"}
    wanted = {"kind": "ServiceProxyOptions", "apiVersion": "v1", "path": "a/b"}
    assert (asked["object"], asked["oldObject"]) == (wanted, None)


@pytest.mark.parametrize(
    ("query", "kind", "wanted"),
    [
        (
            "exec?command=ls&command=-l&stdout=true&tty=false&container=c",
            "PodExecOptions",
            {"command": ["ls", "-l"], "stdout": True, "container": "c"},
        ),
        ("attach?stdin=1", "PodAttachOptions", {"stdin": True}),
        ("portforward?ports=80,81", "PodPortForwardOptions", {"ports": [80, 81]}),
    ],
)
def test_a_connection_is_shown_as_kubernetes_shows_it(query, kind, wanted):
    path, _, asked = query.partition("?")
    info = parse("GET", f"/api/v1/namespaces/demo/pods/p/{path}", asked.encode())

    assert connect.options("pods", info) == {"kind": kind, "apiVersion": "v1", **wanted}


async def test_a_policy_can_refuse_a_connection(api):
    policy = {
        "metadata": {"name": "no-proxy"},
        "spec": {
            "matchConstraints": {"resourceRules": connections("services/proxy")},
            "validations": [{"expression": "object.path != 'secret'", "message": "not that"}],
        },
    }
    binding = {
        "metadata": {"name": "no-proxy"},
        "spec": {"policyName": "no-proxy", "validationActions": ["Deny"]},
    }
    await api.create(f"{GROUP}/validatingadmissionpolicies", policy)
    await api.create(f"{GROUP}/validatingadmissionpolicybindings", binding)

    refused = await api.get("/api/v1/namespaces/demo/services/web/proxy/secret")
    allowed = await api.get("/api/v1/namespaces/demo/services/web/proxy/open")

    assert (refused.code, "not that" in refused.message) == (422, True)
    assert "not that" not in allowed.message
