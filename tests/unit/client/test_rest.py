"""The client against a real HTTP server on loopback that answers as scripted."""

import asyncio
import json
from random import Random

import pytest
from aiohttp import web

from motley.api import status
from motley.api.views.core import ConfigMap, EndpointSlice, Node
from motley.api.views.pod import Pod
from motley.client.kubeconfig import Config
from motley.client.rest import Client, resource_path


class Server:
    """Answers with prepared responses in order, remembering what was asked."""

    def __init__(self):
        self.requests, self.answers = [], []

    async def handle(self, request):
        body = await request.text()
        self.requests.append((request, json.loads(body) if body else None))
        answer = self.answers.pop(0)
        return await answer(request) if callable(answer) else answer

    @property
    def last(self):
        return self.requests[-1]


@pytest.fixture
async def server():
    scripted = Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", scripted.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    scripted.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield scripted
    await runner.cleanup()


class Impatient:
    """Sleeps no time and remembers how long it should have."""

    def __init__(self):
        self.slept = []

    def now(self):
        return 0.0

    def monotonic(self):
        return 0.0

    async def sleep(self, seconds):
        self.slept.append(seconds)


@pytest.fixture
def hurried():
    return Impatient()


@pytest.fixture
async def client(server, hurried):
    async with Client(Config(server=server.url), clock=hurried, rng=Random(1)) as made:
        yield made


def failure(code, reason, message="no", headers=None, **details):
    body = {"kind": "Status", "code": code, "reason": reason, "message": message}
    if details:
        body["details"] = details
    return web.json_response(body, status=code, headers=headers)


def pod(name="a", version="1"):
    meta = {"name": name, "namespace": "n", "resourceVersion": version}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": meta, "unknown": {"x": 1}}


def test_paths_follow_group_scope_and_subresource():
    assert resource_path(Pod) == "/api/v1/pods"
    assert resource_path(Pod, "n", "a", "status") == "/api/v1/namespaces/n/pods/a/status"
    assert resource_path(Node, "ignored", "a") == "/api/v1/nodes/a"
    expected = "/apis/discovery.k8s.io/v1/namespaces/n/endpointslices"
    assert resource_path(EndpointSlice, "n") == expected


async def test_an_object_is_decoded_into_its_view(client, server):
    server.answers.append(web.json_response(pod()))
    got = await client.get(Pod, "a", "n")
    assert got.key == ("n", "a")
    assert server.last[0].path == "/api/v1/namespaces/n/pods/a"


async def test_nulls_of_go_servers_are_read_as_absent(client, server):
    body = {"metadata": {"name": "s", "labels": None}, "endpoints": None, "ports": None}
    server.answers.append(web.json_response(body))
    got = await client.get(EndpointSlice, "s", "n")
    assert (got.endpoints, got.ports, got.metadata.labels) == ([], [], {})


async def test_a_list_has_items_and_its_revision(client, server):
    server.answers.append(
        web.json_response({"metadata": {"resourceVersion": "9"}, "items": [pod("a"), pod("b")]})
    )
    listing = await client.list(Pod, label_selector="x=y", field_selector="spec.nodeName=z")
    assert [p.metadata.name for p in listing.items] == ["a", "b"]
    assert listing.resource_version == "9"
    query = dict(server.last[0].query)
    assert query == {"labelSelector": "x=y", "fieldSelector": "spec.nodeName=z"}


async def test_a_list_with_null_items_is_empty(client, server):
    server.answers.append(web.json_response({"metadata": {"resourceVersion": "9"}, "items": None}))
    assert (await client.list(Pod)).items == []


@pytest.mark.parametrize(
    ("code", "reason", "error"),
    [
        (404, "NotFound", status.NotFound),
        (409, "Conflict", status.Conflict),
        (409, "AlreadyExists", status.AlreadyExists),
        (410, "Expired", status.Gone),
        (422, "Invalid", status.Invalid),
        (403, "Forbidden", status.Forbidden),
    ],
)
async def test_a_status_becomes_the_error_the_server_raised(client, server, code, reason, error):
    server.answers.append(failure(code, reason, "because"))
    with pytest.raises(error, match="because"):
        await client.get(Pod, "a", "n")
    assert len(server.requests) == 1


async def test_an_answer_that_is_no_status_still_says_what_happened(client, server):
    server.answers.append(web.Response(status=502, text="bad gateway of a proxy"))
    with pytest.raises(status.ApiError, match="502 bad gateway of a proxy"):
        await client.create(Pod, pod())


