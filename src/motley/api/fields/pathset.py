"""Sets of field paths, in the very form `managedFields` stores them: Kubernetes' FieldsV1.

A set is a tree of dicts. The key of a child says how to get there: `f:NAME` a field, `k:{…}` the
item of a list with these key fields, `v:…` an item of a set of scalars, `i:N` an item by its place.
The key `.` marks that the node itself is in the set; a node without children is always in it.

    {"f:spec": {"f:ports": {'k:{"port":80}': {".": {}, "f:port": {}}}}}

What is stored is what is computed with: reading an object gives its sets for free.

Invariant: nodes are never changed once made, so sets share what they have in common.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from motley.api import codec, status

PathSet = dict[str, Any]

MEMBER = "."
LEAF: PathSet = {}
"""A member without children; shared by all sets."""

_HTML = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}
_HAS_HTML = re.compile("[<>&\u2028\u2029]")


def text(value: Any) -> str:
    """A scalar as JSON, escaped as Go escapes it: keys are compared as text."""
    found = codec.encode(value).decode()
    return found.translate(_HTML) if _HAS_HTML.search(found) else found


def is_member(node: PathSet) -> bool:
    """Whether the node itself is in the set."""
    return not node or MEMBER in node


def union(one: PathSet, other: PathSet) -> PathSet:
    """What is in either; `one` itself where `other` adds nothing."""
    if one is other or not other:
        return one
    if not one:
        return other
    found: PathSet | None = None
    for key, theirs in other.items():
        mine = one.get(key)
        if mine is None:
            node = theirs
        else:
            node = _joined(mine, theirs)
            if node is mine:
                continue
        if found is None:
            found = dict(one)
        found[key] = node
    if found is None:
        return one
    return found if len(found) == len(one) else ordered(found)


def _joined(mine: PathSet, theirs: PathSet) -> PathSet:
    if mine is theirs or (not theirs and is_member(mine)):
        return mine
    if not mine:
        return theirs if MEMBER in theirs else {MEMBER: LEAF, **theirs}
    if not theirs:
        return {MEMBER: LEAF, **mine}
    return union(mine, theirs)


def difference(one: PathSet, other: PathSet) -> PathSet:
    """What is in `one` only; `one` itself where nothing goes. Children of what goes stay."""
    found: PathSet | None = None
    for key in other if len(other) < len(one) else one:
        mine, theirs = one.get(key), other.get(key)
        if mine is None or theirs is None or key == MEMBER:
            continue
        node = _without(mine, theirs)
        if node is mine:
            continue
        if found is None:
            found = dict(one)
        if node is None:
            del found[key]
        else:
            found[key] = node
    return one if found is None else found


def _without(mine: PathSet, theirs: PathSet) -> PathSet | None:
    stays = is_member(mine) and not is_member(theirs)
    if not mine:
        return mine if stays else None
    rest = difference(mine, theirs)
    if MEMBER in rest and not stays:
        rest = {k: v for k, v in rest.items() if k != MEMBER}
    if rest.keys() <= {MEMBER}:
        return LEAF if stays else None
    return rest


def without_below(one: PathSet, other: PathSet) -> PathSet:
    """As `difference`, but what is below a member of `other` goes too."""
    found: PathSet = {}
    for key, mine in one.items():
        theirs = other.get(key)
        if theirs is None or key == MEMBER:
            found[key] = mine
        elif not is_member(theirs):
            rest = without_below(mine, theirs) if mine else mine
            if rest or not mine:
                found[key] = LEAF if rest.keys() <= {MEMBER} else rest
    return found


def intersection(one: PathSet, other: PathSet) -> PathSet:
    """What is in both."""
    found: PathSet = {}
    for key in one if len(one) <= len(other) else other:
        mine, theirs = one.get(key), other.get(key)
        if mine is None or theirs is None or key == MEMBER:
            continue
        both = is_member(mine) and is_member(theirs)
        below = intersection(mine, theirs) if mine and theirs else LEAF
        if below:
            found[key] = {MEMBER: LEAF, **below} if both else below
        elif both:
            found[key] = LEAF
    return found


def paths(node: PathSet, prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every path in the set, as its elements; at each level members come before what is below."""
    for key, child in node.items():
        if key != MEMBER and is_member(child):
            yield (*prefix, key)
    for key, child in node.items():
        if child:
            yield from paths(child, (*prefix, key))


def has(node: PathSet, path: tuple[str, ...]) -> bool:
    """Whether the path is in the set."""
    for key in path:
        if key not in node:
            return False
        node = node[key]
    return is_member(node)


def of_path(path: tuple[str, ...]) -> PathSet:
    """The set of this path alone."""
    node = LEAF
    for key in reversed(path):
        node = {key: node}
    return node


def shown(path: tuple[str, ...]) -> str:
    """A path for people: `.spec.containers[name="a"].image`."""
    return "".join(map(_shown, path))


def _shown(element: str) -> str:
    kind, rest = element[:1], element[2:]
    if kind == "f":
        return f".{rest}"
    if kind == "k":
        fields = codec.decode(rest)
        return "[" + ",".join(f"{k}={codec.encode(v).decode()}" for k, v in fields.items()) + "]"
    return f"[={codec.encode(codec.decode(rest)).decode()}]" if kind == "v" else f"[{rest}]"


def ordered(node: PathSet) -> PathSet:
    """The node with its elements in Kubernetes' order (only this level)."""
    return {key: node[key] for key in sorted(node, key=_rank)}


@lru_cache(maxsize=16384)
def _rank(element: str) -> tuple[Any, ...]:
    kind, rest = element[:1], element[2:]
    if kind == "f":
        return (1, rest)
    if kind == "k":
        fields = codec.decode(rest)
        return (2, [(name, scalar_rank(value)) for name, value in fields.items()])
    if kind == "v":
        return (3, scalar_rank(codec.decode(rest)))
    return (4, int(rest)) if kind == "i" else (0,)


def scalar_rank(value: Any) -> tuple[int, Any]:
    """Orders scalars of different types: numbers, texts, truth values."""
    if isinstance(value, bool):
        return (2, value)
    if isinstance(value, int | float):
        return (0, value)
    return (1, value) if isinstance(value, str) else (3, text(value))


def read(value: Any) -> PathSet:
    """A set that a client sent, brought to the form we make ourselves. ValueError for nonsense."""
    if not isinstance(value, Mapping):
        raise ValueError("a set of fields is an object")
    found: PathSet = {}
    for key, inner in value.items():
        if key == MEMBER:
            found[MEMBER] = LEAF
            continue
        found[_element(key)] = read(inner)
    if found.keys() == {MEMBER}:
        return LEAF
    return ordered(found)


def _element(key: str) -> str:
    kind, separator, rest = key[:1], key[1:2], key[2:]
    if separator != ":" or kind not in "fkvi":
        raise ValueError(f"unknown path element {key}")
    if kind == "f":
        return key
    if kind == "i":
        return f"i:{int(rest)}"
    try:
        value = codec.decode(rest)
    except status.BadRequest as error:
        raise ValueError(f"{key}: {error.message}") from None
    if kind == "v":
        if isinstance(value, dict | list):
            raise ValueError(f"{key}: not a scalar")
        return f"v:{text(value)}"
    if not isinstance(value, dict):
        raise ValueError(f"{key}: key fields are an object")
    return key_element(sorted(value.items()))


def key_element(fields: Iterable[tuple[str, Any]]) -> str:
    """The path element of a list item with these key fields, sorted by name."""
    return "k:{" + ",".join(f"{text(name)}:{text(value)}" for name, value in fields) + "}"
