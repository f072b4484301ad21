"""What a schema in a definition may be, and that our own kinds obey it."""

import pytest

from motley.api import motleyio
from motley.api.structural import schemas

WRONG = {
    "no type": ({"a": {}}, "s.properties[a].type: Required value: must not be empty"),
    "bad type": ({"a": {"type": "thing"}}, 's.properties[a].type: Unsupported value: "thing"'),
    "no items": ({"a": {"type": "array"}}, "s.properties[a].items: Required value"),
    "typeless items": (
        {"a": {"type": "array", "items": {}}},
        "s.properties[a].items.type: Required value: must not be empty for specified array items",
    ),
    "reference": ({"a": {"$ref": "#/x"}}, "s.properties[a].$ref: Forbidden: $ref is not supported"),
    "unique": (
        {"a": {"type": "array", "uniqueItems": True, "items": {"type": "string"}}},
        "s.properties[a].uniqueItems: Forbidden",
    ),
    "both": (
        {"a": {"type": "object", "properties": {}, "additionalProperties": False}},
        "additionalProperties cannot be set to false",
    ),
    "default": (
        {"a": {"type": "integer", "default": "x"}},
        's.properties[a].default: Invalid value: "string":  in body must be of type integer',
    ),
    "pattern": (
        {"a": {"type": "string", "pattern": "["}},
        "must be a valid regular expression, but isn't: error parsing regexp: missing closing ]",
    ),
    "list type": (
        {"a": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "bag"}},
        's.properties[a].x-kubernetes-list-type: Unsupported value: "bag"',
    ),
    "keys": (
        {
            "a": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "items": {"type": "object"},
            }
        },
        "s.properties[a].x-kubernetes-list-map-keys: Required value",
    ),
    "combination": (
        {"a": {"type": "object", "anyOf": [{"description": "x"}]}},
        "s.properties[a].anyOf[0].description: Forbidden: must be empty to be structural",
    ),
    "embedded": (
        {"a": {"type": "object", "x-kubernetes-embedded-resource": True}},
        "s.properties[a].properties: Required value",
    ),
    "rule": (
        {"a": {"type": "object", "x-kubernetes-validations": [{"rule": "self.x >"}]}},
        "compilation failed: ERROR: <input>:1:9: Syntax error",
    ),
    "metadata": (
        {"metadata": {"type": "object", "properties": {"labels": {}}}},
        "must not specify anything other than name and generateName",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_not_structural_is_refused_with_its_path(case):
    properties, words = WRONG[case]

    found = [str(e) for e in schemas.check({"type": "object", "properties": properties}, "s")]

    assert words in "; ".join(found)


def test_the_root_is_an_object():
    assert [str(e) for e in schemas.check({"type": "string"}, "s")] == [
        's.type: Invalid value: "string": must be object at the root'
    ]


def test_an_int_or_string_may_say_so_in_openapi_words():
    port = {
        "x-kubernetes-int-or-string": True,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
    }

    assert list(schemas.check({"type": "object", "properties": {"p": port}}, "s")) == []


def test_our_own_kinds_have_defaults_and_rules():
    rows = {row.kind: row for row in motleyio.rows()}
    function = {"metadata": {"name": "f"}, "spec": {"code": "x", "minInstances": 20}}
    definition = rows["Function"].definition

    assert definition.conform(function) == []
    assert function["spec"]["maxInstances"] == 10
    assert [str(e) for e in definition.errors(function)] == [
        "spec: Invalid value: minInstances must not be greater than maxInstances"
    ]
    call = {"metadata": {"name": "c"}, "spec": {}}
    assert "exactly one of" in str(rows["Invocation"].definition.errors(call)[0])
