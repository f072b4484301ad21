"""Reading objects: one, many, page by page, as tables, and as they change."""

import gzip
import json

import pytest

from motley.api import scheme
from motley.apiserver import document

MAPS = "/api/v1/namespaces/demo/configmaps"
PODS = "/api/v1/namespaces/demo/pods"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"


@pytest.fixture
async def maps(api):
    """Seven ConfigMaps m0 … m6, labelled even or odd."""
    for number in range(7):
        labels = {"parity": "odd" if number % 2 else "even"}
        await api.create(MAPS, {"metadata": {"name": f"m{number}", "labels": labels}})
    return api


def names(reply) -> list[str]:
    return [o["metadata"]["name"] for o in reply.json["items"]]


async def test_a_list_is_in_order_of_names_and_items_do_not_repeat_their_kind(maps):
    listed = await maps.get(MAPS)

    assert listed.json["kind"] == "ConfigMapList"
    assert names(listed) == [f"m{n}" for n in range(7)]
    assert "kind" not in listed.json["items"][0]
    assert int(listed.json["metadata"]["resourceVersion"]) > 0


async def test_pages_show_one_moment(maps):
    first = await maps.get(f"{MAPS}?limit=3")
    token = first.json["metadata"]["continue"]
    assert first.json["metadata"]["remainingItemCount"] == 4
    await maps.delete(f"{MAPS}/m4")
    await maps.create(MAPS, {"metadata": {"name": "m3a"}})

    second = await maps.get(f"{MAPS}?limit=3&continue={token}")
    third = await maps.get(f"{MAPS}?limit=3&continue={second.json['metadata']['continue']}")

    assert names(first) + names(second) + names(third) == [f"m{n}" for n in range(7)]
    assert "continue" not in third.json["metadata"]


async def test_pages_with_a_selector_are_full(maps):
    first = await maps.get(f"{MAPS}?limit=2&labelSelector=parity%3Deven")
    token = first.json["metadata"]["continue"]
    second = await maps.get(f"{MAPS}?limit=2&labelSelector=parity%3Deven&continue={token}")

    assert names(first) == ["m0", "m2"]
    assert names(second) == ["m4", "m6"]


async def test_a_page_of_a_forgotten_moment_is_gone_and_the_rest_can_be_had_as_it_is(maps):
    token = (await maps.get(f"{MAPS}?limit=3")).json["metadata"]["continue"]
    await maps.patch(f"{MAPS}/m0", {"data": {"a": "b"}})
    await maps.store.compact(await maps.store.revision())

    gone = await maps.get(f"{MAPS}?limit=3&continue={token}")

    assert (gone.code, gone.json["reason"]) == (410, "Expired")
    token = gone.json["metadata"]["continue"]
    await maps.create(MAPS, {"metadata": {"name": "m3a"}})
    rest = await maps.get(f"{MAPS}?limit=2&continue={token}")
    assert names(rest) == ["m3", "m3a"]
    await maps.delete(f"{MAPS}/m4")
    last = await maps.get(f"{MAPS}?continue={rest.json['metadata']['continue']}")
    assert names(last) == ["m4", "m5", "m6"]  # from here on one moment again
    chosen = await maps.get(f"{MAPS}?labelSelector=parity%3Deven&continue={token}")
    assert names(chosen) == ["m6"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("labelSelector=parity%3Dodd", ["m1", "m3", "m5"]),
        ("labelSelector=parity%21%3Dodd", ["m0", "m2", "m4", "m6"]),
        ("labelSelector=parity%20in%20(odd),parity", ["m1", "m3", "m5"]),
        ("fieldSelector=metadata.name%3Dm2", ["m2"]),
        ("fieldSelector=metadata.name%21%3Dm2", ["m0", "m1", "m3", "m4", "m5", "m6"]),
        ("fieldSelector=metadata.namespace%3Dother", []),
        ("resourceVersion=0&labelSelector=parity%3Dodd", ["m1", "m3", "m5"]),
    ],
)
async def test_selectors_select(maps, query, expected):
    assert names(await maps.get(f"{MAPS}?{query}")) == expected


async def test_selectors_that_make_no_sense_are_refused(maps):
    label = await maps.get(f"{MAPS}?labelSelector=a%3D%3D%3Db")
    field = await maps.get(f"{MAPS}?fieldSelector=data.k%3Dv")
    on_pods = await maps.get(f"{PODS}?fieldSelector=spec.nosuch%3Dx")

    assert label.code == field.code == on_pods.code == 400
    assert field.message == (
        '"data.k" is not a known field selector: only "metadata.name", "metadata.namespace"'
    )
    assert on_pods.message == "field label not supported: spec.nosuch"


