"""Stored objects are read as plain decoding reads them, and share their sets."""

from typing import Any

import pytest

from motley.api import codec
from motley.api.fields import stored

SET = {"f:data": {".": {}, "f:x": {}}}


def document(name: str, **metadata: Any) -> dict[str, Any]:
    entry = {"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsV1": SET}
    return {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {"name": name, "managedFields": [entry], **metadata},
        "data": {"x": '"managedFields":[', "n": [1, 2.5, None, True], "long": "y" * 4096},
    }


@pytest.mark.parametrize(
    "found",
    [
        document("a"),
        document("a", managedFields=[], labels={"é": "ü"}),
        {"metadata": {"name": "a"}, "data": {"k": '"managedFields":[' + "y" * 4096}},
        {"kind": "ConfigMap"},
    ],
)
def test_nothing_is_lost_or_added(found: dict[str, Any]) -> None:
    assert stored.decode(codec.encode(found)) == found


def test_equal_sets_are_one_object() -> None:
    one, other = (stored.decode(codec.encode(document(name))) for name in ("a", "b"))
    assert (
        one["metadata"]["managedFields"][0]["fieldsV1"]
        is other["metadata"]["managedFields"][0]["fieldsV1"]
    )
