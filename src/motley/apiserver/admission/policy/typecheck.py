"""What is doubtful in a policy's expressions, given the kinds it is about.

A policy with such an expression is stored all the same, because the kinds it matches may come
later or change; the doubts are for its author, in `status.typeChecking`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from motley.api import schema, scheme
from motley.api.cel import CompileError, compile_expression
from motley.api.cel.checker import OBJECT, Shape
from motley.api.structural import declared
from motley.apiserver.admission.policy import environment

Document = dict[str, Any]

_TYPES_MAX = 10  # kinds that one policy is checked against, as in Kubernetes
_SCALARS = {"string": "string", "integer": "int", "number": "double", "boolean": "bool"}


@dataclass(frozen=True)
class _Known:
    """The schema of a built-in kind, or a part of it."""

    schema: schema.Schema
    type: str

    def field(self, name: str) -> Shape | None:
        return _shape(self.schema.fields[name].schema)

    @property
    def element(self) -> Shape | None:
        return _shape(self.schema.items) if self.schema.items is not None else None


def _shape(found: schema.Schema) -> Shape | None:
    if found.type == "object":
        return _Known(found, OBJECT) if found.fields and not found.keeps_unknown else None
    if found.type in ("list", "map"):
        return _Known(found, found.type)
    type_ = _SCALARS.get(found.type)
    return _Known(found, type_) if type_ is not None else None


@dataclass(frozen=True)
class _Custom:
    """A custom resource, of whose metadata policies see everything."""

    root: Shape
    type: str = OBJECT

    def field(self, name: str) -> Shape | None:
        return None if name == "metadata" else self.root.field(name)

    @property
    def element(self) -> Shape | None:
        return None


def shape_of(kind: scheme.Kind) -> Shape | None:
    """What is known of the objects of a kind."""
    if kind.definition is None:
        return _shape(schema.of(kind))
    root = declared.shape(kind.definition.root, is_root=True)
    return _Custom(root) if root is not None and root.type == OBJECT else None


def warnings(policy: Mapping[str, Any]) -> list[Document]:
    """The entries of `status.typeChecking.expressionWarnings`."""
    spec = policy.get("spec") or {}
    known = environment.names(
        params=spec.get("paramKind") is not None, variables=bool(spec.get("variables"))
    )
    shapes = {
        kind: shape
        for kind in sorted(set(_kinds(spec)), key=lambda kind: (kind.api_version, kind.kind))
        if (shape := shape_of(kind)) is not None
    }
    found = []
    for index, rule in enumerate(spec.get("validations") or ()):
        for part in ("expression", "messageExpression"):
            doubts = list(_doubts(rule.get(part) or "", known, shapes))
            if doubts:
                field = f"spec.validations[{index}].{part}"
                found.append({"fieldRef": field, "warning": "\n".join(doubts)})
    return found


def _doubts(
    source: str, known: frozenset[str], shapes: Mapping[scheme.Kind, Shape]
) -> Iterator[str]:
    if not source.strip():
        return
    for kind, shape in shapes.items():
        try:
            compile_expression(
                source,
                known,
                environment.MESSAGES,
                shapes={"object": shape, "oldObject": shape},
            )
        except CompileError as error:
            yield f"{kind.api_version}, Kind={kind.kind}: compilation failed: {error}\n"


def _kinds(spec: Mapping[str, Any]) -> Iterator[scheme.Kind]:
    """The kinds a policy names; what it says with a star is about too many to tell."""
    count = 0
    for rule in (spec.get("matchConstraints") or {}).get("resourceRules") or ():
        named = [rule.get(part) or () for part in ("apiGroups", "apiVersions", "resources")]
        if any("*" in word for words in named for word in words):
            continue
        for kind in _named(*named):
            yield kind
            count += 1
            if count == _TYPES_MAX:
                return


def _named(
    groups: Iterable[str], versions: Iterable[str], resources: Iterable[str]
) -> Iterator[scheme.Kind]:
    for group in sorted(groups):
        for version in sorted(versions):
            for plural in sorted(resources):
                kind = scheme.resource(group, version, plural)
                if kind is not None:
                    yield kind
