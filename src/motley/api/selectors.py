"""Selectors: which objects a list, a watch, a Service or a ReplicaSet means.

Label selectors come as text (`app=web,tier in (a,b),!old`) or as a structured `LabelSelector`;
both become the same `Selector`. Field selectors come only as text.

Invariant: an empty selector matches everything, an absent one (`None`) matches nothing.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Self

from motley.api import names
from motley.api.views.base import LabelSelector

_OPERATORS = ("in", "notin", "=", "==", "!=", "gt", "lt")
_STRUCTURED = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}
_TOKEN = re.compile(r"\s*(==|!=|[=!<>(),]|[^\s=!<>(),]+)")
_SPECIAL = frozenset({"=", "==", "!=", "!", "<", ">", "(", ")", ","})


class SelectorError(ValueError):
    """A selector that cannot be understood, in Kubernetes' words."""


class Requirement(NamedTuple):
    """One condition on one label. Operators: in, notin, =, !=, exists, !, gt, lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Do these labels meet the condition?"""
        value = labels.get(self.key)
        if self.operator in ("=", "in"):
            return value is not None and value in self.values
        if self.operator in ("!=", "notin"):
            return value is None or value not in self.values
        if self.operator == "exists":
            return value is not None
        if self.operator == "!":
            return value is None
        number = _integer(value) if value is not None else None
        if number is None:
            return False
        bound = int(self.values[0])
        return number > bound if self.operator == "gt" else number < bound

    def __str__(self) -> str:
        listed = ",".join(sorted(self.values))
        if self.operator == "exists":
            return self.key
        if self.operator == "!":
            return f"!{self.key}"
        if self.operator in ("in", "notin"):
            return f"{self.key} {self.operator} ({listed})"
        return f"{self.key}{ {'gt': '>', 'lt': '<'}.get(self.operator, self.operator) }{listed}"


