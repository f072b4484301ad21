"""The shape of every kind, compiled from the definitions in the package kubernetes-validate.

The package ships the OpenAPI definitions of a Kubernetes release as JSON. They are read at the
first use (about 15 ms for all of them) and turned into `Schema` nodes only for the kinds that are
asked for. Kinds of our own bring their definition through `register`.

Invariant: a compiled `Schema` never changes; recursive types share one node.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from motley.api import codec, scheme
from motley.api.schema import zero

Type = Literal[
    "object",
    "map",
    "list",
    "string",
    "integer",
    "number",
    "boolean",
    "quantity",
    "int-or-string",
    "time",
    "microtime",
    "bytes",
    "any",
]

REF = "#/$defs/"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1"
# Definitions whose JSON form says too little of what they are.
_SPECIAL: dict[str, tuple[Type, str]] = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": ("quantity", "resource.Quantity"),
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": ("int-or-string", "intstr.IntOrString"),
    f"{_META}.Time": ("time", "v1.Time"),
    f"{_META}.MicroTime": ("microtime", "v1.MicroTime"),
    f"{_META}.FieldsV1": ("any", "v1.FieldsV1"),
    "io.k8s.apimachinery.pkg.runtime.RawExtension": ("any", "runtime.RawExtension"),
}


@dataclass(slots=True, eq=False)
class Schema:
    """What a value may be. `go` is Kubernetes' own name of the type, for messages."""

    type: Type
    go: str
    name: str = ""
    fields: dict[str, "Field"] = field(default_factory=dict)
    items: "Schema | None" = None
    keeps_unknown: bool = False
    minimum: int = 0
    maximum: int = 0


@dataclass(slots=True, eq=False)
class Field:
    """A field of an object: its schema, and how patches and zero values treat it."""

    schema: Schema
    is_required: bool = False
    drops_zero: bool = False
    merge_key: str = ""
    strategies: frozenset[str] = frozenset()
    list_type: str = ""
    map_keys: tuple[str, ...] = ()


class UnknownKindError(LookupError):
    """No schema is known for this kind."""


def _newest(root: Path) -> Path:
    found = [
        (tuple(int(part) for part in match.groups()), path)
        for path in root.iterdir()
        if (match := re.fullmatch(r"v(\d+)\.(\d+)\.(\d+)-local", path.name))
    ]
    if not found:
        raise RuntimeError("kubernetes-validate holds no definitions")
    return max(found)[1] / "_definitions.json"


@cache
def definitions() -> Mapping[str, dict[str, Any]]:
    """The raw definitions by name, such as `io.k8s.api.core.v1.Pod`.

    References are `#/$defs/NAME`, and optional types carry `"null"`; `openapi` rewrites both.
    """
    spec = find_spec("kubernetes_validate")  # located, not imported: importing costs 200 ms
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("the package kubernetes-validate is not installed")
    root = Path(next(iter(spec.submodule_search_locations))) / "kubernetes-json-schema"
    found: dict[str, dict[str, Any]] = codec.decode(_newest(root).read_bytes())["$defs"]
    return found


@cache
def _names() -> dict[tuple[str, str], str]:
    found: dict[tuple[str, str], str] = {}
    for name, definition in definitions().items():
        marks = definition.get("x-kubernetes-group-version-kind", ())
        if len(marks) > 1:
            continue  # DeleteOptions and WatchEvent belong to every group
        for gvk in marks:
            api_version = f"{gvk['group']}/{gvk['version']}" if gvk["group"] else gvk["version"]
            found[api_version, gvk["kind"]] = name
    return found


_registered: dict[tuple[str, str], Schema] = {}


def register(api_version: str, kind: str, definition: Mapping[str, Any]) -> None:
    """Take the schema of a kind that no package ships, as an OpenAPI object definition."""
    compiled = Schema("object", f"{api_version.rpartition('/')[2]}.{kind}", kind)
    _fill(compiled, definition)
    _registered[api_version, kind] = compiled


def definition_name(api_version: str, kind: str) -> str | None:
    """The name of the kind's definition, such as `io.k8s.api.core.v1.Pod`."""
    return _names().get((api_version, kind))


def of(kind: scheme.Kind) -> Schema:
    """The schema of a kind in the table. Raises UnknownKindError.

    An old version that no package describes any more has the fields of the version it is kept in.
    """
    if kind.definition is not None:
        return _of_structural(kind, kind.definition.schema)
    described = definition_name(kind.api_version, kind.kind) is not None
    if not described and kind.stored_as is not None and kind.definition is None:
        kind = kind.storage
    return of_type(kind.api_version, kind.kind)


