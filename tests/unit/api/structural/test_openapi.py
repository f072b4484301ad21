"""Custom kinds in OpenAPI: version 2 says less than version 3, so that its readers refuse less."""

from motley.api import scheme
from motley.api.structural import openapi
from motley.api.structural.definition import Definition

V2, V3 = "#/definitions/", "#/components/schemas/"
PRESERVE = {"x-kubernetes-preserve-unknown-fields": True}


def published(schema, prefix):
    definition = Definition(kind="Foo", list_kind="FooList", schema={"type": "object", **schema})
    kind = scheme.Kind(
        group="a.b", version="v1", kind="Foo", plural="foos", singular="foo", definition=definition
    )
    return openapi.published(kind, prefix)


def test_an_open_kind_names_no_property_to_version_2():
    assert published(PRESERVE, V2) == {"type": "object"}
    assert published(PRESERVE, V3)["x-kubernetes-preserve-unknown-fields"] is True
    assert set(published(PRESERVE, V3)["properties"]) == {"apiVersion", "kind", "metadata"}


def test_a_part_that_is_open_keeps_its_mark_and_loses_its_properties():
    part = {"type": "object", "properties": {"a": {"type": "string"}}, **PRESERVE}
    shown = published({"properties": {"spec": part}}, V2)["properties"]["spec"]

    assert shown == {"type": "object", **PRESERVE}
