"""Values against schemas: one case for each word of the language."""

import pytest

from motley.api.structural import defaulting, lists, pruning, values
from motley.api.structural.node import compile_schema


def problems(schema: dict, value, **options) -> list[str]:
    return [str(e) for e in values.check(schema, value, "f", **options)]


CASES = {
    "type": ({"type": "integer"}, "x", 'f in body must be of type integer: "string"'),
    "null": ({"type": "string"}, None, 'f in body must be of type string: "null"'),
    "boolean is no number": ({"type": "number"}, True, 'must be of type number: "boolean"'),
    "int-or-string": (
        {"x-kubernetes-int-or-string": True},
        1.5,
        'f in body must be of type integer,string: "number"',
    ),
    "exclusive maximum": (
        {"type": "integer", "maximum": 3, "exclusiveMaximum": True},
        3,
        "f in body should be less than 3",
    ),
    "exclusive minimum": (
        {"type": "number", "minimum": 3, "exclusiveMinimum": True},
        3,
        "f in body should be greater than 3",
    ),
    "multiple": ({"type": "integer", "multipleOf": 5}, 7, "should be a multiple of 5"),
    "minLength": ({"type": "string", "minLength": 2}, "x", "should be at least 2 chars long"),
    "int32": (
        {"type": "integer", "format": "int32"},
        2**31,
        "Checked value must be of type integer with format int32 in f",
    ),
    "minItems": ({"type": "array", "minItems": 1}, [], "should have at least 1 items"),
    "maxItems": ({"type": "array", "maxItems": 1}, [1, 2], "Too many: 2: must have at most 1"),
    "maxProperties": ({"type": "object", "maxProperties": 0}, {"a": 1}, "Too many: 1"),
    "minProperties": ({"type": "object", "minProperties": 1}, {}, "at least 1 properties"),
    "additional": (
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {"a": "x"},
        "f.a in body must be of type integer",
    ),
    "enum of numbers": ({"enum": [1, 2]}, 3, 'Unsupported value: 3: supported values: "1", "2"'),
    "anyOf": (
        {"anyOf": [{"minimum": 5}, {"maximum": 1}]},
        3,
        '"f" must validate at least one schema (anyOf)',
    ),
    "oneOf none": (
        {"oneOf": [{"minimum": 5}, {"maximum": 1}]},
        3,
        '"f" must validate one and only one schema (oneOf). Found none valid',
    ),
    "oneOf both": (
        {"oneOf": [{"minimum": 1}, {"maximum": 5}]},
        3,
        "Found 2 valid alternatives",
    ),
    "allOf": ({"allOf": [{"minimum": 5}]}, 3, "should be greater than or equal to 5"),
    "not": ({"not": {"minimum": 1}}, 3, '"f" must not validate the schema (not)'),
    "date-time": ({"type": "string", "format": "date-time"}, "x", "must be of type date-time"),
    "ipv4": ({"type": "string", "format": "ipv4"}, "::1", "must be of type ipv4"),
    "duration": ({"type": "string", "format": "duration"}, "1 hour", "must be of type duration"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_value_is_told_in_kubernetes_words(case):
    schema, value, words = CASES[case]

    assert words in "; ".join(problems(schema, value))


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string", "nullable": True}, None),
        ({"type": "number"}, 3),
        ({"type": "integer"}, 3.0),
        ({"x-kubernetes-int-or-string": True}, "50%"),
        ({"type": "string", "format": "date-time"}, "2020-01-01T00:00:00.5+02:00"),
        ({"type": "string", "format": "duration"}, "1h30m"),
        ({"type": "string", "format": "nobody-knows"}, "x"),
        ({"type": "string", "pattern": "^[[:alpha:]]+$"}, "abc"),
        ({"oneOf": [{"minimum": 5}, {"maximum": 1}]}, 7),
    ],
)
def test_a_right_value_passes(schema, value):
    assert problems(schema, value) == []


def test_a_pattern_ends_where_the_text_ends():
    assert problems({"pattern": "^a$"}, "a\n")


def test_what_was_wrong_before_is_not_blamed_again():
    schema = {"type": "object", "properties": {"a": {"minimum": 5}, "b": {"minimum": 5}}}

    assert problems(schema, {"a": 1, "b": 1}, old={"a": 1}) == [
        "f.b: Invalid value: 1: f.b in body should be greater than or equal to 5"
    ]


def test_items_of_keyed_lists_are_recognised_by_their_key():
    schema = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["n"],
        "items": {"type": "object", "properties": {"v": {"minimum": 5}}},
    }
    old = [{"n": "a", "v": 1}]

    assert problems(schema, [{"n": "b", "v": 9}, {"n": "a", "v": 1}], old=old) == []
    assert len(problems(schema, [{"n": "a", "v": 2}], old=old)) == 1


def test_pruning_keeps_what_is_to_be_preserved():
    root = compile_schema(
        {
            "type": "object",
            "properties": {
                "spec": {
                    "type": "object",
                    "x-kubernetes-preserve-unknown-fields": True,
                    "properties": {"known": {"type": "object", "properties": {"a": {}}}},
                },
                "pod": {"type": "object", "x-kubernetes-embedded-resource": True},
                "map": {"type": "object", "additionalProperties": {"type": "object"}},
            },
        }
    )
    obj = {
        "kind": "X",
        "metadata": {"name": "x"},
        "spec": {"other": 1, "known": {"a": 1, "b": 2}},
        "pod": {"kind": "Pod", "metadata": {}, "spec": {}},
        "map": {"k": {"gone": 1}},
        "extra": 1,
    }

    unknown = pruning.prune(root, obj)

    assert unknown == ["extra", "map.k.gone", "pod.spec", "spec.known.b"]
    assert obj["spec"] == {"other": 1, "known": {"a": 1}}
    assert obj["pod"] == {"kind": "Pod", "metadata": {}}


def test_defaults_reach_into_lists_and_maps_and_are_not_shared():
    inner = {"type": "object", "properties": {"x": {"type": "array", "items": {}, "default": [1]}}}
    root = compile_schema(
        {
            "type": "object",
            "properties": {
                "list": {"type": "array", "items": inner},
                "map": {"type": "object", "additionalProperties": inner},
                "null": {"type": "string"},
                "kept": {"type": "string", "nullable": True, "default": "d"},
                "taken": {"type": "string", "default": "d"},
            },
        }
    )
    obj = {"list": [{}, {}], "map": {"k": {}}, "null": None, "kept": None, "taken": None}

    defaulting.apply(root, obj)
    obj["list"][0]["x"].append(2)

    assert obj["list"][1] == obj["map"]["k"] == {"x": [1]}
    assert "null" not in obj
    assert (obj["kept"], obj["taken"]) == (None, "d")


def test_duplicates_are_found_in_sets_and_by_defaulted_keys():
    items = {"type": "object", "properties": {"p": {"type": "string", "default": "TCP"}, "n": {}}}
    root = compile_schema(
        {
            "properties": {
                "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {}},
                "map": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["n", "p"],
                    "items": items,
                },
            }
        }
    )

    found = lists.check(root, {"set": [1, 2, 1], "map": [{"n": 1}, {"n": 1, "p": "TCP"}]})

    assert [e.field for e in found] == ["set[2]", "map[1]"]