# By kind: the structural schema it was compiled from, and the outcome. A changed one is another.
_structural: dict[tuple[str, str], tuple[object, Schema]] = {}


def _of_structural(kind: scheme.Kind, definition: Mapping[str, Any]) -> Schema:
    """The schema of a custom resource, or of a kind of our own, with the frame all objects have."""
    name = (kind.api_version, kind.kind)
    known = _structural.get(name)
    if known is None or known[0] is not definition:
        frame = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}
        metadata = {"metadata": {"$ref": f"{REF}{_META}.ObjectMeta"}}
        properties = {**(definition.get("properties") or {}), **frame, **metadata}
        compiled = Schema("object", f"{kind.version}.{kind.kind}", kind.kind)
        _fill(compiled, {**definition, "properties": properties})
        known = _structural[name] = (definition, compiled)
    return known[1]


def of_type(api_version: str, kind: str) -> Schema:
    """The schema of any type with a kind, also those that are no resources (Scale, Binding)."""
    own = _registered.get((api_version, kind))
    if own is not None:
        return own
    name = definition_name(api_version, kind)
    if name is None:
        raise UnknownKindError(f"no schema for {api_version} {kind}")
    return _compiled(name)


_memo: dict[str, Schema] = {}


def _compiled(name: str) -> Schema:
    known = _memo.get(name)
    if known is not None:
        return known
    version, short = name.split(".")[-2:]
    if name in _SPECIAL:
        type_, go = _SPECIAL[name]
        compiled = Schema(type_, go, short)
        _memo[name] = compiled
        return compiled
    compiled = Schema("object", f"{version}.{short}", short)
    _memo[name] = compiled  # before its fields: types may contain themselves
    _fill(compiled, definitions()[name], group=name.split(".")[-3])
    return compiled


def _fill(schema: Schema, definition: Mapping[str, Any], group: str = "") -> None:
    properties = definition.get("properties")
    schema.keeps_unknown = bool(definition.get("x-kubernetes-preserve-unknown-fields"))
    if not properties:
        inline = _inline(definition)
        schema.type, schema.items = inline.type, inline.items
        return
    required = frozenset(definition.get("required", ()))
    for name, inner in properties.items():
        compiled = _compiled(inner["$ref"].removeprefix(REF)) if "$ref" in inner else _inline(inner)
        strategy = inner.get("x-kubernetes-patch-strategy", "")
        is_required = name in required
        schema.fields[name] = Field(
            schema=compiled,
            is_required=is_required,
            drops_zero=not is_required and zero.is_dropped(schema.name, name, compiled.type, group),
            merge_key=inner.get("x-kubernetes-patch-merge-key", ""),
            strategies=frozenset(strategy.split(",")) if strategy else frozenset(),
            list_type=inner.get("x-kubernetes-list-type", ""),
            map_keys=tuple(inner.get("x-kubernetes-list-map-keys", ())),
        )


def _inline(definition: Mapping[str, Any]) -> Schema:
    if "$ref" in definition:
        return _compiled(definition["$ref"].removeprefix(REF))
    given = definition.get("type", "any")
    type_ = given if isinstance(given, str) else next(t for t in given if t != "null")
    format_ = definition.get("format", "")
    if definition.get("x-kubernetes-int-or-string"):
        return Schema("int-or-string", "intstr.IntOrString")
    if type_ == "array":
        items = _inline(definition.get("items", {}))
        return Schema("list", f"[]{items.go}", items=items)
    if type_ == "object":
        if definition.get("properties"):
            schema = Schema("object", "map[string]interface {}")
            _fill(schema, definition)
            return schema
        values = definition.get("additionalProperties")
        if not isinstance(values, Mapping):
            return Schema("any", "map[string]interface {}", keeps_unknown=True)
        items = _inline(values)
        return Schema("map", f"map[string]{items.go}", items=items)
    if type_ == "string":
        return Schema("bytes", "[]uint8") if format_ == "byte" else Schema("string", "string")
    if type_ == "integer":
        bits = 32 if format_ == "int32" else 64
        bound = 2 ** (bits - 1)
        return Schema("integer", f"int{bits}", minimum=-bound, maximum=bound - 1)
    if type_ == "number":
        return Schema("number", "float64")
    if type_ == "boolean":
        return Schema("boolean", "bool")
    return Schema("any", "interface {}")
