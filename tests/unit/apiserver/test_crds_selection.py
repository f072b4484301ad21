"""Selectors of custom resources: each version's own fields, as that version shows them."""

import asyncio
from random import Random
from urllib.parse import quote

import pytest

from motley.api import scheme, status
from motley.apiserver import document
from motley.apiserver.crds import rows, shown
from motley.apiserver.crds.conversion import Conversions
from motley.lib.clock import SYSTEM

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = "stable.example.com"
V1, V2 = (f"/apis/{GROUP}/{version}/namespaces/demo/hosts" for version in ("v1", "v2"))
TEXT = {"type": "string"}
FIELDS = {
    "v1": {"hostPort": TEXT, "zone": TEXT},
    "v2": {"host": TEXT, "port": {**TEXT, "default": "80"}, "zone": {**TEXT, "nullable": True}},
}
WEBHOOK = {
    "strategy": "Webhook",
    "webhook": {
        "conversionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://127.0.0.1:1/", "caBundle": ""},
    },
}


def definition(kept="v1", fields=FIELDS, selectable=("zone",), **changes):
    """v1 can be selected by `hostPort`, v2 by `host` and `port`, both by what is `selectable`."""

    def version(name):
        own = [field for field in ("hostPort", "host", "port") if field in fields[name]]
        return {
            "name": name,
            "served": True,
            "storage": name == kept,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": fields[name]}},
            "selectableFields": [{"jsonPath": f".{field}"} for field in (*own, *selectable)],
            "additionalPrinterColumns": [
                {"name": name, "type": "string", "jsonPath": ".metadata.name"}
            ],
        }

    names = {"plural": "hosts", "kind": "Host", "singular": "host"}
    spec = {
        "group": GROUP,
        "scope": "Namespaced",
        "names": names,
        "versions": [version("v1"), version("v2")],
    }
    return {"metadata": {"name": f"hosts.{GROUP}"}, "spec": {**spec, **changes}}


def host(name, version="v2", **content):
    metadata = {"name": name, "labels": {"of": version}}
    return {
        "apiVersion": f"{GROUP}/{version}",
        "kind": "Host",
        "metadata": metadata,
        **(content or {"host": "x"}),
    }


class Converter:
    """v1 has `hostPort: "a:1"`, v2 has `host` and `port`; the label `of` says the version."""

    def __init__(self):
        self.reviews = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.problem = ""

    async def __call__(self, webhook, review):
        request = review["request"]
        self.reviews.append(request)
        await self.may_answer.wait()
        made = [self.convert(one, request["desiredAPIVersion"]) for one in request["objects"]]
        result = {"status": "Success"}
        if self.problem:
            result = {"status": "Failed", "message": self.problem}
        return {"response": {"uid": request["uid"], "result": result, "convertedObjects": made}}

    @staticmethod
    def convert(found, version):
        made = {**found, "apiVersion": version}
        name = version.rpartition("/")[2]
        made["metadata"] = {**found["metadata"], "labels": {"of": name}}
        if name == "v2":
            made["host"], _, made["port"] = made.pop("hostPort").partition(":")
        else:
            made["hostPort"] = f"{made.pop('host')}:{made.pop('port')}"
        return made


async def until_asked(converter, count):
    """Wait for that many reviews, and a moment for those who would ask too."""
    async with asyncio.timeout(20):
        while len(converter.reviews) < count:
            await asyncio.to_thread(lambda: None)
    await asyncio.to_thread(lambda: None)


async def serve(api, body):
    made = await api.create(CRDS, body)
    assert made.code == 201, made.message
    async with asyncio.timeout(10):
        while (await api.get(V2)).code != 200:
            await asyncio.to_thread(lambda: None)


async def become(api, body):
    """Change the definition; returns once the server has learnt of it."""
    url = f"{CRDS}/{body['metadata']['name']}"
    before = scheme.resource(GROUP, "v2", "hosts").definition
    found = (await api.get(url)).json
    reply = await api.put(url, {**found, "spec": body["spec"]})
    assert reply.code == 200, reply.message
    async with asyncio.timeout(10):
        while scheme.resource(GROUP, "v2", "hosts").definition is before:
            await asyncio.to_thread(lambda: None)


