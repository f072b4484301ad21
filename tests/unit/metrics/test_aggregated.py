"""Whom an aggregated API server lets in, over real connections."""

import asyncio
import ssl
from contextlib import asynccontextmanager

import aiohttp
import pytest

from motley.api import status
from motley.api.views.core import ConfigMap
from motley.apiserver import answer, tls
from motley.client import frontproxy, servingca
from motley.client.decoding import Listing, ListMeta, WatchEvent
from motley.lib.clock import SYSTEM
from motley.metrics import aggregated
from motley.metrics.aggregated import AggregatedServer
from motley.ops.freeports import free_port

asyncio.set_event_loop(None)  # see tests/conftest.py

PATH = "/apis/test.motley.io/v1"
ANNA = {"X-Remote-User": "anna", "X-Remote-Group": "staff"}


class Group:
    group, version = "test.motley.io", "v1"
    resources = ({"name": "things", "kind": "Thing", "namespaced": True, "verbs": ["list"]},)

    def __init__(self):
        self.gate, self.entered = asyncio.Event(), asyncio.Event()
        self.gate.set()

    async def run(self):
        await asyncio.get_running_loop().create_future()

    async def handle(self, info, headers):
        self.entered.set()
        await self.gate.wait()
        if info.name == "broken":
            raise ZeroDivisionError
        return answer.of({"kind": "ThingList", "namespace": info.namespace})


class Kubernetes:
    """The API server behind it: whose tokens and rights there are, and its front proxy."""

    def __init__(self):
        self.data, self.revision = {}, 1
        self.changes = asyncio.Queue()
        self.asked = []
        self.allowed = {"anna", "ben"}
        self.error = None

    def trust(self, authority, *names):
        self.revision += 1
        self.data = {
            "requestheader-client-ca-file": authority.ca_pem.decode() if authority else "",
            "requestheader-allowed-names": str(list(names)).replace("'", '"'),
            "requestheader-username-headers": '["X-Remote-User"]',
            "requestheader-group-headers": '["X-Remote-Group"]',
        }
        self.changes.put_nowait(None)

    def _view(self):
        view = ConfigMap(data=dict(self.data))
        view.metadata.name, view.metadata.namespace = frontproxy.NAME, frontproxy.NAMESPACE
        view.metadata.resource_version = str(self.revision)
        return view

    async def list(self, cls, **selected):
        found = [self._view()] if cls is ConfigMap else []
        return Listing(metadata=ListMeta(resource_version="1"), items=found)

    async def watch(self, cls, *, initial_events=False, **selected):
        if initial_events:
            raise status.Invalid("no streamed lists")
        while True:
            if cls is not ConfigMap:
                await asyncio.get_running_loop().create_future()
            await self.changes.get()
            yield WatchEvent(type="MODIFIED", object=self._view())

    async def raw(self, method, path, *, body):
        self.asked.append(body)
        if self.error:
            raise self.error
        if body["kind"] == "TokenReview":
            known = body["spec"]["token"] in ("ben", "carl")
            user = {"username": body["spec"]["token"], "groups": []}
            return {"status": {"authenticated": known, "user": user if known else {}}}
        return {"status": {"allowed": body["spec"]["user"] in self.allowed}}


def authority():
    return tls.Pki(None, *tls.make_authority("front-proxy"))


class Bed:
    def __init__(self, kubernetes, group, serving, port):
        self.kubernetes, self.group, self.port = kubernetes, group, port
        self._ca = serving.ca_pem.decode()

    def context(self, tmp_path, signer=None, name="front-proxy-client"):
        trust = ssl.create_default_context(cadata=self._ca)
        if signer is not None:
            cert, key = tmp_path / f"{name}.crt", tmp_path / f"{name}.key"
            tls.write_pair(cert, key, tls.issue_client(signer, name))
            trust.load_cert_chain(cert, key)
        return trust

    async def ask(self, context, path=f"{PATH}/namespaces/x/things", session=None, **headers):
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if session is None:
            async with aiohttp.ClientSession() as session:
                return await self.ask(context, path, session, **headers)
        url = f"https://localhost:{self.port}{path}"
        try:
            async with session.get(url, ssl=context, headers=sent) as found:
                is_json = found.content_type == "application/json"
                return found.status, await (found.json() if is_json else found.text())
        except aiohttp.ClientError:
            return 0, None

    async def until(self, code, context, **headers):
        """Ask until the answer is of this code."""
        async with asyncio.timeout(30):
            while True:
                found, body = await self.ask(context, **headers)
                if found == code:
                    return body
                await SYSTEM.sleep(0.02)


