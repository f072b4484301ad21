"""Sets of fields: algebra, order and reading, also against a plain model of sets of paths."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.api.fields import pathset

A: dict[str, Any] = {"f:a": {}}
AB: dict[str, Any] = {"f:a": {".": {}, "f:b": {}}}
B_BELOW_A: dict[str, Any] = {"f:a": {"f:b": {}}}

_paths = st.lists(
    st.lists(st.sampled_from(["f:a", "f:b", "f:c", "v:1"]), min_size=1, max_size=4).map(tuple),
    max_size=8,
)


def of(paths: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in paths:
        found = pathset.union(found, pathset.of_path(path))
    return found


def listed(fields: dict[str, Any]) -> set[tuple[str, ...]]:
    return set(pathset.paths(fields))


@given(_paths)
def test_a_set_holds_the_paths_put_into_it(paths: Any) -> None:
    assert listed(of(paths)) == set(paths)
    assert all(pathset.has(of(paths), path) for path in paths)


@given(_paths, _paths)
def test_union_difference_and_intersection_are_those_of_sets(one: Any, other: Any) -> None:
    a, b = of(one), of(other)
    assert listed(pathset.union(a, b)) == set(one) | set(other)
    assert listed(pathset.difference(a, b)) == set(one) - set(other)
    assert listed(pathset.intersection(a, b)) == set(one) & set(other)
    assert (listed(a), listed(b)) == (set(one), set(other)), "the arguments stay as they were"


@given(_paths, _paths)
def test_equal_sets_are_equal_trees(one: Any, other: Any) -> None:
    assert (of(one) == of(other)) == (set(one) == set(other))
    assert pathset.union(of(one), of(other)) == of([*one, *other])


@given(_paths, _paths)
def test_taking_out_what_is_below_takes_whole_branches(one: Any, other: Any) -> None:
    kept = {p for p in one if not any(p[: len(q)] == q for q in other)}
    assert listed(pathset.without_below(of(one), of(other))) == kept


def test_children_outlive_the_node_they_hang_on() -> None:
    assert pathset.difference(AB, A) == B_BELOW_A
    assert pathset.difference(AB, B_BELOW_A) == A
    assert pathset.without_below(AB, A) == {}


def test_elements_are_in_the_order_of_their_values_not_of_their_texts() -> None:
    ports = {f'k:{{"port":{port}}}': {} for port in (443, 80, 8080)}
    assert list(pathset.ordered(ports)) == [
        'k:{"port":80}',
        'k:{"port":443}',
        'k:{"port":8080}',
    ]
    mixed = {'v:"x"': {}, "f:b": {}, "i:2": {}, ".": {}, 'k:{"a":1}': {}, "f:a": {}}
    assert list(pathset.ordered(mixed)) == [".", "f:a", "f:b", 'k:{"a":1}', 'v:"x"', "i:2"]


def test_new_elements_of_a_union_find_their_place() -> None:
    assert list(pathset.union({"f:a": {}, "f:c": {}}, {"f:b": {}})) == ["f:a", "f:b", "f:c"]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (("f:data", "f:x"), ".data.x"),
        (("f:spec", 'k:{"name":"a"}', "f:image"), '.spec[name="a"].image'),
        (('k:{"port":80,"protocol":"TCP"}',), '[port=80,protocol="TCP"]'),
        (('v:"x"',), '[="x"]'),
        (("i:3",), "[3]"),
    ],
)
def test_paths_are_shown_as_kubernetes_shows_them(path: tuple[str, ...], text: str) -> None:
    assert pathset.shown(path) == text


def test_texts_in_keys_are_escaped_as_go_escapes_them() -> None:
    assert pathset.key_element([("name", "a<b>&")]) == 'k:{"name":"a\\u003cb\\u003e\\u0026"}'


def test_what_a_client_sends_is_brought_to_our_form() -> None:
    sent = {"f:b": {}, "f:a": {".": {}}, 'k:{"b": 1, "a": 2}': {"f:x": {}}}
    read = pathset.read(sent)
    assert read == {"f:a": {}, "f:b": {}, 'k:{"a":2,"b":1}': {"f:x": {}}}
    assert list(read) == ["f:a", "f:b", 'k:{"a":2,"b":1}']


@pytest.mark.parametrize(
    "nonsense", [[], {"x": {}}, {"f:a": 1}, {"k:[]": {}}, {"k:{": {}}, {"v:{}": {}}, {"i:x": {}}]
)
def test_what_is_no_set_is_refused(nonsense: Any) -> None:
    with pytest.raises(ValueError):
        pathset.read(nonsense)
