"""What the rules of a custom resource can know of its values before there are any.

The schema is the type: a field that it lacks cannot be selected, a string is not compared with a
number. Where the schema leaves things open, so does this.
"""

from dataclasses import dataclass

from motley.api.cel.checker import DYN, OBJECT, Shape
from motley.api.structural.node import Node

_RESERVED_WORDS = (
    "true false null in as break const continue else for function if import let loop package "
    "namespace return var void while"
)
_RESERVED = frozenset(_RESERVED_WORDS.split())
_SCALARS = {"boolean": "bool", "integer": "int", "number": "double", "string": "string"}
_FORMATS = {
    "date-time": "google.protobuf.Timestamp",
    "datetime": "google.protobuf.Timestamp",
    "date": "google.protobuf.Timestamp",
    "duration": "google.protobuf.Duration",
    "byte": "bytes",
}


@dataclass(frozen=True)
class _Scalar:
    """A value without parts."""

    type: str

    def field(self, name: str) -> Shape | None:
        raise KeyError(name)

    @property
    def element(self) -> Shape | None:
        return None


@dataclass(frozen=True)
class _Object:
    """An object of which the names are known, also those that every object has."""

    node: Node
    has_frame: bool
    type: str = OBJECT

    def field(self, name: str) -> Shape | None:
        for own, inner in self.node.properties.items():
            if escaped(own) == name and not (own == "metadata" and self.has_frame):
                return shape(inner)
        if self.has_frame and name == "metadata":
            return _METADATA
        if self.has_frame and name in ("apiVersion", "kind"):
            return _STRING
        raise KeyError(name)

    @property
    def element(self) -> Shape | None:
        return None


@dataclass(frozen=True)
class _Container:
    """A list, or a map with free names."""

    type: str
    element: Shape | None

    def field(self, name: str) -> Shape | None:
        return self.element


_STRING = _Scalar("string")
# Of the metadata rules see only what names the object: all else may change without them.
_METADATA = _Object(
    Node(
        type="object",
        properties={"name": Node(type="string"), "generateName": Node(type="string")},
    ),
    has_frame=False,
)


def shape(node: Node | None, *, is_root: bool = False) -> Shape | None:
    """What a node of the schema says about its values; None: anything."""
    if node is None or node.int_or_string:
        return None
    if node.type == "array":
        return _Container("list", shape(node.items))
    if node.type == "object":
        if node.additional is not None or node.anything:
            return _Container("map", shape(node.additional))
        has_frame = is_root or node.is_embedded
        return _Object(node, has_frame) if node.properties or has_frame else None
    type_ = _SCALARS.get(node.type, DYN)
    if type_ == "string":
        type_ = _FORMATS.get(str(node.values.get("format") or ""), type_)
    return _Scalar(type_) if type_ != DYN else None


def escaped(name: str) -> str:
    """A property's name as rules spell it."""
    if name in _RESERVED:
        return f"__{name}__"
    text = name.replace("__", "__underscores__")
    for char, word in ((".", "__dot__"), ("-", "__dash__"), ("/", "__slash__")):
        text = text.replace(char, word)
    return text