async def kept_version(api, name):
    record = await api.store.get(f"/registry/{GROUP}/hosts/demo/{name}")
    return record.value.partition(b'"apiVersion":"')[2].partition(b'"')[0].decode()[-2:]


@pytest.fixture
async def plain(api):
    await serve(api, definition())
    return api


@pytest.fixture
def converter(api):
    found = Converter()
    api.app._core.writer.conversions = Conversions(found, Random(1))
    return found


@pytest.fixture
async def translated(api, converter):
    await serve(api, definition(conversion=WEBHOOK))
    return api


async def selected(api, collection, selector, kind="fieldSelector", more=""):
    reply = await api.get(f"{collection}?{kind}={quote(selector)}{more}")
    assert reply.code == 200, reply.message
    return [item["metadata"]["name"] for item in reply.json["items"]]


async def test_a_field_beside_the_spec_can_be_selected(plain):
    await plain.create(V1, host("a", "v1", hostPort="x:80"))
    await plain.create(V1, host("b", "v1", hostPort="y:80"))

    assert await selected(plain, V1, "hostPort=x:80") == ["a"]
    assert await selected(plain, V1, "hostPort!=x:80") == ["b"]
    async with plain.watch(f"{V1}?watch=true&fieldSelector=hostPort%3Dy:80") as watching:
        assert await watching.events(1) == [("ADDED", "b")]
        await plain.patch(f"{V1}/a", {"hostPort": "y:80"})
        await plain.patch(f"{V1}/b", {"hostPort": "z:80"})
        assert await watching.events(2) == [("ADDED", "a"), ("DELETED", "b")]


async def test_every_version_has_its_own_fields_and_shows_its_own_defaults(plain):
    # With the strategy None the stored object is read with the schema of the version.
    await plain.create(V2, host("a", zone="n"))

    for collection, path in ((V1, "host"), (V1, "port"), (V2, "hostPort"), (V2, "nosuch")):
        refused = await plain.get(f"{collection}?fieldSelector={path}%3Dx")
        assert (refused.code, refused.message) == (400, f"field label not supported: {path}")
    assert await selected(plain, V2, "port=80") == ["a"]
    assert await selected(plain, V2, "port=81") == []
    assert await selected(plain, V2, "zone=n") == await selected(plain, V1, "zone=n") == ["a"]
    async with plain.watch(f"{V2}?watch=true&fieldSelector=port%3D80,zone%3Ds") as watching:
        await plain.patch(f"{V1}/a", {"zone": "s"})
        await plain.patch(f"{V1}/a", {"metadata": {"labels": {"more": "x"}}})
        await plain.patch(f"{V1}/a", {"zone": "n"})
        changes = [await watching.event() for _ in range(3)]
    assert [e["type"] for e in changes] == ["ADDED", "MODIFIED", "DELETED"]
    assert {e["object"]["apiVersion"] for e in changes} == {f"{GROUP}/v2"}


async def test_null_is_selected_as_nothing(api):
    await serve(api, definition(kept="v2"))
    await api.create(V2, host("a", zone=None))
    await api.create(V2, host("b", zone="n"))

    assert await selected(api, V2, "zone=") == ["a"]
    assert await selected(api, V2, "zone=None") == []


async def test_a_default_that_came_later_is_selected_by(api):
    await serve(api, definition(kept="v2"))
    await api.create(V2, host("a", host="x"))
    assert await selected(api, V2, "zone=far") == []

    fields = {**FIELDS, "v2": {**FIELDS["v2"], "zone": {**TEXT, "default": "far"}}}
    await become(api, definition(kept="v2", fields=fields))

    assert (await api.get(f"{V2}/a")).json["zone"] == "far"
    assert await selected(api, V2, "zone=far") == ["a"]


