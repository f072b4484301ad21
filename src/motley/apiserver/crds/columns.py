"""Tables of custom objects: the columns their definition asks for, after the name.

A column shows the first thing its path leads to, in the column's type; nothing where it leads
nowhere or to something of another type.
"""

from collections.abc import Callable
from typing import Any

from motley.api import codec, schema
from motley.api.structural import jsonpath
from motley.api.structural.definition import Column, Definition
from motley.apiserver.tables.age import age
from motley.lib.clock import parse_rfc3339

Document = dict[str, Any]
Cells = Callable[[Document, float], list[Any]]
_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


def shape(definition: Definition) -> tuple[list[Document], Cells]:
    """The column definitions, and the function that fills a row."""
    described = schema.definitions()[_META]["properties"]
    shown = [_heading(Column("Name", "string", "", "name", described["name"]["description"]))]
    for column in definition.columns:
        text = column.description or described["creationTimestamp"]["description"]
        shown.append(_heading(column._replace(description=text)))
    finders = [(c.type, jsonpath.compile_path(c.path)) for c in definition.columns]

    def cells(obj: Document, now: float) -> list[Any]:
        return [obj["metadata"].get("name", ""), *(_cell(t, f(obj), now) for t, f in finders)]

    return shown, cells


def _heading(column: Column) -> Document:
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    }


def _cell(type_: str, found: list[Any], now: float) -> Any:
    if not found or found[0] is None:
        return None
    value = found[0]
    if type_ == "string":
        return _text(value)
    if type_ == "boolean":
        return value if isinstance(value, bool) else None
    if type_ == "date":
        return _date(value, now)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if type_ == "integer" else float(value)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return codec.encode(value).decode()


def _date(value: Any, now: float) -> str | None:
    if not isinstance(value, str):
        return None
    try:
        parse_rfc3339(value)
    except ValueError:
        return "<invalid>"
    return age(value, now)