@pytest.mark.parametrize("code", [429, 500, 502, 504])
async def test_a_question_that_fails_is_asked_again_but_a_write_is_not(
    client, server, hurried, code
):
    server.answers += [web.Response(status=code), web.json_response(pod())]
    assert (await client.get(Pod, "a", "n")).metadata.name == "a"
    assert len(hurried.slept) == 1
    server.answers = [web.Response(status=code)]
    with pytest.raises(status.ApiError):
        await client.create(Pod, pod())


async def test_an_apply_names_its_manager_and_its_fields(client, server):
    server.answers.append(web.json_response(pod()))
    body = {"metadata": {"name": "a", "namespace": "n", "labels": {"x": "y"}}}
    await client.apply(Pod, body, field_manager="me", force=True)
    request, sent = server.last
    assert (request.method, request.path) == ("PATCH", "/api/v1/namespaces/n/pods/a")
    assert dict(request.query) == {"fieldManager": "me", "force": "true"}
    assert request.content_type == "application/apply-patch+yaml"
    assert (sent["kind"], sent["metadata"]["labels"]) == ("Pod", {"x": "y"})


@pytest.mark.parametrize("code", [429, 503])
async def test_come_back_later_is_obeyed(client, server, hurried, code):
    reason = "TooManyRequests" if code == 429 else "ServiceUnavailable"
    server.answers += [
        failure(code, reason, headers={"Retry-After": "3"}),
        failure(code, reason, retryAfterSeconds=2),
        web.json_response(pod()),
    ]
    await client.create(Pod, pod())
    assert len(server.requests) == 3
    assert 3.0 < hurried.slept[0] < 3.5
    assert 2.0 < hurried.slept[1] < 2.5


async def test_it_does_not_come_back_for_ever(client, server):
    server.answers += [
        failure(429, "TooManyRequests", headers={"Retry-After": "1"}) for _ in range(9)
    ]
    with pytest.raises(status.TooManyRequests):
        await client.get(Pod, "a", "n")
    assert len(server.requests) == 5


async def test_unavailable_without_a_time_is_the_callers_to_judge(client, server):
    server.answers.append(failure(503, "ServiceUnavailable"))
    with pytest.raises(status.ServiceUnavailable):
        await client.create(Pod, pod())
    assert len(server.requests) == 1


async def _break(request):
    request.transport.close()
    return web.Response()


async def test_a_read_whose_connection_breaks_is_repeated(client, server):
    server.answers += [_break, _break, web.json_response(pod())]
    assert (await client.get(Pod, "a", "n")).metadata.name == "a"


async def test_a_write_whose_connection_breaks_is_not_repeated(client, server):
    server.answers += [_break, web.json_response(pod())]
    with pytest.raises(status.GatewayTimeout):
        await client.create(Pod, pod())
    assert len(server.requests) == 1


async def test_an_unreachable_server_is_an_api_error(hurried):
    async with Client(Config(server="http://127.0.0.1:1"), clock=hurried) as client:
        with pytest.raises(status.ServiceUnavailable):
            await client.create(Pod, pod())
    assert len(hurried.slept) == 4


@pytest.mark.parametrize(
    ("type_", "content"),
    [("merge", "merge-patch"), ("strategic", "strategic-merge-patch"), ("json", "json-patch")],
)
async def test_a_patch_names_its_type(client, server, type_, content):
    server.answers.append(web.json_response(pod()))
    await client.patch(Pod, "a", "n", {"x": 1}, type=type_, subresource="status")
    request, body = server.last
    assert request.path.endswith("/pods/a/status")
    assert request.content_type == f"application/{content}+json"
    assert body == {"x": 1}


async def test_a_deletion_carries_its_options(client, server):
    server.answers.append(web.json_response({"kind": "Status", "status": "Success"}))
    await client.delete(
        Pod, "a", "n", grace_period_s=0, propagation="Foreground", uid="u", resource_version="7"
    )
    assert server.last[1] == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 0,
        "propagationPolicy": "Foreground",
        "preconditions": {"uid": "u", "resourceVersion": "7"},
    }


async def test_create_and_update_name_the_kind_and_the_place(client, server):
    server.answers += [web.json_response(pod()), web.json_response(pod())]
    await client.create(ConfigMap, {"metadata": {"name": "c", "namespace": "n"}})
    assert server.last[0].path == "/api/v1/namespaces/n/configmaps"
    assert server.last[1]["kind"] == "ConfigMap"
    await client.update(ConfigMap, {"metadata": {"name": "c", "namespace": "n"}})
    assert (server.last[0].method, server.last[0].path) == (
        "PUT",
        "/api/v1/namespaces/n/configmaps/c",
    )