async def test_without_selectable_fields_only_name_and_namespace_are_known(api):
    await serve(api, definition(selectable=(), fields={v: {"zone": TEXT} for v in FIELDS}))
    refused = await api.get(f"{V1}?fieldSelector=zone%3Dn")
    assert (refused.code, refused.message) == (400, "field label not supported: zone")
    await api.create(V1, host("a", "v1", zone="n"))
    assert await selected(api, V1, "metadata.name=a,metadata.namespace=demo") == ["a"]


async def test_versions_of_one_schema_are_judged_by_what_the_cache_keeps(api, monkeypatch):
    await serve(api, definition(fields={v: {"zone": TEXT} for v in FIELDS}))
    for name, zone in (("a", "n"), ("b", "s")):
        await api.create(V1, host(name, "v1", zone=zone))
    with monkeypatch.context() as patching:
        patching.setattr(shown, "read", None)  # an empty list shows nothing, so this one judges
        assert await selected(api, V2, "zone=e") == []

    assert await selected(api, V2, "zone=n") == ["a"]


async def test_a_version_that_a_webhook_makes_is_selected_by_what_it_made(translated):
    await translated.create(V2, host("a", host="x", port="80"))
    await translated.create(V1, host("b", "v1", hostPort="x:8080"))
    await translated.create(V1, host("c", "v1", hostPort="y:80"))

    assert await selected(translated, V2, "host=x") == ["a", "b"]
    assert await selected(translated, V2, "host=x,port!=80") == ["b"]
    assert await selected(translated, V2, "host=x,metadata.name=a") == ["a"]
    assert await selected(translated, V2, "host=y,metadata.name=a") == []
    assert await selected(translated, V1, "hostPort=x:80") == ["a"]
    # Labels are the webhook's to change.
    assert await selected(translated, V2, "of=v1", "labelSelector") == []
    assert await selected(translated, V2, "of=v2", "labelSelector") == ["a", "b", "c"]
    assert await selected(translated, V1, "of=v1", "labelSelector") == ["a", "b", "c"]


async def test_pages_and_past_moments_are_selected_alike(translated):
    for name, port in (("a", 1), ("b", 2), ("c", 1), ("d", 1)):
        await translated.create(V1, host(name, "v1", hostPort=f"x:{port}"))
    first = (await translated.get(f"{V2}?fieldSelector=port%3D1&limit=2")).json
    await translated.patch(f"{V1}/a", {"hostPort": "x:2"})
    token = first["metadata"]["continue"]
    then = f"&resourceVersionMatch=Exact&resourceVersion={first['metadata']['resourceVersion']}"

    assert [i["metadata"]["name"] for i in first["items"]] == ["a", "c"]
    assert await selected(translated, V2, "port=1", more=f"&limit=2&continue={token}") == ["d"]
    assert await selected(translated, V2, "port=1", more=then) == ["a", "c", "d"]
    assert await selected(translated, V2, "port=1") == ["c", "d"]


async def test_what_is_selected_in_a_translated_version_is_deleted_together(translated):
    for name, port in (("a", "x:1"), ("b", "x:2"), ("c", "y:1")):
        await translated.create(V1, host(name, "v1", hostPort=port))

    gone = await translated.delete(f"{V2}?fieldSelector=host%3Dx,port%3D1")

    assert (gone.code, [i["host"] for i in gone.json["items"]]) == (200, ["x"])
    assert await selected(translated, V1, "hostPort!=none") == ["b", "c"]


async def test_a_watch_in_a_translated_version_sees_objects_begin_and_cease_to_match(translated):
    await translated.create(V1, host("a", "v1", hostPort="x:1"))
    await translated.create(V1, host("b", "v1", hostPort="y:1"))
    async with translated.watch(f"{V2}?watch=true&fieldSelector=host%3Dx") as watching:
        await translated.patch(f"{V1}/b", {"hostPort": "x:1"})
        await translated.patch(f"{V2}/a", {"port": "2"})
        await translated.patch(f"{V2}/a", {"host": "z"})
        await translated.patch(f"{V2}/a", {"port": "3"})  # no business of this watch
        await translated.delete(f"{V1}/b")
        await translated.create(V2, host("c", host="x", port="9"))
        seen = [await watching.event() for _ in range(6)]

    about = [(e["type"], e["object"]["metadata"]["name"]) for e in seen]
    assert about == [
        ("ADDED", "a"),
        ("ADDED", "b"),
        ("MODIFIED", "a"),
        ("DELETED", "a"),
        ("DELETED", "b"),
        ("ADDED", "c"),
    ]
    # What leaves is shown as it was while it matched.
    assert [(e["object"]["host"], e["object"]["port"]) for e in seen[2:4]] == [("x", "2")] * 2
    assert int(seen[3]["object"]["metadata"]["resourceVersion"]) > int(
        seen[2]["object"]["metadata"]["resourceVersion"]
    )


