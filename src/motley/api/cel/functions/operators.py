"""Arithmetic, comparison, `size` and logic on single values."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from motley.api.cel.errors import CelError
from motley.api.cel.values import (
    Duration,
    Timestamp,
    Type,
    Uint,
    checked_int,
    checked_uint,
    contains,
    duration,
    equals,
    is_number,
    timestamp,
    type_name,
)

# What a concatenation may grow to: far above any object, far below the server's memory.
_MAX_SIZE = 1_000_000


def no_overload(*arguments: Any) -> CelError:
    """These arguments are not for this function."""
    return CelError("no such overload")


def _kind(left: Any, right: Any) -> str:
    kind = type_name(left)
    return kind if kind == type_name(right) else ""


def add(left: Any, right: Any) -> Any:
    """`+`: numbers, texts, lists and times."""
    kind = _kind(left, right)
    if kind == "int":
        return checked_int(left + right)
    if kind == "uint":
        return checked_uint(left + right)
    if kind == "double":
        return left + right
    if kind in ("string", "bytes", "list"):
        if len(left) + len(right) > _MAX_SIZE:
            raise CelError("operation cancelled: actual cost limit exceeded")
        return left + right
    if isinstance(left, Duration | Timestamp) and isinstance(right, Duration | Timestamp):
        if isinstance(left, Duration) and isinstance(right, Duration):
            return duration(timedelta.__add__(left, right))
        if isinstance(left, Timestamp) and isinstance(right, Duration):
            return timestamp(left + right)
        if isinstance(left, Duration) and isinstance(right, Timestamp):
            return timestamp(right + left)
    raise no_overload(left, right)


def subtract(left: Any, right: Any) -> Any:
    """`-`."""
    kind = _kind(left, right)
    if kind == "int":
        return checked_int(left - right)
    if kind == "uint":
        return checked_uint(left - right)
    if kind == "double":
        return left - right
    if isinstance(left, Timestamp) and isinstance(right, Timestamp):
        return duration(left - right)
    if isinstance(left, Timestamp) and isinstance(right, Duration):
        return timestamp(left - right)
    if isinstance(left, Duration) and isinstance(right, Duration):
        return duration(timedelta.__sub__(left, right))
    raise no_overload(left, right)


def multiply(left: Any, right: Any) -> Any:
    """`*`."""
    kind = _kind(left, right)
    if kind == "int":
        return checked_int(left * right)
    if kind == "uint":
        return checked_uint(left * right)
    if kind == "double":
        return left * right
    raise no_overload(left, right)


def divide(left: Any, right: Any) -> Any:
    """`/`: whole numbers are cut towards zero, as in Go."""
    kind = _kind(left, right)
    if kind in ("int", "uint"):
        if right == 0:
            raise CelError("division by zero")
        quotient = abs(left) // abs(right)
        if kind == "uint":
            return Uint(quotient)
        return checked_int(quotient if (left < 0) == (right < 0) else -quotient)
    if kind == "double":
        if right == 0:
            if left == 0 or left != left:
                return float("nan")
            return float("inf") if left > 0 else float("-inf")
        return left / right
    raise no_overload(left, right)


def modulo(left: Any, right: Any) -> Any:
    """`%`: the sign is the dividend's."""
    kind = _kind(left, right)
    if kind not in ("int", "uint"):
        raise no_overload(left, right)
    if right == 0:
        raise CelError("modulus by zero")
    rest = abs(left) % abs(right)
    return Uint(rest) if kind == "uint" else (-rest if left < 0 else rest)


def negate(value: Any) -> Any:
    """Unary `-`."""
    kind = type_name(value)
    if kind == "int":
        return checked_int(-value)
    if kind == "double":
        return -value
    if isinstance(value, Duration):
        return duration(-value)
    raise no_overload(value)


def invert(value: Any) -> bool:
    """`!`."""
    if not isinstance(value, bool):
        raise no_overload(value)
    return not value


def _ordered(name: str, compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def ordered(left: Any, right: Any) -> bool:
        if is_number(left) and is_number(right):
            return compare(left, right)
        kind = _kind(left, right)
        if kind in (
            "bool",
            "string",
            "bytes",
            "google.protobuf.Timestamp",
            "google.protobuf.Duration",
        ):
            return compare(left, right)
        raise no_overload(left, right)

    return ordered


def size(value: Any) -> int:
    """How long a text, a list or a map is."""
    if isinstance(value, str | bytes | list | dict):
        return len(value)
    raise no_overload(value)


def type_of(value: Any) -> Type:
    """The type of a value."""
    return Type(type_name(value))


GLOBAL: dict[str, Callable[..., Any]] = {
    "_+_": add,
    "_-_": subtract,
    "_*_": multiply,
    "_/_": divide,
    "_%_": modulo,
    "-_": negate,
    "!_": invert,
    "_==_": equals,
    "_!=_": lambda left, right: not equals(left, right),
    "_<_": _ordered("<", lambda a, b: bool(a < b)),
    "_<=_": _ordered("<=", lambda a, b: bool(a <= b)),
    "_>_": _ordered(">", lambda a, b: bool(a > b)),
    "_>=_": _ordered(">=", lambda a, b: bool(a >= b)),
    "_in_": lambda wanted, items: contains(items, wanted),
    "size": size,
    "type": type_of,
    "dyn": lambda value: value,
}
METHODS: dict[str, Callable[..., Any]] = {"size": size}
RESULTS = {
    "!_": "bool",
    "_==_": "bool",
    "_!=_": "bool",
    "_<_": "bool",
    "_<=_": "bool",
    "_>_": "bool",
    "_>=_": "bool",
    "_in_": "bool",
    "size": "int",
    "type": "type",
}
