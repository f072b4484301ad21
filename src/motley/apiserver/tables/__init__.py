"""Objects as rows: what `kubectl get` prints, decided by the server.

The columns of each kind are in `columns.py`; a kind without columns of its own is shown by name
and age. `PartialObjectMetadata`, an object without its spec and status, lives here too because
rows carry it.
"""

from collections.abc import Sequence
from typing import Any

from motley.api import scheme, status
from motley.apiserver import negotiate
from motley.apiserver.tables import columns

__all__ = [
    "bookmark",
    "check_list_form",
    "list_metadata",
    "of_list",
    "of_object",
    "partial",
    "partial_list",
    "transformed",
]

Document = dict[str, Any]
_INCLUDE = ("", "Metadata", "Object", "None")


def of_object(
    kind: scheme.Kind,
    shown: Document,
    include: str,
    version: str,
    shape: columns.Shape | None = None,
) -> Document:
    """One object as a table of one row; a subresource brings a shape of its own."""
    table = of_list(kind, [shown], include, version, shape)
    if revision := shown["metadata"].get("resourceVersion"):
        table["metadata"] = {"resourceVersion": revision}
    return table


def of_list(
    kind: scheme.Kind,
    objects: Sequence[Document],
    include: str,
    version: str,
    shape: columns.Shape | None = None,
) -> Document:
    """Objects as a table; `include` says what each row carries of its object."""
    if include not in _INCLUDE:
        raise status.BadRequest(
            f'Unable to convert to Table as requested: includeObject: Invalid value: "{include}": '
            "must be 'Metadata', 'Object', 'None', or empty"
        )
    shape = shape or columns.of(kind)
    now = columns.now()
    rows = [
        {
            "cells": shape.cells(shown, now),
            **_marks(kind, shown),
            "object": _row_object(shown, include, version),
        }
        for shown in objects
    ]
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": {},
        "columnDefinitions": shape.definitions,
        "rows": rows or shape.no_rows,
    }


def _marks(kind: scheme.Kind, shown: Document) -> Document:
    """What kubectl may use to hide a row: a pod that has run to its end."""
    if (kind.group, kind.plural) != ("", "pods"):
        return {}
    phase = (shown.get("status") or {}).get("phase")
    if phase not in ("Succeeded", "Failed"):
        return {}
    message = "The pod has completed successfully." if phase == "Succeeded" else "The pod failed."
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


def transformed(
    kind: scheme.Kind,
    shown: Document,
    wanted: negotiate.Wanted,
    include: str,
    shape: columns.Shape | None = None,
) -> Document:
    """One object in the form a client wants: itself, a table, or its metadata."""
    if wanted.transform == "Table":
        return of_object(kind, shown, include, wanted.version, shape)
    if wanted.transform == "PartialObjectMetadata":
        return partial(shown, wanted.version)
    if wanted.transform == "PartialObjectMetadataList":
        raise _wrong_number(kind, wanted.transform, is_list=False)
    return shown


def check_list_form(kind: scheme.Kind, wanted: negotiate.Wanted) -> None:
    """406 for a list that is wanted in the form of one object."""
    if wanted.transform == "PartialObjectMetadata":
        raise _wrong_number(kind, wanted.transform, is_list=True)


def _wrong_number(kind: scheme.Kind, form: str, *, is_list: bool) -> status.NotAcceptable:
    package = kind.group.partition(".")[0] or "core"
    found = (
        f"a list (*{package}.{kind.list_kind})"
        if is_list
        else f"not a list (*{package}.{kind.kind})"
    )
    return status.NotAcceptable(f"you requested {form}, but the requested object is {found}")


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
