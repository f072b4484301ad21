"""Whatever comes in, it is read or refused; Hypothesis looks for something that is neither.

The functions that see a request first, one by one and without a server; whole requests are made up
in tests/clients/test_fuzz.py.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motley.api import codec, quantity, scheme, selectors, status
from motley.apiserver import body, negotiate, request
from motley.apiserver.options import delete_options, write_options
from motley.apiserver.protobuf import wire
from motley.apiserver.request import Query
from motley.apiserver.verbs import patch

SETTINGS = settings(max_examples=150, derandomize=True, deadline=None, database=None)

scalars = (
    st.none()
    | st.booleans()
    | st.integers(min_value=-(2**64), max_value=2**64)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=10)
)
keys = st.sampled_from(
    [
        "kind",
        "apiVersion",
        "metadata",
        "name",
        "labels",
        "spec",
        "data",
        "$patch",
        "containers",
        "x",
    ]
) | st.text(max_size=5)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=15,
)
documents = st.dictionaries(keys, values, max_size=6)
KINDS = [
    kind
    for api_version, name in (("v1", "Pod"), ("v1", "ConfigMap"), ("apps/v1", "Deployment"))
    if (kind := scheme.by_kind(api_version, name)) is not None
]
MEDIA_TYPES = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"]
PATCHES = [patch.JSON_PATCH, patch.MERGE_PATCH, patch.STRATEGIC_PATCH]


def outcome(read: Callable[[], Any]) -> tuple[int, Any]:
    """The code of a refusal, or 200 and what was read; anything else is a failure."""
    try:
        return 200, read()
    except status.ApiError as error:
        return error.code, None
    except selectors.SelectorError:
        return 400, None


@SETTINGS
@given(st.binary(max_size=200), st.sampled_from(MEDIA_TYPES))
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_any_bytes_are_a_document_or_a_bad_request(kind, raw, media_type):
    code, found = outcome(lambda: body.read(kind, media_type, raw, "Warn")[0])
    assert code == 400 or isinstance(found, dict)


@SETTINGS
@given(values, st.sampled_from(["Strict", "Warn", "Ignore"]))
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_any_json_is_a_document_or_a_bad_request(kind, value, validation):
    raw = json.dumps(value).encode()
    code, found = outcome(lambda: body.read(kind, "application/json", raw, validation)[0])
    assert code == 400 or codec.decode(codec.encode(found)) == found


@SETTINGS
@given(st.binary(max_size=300))
def test_any_bytes_after_the_magic_are_a_pod_or_a_bad_request(raw):
    code, found = outcome(lambda: wire.decode(wire.MAGIC + raw, "v1", "Pod"))
    assert code == 400 or found["kind"]


@SETTINGS
@given(values, documents, st.sampled_from(PATCHES))
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_any_patch_of_any_object_is_an_object_or_a_refusal(kind, change, target, media_type):
    def patched() -> Any:
        return patch.decode(kind, media_type, json.dumps(change).encode())(target)

    code, found = outcome(patched)
    assert code in (400, 422) or isinstance(found, dict)


@SETTINGS
@given(st.text(max_size=60), st.binary(max_size=60), st.sampled_from(["GET", "POST", "DELETE"]))
def test_any_path_and_query_can_be_parsed(path, query, method):
    found = request.parse(method, f"/{path}", query)
    assert found.verb
    assert outcome(lambda: write_options(found.query, "CreateOptions"))[0] in (200, 422)
    assert outcome(lambda: found.query.integer("limit"))[0] in (200, 400)


@SETTINGS
@given(documents)
def test_any_options_of_a_delete_are_read_or_refused(options):
    assert outcome(lambda: delete_options(Query(), options))[0] in (200, 400, 422)


@SETTINGS
@given(st.text(alphabet="application/json*;=qvgas,. \x00é", max_size=60))
def test_any_accept_header_is_met_or_not_acceptable(header):
    assert outcome(lambda: negotiate.accept(header))[0] in (200, 406)
    assert negotiate.of_errors(header) in (negotiate.JSON, negotiate.YAML, negotiate.PROTOBUF)


@SETTINGS
@given(st.text(alphabet="ab=!,() innot<>\x00é./-", max_size=40))
def test_any_selector_is_parsed_or_refused(text):
    assert outcome(lambda: selectors.Selector.parse(text))[0] in (200, 400)
    assert outcome(lambda: selectors.parse_fields(text))[0] in (200, 400)


@SETTINGS
@given(st.text(alphabet="0123456789.+-eEinumkKMGTP ", max_size=30))
def test_any_amount_is_a_quantity_or_a_value_error(amount):
    try:
        found = quantity.canonical(amount)
    except ValueError:
        return
    assert found
