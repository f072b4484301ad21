"""The ordered map under every store, beside a plain sorted dict."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.store import keyspace
from motley.store.keyspace import Keyspace, after_prefix

TEXT = st.text(alphabet="ab/\U0010fffe\U0010ffff", max_size=5)


@pytest.fixture(autouse=True, scope="module")
def short_chunks():
    """Few keys per chunk, so that small examples split and join them."""
    usual, keyspace.CHUNK = keyspace.CHUNK, 3
    yield
    keyspace.CHUNK = usual


def expected(model, prefix, start, limit):
    found = [model[k] for k in sorted(model) if k.startswith(prefix) and k >= start]
    shown = found[:limit] if limit else found
    return shown, len(found) - len(shown)


@given(
    initial=st.dictionaries(TEXT, st.integers(), max_size=20),
    steps=st.lists(st.tuples(TEXT, st.integers() | st.none()), max_size=60),
    asked=st.lists(st.tuples(TEXT, TEXT, st.integers(0, 5)), max_size=5),
)
def test_a_keyspace_lists_what_a_sorted_dict_lists(initial, steps, asked):
    space, model = Keyspace(initial), dict(initial)
    for key, value in steps:
        if value is not None:
            space.put(key, value)
            model[key] = value
        elif key in model:
            space.remove(key)
            del model[key]
        assert (key in space) == (key in model)
        assert space.get(key) == model.get(key)
    assert list(space) == sorted(model)
    assert len(space) == len(model)
    for prefix, start, limit in [*asked, ("", "", 0)]:
        assert space.range(prefix, start, limit) == expected(model, prefix, start, limit)


@given(TEXT, TEXT)
def test_everything_with_a_prefix_sorts_before_its_end(prefix, more):
    end = after_prefix(prefix)
    if end:
        assert prefix + more < end
        assert not end.startswith(prefix)
    else:
        assert prefix.strip("\U0010ffff") == ""


def test_removing_a_key_that_is_not_there_is_an_error():
    with pytest.raises(KeyError):
        Keyspace({"a": 1}).remove("b")
