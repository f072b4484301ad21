"""`x-kubernetes-validations`: rules an object's author wrote, asked about its values.

A rule that mentions `oldSelf` is about a transition and is asked only where there is an old value
to compare with. A rule about a value that did not change is not asked again, as in Kubernetes.
"""

import base64
import datetime
import re
from collections.abc import Iterator
from typing import Any

from motley.api import codec
from motley.api.status import FieldError
from motley.api.structural import cel, formats, values
from motley.api.structural.node import FRAME, Node, Rule
from motley.api.structural.values import ABSENT

_RESERVED_WORDS = (
    "true false null in as break const continue else for function if import let loop package "
    "namespace return var void while"
)
_RESERVED = frozenset(_RESERVED_WORDS.split())
_REASONS = {
    "FieldValueRequired": "Required value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueInvalid": "Invalid value",
    "FieldValueDuplicate": "Duplicate value",
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check(
    node: Node, value: Any, old: Any = ABSENT, path: str = "", *, is_root: bool = True
) -> Iterator[FieldError]:
    """Every rule below this value that does not hold."""
    if not node.has_rules or value is None:
        return
    for rule in node.rules:
        yield from _asked(rule, node, value, old, path, is_root)
    if isinstance(value, dict):
        before = old if isinstance(old, dict) else {}
        for name, inner in value.items():
            below = node.properties.get(name) or node.additional
            if below is not None:
                where = f"{path}.{name}" if path else name
                yield from check(below, inner, before.get(name, ABSENT), where, is_root=False)
    elif isinstance(value, list) and node.items is not None:
        known = values.correlated(node.values, old)
        for index, inner in enumerate(value):
            earlier = known.get(values.item_key(inner, node.map_keys), ABSENT) if known else ABSENT
            yield from check(node.items, inner, earlier, f"{path}[{index}]", is_root=False)


def _asked(
    rule: Rule, node: Node, value: Any, old: Any, path: str, is_root: bool
) -> Iterator[FieldError]:
    try:
        expression = cel.compile_expression(rule.rule)
    except cel.CompileError as error:
        yield values.invalid(path, type_of(node, value), f"rule compile error: {error}")
        return
    is_transition = "oldSelf" in expression.variables
    if is_transition and old is ABSENT and not rule.optional_old_self:
        return
    if not is_transition and old is not ABSENT and old == value:
        return
    variables = {"self": bound(node, value, is_root=is_root)}
    if is_transition:
        variables["oldSelf"] = None if old is ABSENT else bound(node, old, is_root=is_root)
    try:
        holds = expression.evaluate(variables)
    except cel.EvaluationError as error:
        yield values.invalid(path, type_of(node, value), f"{error} evaluating rule: {_said(rule)}")
        return
    if holds is not True:
        yield _failed(rule, node, value, variables, path)


def _failed(rule: Rule, node: Node, value: Any, variables: dict[str, Any], path: str) -> FieldError:
    where = path + rule.field_path if path else rule.field_path.removeprefix(".")
    detail = _expressed(rule, variables) or _said(rule)
    reason = rule.reason or "FieldValueInvalid"
    words = _REASONS.get(reason, "Invalid value")
    if reason in ("FieldValueInvalid", "FieldValueDuplicate") and node.type not in (
        "object",
        "array",
    ):
        words = f"{words}: {codec.encode(value).decode()}"
    return FieldError(where or values.NOWHERE, reason, f"{words}: {detail}")


def _expressed(rule: Rule, variables: dict[str, Any]) -> str:
    """The message a rule makes itself; empty where that fails, so that the plain one is used."""
    if not rule.message_expression:
        return ""
    try:
        found = cel.compile_expression(rule.message_expression).evaluate(variables)
    except (cel.CompileError, cel.EvaluationError):
        return ""
    return found.strip() if isinstance(found, str) and "\n" not in found else ""


def _said(rule: Rule) -> str:
    return rule.message.strip() or f"failed rule: {rule.rule.strip()}"


def type_of(node: Node, value: Any) -> str:
    """The type to name in a message about a rule."""
    return node.type or values.type_name(value)


def bound(node: Node | None, value: Any, *, is_root: bool = False) -> Any:
    """A value as rules see it: field names that CEL could not spell are escaped."""
    if isinstance(value, dict):
        found = {}
        for name, inner in value.items():
            below = node.properties.get(name) if node is not None else None
            is_field = below is not None or (is_root and name in FRAME)
            key = escaped(name) if is_field else name
            found[key] = bound(below or (node.additional if node else None), inner)
        return found
    if isinstance(value, list):
        return [bound(node.items if node is not None else None, inner) for inner in value]
    if isinstance(value, str) and node is not None and node.type == "string":
        return _typed(value, node.values.get("format", ""))
    if isinstance(value, int) and node is not None and node.type == "number":
        return value if isinstance(value, bool) else float(value)
    return value


def _typed(value: str, format_: str) -> Any:
    if format_ == "duration":
        seconds = formats.duration_s(value)
        return value if seconds is None else datetime.timedelta(seconds=seconds)
    if format_ in ("date-time", "datetime", "date") and formats.is_valid(format_, value):
        found = datetime.datetime.fromisoformat(value.upper().replace("Z", "+00:00"))
        return found if found.tzinfo else found.replace(tzinfo=datetime.UTC)
    if format_ == "byte" and formats.is_valid("byte", value):
        return base64.b64decode(value)
    return value


def escaped(name: str) -> str:
    """A property's name as rules spell it."""
    if name in _RESERVED:
        return f"__{name}__"
    text = name.replace("__", "__underscores__")
    for char, word in ((".", "__dot__"), ("-", "__dash__"), ("/", "__slash__")):
        text = text.replace(char, word)
    return text


def undefined_field(node: Node, text: str, *, is_root: bool) -> cel.CompileError | None:
    """The first field of `self` or `oldSelf` that the schema does not have, as an error."""
    blank = cel.without_strings(text)
    for start in re.finditer(r"(?<![A-Za-z0-9_.])(self|oldSelf)(?![A-Za-z0-9_])", blank):
        at, place, root = start.end(), node, is_root
        while at < len(blank) and blank[at] == "." and not place.int_or_string:
            name = _NAME.match(blank, at + 1)
            if name is None or blank[name.end() : name.end() + 1] == "(":
                break
            if root and name.group() in FRAME:
                break
            fields = {escaped(n): p for n, p in place.properties.items()}
            if name.group() in fields:
                place, at, root = fields[name.group()], name.end(), False
                continue
            if place.additional is None and not place.anything and place.type == "object":
                problem = f"undefined field '{name.group()}'"
                return cel.CompileError(cel.drawn(text, at, problem))
            break
    return None