@asynccontextmanager
async def running(ready=lambda: True):
    kubernetes, group = Kubernetes(), Group()
    serving = servingca.authority(["localhost"])
    server = AggregatedServer(kubernetes, [group], serving, is_ready=ready)
    bed = Bed(kubernetes, group, serving, free_port())
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(server.run("127.0.0.1", bed.port))
        context = ssl.create_default_context(cadata=serving.ca_pem.decode())
        async with asyncio.timeout(30):
            while (await bed.ask(context, "/livez"))[0] == 0:
                await SYSTEM.sleep(0.02)
        try:
            yield bed
        finally:
            task.cancel()


async def test_the_front_proxy_is_believed_and_what_its_user_may_is_asked(tmp_path):
    async with running() as bed:
        signer = authority()
        bed.kubernetes.trust(signer, "front-proxy-client")
        proxy = bed.context(tmp_path, signer)
        body = await bed.until(200, proxy, **ANNA)
        assert body == {"kind": "ThingList", "namespace": "x"}
        (asked,) = bed.kubernetes.asked
        assert asked["spec"] == {
            "user": "anna",
            "uid": "",
            "groups": ["staff", "system:authenticated"],
            "extra": {},
            "resourceAttributes": {
                "verb": "list",
                "group": "test.motley.io",
                "version": "v1",
                "resource": "things",
                "namespace": "x",
            },
        }
        code, body = await bed.ask(proxy, X_Remote_User="dora")
        assert (code, body["reason"]) == (403, "Forbidden")
        assert body["message"] == (
            'things.test.motley.io is forbidden: User "dora" cannot list resource "things" in API'
            ' group "test.motley.io" in the namespace "x"'
        )


async def test_headers_without_the_proxys_certificate_are_anybodys(tmp_path):
    async with running() as bed:
        signer = authority()
        bed.kubernetes.trust(signer, "front-proxy-client")
        await bed.until(200, bed.context(tmp_path, signer), **ANNA)
        bed.kubernetes.asked.clear()
        forged = {"X-Remote-User": "anna", "X-Remote-Group": "system:masters"}
        none, misnamed = bed.context(tmp_path), bed.context(tmp_path, signer, "anna")
        for context in (none, misnamed):
            code, body = await bed.ask(context, **forged)
            assert (code, body["reason"]) == (401, "Unauthorized")
        stranger = bed.context(tmp_path, authority())
        assert await bed.ask(stranger, **forged) == (0, None)
        assert bed.kubernetes.asked == []
        # With a token they are who the token says, whatever the headers do.
        code, body = await bed.ask(none, Authorization="Bearer carl", **forged)
        assert code == 403
        assert 'User "carl"' in body["message"]


async def test_another_authority_takes_the_place_of_the_first_also_on_open_connections(tmp_path):
    async with running() as bed, aiohttp.ClientSession() as session:
        first, second = authority(), authority()
        bed.kubernetes.trust(first, "front-proxy-client")
        old = bed.context(tmp_path, first)
        await bed.until(200, old, **ANNA)
        assert (await bed.ask(old, session=session, **ANNA))[0] == 200
        bed.kubernetes.trust(second, "front-proxy-client")
        await bed.until(200, bed.context(tmp_path, second), **ANNA)
        assert (await bed.ask(old, session=session, **ANNA))[0] in (0, 401)
        assert (await bed.ask(old, **ANNA))[0] in (0, 401)
        bed.kubernetes.trust(None)
        await bed.until(401, bed.context(tmp_path, second), **ANNA)


async def test_a_config_map_that_makes_no_sense_is_believed_by_nobody(tmp_path):
    async with running() as bed:
        signer = authority()
        bed.kubernetes.trust(signer)
        proxy = bed.context(tmp_path, signer)
        await bed.until(200, proxy, **ANNA)
        bed.kubernetes.trust(signer)
        bed.kubernetes.data["requestheader-allowed-names"] = "front-proxy-client"
        await bed.until(401, proxy, **ANNA)
        bed.kubernetes.trust(signer)
        bed.kubernetes.data["requestheader-client-ca-file"] = "no PEM"
        await bed.until(401, proxy, **ANNA)


