"""Rules in CEL, and JSONPaths of columns."""

import pytest

from motley.api.cel import CompileError, compile_expression
from motley.api.structural import jsonpath, rules
from motley.api.structural.node import compile_schema


def broken(schema: dict, new, *old) -> list[str]:
    return [str(e) for e in rules.check(compile_schema(schema), new, *old)]


def ruled(rule: str, **more) -> dict:
    return {"type": "object", "x-kubernetes-validations": [{"rule": rule, **more}]}


def test_a_rule_that_does_not_hold_says_so():
    assert broken(ruled("self.a < 3"), {"a": 5}) == [
        "<nil>: Invalid value: failed rule: self.a < 3"
    ]
    assert broken(ruled("self.a < 3", message="too big"), {"a": 5}) == [
        "<nil>: Invalid value: too big"
    ]
    assert broken(ruled("self.a < 3"), {"a": 2}) == []


def test_a_rule_may_make_its_own_message_point_at_a_field_and_give_a_reason():
    schema = ruled(
        "self.a < 3",
        message="plain",
        messageExpression="'a is ' + string(self.a)",
        fieldPath=".a",
        reason="FieldValueForbidden",
    )

    assert broken(schema, {"a": 5}) == ["a: Forbidden: a is 5"]
    schema["x-kubernetes-validations"][0]["messageExpression"] = "self.nosuch"
    assert broken(schema, {"a": 5}) == ["a: Forbidden: plain"]


def test_transition_rules_need_an_old_value():
    schema = ruled("self.a >= oldSelf.a")

    assert broken(schema, {"a": 1}) == []
    assert broken(schema, {"a": 1}, {"a": 2}) != []


def test_unchanged_values_are_not_judged_again():
    assert broken(ruled("self.a < 3"), {"a": 5}, {"a": 5}) == []


def test_rules_on_items_and_map_values_know_where_they_are():
    item = {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 0"}]}
    schema = {
        "type": "object",
        "properties": {
            "l": {"type": "array", "items": item},
            "m": {"type": "object", "additionalProperties": item},
        },
    }

    found = broken(schema, {"l": [1, -1], "m": {"k": -2}})

    assert [text.partition(":")[0] for text in found] == ["l[1]", "m.k"]


def test_names_that_cel_cannot_spell_are_escaped():
    schema = {
        "type": "object",
        "properties": {"namespace": {"type": "string"}, "a-b.c/d": {"type": "integer"}},
        "x-kubernetes-validations": [
            {"rule": "self.__namespace__ == 'x' && self.a__dash__b__dot__c__slash__d == 1"}
        ],
    }

    assert broken(schema, {"namespace": "x", "a-b.c/d": 1}) == []


def test_times_and_durations_are_compared_as_such():
    schema = {
        "type": "object",
        "properties": {
            "t": {"type": "string", "format": "date-time"},
            "d": {"type": "string", "format": "duration"},
        },
        "x-kubernetes-validations": [
            {"rule": "self.t < timestamp('2021-01-01T00:00:00Z') && self.d > duration('1m')"}
        ],
    }

    assert broken(schema, {"t": "2020-06-01T00:00:00Z", "d": "1h"}) == []
    assert broken(schema, {"t": "2022-06-01T00:00:00Z", "d": "1h"}) != []


@pytest.mark.parametrize(
    "expression",
    [
        "'a,b'.split(',') == ['a', 'b']",
        "['a', 'b'].join('-') == 'a-b'",
        "'Abc'.lowerAscii() == 'abc' && 'abc'.substring(1) == 'bc' && 'abc'.charAt(1) == 'b'",
        "'abcb'.indexOf('b') == 1 && 'abcb'.lastIndexOf('b') == 3",
        "' a '.trim() == 'a' && 'aXa'.replace('X', 'Y') == 'aYa'",
        "'abc 123'.find('[0-9]+') == '123' && 'a1b2'.findAll('[0-9]') == ['1', '2']",
        "[1, 2, 3].isSorted() && [1, 2, 3].sum() == 6",
        "sets.contains([1, 2], [1]) && sets.intersects([1], [1, 2]) && math.greatest(1, 2) == 2",
        "quantity('1Gi').isGreaterThan(quantity('1000Mi')) && isQuantity('1k')",
        "isIP('10.0.0.1') && cidr('10.0.0.0/8').containsIP('10.1.2.3') && !isCIDR('x')",
        "url('https://a.example:8443/p?q=1').getHostname() == 'a.example' && isURL('https://x')",
        "'%s has %d'.format(['a', 2]) == 'a has 2'",
    ],
)
def test_kubernetes_functions_are_there(expression):
    assert compile_expression(expression, ()).evaluate({}) is True


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("self.a >", "Syntax error"),
        ("self.nosuch(1)", "undeclared reference to 'nosuch'"),
    ],
)
def test_expressions_that_make_no_sense_are_refused(expression, words):
    with pytest.raises(CompileError, match=words):
        compile_expression(expression, ("self",))


