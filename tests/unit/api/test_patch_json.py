import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.api import status
from motley.api.patch import json as json_patch

DOCUMENT = {"a": {"b": [1, {"c": 2}, 3]}, "x/y": 1, "m~n": 2}


def apply(*operations):
    before = copy.deepcopy(DOCUMENT)
    result = json_patch.apply(DOCUMENT, list(operations))
    assert before == DOCUMENT
    return result


def op(name, path, **more):
    return {"op": name, "path": path, **more}


def test_adding_to_objects_and_lists():
    assert apply(op("add", "/a/z", value=None))["a"]["z"] is None
    assert apply(op("add", "/a/b/1", value=9))["a"]["b"] == [1, 9, {"c": 2}, 3]
    assert apply(op("add", "/a/b/-", value=9))["a"]["b"] == [1, {"c": 2}, 3, 9]
    assert apply(op("add", "/a/b/3", value=9))["a"]["b"] == [1, {"c": 2}, 3, 9]


def test_escaped_names_are_understood():
    assert apply(op("remove", "/x~1y"), op("replace", "/m~0n", value=5)) == {
        "a": DOCUMENT["a"],
        "m~n": 5,
    }


def test_replacing_and_removing():
    assert apply(op("replace", "/a/b/1/c", value=7))["a"]["b"][1] == {"c": 7}
    assert apply(op("replace", "/a/b/0", value=7))["a"]["b"] == [7, {"c": 2}, 3]
    assert apply(op("remove", "/a/b/0"))["a"]["b"] == [{"c": 2}, 3]
    assert apply(op("replace", "", value={"new": 1})) == {"new": 1}


def test_replacing_a_missing_key_adds_it_as_kubernetes_does():
    assert apply(op("replace", "/a/new", value=1))["a"]["new"] == 1


def test_moving_and_copying():
    moved = apply(op("move", "/z", **{"from": "/a/b"}))
    assert moved == {"a": {}, "x/y": 1, "m~n": 2, "z": [1, {"c": 2}, 3]}
    copied = apply(op("copy", "/z", **{"from": "/a/b"}))
    assert copied["z"] == copied["a"]["b"]
    assert copied["z"][1] is not copied["a"]["b"][1]
    assert apply(op("move", "/a", **{"from": "/a"})) == DOCUMENT


def test_a_passing_test_changes_nothing():
    assert apply(op("test", "/a/b/1", value={"c": 2})) == DOCUMENT
    assert apply(op("test", "/nosuch", value=None)) == DOCUMENT


@pytest.mark.parametrize(
    "operation",
    [
        op("test", "/a/b/0", value=2),
        op("test", "/a/b/0", value=True),
        op("test", "/nosuch", value=1),
        op("remove", "/nosuch"),
        op("remove", ""),
        op("remove", "/a/b/3"),
        op("remove", "/a/b/-"),
        op("replace", "/a/b/9", value=1),
        op("add", "/a/b/4", value=1),
        op("add", "/a/b/x", value=1),
        op("add", "/a/b/01", value=1),
        op("add", "/a/b/99999999999999999999", value=1),
        op("add", "/no/such", value=1),
        op("add", "/x~1y/z", value=1),
        op("add", "a", value=1),
        op("add", "/a"),
        op("frob", "/a"),
        op("copy", "/z"),
        op("copy", "/z", **{"from": "/nosuch"}),
        op("move", "/a/b/z", **{"from": "/a"}),
        {"path": "/a"},
        {"op": "add", "value": 1},
    ],
    ids=str,
)
def test_what_cannot_be_done_is_invalid_and_says_which_operation(operation):
    with pytest.raises(status.Invalid, match=r"operation 1 \("):
        apply(op("test", "/x~1y", value=1), operation)


@pytest.mark.parametrize("patch", [{}, "x", [1], None])
def test_what_is_no_patch_is_a_bad_request(patch):
    with pytest.raises(status.BadRequest):
        json_patch.apply({}, patch)


def test_endless_patches_are_refused():
    with pytest.raises(status.TooLarge):
        json_patch.apply({}, [op("test", "/a", value=None)] * 10_001)


paths = st.lists(st.sampled_from(["a", "b", "0", "1", "-"]), max_size=3).map(
    lambda tokens: "".join(f"/{t}" for t in tokens)
)
documents = st.recursive(
    st.integers(0, 2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "b"]), inner),
    max_leaves=6,
)
operations = st.fixed_dictionaries(
    {
        "op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]),
        "path": paths,
        "from": paths,
        "value": documents,
    }
)


@given(documents, st.lists(operations, max_size=4))
def test_no_patch_ever_changes_its_target(document, patch):
    before = copy.deepcopy((document, patch))
    try:
        json_patch.apply(document, patch)
    except status.Invalid:
        pass
    assert (document, patch) == before
