"""What counts as one field: the schema, read for who owns what.

A type says whether a value is one field (a scalar, an atomic list or map) or made of fields that
can have different owners (an object, a map, a list whose items have keys). It is compiled from the
OpenAPI definitions that also clients see: `x-kubernetes-list-type`, `-list-map-keys`, `-map-type`.

Invariant: a compiled type never changes; recursive types share one node.
"""

from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any, Final

from motley.api import schema, scheme
from motley.api.fields.pathset import key_element, text

_REF = "#/$defs/"
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_RAW = "io.k8s.apimachinery.pkg.runtime.RawExtension"
_INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
# Key fields with a default that the definitions in our package do not carry.
_KEY_DEFAULTS = {
    ("io.k8s.api.core.v1.ContainerPort", "protocol"): "TCP",
    ("io.k8s.api.core.v1.ServicePort", "protocol"): "TCP",
    ("io.k8s.api.core.v1.LocalObjectReference", "name"): "",
}
_ZERO = {"string": "", "integer": 0, "number": 0, "boolean": False}


# How a value is divided into fields. Plain numbers: they are looked at in every step of every walk.
SINGLE: Final = 0  # not at all
OBJECT: Final = 1  # by its fields, known and other ones: structs and maps
KEYED: Final = 2  # a list, by the key fields of its items
SET: Final = 3  # a list of scalars, by their values
FREE: Final = 4  # no schema: objects by their keys, everything else is one field


class Type:
    """A node of a kind's type."""

    __slots__ = ("defaults", "fields", "form", "items", "keys", "scalar")

    def __init__(self, form: int, scalar: str = "") -> None:
        self.form = form
        self.scalar = scalar  # what a leaf holds: string, numeric, boolean, any, list, map
        self.fields: dict[str, tuple[str, Type]] = {}  # by name: the path element, the type
        self.items: Type | None = None  # of lists, and of fields that are not declared
        self.keys: tuple[str, ...] = ()
        self.defaults: dict[str, Any] = {}

    def child(self, name: str) -> "Type":
        """The type of an object's field."""
        known = self.fields.get(name)
        return known[1] if known is not None else self.items or DEDUCED

    def element(self, item: Any) -> str | None:
        """The path element of a list's item; None for one that cannot be told from others."""
        if self.form == SET:
            return None if isinstance(item, dict | list | None) else _value_element(item)
        if not isinstance(item, dict):
            return None
        found = []
        for key in self.keys:
            value = item[key] if key in item else self.defaults.get(key)
            if isinstance(value, dict | list):
                return None
            if value is not None:
                found.append((key, value))
        return _keys_element(tuple(found)) if found else None


DEDUCED = Type(FREE, "any")


# The same names come again and again: containers, ports, conditions.
@lru_cache(maxsize=16384, typed=True)
def _keys_element(fields: tuple[tuple[str, Any], ...]) -> str:
    return key_element(fields)


@lru_cache(maxsize=4096, typed=True)
def _value_element(value: Any) -> str:
    return f"v:{text(value)}"


_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
# By name: the definition it was made from, and the type. A definition that changed is another one.
_custom: dict[tuple[str, str], tuple[object, Type]] = {}


def of(kind: scheme.Kind) -> Type:
    """The type of a kind's objects; deduced from their values where no schema is known."""
    if kind.definition is None:
        return of_type(kind.api_version, kind.kind)
    name = (kind.api_version, kind.kind)
    known = _custom.get(name)
    if known is None or known[0] is not kind.definition:
        known = _custom[name] = (kind.definition, _of_custom(kind.definition.schema))
    return known[1]


def _of_custom(definition: Mapping[str, Any]) -> Type:
    found = of_definition({"type": "object", **definition})
    for name in ("apiVersion", "kind"):
        found.fields[name] = (f"f:{name}", Type(SINGLE, "string"))
    found.fields["metadata"] = ("f:metadata", _named(_META))
    return found


@cache
def of_type(api_version: str, kind: str) -> Type:
    """As `of`, for types that are no resources of their own (Scale)."""
    name = schema.definition_name(api_version, kind)
    return DEDUCED if name is None else _named(name)


