"""Objects as rows: what `kubectl get` prints, decided by the server.

The columns of each kind are in `columns.py`; a kind without columns of its own is shown by name
and age. `PartialObjectMetadata`, an object without its spec and status, lives here too because
rows carry it.
"""

from collections.abc import Sequence
from typing import Any

from motley.api import scheme, status
from motley.apiserver.tables import columns

__all__ = ["bookmark", "list_metadata", "of_list", "of_object", "partial", "partial_list"]

Document = dict[str, Any]
_INCLUDE = ("", "Metadata", "Object", "None")


def of_object(kind: scheme.Kind, shown: Document, include: str, version: str) -> Document:
    """One object as a table of one row."""
    table = of_list(kind, [shown], include, version)
    table["metadata"] = {"resourceVersion": shown["metadata"].get("resourceVersion", "")}
    return table


def of_list(kind: scheme.Kind, objects: Sequence[Document], include: str, version: str) -> Document:
    """Objects as a table; `include` says what each row carries of its object."""
    if include not in _INCLUDE:
        raise status.BadRequest(
            f'Unable to convert to Table as requested: includeObject: Invalid value: "{include}": '
            "must be 'Metadata', 'Object', 'None', or empty"
        )
    shape = columns.of(kind)
    now = columns.now()
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": {},
        "columnDefinitions": shape.definitions,
        "rows": [
            {
                "cells": shape.cells(shown, now),
                **_marks(kind, shown),
                "object": _row_object(shown, include, version),
            }
            for shown in objects
        ],
    }


def _marks(kind: scheme.Kind, shown: Document) -> Document:
    """What kubectl may use to hide a row: a pod that has run to its end."""
    if (kind.group, kind.plural) != ("", "pods"):
        return {}
    phase = (shown.get("status") or {}).get("phase")
    if phase not in ("Succeeded", "Failed"):
        return {}
    message = f"The pod has {'completed successfully' if phase == 'Succeeded' else 'failed'}."
    condition = {"type": "Completed", "status": "True", "reason": phase, "message": message}
    return {"conditions": [condition]}


def _row_object(shown: Document, include: str, version: str) -> Document | None:
    if include == "None":
        return None
    return shown if include == "Object" else partial(shown, version)


def bookmark(kind: scheme.Kind, shown: Document, version: str) -> Document:
    """A watch's bookmark in table form: no rows to print, but the revision to remember."""
    table = of_list(kind, [], "", version)
    table["metadata"] = {"resourceVersion": shown["metadata"]["resourceVersion"]}
    # The row lets clients read annotations such as the end of the initial events.
    table["rows"] = [
        {"cells": columns.of(kind).cells(shown, columns.now()), "object": partial(shown, version)}
    ]
    return table


def partial(shown: Document, version: str) -> Document:
    """An object's metadata alone."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": shown.get("metadata") or {},
    }


def partial_list(objects: Sequence[Document], version: str) -> Document:
    """The metadata of many objects."""
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": {},
        "items": [partial(shown, version) for shown in objects],
    }


def list_metadata(revision: int, next_page: str, remaining: int | None) -> Document:
    """The metadata of a list."""
    metadata: Document = {"resourceVersion": str(revision)}
    if next_page:
        metadata["continue"] = next_page
        if remaining:
            metadata["remainingItemCount"] = remaining
    return metadata