async def test_pods_can_be_selected_by_node_and_phase(api, a_pod):
    await api.create(PODS, a_pod("here", nodeName="n1"))
    await api.create(PODS, a_pod("nowhere"))

    on_node = await api.get("/api/v1/pods?fieldSelector=spec.nodeName%3Dn1")
    waiting = await api.get("/api/v1/pods?fieldSelector=spec.nodeName%3D,status.phase%3DPending")

    assert names(on_node) == ["here"]
    assert names(waiting) == ["nowhere"]


async def test_a_list_at_an_exact_version_shows_the_past(maps):
    version = (await maps.get(f"{MAPS}/m3")).json["metadata"]["resourceVersion"]

    exact = f"{MAPS}?resourceVersion={version}&resourceVersionMatch=Exact"

    assert names(await maps.get(exact)) == ["m0", "m1", "m2", "m3"]


async def test_a_version_from_the_future_is_answered_later(maps):
    await_it = await maps.get(f"{MAPS}/m0?resourceVersion=999999")

    assert (await_it.code, await_it.json["reason"]) == (504, "Timeout")
    assert await_it.headers["retry-after"] == "1"


async def test_options_that_contradict_each_other_are_refused(maps):
    without = await maps.get(f"{MAPS}?resourceVersionMatch=Exact")
    zero = await maps.get(f"{MAPS}?resourceVersionMatch=Exact&resourceVersion=0")
    number = await maps.get(f"{MAPS}?limit=x")

    assert (without.code, zero.code, number.code) == (422, 422, 400)
    assert number.message == 'strconv.ParseInt: parsing "x": invalid syntax'


async def test_a_table_has_kubernetes_columns(api, a_pod):
    await api.create(PODS, a_pod())

    table = (await api.get(PODS, accept=TABLE)).json

    assert table["kind"] == "Table"
    shown = [(c["name"], c["priority"]) for c in table["columnDefinitions"]]
    assert shown[:5] == [("Name", 0), ("Ready", 0), ("Status", 0), ("Restarts", 0), ("Age", 0)]
    assert ("Node", 1) in shown
    row = table["rows"][0]
    assert row["cells"][:4] == ["p", "0/1", "Pending", "0"]
    assert row["object"]["kind"] == "PartialObjectMetadata"


async def test_partial_metadata_leaves_the_rest_out(api, a_pod):
    await api.create(PODS, a_pod())

    one = await api.get(f"{PODS}/p", accept=PARTIAL)

    assert one.json["kind"] == "PartialObjectMetadata"
    assert set(one.json) == {"kind", "apiVersion", "metadata"}


async def test_yaml_is_served_and_unknown_forms_are_not_acceptable(maps):
    as_yaml = await maps.get(f"{MAPS}/m0", accept="application/yaml")
    as_html = await maps.get(f"{MAPS}/m0", accept="text/html")

    assert as_yaml.body.startswith(b"apiVersion: v1\n")
    assert as_html.code == 406


async def test_large_answers_are_compressed_for_who_wants_it(api):
    await api.create(MAPS, {"metadata": {"name": "big"}, "data": {"x": "y" * 200_000}})

    plain = await api.get(f"{MAPS}/big")
    small = await api.get(f"{MAPS}/big", headers={"accept-encoding": "gzip"})

    assert len(plain.body) > 200_000
    assert small.headers["content-encoding"] == "gzip"
    assert len(small.body) < 10_000


@pytest.mark.parametrize("count", [0, 1, 2, 40])
async def test_a_list_is_as_long_as_it_says_however_many_blocks_it_takes(count):
    kind = scheme.resource("", "v1", "configmaps")
    objects = [{"metadata": {"name": f"m{i}"}, "data": {"x": "y" * 20_000}} for i in range(count)]
    body = document.list_body(kind, [document.encode(kind, o) for o in objects], 7)

    blocks = list(body)

    assert len(blocks) == (1 if count < 40 else 4)
    assert body.length == sum(map(len, blocks))
    assert json.loads(b"".join(blocks)) == {
        "kind": "ConfigMapList",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": "7"},
        "items": objects,
    }


async def test_a_long_list_is_compressed_and_indented_whole(api):
    for number in range(3):
        body = {"metadata": {"name": f"m{number}"}, "data": {"x": "y" * 200_000}}
        await api.create(MAPS, body)

    plain = await api.get(MAPS)
    small = await api.get(MAPS, headers={"accept-encoding": "gzip"})
    pretty = await api.get(f"{MAPS}?pretty=true")

    assert int(plain.headers["content-length"]) == len(plain.body) > 600_000
    assert gzip.decompress(small.body) == plain.body
    assert pretty.body.count(b"\n") > 20
    assert pretty.json == plain.json


async def test_deleting_a_collection_obeys_the_selector(maps):
    gone = await maps.delete(f"{MAPS}?labelSelector=parity%3Dodd")

    assert names(gone) == ["m1", "m3", "m5"]
    assert names(await maps.get(MAPS)) == ["m0", "m2", "m4", "m6"]
