"""One served version of one kind with a structural schema: everything generic code asks of it.

The table of kinds carries a `Definition` in the row of each custom resource and of each kind of
Motley's own group. Bodies are conformed to it, objects are defaulted and validated by it, tables
and selectors read their columns from it.

Invariant: a definition never changes; a changed schema is a new definition in a new row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from motley.api import schema
from motley.api.status import BadRequest, FieldError
from motley.api.structural import defaulting, jsonpath, lists, pruning, rules, values
from motley.api.structural.node import Node, compile_schema

Document = dict[str, Any]
_UNCHECKED = (
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)
# After one of these the rules are not asked: they could not make sense of the object.
_BLOCKING = frozenset(
    {
        "FieldValueNotSupported",
        "FieldValueRequired",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueTypeInvalid",
    }
)


class Column(NamedTuple):
    """An entry of `additionalPrinterColumns`."""

    name: str
    type: str
    path: str
    format: str = ""
    description: str = ""
    priority: int = 0


class ScalePaths(NamedTuple):
    """Where an object keeps what its Scale shows."""

    spec_replicas: str
    status_replicas: str
    label_selector: str = ""


AGE = Column("Age", "date", ".metadata.creationTimestamp")


@dataclass(frozen=True, eq=False)
class Definition:
    """How the objects of one version behave."""

    kind: str
    list_kind: str
    schema: Mapping[str, Any]
    columns: Sequence[Column] = (AGE,)
    scale: ScalePaths | None = None
    has_status: bool = False
    selectable: tuple[str, ...] = ()
    warning: str = ""  # said with every answer: this version is deprecated
    convertible: bool = True  # False: its CRD wants a webhook to translate versions
    converter: Mapping[str, Any] = field(default_factory=dict)  # then: how to reach that one
    is_terminating: bool = False  # nothing new is taken any more
    is_custom: bool = True  # False: Motley's own group
    since: int = field(default=0)  # objects written at or after this revision have its defaults

    @cached_property
    def root(self) -> Node:
        """The compiled schema."""
        return compile_schema(self.schema)

    def conform(self, obj: Document) -> list[str]:
        """Bring an object to the form it is kept in; says which fields nobody knows.

        Its content is replaced by a copy: a patched object shares with what it was made from.
        """
        fresh = {name: defaulting.copied(value) for name, value in obj.items()}
        obj.clear()
        obj.update(fresh)
        unknown = _conform_metadata(obj, "metadata")
        unknown += pruning.prune(self.root, obj)
        unknown += _embedded_metadata(self.root, obj, "")
        self.default(obj)
        return unknown

    def default(self, obj: Document) -> None:
        """Fill in what the schema says."""
        defaulting.apply(self.root, obj)

    def errors(
        self, new: Document, old: Document | None = None, subresource: str = ""
    ) -> list[FieldError]:
        """All that is wrong with the object beyond its metadata."""
        before = values.ABSENT if old is None else old
        if subresource == "status":
            found = list(self._status_errors(new, old))
        else:
            found = list(values.check(self.schema, new, old=before))
        if self.scale is not None:
            found += _scale_errors(self.scale, new)
        found += _embedded_errors(self.root, new, "")
        found += lists.check(self.root, new)
        if not self.root.has_rules:
            return found
        if any(e.reason in _BLOCKING for e in found):
            return [*found, values.invalid("", None, _UNCHECKED)]
        return [*found, *rules.check(self.root, new, before)]

    def _status_errors(self, new: Document, old: Document | None) -> list[FieldError]:
        part = (self.schema.get("properties") or {}).get("status")
        if part is None or "status" not in new:
            return []
        earlier = (old or {}).get("status", values.ABSENT)
        # Messages about a status call its fields by their names below it.
        return list(values.check(part, new["status"], "status", old=earlier, name=""))

    @cached_property
    def selectors(self) -> dict[str, Any]:
        """The function behind each selectable field, by its name in field selectors."""
        return {path[1:]: jsonpath.compile_path(path) for path in self.selectable}

    def selected(self, obj: Document) -> tuple[str, ...]:
        """The values of the selectable fields, as text."""
        return tuple(_text(find(obj)) for find in self.selectors.values())


def _text(found: list[Any]) -> str:
    value = found[0] if found else None
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _metadata_schema() -> schema.Schema:
    return schema.of_type("v1", "Pod").fields["metadata"].schema


def _conform_metadata(obj: Document, path: str) -> list[str]:
    metadata = obj.get("metadata")
    if metadata is None:
        return []
    if not isinstance(metadata, dict):
        raise BadRequest(
            f"{path}: json: cannot unmarshal {values.type_name(metadata)} "
            "into Go value of type v1.ObjectMeta"
        )
    checked = schema.check_as(_metadata_schema(), metadata)
    if checked.errors:
        raise BadRequest(checked.errors[0].message)
    return [f"{path}.{name}" for name in checked.unknown]


def _embedded_metadata(node: Node, value: Any, path: str) -> list[str]:
    found: list[str] = []
    for below, inner, where in _below(node, value, path):
        if below.is_embedded and isinstance(inner, dict):
            found += _conform_metadata(inner, f"{where}.metadata")
        found += _embedded_metadata(below, inner, where)
    return found


def _embedded_errors(node: Node, value: Any, path: str) -> list[FieldError]:
    """An embedded object must say what it is."""
    found: list[FieldError] = []
    for below, inner, where in _below(node, value, path):
        if below.is_embedded and isinstance(inner, dict):
            found += [
                FieldError(
                    f"{where}.{name}", "FieldValueRequired", "Required value: must not be empty"
                )
                for name in ("apiVersion", "kind")
                if not inner.get(name)
            ]
        found += _embedded_errors(below, inner, where)
    return found


def _below(node: Node, value: Any, path: str) -> list[tuple[Node, Any, str]]:
    if isinstance(value, dict):
        return [
            (below, inner, f"{path}.{name}" if path else name)
            for name, inner in value.items()
            if (below := node.properties.get(name) or node.additional) is not None
        ]
    if isinstance(value, list) and node.items is not None:
        return [(node.items, inner, f"{path}[{i}]") for i, inner in enumerate(value)]
    return []


def _scale_errors(paths: ScalePaths, obj: Document) -> list[FieldError]:
    """Replica counts must be counts, or nobody could scale the object."""
    found: list[FieldError] = []
    for path in (paths.spec_replicas, paths.status_replicas):
        value = next(iter(jsonpath.compile_path(path)(obj)), None)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool):
            detail = f"{path} accessor error: {value} is of the type {_go_type(value)}, "
            found.append(values.invalid(path, 0, f"{detail}expected int64"))
        elif value < 0:
            found.append(values.invalid(path, value, "should be a non-negative integer"))
        elif value > 2**31 - 1:
            problem = f"should be less than or equal to {2**31 - 1}"
            found.append(values.invalid(path, value, problem))
    return found


def _go_type(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, float):
        return "float64"
    if isinstance(value, dict):
        return "map[string]interface {}"
    return "[]interface {}" if isinstance(value, list) else "string"