async def test_labels_are_watched_as_the_version_shows_them(translated):
    async with translated.watch(f"{V2}?watch=true&labelSelector=of%3Dv2") as watching:
        await translated.create(V1, host("a", "v1", hostPort="x:1"))
        assert await watching.events(1) == [("ADDED", "a")]


async def test_a_change_is_one_question_however_many_watch_it(translated, converter):
    url = f"{V2}?watch=true&fieldSelector=host%3D"
    async with (
        translated.watch(f"{url}x") as one,
        translated.watch(f"{url}x") as other,
        translated.watch(f"{url}y") as third,
    ):
        converter.may_answer.clear()
        await translated.create(V1, host("a", "v1", hostPort="x:1"))
        await until_asked(converter, 1)
        converter.may_answer.set()
        assert await one.events(1) == await other.events(1) == [("ADDED", "a")]
        await translated.create(V1, host("b", "v1", hostPort="y:1"))
        assert await third.events(1) == [("ADDED", "b")]

    asked = [o["metadata"]["name"] for review in converter.reviews for o in review["objects"]]
    assert asked == ["a", "b"]


async def test_a_webhook_that_fails_is_told_to_who_selects(translated, converter):
    await translated.create(V1, host("a", "v1", hostPort="x:1"))
    converter.problem = "out of order"

    for url in (f"{V2}?fieldSelector=host%3Dx", f"{V2}?watch=true&fieldSelector=host%3Dx"):
        reply = await translated.get(url)
        assert (reply.code, "out of order" in reply.message) == (503, True)
    assert await selected(translated, V1, "hostPort=x:1") == ["a"]
    assert await selected(translated, V2, "metadata.name=nosuch") == []


async def test_an_object_kept_in_an_older_version_is_selected_in_the_new_one(translated):
    await translated.create(V1, host("a", "v1", hostPort="x:1"))
    await become(translated, definition(kept="v2", conversion=WEBHOOK))
    await translated.create(V2, host("b", host="x", port="2"))

    assert [await kept_version(translated, name) for name in "ab"] == ["v1", "v2"]
    assert await selected(translated, V2, "host=x") == ["a", "b"]
    assert await selected(translated, V1, "hostPort=x:1") == ["a"]


async def test_when_another_version_is_kept_older_objects_still_say_the_version_asked_for(api):
    fields = {v: {"zone": TEXT} for v in FIELDS}
    await serve(api, definition(fields=fields))
    await api.create(V1, host("a", "v1", zone="n"))
    await become(api, definition(kept="v2", fields=fields))

    assert await kept_version(api, "a") == "v1"
    assert (await api.get(f"{V2}/a")).json["apiVersion"] == f"{GROUP}/v2"


async def test_a_list_longer_than_the_memory_is_shown_after_one_of_it_changed(
    translated, monkeypatch
):
    monkeypatch.setattr(shown, "REMEMBERED", 2)
    for name in "abcd":
        await translated.create(V1, host(name, "v1", hostPort="x:1"))
    assert await selected(translated, V2, "host=x") == list("abcd")

    await translated.patch(f"{V1}/d", {"hostPort": "x:2"})

    assert await selected(translated, V2, "host=x") == list("abcd")