async def test_a_token_is_reviewed_once_in_a_while(tmp_path):
    async with running() as bed:
        context = bed.context(tmp_path)
        for _ in range(3):
            assert (await bed.ask(context, Authorization="Bearer ben"))[0] == 200
        assert [b["kind"] for b in bed.kubernetes.asked] == ["TokenReview", "SubjectAccessReview"]
        assert (await bed.ask(context, "/metrics", Authorization="Bearer ben"))[0] == 404
        assert bed.kubernetes.asked[-1]["spec"]["nonResourceAttributes"] == {
            "path": "/metrics",
            "verb": "get",
        }
        assert (await bed.ask(context, Authorization="Bearer eve"))[0] == 401
        assert (await bed.ask(context))[0] == 401


async def test_while_the_api_server_cannot_be_asked_nobody_gets_in(tmp_path):
    async with running() as bed:
        context = bed.context(tmp_path)
        bed.kubernetes.error = status.ServiceUnavailable("away")
        code, body = await bed.ask(context, Authorization="Bearer ben")
        assert (code, body["reason"]) == (503, "ServiceUnavailable")
        bed.kubernetes.error = None
        assert (await bed.ask(context, Authorization="Bearer ben"))[0] == 200


async def test_only_how_it_fares_is_for_everybody(tmp_path):
    ready = []
    async with running(lambda: bool(ready)) as bed:
        context = bed.context(tmp_path)
        for path, expected in (("/livez", 200), ("/healthz", 200), ("/readyz", 503)):
            assert (await bed.ask(context, path))[0] == expected, path
        ready.append(True)
        assert await bed.ask(context, "/readyz") == (200, "ok")
        for path in ("/", "/apis", PATH, "/openapi/v2", "/healthz/x", "//healthz"):
            assert (await bed.ask(context, path))[0] == 401, path


async def test_too_many_at_once_are_told_to_come_back_and_one_that_hangs_is_ended(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(aggregated, "_MOST_AT_ONCE", 1)
    monkeypatch.setattr(aggregated, "_TIMEOUT_S", 0.5)
    async with running() as bed:
        context = bed.context(tmp_path)
        assert (await bed.ask(context, Authorization="Bearer ben"))[0] == 200
        bed.group.gate.clear()
        bed.group.entered.clear()
        async with asyncio.TaskGroup() as group:
            slow = group.create_task(bed.ask(context, Authorization="Bearer ben"))
            await bed.group.entered.wait()
            code, body = await bed.ask(context, Authorization="Bearer ben")
            assert (code, body["details"]["retryAfterSeconds"]) == (429, 1)
        code, body = slow.result()
        assert (code, body["reason"]) == (504, "Timeout")
        bed.group.gate.set()
        assert (await bed.ask(context, Authorization="Bearer ben"))[0] == 200
        path = f"{PATH}/namespaces/x/things/broken"
        assert (await bed.ask(context, path, Authorization="Bearer ben"))[0] == 500


AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@pytest.mark.parametrize(
    ("path", "accept", "kind"),
    [
        ("/apis", "application/json", "APIGroupList"),
        ("/apis", f"{AGGREGATED},application/json", "APIGroupDiscoveryList"),
        ("/apis/", AGGREGATED.replace("v=v2", "v=v2beta1"), "APIGroupList"),
        ("/apis/test.motley.io", "*/*", "APIGroup"),
    ],
)
async def test_discovery_is_told_in_the_form_that_is_asked_for(tmp_path, path, accept, kind):
    async with running() as bed:
        context = bed.context(tmp_path)
        code, body = await bed.ask(context, path, Authorization="Bearer ben", Accept=accept)
        assert (code, body["kind"]) == (200, kind)
        if kind == "APIGroupDiscoveryList":
            (version,) = body["items"][0]["versions"]
            assert version["resources"][0]["resource"] == "things"
        for path in ("/openapi/v2", "/openapi/v3", f"/openapi/v3{PATH}"):
            assert (await bed.ask(context, path, Authorization="Bearer ben"))[0] == 200
        assert (await bed.ask(context, "/apis/x/v1", Authorization="Bearer ben"))[0] == 404
