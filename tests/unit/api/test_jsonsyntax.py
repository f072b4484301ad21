"""What is wrong with a body that is no JSON."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.api.jsonsyntax import problem


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "unexpected end of JSON input"),
        ("  ", "unexpected end of JSON input"),
        ("hello", "invalid character 'h' looking for beginning of value"),
        ('{"a":1', "unexpected end of JSON input"),
        ('{"a":1} {', "invalid character '{' after top-level value"),
        ("{a:1}", "invalid character 'a' looking for beginning of object key string"),
        ('{"a" 1}', "invalid character '1' after object key"),
        ('{"a":1 "b":2}', "invalid character '\"' after object key:value pair"),
        ("[1 2]", "invalid character '2' after array element"),
        ("[1,]", "invalid character ']' looking for beginning of value"),
        ("nul", "unexpected end of JSON input"),
        ("nulx", "invalid character 'x' in literal null (expecting 'l')"),
        ('"a\nb"', "invalid character '\\x0a' in string literal"),
        (r'"\q"', "invalid character 'q' in string escape code"),
        (r'"\u12g4"', "invalid character 'g' in \\u hexadecimal character escape"),
        ("'a'", r"invalid character '\'' looking for beginning of value"),
        ("[" * 5000, "exceeded max depth"),
    ],
)
def test_the_first_mistake_is_named(text, expected):
    assert problem(text) == expected


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(json_values)
def test_json_has_no_mistake(value):
    assert problem(json.dumps(value)) == ""


@given(st.binary())
def test_any_bytes_are_survived(data):
    problem(data)
