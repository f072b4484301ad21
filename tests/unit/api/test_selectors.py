import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.api.selectors import (
    Selector,
    SelectorError,
    matches_fields,
    parse_fields,
)
from motley.api.views.base import LabelSelector, LabelSelectorRequirement

LABELS = {"app": "web", "tier": "front", "n": "5"}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("app=web", True),
        ("app==web,tier=front", True),
        ("app!=web", False),
        ("zone!=a", True),
        ("app in (web, db)", True),
        ("app notin (web)", False),
        ("zone notin (a)", True),
        ("zone in (a)", False),
        ("app", True),
        ("!app", False),
        ("!zone", True),
        ("n>4", True),
        ("n<5", False),
        ("app>1", False),
        ("app in (web),n>1,!zone", True),
    ],
)
def test_a_selector_matches_labels(text, matches):
    assert Selector.parse(text).matches(LABELS) is matches


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("=x", "found '=', expected: !, identifier, or 'end of string'"),
        (",", "found ',', expected: !, identifier, or 'end of string'"),
        ("n==1,", "found '', expected: identifier after ','"),
        ("n=1=2", "found '=', expected: ',' or 'end of string'"),
        ("g===", "unable to parse requirement: found '=', expected: identifier"),
        (
            "a b",
            "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
        ),
        ("n in (1", "unable to parse requirement: found '', expected: ',' or ')'"),
        (
            "n>x",
            'unable to parse requirement: values[0]: Invalid value: "x": '
            "for 'Gt', 'Lt' operators, the value must be an integer",
        ),
    ],
)
def test_a_wrong_selector_is_refused_in_kubernetes_words(text, message):
    with pytest.raises(SelectorError) as caught:
        Selector.parse(text)
    assert str(caught.value) == message


def test_an_empty_structured_selector_is_everything_and_none_is_nothing():
    assert Selector.of({}).matches({})
    assert Selector.of({}).is_everything
    assert not Selector.of(None).matches({})
    assert not Selector.of(None).is_everything


def test_views_and_dicts_make_the_same_selector():
    view = LabelSelector(
        match_labels={"app": "web"},
        match_expressions=[
            LabelSelectorRequirement(key="tier", operator="In", values=["front"]),
            LabelSelectorRequirement(key="old", operator="DoesNotExist"),
        ],
    )
    document = {
        "matchLabels": {"app": "web"},
        "matchExpressions": [
            {"key": "tier", "operator": "In", "values": ["front"]},
            {"key": "old", "operator": "DoesNotExist"},
        ],
    }
    assert Selector.of(view) == Selector.of(document)
    assert hash(Selector.of(view)) == hash(Selector.of(document))
    assert Selector.of(view).matches(LABELS)
    assert str(Selector.of(view)) == "app=web,!old,tier in (front)"


def test_an_unknown_operator_is_refused():
    with pytest.raises(SelectorError, match="not a valid label selector operator"):
        Selector.of({"matchExpressions": [{"key": "a", "operator": "Like"}]})


keys = st.text("abcxyz", min_size=1, max_size=3)
words = st.text("abc123", min_size=1, max_size=3)
terms = st.one_of(
    keys,
    keys.map(lambda k: f"!{k}"),
    st.builds(lambda k, op, v: f"{k}{op}{v}", keys, st.sampled_from(["=", "!=", "=="]), words),
    st.builds(
        lambda k, op, v: f"{k} {op} ({','.join(v)})",
        keys,
        st.sampled_from(["in", "notin"]),
        st.lists(words, min_size=1, max_size=3),
    ),
)


@given(st.lists(terms, max_size=4), st.dictionaries(keys, words, max_size=4))
def test_a_selector_survives_being_written_and_read_again(parts, labels):
    selector = Selector.parse(",".join(parts))
    again = Selector.parse(str(selector))

    assert again.matches(labels) == selector.matches(labels)
    assert selector.matches(labels) == all(Selector.parse(p).matches(labels) for p in parts)


def test_field_selectors_are_split_and_unescaped():
    assert parse_fields(r"metadata.name=x,status.phase!=y,a==b\,c") == [
        ("metadata.name", "=", "x"),
        ("status.phase", "!=", "y"),
        ("a", "=", "b,c"),
    ]
    assert parse_fields("") == []


def test_field_selectors_compare_texts():
    values = {"metadata.name": "x"}
    found = parse_fields("metadata.name=x,spec.nodeName!=n1")
    assert matches_fields(found, lambda path: values.get(path, ""))
    assert not matches_fields(parse_fields("metadata.name!=x"), lambda p: values.get(p, ""))


@pytest.mark.parametrize("text", ["metadata.name", "metadata.name>l1", "a=b=c", r"a=\q"])
def test_a_wrong_field_selector_is_refused(text):
    with pytest.raises(SelectorError):
        parse_fields(text)
