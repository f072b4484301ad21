"""Requests that make no sense get clear answers, and never harm the server."""

import asyncio

MAPS = "/api/v1/namespaces/demo/configmaps"


async def test_malformed_bodies_are_refused(api):
    for body in (b"", b"hello", b'{"kind":', b"[]", b"3", b'"x"', b"\xff\xfe"):
        refused = await api.create(MAPS, body)
        assert (refused.code, refused.json["reason"]) == (400, "BadRequest"), body
    assert refused.message.startswith(
        "the object provided is unrecognized (must be of type ConfigMap)"
    )


async def test_an_empty_object_is_invalid_not_malformed(api):
    refused = await api.create(MAPS, {})

    assert refused.code == 422
    assert "name or generateName is required" in refused.message


async def test_a_wrong_content_type_is_refused(api):
    for media_type in ("text/plain", "application/cbor", "application/merge-patch+json"):
        refused = await api.create(MAPS, {"metadata": {"name": "a"}}, content_type=media_type)
        assert (refused.code, refused.json["reason"]) == (415, "UnsupportedMediaType")


async def test_yaml_bodies_are_taken(api):
    body = b"metadata:\n  name: in-yaml\ndata:\n  k: 'yes'\n"

    made = await api.create(MAPS, body, content_type="application/yaml")

    assert (made.code, made.json["data"]) == (201, {"k": "yes"})


async def test_a_huge_body_is_refused(api):
    body = b'{"metadata":{"name":"a"},"data":{"x":"' + b"y" * 3_200_000 + b'"}}'

    refused = await api.create(MAPS, body)

    assert (refused.code, refused.json["reason"]) == (413, "RequestEntityTooLarge")
    assert refused.message == "Request entity too large: limit is 3145728"


async def test_a_declared_huge_body_is_refused_before_it_is_read(api):
    refused = await api.create(MAPS, b"{}", headers={"content-length": "999999999"})

    assert refused.code == 413


async def test_unknown_resources_and_methods_are_told_apart(api):
    unknown = await api.get("/api/v1/namespaces/demo/nosuch")
    scope = await api.get("/api/v1/namespaces/demo/nodes")
    group = await api.get("/apis/nosuch.example.com/v1/things")
    method = await api.put(MAPS, {})
    everywhere = await api.create("/api/v1/configmaps", {"metadata": {"name": "a"}})
    sub = await api.get(f"{MAPS}/a/nosuch")

    assert {unknown.code, scope.code, group.code, sub.code} == {404}
    assert unknown.message == "the server could not find the requested resource"
    assert {method.code, everywhere.code} == {405}


async def test_trailing_slashes_do_not_matter(api):
    assert (await api.get(f"{MAPS}/")).code == 200
    assert (await api.get("/api/v1/")).code == 200


async def test_a_handler_that_breaks_is_answered_500_and_the_server_goes_on(api, monkeypatch):
    async def broken(*_):
        raise RuntimeError("a bug")

    monkeypatch.setattr(api.app._core.writer, "create", broken)
    refused = await api.create(MAPS, {"metadata": {"name": "a"}})

    assert (refused.code, refused.json["reason"]) == (500, "InternalError")
    assert (await api.get(MAPS)).code == 200


async def test_a_full_disk_changes_nothing_and_says_so(api, monkeypatch):
    from motley.store.contract import Full

    async def full(*_):
        raise Full("make room on the disk")

    monkeypatch.setattr(api.app._core.store, "commit", full)
    refused = await api.create(MAPS, {"metadata": {"name": "a"}})

    # kubectl would wait and try again, were it told when to.
    assert (refused.code, "retry-after" in refused.headers) == (507, False)
    assert refused.json["reason"] == "InsufficientStorage"
    assert refused.message == (
        "the store has no space left and nothing was changed: make room on the disk"
    )


async def test_a_client_that_leaves_mid_request_is_no_failure(api):
    async def receive():
        return {"type": "http.disconnect"}

    sent = []

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": MAPS,
        "query_string": b"",
        "headers": [(b"authorization", b"Bearer admin")],
        "state": {},
    }
    async with asyncio.timeout(20):
        await api.app(scope, receive, send)

    assert sent[0]["status"] == 400
