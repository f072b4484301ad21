"""HTTP passed on to pods, services and nodes."""

import asyncio
import gzip
import ssl
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from motley.api import scheme, status
from motley.apiserver import document, tls
from motley.apiserver.request import parse
from motley.apiserver.subresources import proxy
from motley.store.contract import Put

PODS = "/api/v1/namespaces/demo/pods"
SERVICES = "/api/v1/namespaces/demo/services"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/demo/endpointslices"

PAGE = '<html><a href="/other?a=1&amp;b=2">x</a> <img src=logo.png></html>'


@asynccontextmanager
async def backend(context=None):
    """A server that says what it was asked; yields its port."""

    async def answer(request):
        if request.path == "/moved":
            raise web.HTTPFound("/elsewhere")
        if request.path == "/page":
            page = web.Response(text=PAGE, content_type="text/html")
            page.headers["access-control-allow-origin"] = "*"
            if "gzip" in request.query:
                page.body = gzip.compress(PAGE.encode())
                page.headers["content-encoding"] = "gzip"
            return page
        body = {
            "method": request.method,
            "path": request.raw_path,
            "headers": {k.lower(): v for k, v in request.headers.items()},
            "body": (await request.read()).decode(),
        }
        reply = web.json_response(body, status=203, headers={"x-own": "1"})
        reply.headers.add("set-cookie", "a=1")
        reply.headers.add("set-cookie", "b=2")
        return reply

    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    try:
        yield site._server.sockets[0].getsockname()[1]
    finally:
        await runner.cleanup()


@pytest.fixture
def loopback_is_allowed(monkeypatch):
    """The backends of these tests are on loopback, where no pod is."""
    monkeypatch.setattr(proxy, "check_address", lambda host: None)


async def call(api, method, url, body=None, **headers):
    """As `api.call`, for answers that come as a stream."""
    return await api.call(method, url, body, headers=headers)


async def a_pod_at(api, a_pod, address="127.0.0.1"):
    await api.create(PODS, a_pod(nodeName="n1"))
    state = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
    await api.patch(f"{PODS}/p/status", {"status": state})


@pytest.mark.usefixtures("loopback_is_allowed")
async def test_a_call_reaches_the_pod_as_it_was_made(api, a_pod):
    await a_pod_at(api, a_pod)
    async with backend() as port:
        reply = await call(
            api,
            "POST",
            f"{PODS}/p:{port}/proxy/a%20b/c/?x=1&x=2",
            b'"hi"',
            **{"x-mine": "2", "x-remote-user": "root", "connection": "x-hop", "x-hop": "1"},
        )

    asked = reply.json
    assert (reply.code, asked["method"]) == (203, "POST")
    assert asked["path"] == "/a%20b/c/?x=1&x=2"
    assert asked["body"] == '"hi"'
    assert asked["headers"]["x-mine"] == "2"
    assert asked["headers"]["x-forwarded-proto"] == "https"
    assert not {"authorization", "x-remote-user", "x-hop"} & set(asked["headers"])
    assert reply.headers["x-own"] == "1"


@pytest.mark.usefixtures("loopback_is_allowed")
async def test_redirects_are_for_the_client(api, a_pod):
    await a_pod_at(api, a_pod)
    async with backend() as port:
        moved = await call(api, "GET", f"{PODS}/p:{port}/proxy/moved")
        bare = await call(api, "GET", f"{PODS}/p:{port}/proxy?x=1")

    assert (moved.code, moved.headers["location"]) == (302, f"{PODS}/p:{port}/proxy/elsewhere")
    assert (bare.code, bare.headers["location"]) == (301, f"{PODS}/p:{port}/proxy/?x=1")


@pytest.mark.usefixtures("loopback_is_allowed")
async def test_the_links_of_a_page_lead_through_the_proxy_again(api, a_pod):
    await a_pod_at(api, a_pod)
    async with backend() as port:
        plain = await api.get(f"{PODS}/p:{port}/proxy/page", accept="text/html")
        packed = await api.get(f"{PODS}/http:p:{port}/proxy/page?gzip=1")

    def page(name):
        return PAGE.replace("/other", f"{PODS}/{name}:{port}/proxy/other")

    assert (plain.code, plain.body.decode()) == (200, page("p"))
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body).decode() == page("http:p")
    assert "access-control-allow-origin" not in plain.headers