async def test_a_token_file_is_read_again_when_it_may_have_changed(server, tmp_path):
    file = tmp_path / "token"
    file.write_text("one\n")
    clock = Impatient()
    async with Client(Config(server=server.url, token_file=file), clock=clock) as client:
        for at, token in ((0.0, "one"), (10.0, "one"), (100.0, "two")):
            clock.monotonic = lambda at=at: at
            server.answers.append(web.json_response(pod()))
            await client.get(Pod, "a", "n")
            assert server.last[0].headers["Authorization"] == f"Bearer {token}"
            file.write_text("two")


def stream(*chunks, end=True):
    async def answer(request):
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        if end:
            await response.write_eof()
        else:
            request.transport.close()
        return response

    return answer


def line(type_, obj):
    return json.dumps({"type": type_, "object": obj}).encode() + b"\n"


async def collect(watch):
    return [(e.type, e.object.metadata.name) async for e in watch]


async def test_a_watch_yields_events_however_they_are_cut(client, server):
    data = line("ADDED", pod("a", "2")) + line("MODIFIED", pod("b" * 200_000, "3"))
    pieces = [data[i : i + 65_000] for i in range(0, len(data), 65_000)]
    server.answers.append(stream(data[:5], data[5:7], *([data[7:65_000]]), *pieces[1:]))
    events = await collect(client.watch(Pod, namespace="n", resource_version="1"))
    assert [(t, len(n)) for t, n in events] == [("ADDED", 1), ("MODIFIED", 200_000)]
    query = server.last[0].query
    assert (query["watch"], query["resourceVersion"]) == ("true", "1")
    assert query["allowWatchBookmarks"] == "true"
    assert 300 <= int(query["timeoutSeconds"]) <= 600


async def test_an_error_in_a_watch_is_raised(client, server):
    gone = {"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "x"}
    server.answers.append(stream(line("ADDED", pod()), line("ERROR", gone)))
    watch = client.watch(Pod, resource_version="1")
    assert (await anext(watch)).type == "ADDED"
    with pytest.raises(status.Gone):
        await anext(watch)


async def test_a_watch_that_breaks_off_says_so_and_hides_the_broken_line(client, server):
    server.answers.append(stream(line("ADDED", pod()), b'{"type":"ADDED","obj', end=False))
    watch = client.watch(Pod, resource_version="1")
    assert (await anext(watch)).object.metadata.name == "a"
    with pytest.raises(status.ServiceUnavailable):
        await anext(watch)


async def test_a_refused_watch_raises_what_the_server_said(client, server):
    server.answers.append(failure(410, "Expired"))
    with pytest.raises(status.Gone):
        await collect(client.watch(Pod, resource_version="1"))


async def test_bookmarks_pass_through_with_their_revision(client, server):
    mark = {"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": "77"}}
    server.answers.append(stream(line("BOOKMARK", mark)))
    events = [e async for e in client.watch(Pod, resource_version="1")]
    assert [(e.type, e.resource_version) for e in events] == [("BOOKMARK", "77")]


async def test_a_client_outside_its_block_says_so(server):
    with pytest.raises(RuntimeError, match="async with"):
        await Client(Config(server=server.url)).get(Pod, "a")


async def test_many_requests_share_connections(client, server):
    server.answers += [web.json_response(pod()) for _ in range(30)]
    await asyncio.gather(*(client.get(Pod, "a", "n") for _ in range(10)))
    await asyncio.gather(*(client.get(Pod, "a", "n") for _ in range(20)))
    ports = {
        request.transport.get_extra_info("peername")
        for request, _ in server.requests
        if request.transport
    }
    assert len(ports) <= 20


async def test_an_object_that_is_not_understood_does_not_hide_the_others(client, server, caplog):
    strange = {"metadata": {"name": "strange", "labels": 5}}
    server.answers.append(
        web.json_response(
            {"metadata": {"resourceVersion": "9"}, "items": [pod("a"), strange, pod("b")]}
        )
    )
    listing = await client.list(Pod)
    assert [p.metadata.name for p in listing.items] == ["a", "b"]
    assert "object not understood" in caplog.text
    bad = {"metadata": {"name": "strange", "resourceVersion": "7", "labels": 5}}
    server.answers.append(stream(line("ADDED", bad), line("ADDED", pod("c", "8"))))
    events = [e async for e in client.watch(Pod, resource_version="1")]
    assert [(e.type, e.resource_version) for e in events] == [("BOOKMARK", "7"), ("ADDED", "8")]
