"""The columns of each kind's table: which, and how a row of them is filled.

A kind's columns are written as one line of text in `core.py` and `workloads.py`; here that text
becomes definitions. Kinds without a line of their own show their name and when they were made,
as in Kubernetes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from motley.api import scheme
from motley.apiserver.tables import core, pods, workloads
from motley.lib import clock

Document = dict[str, Any]
Cells = Callable[[Document, float], list[Any]]

_ROWS: dict[tuple[str, str], tuple[str, Cells]] = {
    ("", "pods"): (pods.COLUMNS, pods.cells),
    **core.ROWS,
    **workloads.ROWS,
}
# Marks in the text: `!` shows with `-o wide` only, `#` is a number, `?` a boolean, `@` a date.
_TYPES = {"#": "integer", "?": "boolean", "@": "date"}


@dataclass(frozen=True)
class Shape:
    """Column definitions, and the function that fills a row of them."""

    definitions: list[Document]
    cells: Cells


def now() -> float:
    """The time ages are counted to."""
    return clock.SYSTEM.now()


@cache
def of(kind: scheme.Kind) -> Shape:
    """The shape of a kind's table."""
    text, cells = _ROWS.get((kind.group, kind.plural), ("Name | @Created At", _plain))
    return Shape([_definition(name.strip()) for name in text.split("|")], cells)


def _definition(text: str) -> Document:
    marks = text[: len(text) - len(text.lstrip("!#?@"))]
    name = text.lstrip("!#?@")
    return {
        "name": name,
        "type": next((_TYPES[m] for m in marks if m in _TYPES), "string"),
        "format": "name" if name == "Name" else "",
        "description": f"{name} of the object.",
        "priority": 1 if "!" in marks else 0,
    }


def _plain(shown: Document, at: float) -> list[Any]:
    metadata = shown["metadata"]
    return [metadata.get("name", ""), metadata.get("creationTimestamp")]