@pytest.mark.usefixtures("loopback_is_allowed")
async def test_a_service_is_called_at_a_ready_endpoint(api):
    async with backend() as port:
        ports = [{"name": "web", "port": 80}, {"name": "other", "port": 81}]
        await api.create(SERVICES, {"metadata": {"name": "s"}, "spec": {"ports": ports}})
        piece = {
            "metadata": {"name": "s-1", "labels": {"kubernetes.io/service-name": "s"}},
            "addressType": "IPv4",
            "ports": [{"name": "web", "port": port}],
            "endpoints": [
                {"addresses": ["10.9.9.9"], "conditions": {"ready": False}},
                {"addresses": ["127.0.0.1"], "conditions": {"ready": True}},
            ],
        }
        # Endpoints on loopback are refused by the API, so this one is put where it is read.
        await put_directly(api, piece)

        by_name = await call(api, "GET", f"{SERVICES}/s:web/proxy/")
        by_number = await call(api, "GET", f"{SERVICES}/http:s:80/proxy/")
        unnamed = await call(api, "GET", f"{SERVICES}/s/proxy/")
        without = await call(api, "GET", f"{SERVICES}/s:other/proxy/")

    assert (by_name.code, by_number.code) == (203, 203)
    assert (unnamed.code, without.code) == (503, 503)
    assert unnamed.message == 'no service port "" found for service "s"'
    assert without.message == 'no endpoints available for service "s"'


async def put_directly(api, piece):
    body = {"kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", **piece}
    body["metadata"] = {"namespace": "demo", **body["metadata"]}
    kind = scheme.resource("discovery.k8s.io", "v1", "endpointslices")
    key = kind.key("demo", piece["metadata"]["name"])
    await api.store.commit([Put(key, document.encode(kind, body))])


async def test_a_node_is_called_at_its_agent_over_tls(api, tmp_path):
    tls.ensure(tmp_path, addresses=["127.0.0.1"])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "pki/apiserver.crt", tmp_path / "pki/apiserver.key")
    async with backend(context) as port:
        await api.create("/api/v1/nodes", {"metadata": {"name": "n"}})
        state = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        }
        await api.patch("/api/v1/nodes/n/status", {"status": state})

        healthy = await api.get("/api/v1/nodes/n/proxy/healthz")
        by_port = await api.get(f"/api/v1/nodes/n:{port}/proxy/healthz")
        elsewhere = await api.get("/api/v1/nodes/n:22/proxy/")

    assert (healthy.code, by_port.code) == (203, 203)
    assert healthy.json["path"] == "/healthz"
    # Another port of the node is no agent: the rules for addresses hold.
    assert (elsewhere.code, elsewhere.message) == (400, "address not allowed")


async def test_what_is_not_there_is_said(api, a_pod):
    await api.create(PODS, a_pod())

    pod, node = await api.get(f"{PODS}/x/proxy"), await api.get("/api/v1/nodes/x/proxy")
    service = await api.get(f"{SERVICES}/x/proxy")
    waiting = await api.get(f"{PODS}/p/proxy/")

    assert (pod.code, node.code, service.code) == (404, 404, 503)
    assert service.message == 'no endpoints available for service "x"'
    assert (waiting.code, "has no address yet" in waiting.message) == (400, True)


@pytest.mark.usefixtures("loopback_is_allowed")
async def test_nobody_there_is_unavailable(api, a_pod):
    await a_pod_at(api, a_pod)
    async with backend() as port:
        pass  # and gone again

    async with asyncio.timeout(10):
        reply = await call(api, "GET", f"{PODS}/p:{port}/proxy/")

    assert reply.code == 503
    assert "error trying to reach service" in reply.message


@pytest.mark.parametrize("address", ["127.0.0.1", "169.254.169.254", "::1", "0.0.0.0", "224.0.0.1"])
def test_addresses_of_the_machine_itself_are_not_called(address):
    with pytest.raises(status.BadRequest, match="address not allowed"):
        proxy.check_address(address)


async def test_a_pod_cannot_lead_the_server_to_itself(api, a_pod):
    await a_pod_at(api, a_pod)

    refused = await api.get(f"{PODS}/p:6443/proxy/")

    assert (refused.code, refused.message) == (400, "address not allowed")


def test_what_says_who_the_client_is_stays_here():
    given = {"authorization": "Bearer x", "impersonate-user": "root", "accept": "*/*", "host": "h"}

    assert proxy.headers_to_send(given.items(), "/a b") == {
        "accept": "*/*",
        "x-forwarded-host": "h",
        "x-forwarded-proto": "https",
        "x-forwarded-uri": "/a%20b",
    }


def test_names_carry_scheme_and_port():
    assert proxy.parse_name("web") == ("", "web", "")
    assert proxy.parse_name("web:80") == ("", "web", "80")
    assert proxy.parse_name("https:web:8443") == ("https", "web", "8443")
    for wrong in ("ftp:web:21", "a:b:c:d", ":80"):
        with pytest.raises(status.BadRequest):
            proxy.parse_name(wrong)


def test_the_path_keeps_its_slashes():
    info = parse("GET", "/api/v1/namespaces/demo/pods/p/proxy/a//b/", b"")

    assert (info.name, info.subresource) == ("p", "proxy")
    assert proxy.path_of(info) == "/a//b/"
