"""Files of objects, as people write them: what is in them, and where a server keeps each kind.

Kinds come from the table of built-in ones, so nothing is asked of a server; custom kinds are for
kubectl, which asks.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from motley.api import scheme
from motley.api.views.base import Object

Document = dict[str, Any]


def documents(file: Path) -> Iterator[Document]:
    """The objects of a file; ValueError when something else is in it."""
    try:
        for one in yaml.safe_load_all(file.read_text()):
            if isinstance(one, dict):
                yield one
            elif one is not None:
                raise ValueError(f"{file}: a manifest is an object, not {type(one).__name__}")
    except yaml.YAMLError as error:
        raise ValueError(f"{file}: {error}") from None


def view_of(document: Document) -> type[Object]:
    """Where the object's kind lives; ValueError for one that is not built in."""
    said = str(document.get("apiVersion", "")), str(document.get("kind", ""))
    kind = scheme.by_kind(*said)
    if kind is None:
        raise ValueError(f'no kind "{said[1]}" in version "{said[0]}"; kubectl knows custom ones')
    places = {
        "API_VERSION": kind.api_version,
        "KIND": kind.kind,
        "PLURAL": kind.plural,
        "NAMESPACED": kind.namespaced,
    }
    return type(kind.kind, (Object,), places)
