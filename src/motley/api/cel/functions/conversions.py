"""From one type to another: `int("3")`, `string(2.5)`, `bytes("x")`."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from motley.api.cel.errors import CelError
from motley.api.cel.functions.operators import no_overload
from motley.api.cel.functions.times import (
    duration_text,
    parse_duration,
    parse_timestamp,
    timestamp_text,
)
from motley.api.cel.values import (
    INT_MAX,
    INT_MIN,
    NONE,
    UINT_MAX,
    Cidr,
    Duration,
    Ip,
    Optional,
    Timestamp,
    Uint,
    checked_uint,
    duration,
    is_number,
)

_INT = re.compile(r"[+-]?[0-9]+")


def to_int(value: Any) -> int:
    """A whole number; fractions are cut."""
    if isinstance(value, Timestamp):
        return int(value.timestamp())
    if is_number(value):
        if isinstance(value, float) and not INT_MIN < value < INT_MAX:
            raise CelError("integer overflow")
        if int(value) > INT_MAX:
            raise CelError("integer overflow")
        return int(value)
    if isinstance(value, str):
        if _INT.fullmatch(value) and INT_MIN <= int(value) <= INT_MAX:
            return int(value)
        raise CelError(f'strconv.ParseInt: parsing "{value}": invalid syntax')
    raise no_overload(value)


def to_uint(value: Any) -> Uint:
    """An unsigned number."""
    if is_number(value):
        if isinstance(value, float) and not 0 <= value <= UINT_MAX:
            raise CelError("unsigned integer overflow")
        return checked_uint(int(value))
    if isinstance(value, str):
        if value.isascii() and value.isdigit() and int(value) <= UINT_MAX:
            return Uint(int(value))
        raise CelError(f'strconv.ParseUint: parsing "{value}": invalid syntax')
    raise no_overload(value)


def to_double(value: Any) -> float:
    """A number with a fraction."""
    if is_number(value):
        return float(value)
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            raise CelError(f'strconv.ParseFloat: parsing "{value}": invalid syntax') from None
    raise no_overload(value)


def to_string(value: Any) -> str:
    """A text."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return double_text(value)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise CelError("invalid UTF-8 in bytes, cannot convert to string") from None
    if isinstance(value, Timestamp):
        return timestamp_text(value)
    if isinstance(value, Duration):
        return duration_text(value)
    if isinstance(value, Ip):
        return str(value.address)
    if isinstance(value, Cidr):
        return value.text
    raise no_overload(value)


def double_text(value: float) -> str:
    """As Go writes it with the fewest digits: `2`, `0.5`, `1e+21`."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    if value == int(value) and abs(value) < 1e21:
        return str(int(value))
    return repr(value)


def to_bool(value: Any) -> bool:
    """A truth value."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        if value in ("1", "t", "T", "true", "TRUE", "True"):
            return True
        if value in ("0", "f", "F", "false", "FALSE", "False"):
            return False
        raise CelError(f'strconv.ParseBool: parsing "{value}": invalid syntax')
    raise no_overload(value)


def to_bytes(value: Any) -> bytes:
    """The UTF-8 of a text."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    raise no_overload(value)


def to_timestamp(value: Any) -> Timestamp:
    """A moment, from RFC 3339 or from seconds."""
    if isinstance(value, Timestamp):
        return value
    if isinstance(value, str | int) and not isinstance(value, bool):
        return parse_timestamp(value)
    raise no_overload(value)


def to_duration(value: Any) -> Duration:
    """A span, from `1h30m` or from seconds."""
    if isinstance(value, Duration):
        return value
    if isinstance(value, str):
        return parse_duration(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return duration(timedelta(seconds=value))
    raise no_overload(value)


def or_value(target: Any, other: Any) -> Any:
    """`optional.orValue(x)`."""
    if not isinstance(target, Optional):
        raise no_overload(target)
    return target.value if target.is_present else other


def or_(target: Any, other: Any) -> Any:
    """`optional.or(optional)`."""
    if not isinstance(target, Optional) or not isinstance(other, Optional):
        raise no_overload(target)
    return target if target.is_present else other


def has_value(target: Any) -> bool:
    """`optional.hasValue()`."""
    if not isinstance(target, Optional):
        raise no_overload(target)
    return target.is_present


def value_of(target: Any) -> Any:
    """`optional.value()`."""
    if not isinstance(target, Optional):
        raise no_overload(target)
    if not target.is_present:
        raise CelError("optional.none() dereference")
    return target.value


def unwrapped(values: Any) -> list[Any]:
    """`optional.unwrap(list)`, `list.unwrapOpt()`: those that are there."""
    if not isinstance(values, list) or not all(isinstance(v, Optional) for v in values):
        raise CelError("no such overload")
    return [value.value for value in values if value.is_present]


def non_zero(value: Any) -> Optional:
    """`optional.ofNonZeroValue(x)`."""
    return Optional(value, True) if value not in (None, False, 0, "", b"", [], {}) else NONE


GLOBAL: dict[str, Callable[..., Any]] = {
    "int": to_int,
    "uint": to_uint,
    "double": to_double,
    "string": to_string,
    "bool": to_bool,
    "bytes": to_bytes,
    "timestamp": to_timestamp,
    "duration": to_duration,
    "optional.of": lambda value: Optional(value, True),
    "optional.none": lambda: NONE,
    "optional.ofNonZeroValue": non_zero,
    "optional.unwrap": unwrapped,
}
METHODS: dict[str, Callable[..., Any]] = {
    "orValue": or_value,
    "unwrapOpt": unwrapped,
    "or": or_,
    "hasValue": has_value,
    "value": value_of,
}
RESULTS = {
    "int": "int",
    "uint": "uint",
    "double": "double",
    "string": "string",
    "bool": "bool",
    "bytes": "bytes",
    "timestamp": "google.protobuf.Timestamp",
    "duration": "google.protobuf.Duration",
    "hasValue": "bool",
}