async def test_tables_that_are_watched_have_the_columns_of_their_version(plain):
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    async with (
        plain.watch(f"{V1}?watch=true", accept=accept) as old,
        plain.watch(f"{V2}?watch=true", accept=accept) as new,
    ):
        await plain.create(V1, host("a", "v1", hostPort="x:1"))
        columns = [
            (await watching.event())["object"]["columnDefinitions"][1]["name"]
            for watching in (old, new)
        ]
    assert columns == ["v1", "v2"]


async def test_a_request_from_before_the_fields_changed_is_asked_to_try_again(plain):
    before = scheme.resource(GROUP, "v1", "hosts")
    async with plain.watch(f"{V1}?watch=true&fieldSelector=zone%3Dn") as watching:
        await become(plain, definition(selectable=()))
        assert await watching.event() is None  # as a watch from before it ends

    caches = plain.app._core.caches
    with pytest.raises(status.ServiceUnavailable, match=r"hosts.stable.* has just changed"):
        await caches.of(before)
    now = scheme.resource(GROUP, "v1", "hosts")
    assert await caches.of(now) is caches[now]


async def test_who_waits_for_a_cache_that_is_dropped_gets_its_successor(plain):
    kind = scheme.resource(GROUP, "v1", "hosts")
    caches = plain.app._core.caches
    caches.drop(kind)
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        waiting = group.create_task(caches.of(kind))
        while kind.storage_prefix not in caches._caches:
            await SYSTEM.sleep(0)
        dropped = caches[kind]
        assert not dropped.is_ready
        caches.drop(kind)

    assert waiting.result() is caches[kind] is not dropped
    assert caches[kind].is_ready


class Asking:
    """Conversions, a kind, and two objects of it."""

    def __init__(self):
        crd = {**definition(conversion=WEBHOOK), "status": {}}
        self.converter = Converter()
        self.conversions = Conversions(self.converter, Random(1))
        self.kind = next(row for row in rows.rows(crd) if row.version == "v2")
        self.values = [self.value(name) for name in "ab"]

    def value(self, name):
        found = {**host(name, "v1", hostPort="x:1"), "metadata": {"name": name}}
        return document.encode(self.kind.storage, found)

    async def prime(self, *values):
        """What went wrong, if anything."""
        try:
            await self.conversions.prime(self.kind, values)
        except status.ApiError as error:
            return error.message
        return ""

    @property
    def asked(self):
        return [[o["metadata"]["name"] for o in r["objects"]] for r in self.converter.reviews]


async def test_who_comes_while_a_question_is_open_asks_only_for_the_rest():
    asking = Asking()
    a, b = asking.values
    asking.converter.may_answer.clear()
    async with asyncio.TaskGroup() as group:
        group.create_task(asking.prime(a))
        await until_asked(asking.converter, 1)
        group.create_task(asking.prime(a, b))
        await asyncio.to_thread(lambda: None)
        asking.converter.may_answer.set()

    assert asking.asked == [["a"], ["b"]]


async def test_a_question_whose_asker_leaves_is_asked_again_by_who_waits():
    asking = Asking()
    a = asking.values[0]
    asking.converter.may_answer.clear()
    async with asyncio.TaskGroup() as group:
        first = group.create_task(asking.prime(a))
        await until_asked(asking.converter, 1)
        second = group.create_task(asking.prime(a))
        third = group.create_task(asking.prime(a))
        await asyncio.to_thread(lambda: None)
        second.cancel()  # who leaves while waiting takes nobody along
        first.cancel()
        await until_asked(asking.converter, 2)
        asking.converter.may_answer.set()

    assert (third.result(), asking.asked) == ("", [["a"], ["a"]])
    assert not shown.is_unknown(asking.kind, a)


async def test_all_who_wait_for_an_answer_learn_that_there_is_none():
    asking = Asking()
    a = asking.values[0]
    asking.converter.may_answer.clear()
    asking.converter.problem = "out of order"
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(asking.prime(a))]
        await until_asked(asking.converter, 1)
        tasks += [group.create_task(asking.prime(a)) for _ in range(2)]
        await asyncio.to_thread(lambda: None)
        asking.converter.may_answer.set()

    assert ["out of order" in task.result() for task in tasks] == [True] * 3
    assert asking.asked == [["a"]]
