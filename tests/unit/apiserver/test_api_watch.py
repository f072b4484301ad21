"""Watching: what a client is told, from when, and when it is told to start again."""

from motley.apiserver.verbs import watch

MAPS = "/api/v1/namespaces/demo/configmaps"


async def put(api, name: str, **labels: str) -> str:
    """Create or relabel a ConfigMap; its version afterwards."""
    body = {"metadata": {"name": name, "labels": labels}}
    reply = await api.create(MAPS, body)
    if reply.code == 409:
        reply = await api.put(f"{MAPS}/{name}", body)
    return reply.json["metadata"]["resourceVersion"]


async def test_without_a_version_a_watch_begins_with_what_is_there(api):
    await put(api, "a")

    async with api.watch(f"{MAPS}?watch=true") as seen:
        assert await seen.events(1) == [("ADDED", "a")]
        await put(api, "b")
        await put(api, "a", x="y")
        await api.delete(f"{MAPS}/b")
        assert await seen.events(3) == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b")]


async def test_a_watch_from_a_version_tells_only_what_came_after(api):
    version = await put(api, "a")
    await put(api, "b")

    async with api.watch(f"{MAPS}?watch=true&resourceVersion={version}") as seen:
        assert await seen.events(1) == [("ADDED", "b")]


async def test_a_deleted_object_carries_the_version_of_its_deletion(api):
    version = await put(api, "a")

    async with api.watch(f"{MAPS}?watch=true&resourceVersion={version}") as seen:
        await api.delete(f"{MAPS}/a")
        event = await seen.event()

    assert event["type"] == "DELETED"
    assert int(event["object"]["metadata"]["resourceVersion"]) > int(version)


async def test_objects_that_enter_and_leave_a_selector_are_added_and_deleted(api):
    await put(api, "a")

    async with api.watch(f"{MAPS}?watch=true&labelSelector=in%3Dyes") as seen:
        await put(api, "a", **{"in": "yes"})
        await put(api, "a", **{"in": "yes", "more": "x"})
        await put(api, "a")
        await put(api, "a", other="z")
        await put(api, "b", **{"in": "yes"})
        assert await seen.events(4) == [
            ("ADDED", "a"),
            ("MODIFIED", "a"),
            ("DELETED", "a"),
            ("ADDED", "b"),
        ]


async def test_an_object_that_left_is_shown_as_it_was_when_it_matched(api):
    await put(api, "a", **{"in": "yes"})

    async with api.watch(f"{MAPS}?watch=true&labelSelector=in%3Dyes") as seen:
        await seen.event()
        version = await put(api, "a", **{"in": "no"})
        event = await seen.event()

    assert event["type"] == "DELETED"
    assert event["object"]["metadata"]["labels"] == {"in": "yes"}
    assert event["object"]["metadata"]["resourceVersion"] == version


async def test_a_watch_on_all_namespaces_sees_every_one(api):
    await api.create("/api/v1/namespaces", {"metadata": {"name": "other"}})

    async with api.watch("/api/v1/configmaps?watch=true") as seen:
        await put(api, "a")
        await api.create("/api/v1/namespaces/other/configmaps", {"metadata": {"name": "o"}})
        assert await seen.events(2) == [("ADDED", "a"), ("ADDED", "o")]


async def test_initial_events_end_with_a_bookmark(api):
    await put(api, "a")
    query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"

    async with api.watch(f"{MAPS}?watch=true&{query}") as seen:
        assert await seen.events(1) == [("ADDED", "a")]
        mark = await seen.event()

    assert mark["type"] == "BOOKMARK"
    annotations = mark["object"]["metadata"]["annotations"]
    assert annotations == {"k8s.io/initial-events-end": "true"}


async def test_a_quiet_watch_gets_bookmarks(api, monkeypatch):
    monkeypatch.setattr(watch, "BOOKMARK_S", 0.05)
    version = await put(api, "a")
    url = f"{MAPS}?watch=true&resourceVersion={version}&allowWatchBookmarks=true"

    async with api.watch(url) as seen:
        await api.create("/api/v1/namespaces", {"metadata": {"name": "elsewhere"}})
        mark = await seen.event()

    assert mark["type"] == "BOOKMARK"
    assert int(mark["object"]["metadata"]["resourceVersion"]) > int(version)


async def test_a_watch_ends_after_its_timeout(api):
    async with api.watch(f"{MAPS}?watch=true&timeoutSeconds=1") as seen:
        assert await seen.event() is None


async def test_a_watch_from_a_compacted_version_is_told_to_list_again(api):
    version = await put(api, "a")
    for number in range(3):
        await put(api, "a", n=str(number))
    cache = api.app._core.caches[_maps_kind()]
    cache._capacity = 1
    for number in range(3):
        await put(api, "a", m=str(number))

    async with api.watch(f"{MAPS}?watch=true&resourceVersion={version}") as seen:
        event = await seen.event()
        assert await seen.event() is None

    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")


async def test_stopping_the_server_ends_watches_cleanly(api):
    async with api.watch(f"{MAPS}?watch=true") as seen:
        await put(api, "a")
        await seen.event()
        api.app.end_streams()
        assert await seen.event() is None


async def test_a_client_that_leaves_frees_its_cursor(api):
    cache = api.app._core.caches[_maps_kind()]
    async with api.watch(f"{MAPS}?watch=true") as seen:
        await put(api, "a")
        await seen.event()
        assert len(cache._cursors) == 1
    assert not cache._cursors
    assert not api.app._core.streams


async def test_a_table_watch_sends_rows(api):
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    async with api.watch(f"{MAPS}?watch=true", accept=accept) as seen:
        await put(api, "a")
        event = await seen.event()

    assert event["type"] == "ADDED"
    assert event["object"]["kind"] == "Table"
    assert event["object"]["rows"][0]["cells"][0] == "a"


def _maps_kind():
    from motley.api import scheme

    return scheme.resource("", "v1", "configmaps")