class Selector:
    """A set of requirements, all of which must hold. Immutable and hashable."""

    __slots__ = ("is_nothing", "requirements")

    def __init__(self, requirements: Iterable[Requirement] = (), *, nothing: bool = False) -> None:
        self.requirements = tuple(sorted(requirements, key=lambda r: r.key))
        self.is_nothing = nothing

    @classmethod
    def parse(cls, text: str) -> Self:
        """The selector a query parameter means. Raises SelectorError."""
        return cls(_Parser(text).requirements())

    @classmethod
    def of(cls, selector: LabelSelector | Mapping[str, Any] | None) -> Self:
        """The selector an object's `LabelSelector` means. Raises SelectorError."""
        if selector is None:
            return cls(nothing=True)
        if isinstance(selector, LabelSelector):
            labels: Mapping[str, str] = selector.match_labels
            expressions = [(e.key, e.operator, e.values) for e in selector.match_expressions]
        else:
            labels = selector.get("matchLabels") or {}
            expressions = [
                (e.get("key", ""), e.get("operator", ""), e.get("values") or [])
                for e in selector.get("matchExpressions") or []
            ]
        found = [_requirement(key, "=", [value]) for key, value in labels.items()]
        for key, operator, values in expressions:
            if operator not in _STRUCTURED:
                raise SelectorError(f'"{operator}" is not a valid label selector operator')
            found.append(_requirement(key, _STRUCTURED[operator], values))
        return cls(found)

    @classmethod
    def of_map(cls, labels: Mapping[str, str]) -> Self:
        """All of these labels, as a Service's or ReplicationController's selector means them."""
        return cls(Requirement(key, "=", (value,)) for key, value in labels.items())

    @classmethod
    def everything(cls) -> Self:
        """Matches any labels."""
        return cls()

    @classmethod
    def nothing(cls) -> Self:
        """Matches no labels, not even empty ones."""
        return cls(nothing=True)

    @property
    def is_everything(self) -> bool:
        """No conditions at all?"""
        return not self.requirements and not self.is_nothing

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Do these labels meet every requirement?"""
        if self.is_nothing:
            return False
        return all(requirement.matches(labels) for requirement in self.requirements)

    def __str__(self) -> str:
        return ",".join(str(r) for r in self.requirements)

    def __repr__(self) -> str:
        return "Selector(nothing)" if self.is_nothing else f"Selector({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Selector):
            return NotImplemented
        return (self.is_nothing, self.requirements) == (other.is_nothing, other.requirements)

    def __hash__(self) -> int:
        return hash((self.is_nothing, self.requirements))


def _integer(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[+-]?[0-9]{1,19}", text) else None


def _requirement(key: str, operator: str, values: Iterable[str]) -> Requirement:
    found = tuple(dict.fromkeys(values))
    if wrong := names.check_qualified_name(key):
        raise SelectorError(f'key: Invalid value: "{key}": {"; ".join(wrong)}')
    if operator in ("in", "notin") and not found:
        raise SelectorError(
            "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"
        )
    if operator in ("exists", "!") and found:
        raise SelectorError(
            "values: Invalid value: values set must be empty for exists and does not exist"
        )
    if operator in ("gt", "lt"):
        for index, value in enumerate(found):
            if _integer(value) is None:
                raise SelectorError(
                    f'values[{index}]: Invalid value: "{value}": '
                    "for 'Gt', 'Lt' operators, the value must be an integer"
                )
    for index, value in enumerate(found):
        if wrong := names.check_label_value(value):
            raise SelectorError(
                f'values[{index}][{key}]: Invalid value: "{value}": {"; ".join(wrong)}'
            )
    return Requirement(key, operator, found)


class _Parser:
    """Recursive descent over the tokens of a label selector, with apimachinery's messages."""

    def __init__(self, text: str) -> None:
        self._tokens = [*_TOKEN.findall(text), ""]
        self._at = 0

    def requirements(self) -> list[Requirement]:
        found: list[Requirement] = []
        while True:
            token = self._peek()
            if self._is_identifier(token) or token == "!":
                try:
                    found.append(self._requirement())
                except SelectorError as error:
                    raise SelectorError(f"unable to parse requirement: {error}") from None
                after = self._next()
                if not after:
                    return found
                if after != ",":
                    raise SelectorError(f"found '{after}', expected: ',' or 'end of string'")
                token = self._peek()
                if not self._is_identifier(token) and token != "!":
                    raise SelectorError(f"found '{token}', expected: identifier after ','")
            elif not token:
                return found
            else:
                raise SelectorError(f"found '{token}', expected: !, identifier, or 'end of string'")

    def _requirement(self) -> Requirement:
        absent = self._peek() == "!"
        if absent:
            self._next()
        key = self._next()
        if not self._is_identifier(key):
            raise SelectorError(f"found '{key}', expected: identifier")
        if wrong := names.check_qualified_name(key):
            raise SelectorError(f'<nil>: Invalid value: "{key}": {"; ".join(wrong)}')
        if absent:
            return _requirement(key, "!", ())
        if self._peek() in ("", ","):
            return _requirement(key, "exists", ())
        operator = self._next()
        if operator in ("in", "notin"):
            return _requirement(key, operator, self._values())
        known = {"=": "=", "==": "=", "!=": "!=", ">": "gt", "<": "lt"}
        if operator not in known:
            raise SelectorError(f"found '{operator}', expected: {', '.join(_OPERATORS)}")
        value = "" if self._peek() in ("", ",") else self._next()
        if value in _SPECIAL:
            raise SelectorError(f"found '{value}', expected: identifier")
        return _requirement(key, known[operator], (value,))

    def _values(self) -> list[str]:
        opening = self._next()
        if opening != "(":
            raise SelectorError(f"found '{opening}' expected: '('")
        found: list[str] = []
        while True:
            token = self._next()
            if self._is_identifier(token):
                found.append(token)
                token = self._next()
            else:
                found.append("")  # `in (a,)` means: a or the empty value
            if token == ")":
                return found
            if token != ",":
                raise SelectorError(f"found '{token}', expected: ',' or ')'")

    def _peek(self) -> str:
        return str(self._tokens[self._at])

    def _next(self) -> str:
        token = self._peek()
        if token:
            self._at += 1
        return token

    @staticmethod
    def _is_identifier(token: str) -> bool:
        return bool(token) and token not in _SPECIAL


class FieldRequirement(NamedTuple):
    """One condition on a field: `op` is `=` or `!=`."""

    path: str
    op: str
    value: str


def parse_fields(text: str) -> list[FieldRequirement]:
    """The conditions of a field selector. Raises SelectorError."""
    found: list[FieldRequirement] = []
    for term in re.findall(r"(?:\\.|[^,\\])+", text):
        match = re.match(r"(?s)((?:\\.|[^=!\\]|!(?!=))*?)(!=|==|=)(.*)$", term)
        if match is None:
            raise SelectorError(f"invalid selector: '{text}'; can't understand '{term}'")
        path, operator, value = match.groups()
        found.append(FieldRequirement(path, "!=" if operator == "!=" else "=", _unescaped(value)))
    return found


def matches_fields(
    requirements: Iterable[FieldRequirement], value_of: Callable[[str], str]
) -> bool:
    """Do the values, as text and empty where unset, meet every requirement?"""
    return all((value_of(r.path) == r.value) == (r.op == "=") for r in requirements)


def _unescaped(value: str) -> str:
    if re.search(r"(?<!\\)(?:\\\\)*=", value):
        raise SelectorError(f"invalid field selector: unescaped '=' in value: {value}")
    if re.search(r"\\(?![\\,=])", re.sub(r"\\\\", "", value)):
        raise SelectorError(f"invalid field selector: invalid escape sequence in value: {value}")
    return re.sub(r"\\(.)", r"\1", value)
