"""The OpenAPI v2 document in the form that kubectl reads it in."""

import gzip
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from motley.apiserver.protobuf import openapi

V2 = "/openapi/v2"
OLD = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
NEW = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"


def pieces(data: bytes) -> Iterator[tuple[int, Any]]:
    """Field numbers and values: protobuf's wire format, as its description has it."""

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    at = 0
    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        elif key & 7 == 1:
            yield key >> 3, struct.unpack("<d", data[at : at + 8])[0]
            at += 8
        else:
            assert key & 7 == 2
            length = varint()
            yield key >> 3, data[at : at + length]
            at += length


def fields(data: bytes) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for number, value in pieces(data):
        found.setdefault(number, []).append(value)
    return found


def named(entries: list[bytes]) -> dict[str, bytes]:
    """A map: each entry has its key as field 1 and its value as field 2."""
    return {fields(e)[1][0].decode(): fields(e)[2][0] for e in entries}


def definitions(document: bytes) -> dict[str, bytes]:
    return named(fields(fields(document)[9][0])[1])


@pytest.fixture
async def document(api) -> bytes:
    reply = await api.get(V2, accept=OLD)
    assert reply.code == 200
    assert reply.headers["content-type"] == NEW
    return reply.body


async def test_it_holds_every_definition_and_every_path(api, document):
    plain = (await api.get(V2)).json

    assert set(definitions(document)) == set(plain["definitions"])
    assert set(named(fields(fields(document)[8][0])[2])) == set(plain["paths"])
    assert fields(document)[1] == [b"2.0"]


async def test_a_definition_has_its_fields_types_and_references(document):
    spec = fields(definitions(document)["io.k8s.api.apps.v1.DeploymentSpec"])
    assert set(spec[19]) == {b"selector", b"template"}
    properties = named(fields(spec[25][0])[1])
    replicas = fields(properties["replicas"])
    assert (replicas[2], fields(replicas[22][0])[1]) == ([b"int32"], [b"integer"])
    assert fields(properties["template"])[1] == [
        b"#/definitions/io.k8s.api.core.v1.PodTemplateSpec"
    ]


async def test_what_kubernetes_adds_to_schemas_travels_as_yaml(document):
    found = definitions(document)
    marks = named(fields(found["io.k8s.api.apps.v1.Deployment"])[31])
    kinds = fields(marks["x-kubernetes-group-version-kind"])[2][0]
    assert b'{"group":"apps","kind":"Deployment","version":"v1"}' in kinds
    spec = fields(found["io.k8s.api.core.v1.PodSpec"])
    containers = fields(named(fields(spec[25][0])[1])["containers"])
    merge_key = named(containers[31])["x-kubernetes-patch-merge-key"]
    assert fields(merge_key)[2] == [b'"name"']


async def test_operations_name_their_kind_and_parameters(document):
    paths = named(fields(fields(document)[8][0])[2])
    patch = fields(fields(paths["/api/v1/namespaces/{namespace}/pods/{name}"])[8][0])
    assert fields(named(patch[13])["x-kubernetes-action"])[2] == [b'"patch"']
    queries = [
        fields(fields(fields(fields(p)[1][0])[2][0])[3][0])[4][0]
        for p in patch[8]
        if 2 in fields(fields(p)[1][0])
    ]
    assert {b"dryRun", b"fieldManager", b"fieldValidation", b"force"} <= set(queries)


async def test_it_is_kept_by_its_tag_and_sent_compressed(api, document):
    reply = await api.get(V2, accept=NEW, headers={"accept-encoding": "gzip"})
    assert reply.headers["content-encoding"] == "gzip"
    assert gzip.decompress(reply.body) == document
    tag = reply.headers["etag"]
    again = await api.get(V2, accept=NEW, headers={"if-none-match": tag})
    assert (again.code, again.body) == (304, b"")
    as_json = await api.get(V2)
    assert as_json.headers["etag"] != tag
    assert as_json.headers["vary"] == "Accept"


@pytest.mark.parametrize(
    ("accept", "code", "media_type"),
    [
        ("", 200, "application/json"),
        ("*/*", 200, "application/json"),
        ("application/json, */*", 200, "application/json"),
        (f"{OLD};q=0.5, application/json;q=0.1", 200, NEW),
        ("text/html", 406, ""),
    ],
)
async def test_clients_get_the_form_they_ask_for(api, accept, code, media_type):
    reply = await api.get(V2, accept=accept)
    assert (reply.code, reply.headers.get("content-type", "")) == (code, media_type)


def test_nothing_of_our_own_documents_is_left_out():
    from motley.apiserver import openapi as documents

    tables = {
        *openapi._DOCUMENT,
        *openapi._SCHEMA,
        *openapi._OPERATION,
        *openapi._PATH_ITEM,
        *openapi._IN_QUERY,
        *openapi._BODY_PARAMETER,
        *openapi._RESPONSE,
        *openapi._INFO,
    }
    found: set[str] = set()

    def schema(value: dict[str, Any]) -> None:
        found.update(value)
        for inner in (value.get("properties") or {}).values():
            schema(inner)
        for key in ("items", "additionalProperties"):
            if isinstance(value.get(key), dict):
                schema(value[key])

    from motley.api import codec

    plain = codec.decode(documents.swagger().plain)
    found.update(plain)
    for definition in plain["definitions"].values():
        schema(definition)
    for item in plain["paths"].values():
        found.update(item)
        for method, operation in item.items():
            for parameter in operation if method == "parameters" else operation["parameters"]:
                found.update(parameter)
            if method != "parameters":
                found.update(operation)
                for response in operation["responses"].values():
                    found.update(response)
    assert {key for key in found if not key.startswith("x-")} <= tables


def test_a_key_without_a_place_does_not_take_the_document_from_everybody():
    odd = {"definitions": {"x": {"type": "object", "frobnicates": True}}, "swagger": "2.0"}
    assert set(definitions(openapi.encode(odd))) == {"x"}
