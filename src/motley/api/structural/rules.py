"""`x-kubernetes-validations`: rules an object's author wrote, asked about its values.

A rule that mentions `oldSelf` is about a transition and is asked only where there is an old value
to compare with. A rule about a value that did not change is not asked again, as in Kubernetes.

Invariant: the rules of one object together end: each has a budget, and all of them share one.
"""

import base64
import datetime
from collections.abc import Iterator
from typing import Any

from motley.api import codec
from motley.api.cel import (
    CelError,
    CompileError,
    CostError,
    Meter,
    Program,
    compile_expression,
)
from motley.api.cel.values import NONE, Optional, duration, timestamp
from motley.api.status import FieldError
from motley.api.structural import formats, values
from motley.api.structural.declared import escaped, shape
from motley.api.structural.node import FRAME, Node, Rule
from motley.api.structural.values import ABSENT

_REASONS = {
    "FieldValueRequired": "Required value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueInvalid": "Invalid value",
    "FieldValueDuplicate": "Duplicate value",
}


_VARIABLES = ("self", "oldSelf")
# Steps that the rules of one object may take together: about a second.
_BUDGET = 1_000_000


def check(node: Node, value: Any, old: Any = ABSENT) -> Iterator[FieldError]:
    """Every rule of an object that does not hold."""
    if node.has_rules:
        try:
            yield from _check(node, value, old, "", Meter(_BUDGET), is_root=True)
        except _StoppedError as stopped:
            yield stopped.error


class _StoppedError(Exception):
    """No rule is asked any more."""

    def __init__(self, error: FieldError) -> None:
        super().__init__(str(error))
        self.error = error


def _check(
    node: Node, value: Any, old: Any, path: str, meter: Meter, *, is_root: bool = False
) -> Iterator[FieldError]:
    if not node.has_rules or value is None:
        return
    for rule in node.rules:
        if meter.left <= 0:
            problem = (
                "validation failed due to running out of cost budget, no further validation rules "
                "will be run"
            )
            raise _StoppedError(values.invalid(path, type_of(node, value), problem))
        yield from _asked(rule, node, value, old, path, meter, is_root)
    if isinstance(value, dict):
        before = old if isinstance(old, dict) else {}
        for name, inner in value.items():
            below = node.properties.get(name) or node.additional
            if below is not None:
                where = f"{path}.{name}" if path else name
                yield from _check(below, inner, before.get(name, ABSENT), where, meter)
    elif isinstance(value, list) and node.items is not None:
        known = values.correlated(node.values, old)
        for index, inner in enumerate(value):
            earlier = known.get(values.item_key(inner, node.map_keys), ABSENT) if known else ABSENT
            yield from _check(node.items, inner, earlier, f"{path}[{index}]", meter)


def _asked(
    rule: Rule, node: Node, value: Any, old: Any, path: str, meter: Meter, is_root: bool
) -> Iterator[FieldError]:
    try:
        program = compile_expression(rule.rule, _VARIABLES)
    except CompileError as error:
        yield values.invalid(path, type_of(node, value), f"rule compile error: {error}")
        return
    is_transition = "oldSelf" in program.names
    if is_transition and old is ABSENT and not rule.optional_old_self:
        return
    if not is_transition and old is not ABSENT and old == value:
        return
    variables = {"self": bound(node, value, is_root=is_root)}
    if is_transition:
        before = None if old is ABSENT else bound(node, old, is_root=is_root)
        if rule.optional_old_self:
            before = NONE if old is ABSENT else Optional(before, is_present=True)
        variables["oldSelf"] = before
    try:
        holds = program.evaluate(variables, meter=meter)
    except CostError as error:
        problem = (
            f"'{error}': no further validation rules will be run due to call cost exceeds limit "
            f"for rule: {_said(rule)}"
        )
        raise _StoppedError(values.invalid(path, type_of(node, value), problem)) from None
    except CelError as error:
        yield values.invalid(path, type_of(node, value), f"{error} evaluating rule: {_said(rule)}")
        return
    if holds is not True:
        yield _failed(rule, node, value, variables, path, meter)


def _failed(
    rule: Rule, node: Node, value: Any, variables: dict[str, Any], path: str, meter: Meter
) -> FieldError:
    where = path + rule.field_path if path else rule.field_path.removeprefix(".")
    detail = _expressed(rule, variables, meter) or _said(rule)
    reason = rule.reason or "FieldValueInvalid"
    words = _REASONS.get(reason, "Invalid value")
    if reason in ("FieldValueInvalid", "FieldValueDuplicate") and node.type not in (
        "object",
        "array",
    ):
        words = f"{words}: {codec.encode(value).decode()}"
    return FieldError(where or values.NOWHERE, reason, f"{words}: {detail}")


def _expressed(rule: Rule, variables: dict[str, Any], meter: Meter) -> str:
    """The message a rule makes itself; empty where that fails, so that the plain one is used."""
    if not rule.message_expression:
        return ""
    try:
        program = compile_expression(rule.message_expression, _VARIABLES)
        found = program.evaluate(variables, meter=meter)
    except (CompileError, CelError):
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
        return value if seconds is None else duration(datetime.timedelta(seconds=seconds))
    if format_ in ("date-time", "datetime", "date") and formats.is_valid(format_, value):
        found = datetime.datetime.fromisoformat(value.upper().replace("Z", "+00:00"))
        return timestamp(found if found.tzinfo else found.replace(tzinfo=datetime.UTC))
    if format_ == "byte" and formats.is_valid("byte", value):
        return base64.b64decode(value)
    return value


def compiled(node: Node, text: str, *, is_root: bool, is_old_wrapped: bool = False) -> Program:
    """One of a rule's expressions, held against the schema it is about; raises CompileError."""
    known = shape(node, is_root=is_root)
    if known is None:
        return compile_expression(text, _VARIABLES)
    shapes = {"self": known}
    if not is_old_wrapped:
        shapes["oldSelf"] = known
    return compile_expression(text, _VARIABLES, shapes=shapes)