def test_a_field_that_the_schema_lacks_is_found_when_compiling():
    node = compile_schema(
        {
            "type": "object",
            "properties": {
                "a": {"type": "object", "properties": {"b": {"type": "integer"}}},
                "m": {"type": "object", "additionalProperties": {"type": "integer"}},
            },
        }
    )

    with pytest.raises(CompileError) as found:
        rules.compiled(node, "self.a.b > 1 && self.a.c > 1", is_root=True)

    assert str(found.value) == (
        "ERROR: <input>:1:23: undefined field 'c'\n"
        " | self.a.b > 1 && self.a.c > 1\n"
        " | ......................^"
    )
    fine = "self.metadata.name == 'self.nosuch' && self.m.anything > 1 && self.a.size() > 0"
    assert rules.compiled(node, fine, is_root=True).type == "bool"


TYPED = compile_schema(
    {
        "type": "object",
        "properties": {
            "n": {"type": "integer"},
            "name": {"type": "string"},
            "until": {"type": "string", "format": "date-time"},
            "either": {"x-kubernetes-int-or-string": True},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "namespace": {"type": "string"},
            "list": {
                "type": "array",
                "items": {"type": "object", "properties": {"k": {"type": "string"}}},
            },
            "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        },
    }
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("self.n == 'x'", "found no matching overload for '_==_' applied to '(int, string)'"),
        ("self.name + self.n == ''", "found no matching overload for '_+_'"),
        ("self.list.all(i, i.nosuch == '')", "undefined field 'nosuch'"),
        ("self.list.filter(i, i.k == 'x')[0].nosuch == ''", "undefined field 'nosuch'"),
        ("self.map.all(k, k == 1)", "applied to '(string, int)'"),
        ("self.map.all(k, v, v == k)", "applied to '(int, string)'"),
        ("self.until > 'x'", "found no matching overload for '_>_'"),
        ("has(self.nosuch)", "undefined field 'nosuch'"),
        ("self.metadata.labels.size() == 0", "undefined field 'labels'"),
        ("self.name.nosuch == 1", "type 'string' does not support field selection"),
        ("oldSelf.nosuch == 1", "undefined field 'nosuch'"),
    ],
)
def test_what_does_not_fit_the_schema_is_refused_when_compiling(text, words):
    with pytest.raises(CompileError) as found:
        rules.compiled(TYPED, text, is_root=True)
    assert words in str(found.value)


@pytest.mark.parametrize(
    "text",
    [
        "self.either == 1 || self.either == 'x'",
        "self.free.anything.at.all == 1",
        "self.metadata.name.startsWith(self.name) && self.kind == 'X'",
        "self.list.exists(i, i.k == self.__namespace__)",
        "self.map.all(k, self.map[k] > 0) && self.map.x == 1",
        "self.until < timestamp('2021-01-01T00:00:00Z')",
        "self.?name.orValue('') == ''",
        "(has(self.name) ? self.list : []).size() > 0",
    ],
)
def test_what_fits_the_schema_or_is_left_open_by_it_compiles(text):
    assert rules.compiled(TYPED, text, is_root=True).type == "bool"


def test_an_optional_old_value_is_wrapped():
    schema = ruled("oldSelf.hasValue() ? self.a > oldSelf.value().a : true", optionalOldSelf=True)

    assert broken(schema, {"a": 1}) == []
    assert broken(schema, {"a": 2}, {"a": 1}) == []
    assert broken(schema, {"a": 1}, {"a": 2}) != []


def test_rules_that_take_too_long_end_all_rules():
    slow = "[1,2,3,4,5,6,7,8,9,10]"
    nested = "true"
    for name in "abcdef":
        nested = f"{slow}.all({name}, {nested})"
    schema = ruled(nested)
    schema["x-kubernetes-validations"].append({"rule": "false"})

    found = broken(schema, {"a": 1})

    assert len(found) == 1
    assert "operation cancelled: actual cost limit exceeded" in found[0]
    assert "no further validation rules will be run" in found[0]


OBJECT = {
    "spec": {"tags": ["x", "y"], "n": 3},
    "status": {
        "conditions": [
            {"type": "Ready", "status": "True", "n": 1},
            {"type": "Other", "status": "False", "n": 2},
        ]
    },
    "metadata": {"labels": {"a/b": "c", "a.b": "d"}},
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".spec.n", [3]),
        ("{.spec.n}", [3]),
        (".spec.tags[*]", ["x", "y"]),
        (".spec.tags[-1]", ["y"]),
        (".spec.tags[0:1]", ["x"]),
        (".spec.tags[0,1]", ["x", "y"]),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        (".status.conditions[?(@.n>1)].type", ["Other"]),
        (".status.conditions[?(@.n)].n", [1, 2]),
        (".metadata.labels['a/b']", ["c"]),
        (".metadata.labels.a\\.b", ["d"]),
        ("..type", ["Ready", "Other"]),
        (".spec.nosuch.deeper", []),
        (".spec.n.deeper", []),
    ],
)
def test_a_path_finds_what_kubectl_finds(path, found):
    assert jsonpath.compile_path(path)(OBJECT) == found


@pytest.mark.parametrize("path", ["spec", ".a[", ".a[x]", ".a[]"])
def test_a_text_that_is_no_path_is_refused(path):
    with pytest.raises(jsonpath.PathError):
        jsonpath.compile_path(path)
