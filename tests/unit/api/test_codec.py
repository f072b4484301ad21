import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.api import codec, status

scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)
metadata = st.dictionaries(st.text(max_size=8).filter(lambda k: k != "resourceVersion"), values)
objects = st.fixed_dictionaries(
    {"metadata": metadata, "kind": st.text(), "apiVersion": st.text()},
    optional={"spec": values, "status": values, "data": values},
)


@given(objects, st.integers(1, 2**63))
def test_a_stamped_object_decodes_to_itself_with_its_revision(obj, revision):
    stamped = codec.stamp(codec.encode_object(obj), revision)

    expected = obj | {"metadata": obj["metadata"] | {"resourceVersion": str(revision)}}
    assert codec.decode(stamped) == expected
    assert codec.stamped_revision(stamped) == revision
    assert codec.unstamped(stamped) == codec.encode_object(obj)


def test_an_encoded_object_starts_with_what_it_is_and_forgets_its_revision():
    obj = {
        "spec": {"metadata": {"a": 1}},
        "metadata": {"name": "x", "resourceVersion": "7"},
        "apiVersion": "v1",
        "kind": "Pod",
    }
    encoded = codec.encode_object(obj)

    assert encoded.startswith(b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x"}')
    assert codec.stamped_revision(encoded) is None
    assert obj["metadata"]["resourceVersion"] == "7"


def test_an_object_without_metadata_can_be_stamped():
    assert codec.decode(codec.stamp(codec.encode_object({"kind": "A"}), 3)) == {
        "kind": "A",
        "metadata": {"resourceVersion": "3"},
    }


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"NaN",
        b'{"a":Infinity}',
        b"1e999",
        b'"\xff"',
        b"{} x",
        b"[" * 100_000,
        b'{"a":' * 300 + b"1" + b"}" * 300,
    ],
    ids=lambda data: repr(data[:12]),
)
def test_what_is_no_sound_json_is_a_bad_request(data):
    with pytest.raises(status.BadRequest):
        codec.decode(data)


def test_many_brackets_are_no_depth():
    assert len(codec.decode(b"[" + b",".join([b"{}"] * 1000) + b"]")) == 1000


def test_keys_given_twice_are_found_by_path_in_the_order_of_the_document():
    data = b'{"a":{"b":1,"b":2},"c":[{"d":1,"d":1}],"a":3}'

    assert codec.decode(data)["a"] == 3
    assert codec.duplicate_fields(data) == ["a.b", "c[0].d", "a"]


def test_nobody_looks_into_a_field_nobody_knows():
    data = b'{"x":{"b":1,"b":2},"c":1,"x":3,"c":2}'

    assert codec.questionable_fields(data, ["x"]) == [("unknown", "x"), ("duplicate", "c")]


def test_a_view_decodes_and_refuses_what_does_not_fit():
    assert codec.decode_as(b"[1,2]", list[int]) == [1, 2]
    with pytest.raises(status.BadRequest):
        codec.decode_as(b'["x"]', list[int])