_memo: dict[str, Type] = {}


def _named(name: str) -> Type:
    known = _memo.get(name)
    if known is None:
        known = _memo[name] = Type(SINGLE)  # before its fields: types may contain themselves
        _fill(known, schema.definitions()[name], name)
    return known


def of_definition(definition: Mapping[str, Any]) -> Type:
    """The type an OpenAPI definition describes (custom resources bring theirs along)."""
    found = Type(SINGLE)
    _fill(found, definition, "")
    return found


def _inner(definition: Mapping[str, Any]) -> Type:
    reference = definition.get("$ref")
    if reference is None:
        return of_definition(definition)
    name = reference.removeprefix(_REF)
    override = definition.get("x-kubernetes-map-type")
    if override is None:
        return _named(name)
    # The field says otherwise than its type: claimRef of a PersistentVolume is not atomic.
    return of_definition({**schema.definitions()[name], "x-kubernetes-map-type": override})


def _fill(found: Type, definition: Mapping[str, Any], name: str) -> None:
    given = definition.get("type", "")
    type_ = given if isinstance(given, str) else next(t for t in given if t != "null")
    if name in (_QUANTITY, _INT_OR_STRING) or definition.get("x-kubernetes-int-or-string"):
        found.scalar = "any scalar" if name != _QUANTITY else "string"
    elif name == _RAW:
        found.scalar = "any"  # kept as text: what is in it is nobody else's business
    elif type_ == "array":
        _fill_list(found, definition)
    elif type_ == "object" or "properties" in definition:
        _fill_object(found, definition)
    elif type_ == "":
        found.form, found.scalar = FREE, "any"
    else:
        found.scalar = {"integer": "numeric", "number": "numeric"}.get(type_, type_)


def _fill_object(found: Type, definition: Mapping[str, Any]) -> None:
    atomic = definition.get("x-kubernetes-map-type") == "atomic"
    found.form, found.scalar = SINGLE if atomic else OBJECT, "map"
    properties = definition.get("properties") or {}
    for name, inner in properties.items():
        found.fields[name] = (f"f:{name}", _inner(inner))
    values = definition.get("additionalProperties")
    if isinstance(values, Mapping):
        found.items = _inner(values)
    elif values is True or not properties or definition.get("x-kubernetes-preserve-unknown-fields"):
        found.items = DEDUCED
    if definition.get("x-kubernetes-embedded-resource"):
        for name in ("apiVersion", "kind"):
            found.fields.setdefault(name, (f"f:{name}", Type(SINGLE, "string")))
        metadata = of_definition({"type": "object"})
        found.fields.setdefault("metadata", ("f:metadata", metadata))


def _fill_list(found: Type, definition: Mapping[str, Any]) -> None:
    found.scalar = "list"
    items = definition.get("items") or {}
    found.items = _inner(items)
    relation = definition.get("x-kubernetes-list-type", "")
    keys = tuple(sorted(definition.get("x-kubernetes-list-map-keys") or ()))
    if not relation and "merge" in definition.get("x-kubernetes-patch-strategy", "").split(","):
        key = definition.get("x-kubernetes-patch-merge-key")
        relation, keys = ("map", (key,)) if key else ("set", ())
    if relation == "set":
        found.form = SET
    elif relation == "map" and keys:
        found.form, found.keys = KEYED, keys
        found.defaults = _key_defaults(items, keys)


def _key_defaults(items: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    """What an item that leaves out a key field is known by."""
    name = str(items.get("$ref", "")).removeprefix(_REF)
    definition = schema.definitions()[name] if name else items
    found: dict[str, Any] = {}
    for key in keys:
        field = (definition.get("properties") or {}).get(key) or {}
        if "default" in field:
            found[key] = field["default"]
        elif (name, key) in _KEY_DEFAULTS:
            found[key] = _KEY_DEFAULTS[name, key]
        elif name and key in definition.get("required", ()):
            # Kubernetes' own types have no way to leave out a required field: it is zero.
            given = field.get("type", "")
            type_ = given if isinstance(given, str) else next(t for t in given if t != "null")
            if type_ in _ZERO:
                found[key] = _ZERO[type_]
    return found
