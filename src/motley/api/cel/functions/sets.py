"""Lists as sets, and numbers one by one: cel-go's `sets` and `math` extensions."""

import math
from collections.abc import Callable
from typing import Any

from motley.api.cel.errors import CelError
from motley.api.cel.functions.operators import no_overload
from motley.api.cel.values import contains, is_number


def _lists(left: Any, right: Any) -> None:
    if not isinstance(left, list) or not isinstance(right, list):
        raise no_overload(left, right)


def holds_all(left: Any, right: Any) -> bool:
    """`sets.contains(list, sublist)`."""
    _lists(left, right)
    return all(contains(left, item) for item in right)


def is_equivalent(left: Any, right: Any) -> bool:
    """`sets.equivalent(a, b)`."""
    return holds_all(left, right) and holds_all(right, left)


def intersects(left: Any, right: Any) -> bool:
    """`sets.intersects(a, b)`."""
    _lists(left, right)
    return any(contains(left, item) for item in right)


def _number(value: Any) -> Any:
    if not is_number(value):
        raise no_overload(value)
    return value


def absolute(value: Any) -> Any:
    """`math.abs(x)`."""
    return abs(_number(value))


def sign(value: Any) -> Any:
    """`math.sign(x)`."""
    found = (_number(value) > 0) - (value < 0)
    return float(found) if isinstance(value, float) else found


def _rounded(how: Callable[[float], float]) -> Callable[[Any], float]:
    def rounded(value: Any) -> float:
        if not isinstance(value, float):
            raise no_overload(value)
        return float(how(value)) if math.isfinite(value) else value

    return rounded


def half_away(value: float) -> float:
    """Rounded, halves away from zero."""
    return math.copysign(math.floor(abs(value) + 0.5), value)


def _bits(operation: Callable[[int, int], int]) -> Callable[[Any, Any], int]:
    def computed(left: Any, right: Any) -> int:
        if not isinstance(left, int) or not isinstance(right, int):
            raise no_overload(left, right)
        if right < 0 and operation in (_shift_left, _shift_right):
            raise CelError(f"math.bitShift() negative offset: {right}")
        return operation(left, right)

    return computed


def _shift_left(value: int, count: int) -> int:
    return 0 if count > 63 else ((value << count) + 2**63) % 2**64 - 2**63


def _shift_right(value: int, count: int) -> int:
    return 0 if count > 63 else (value % 2**64) >> count


GLOBAL: dict[str, Callable[..., Any]] = {
    "sets.contains": holds_all,
    "sets.equivalent": is_equivalent,
    "sets.intersects": intersects,
    "math.abs": absolute,
    "math.sign": sign,
    "math.ceil": _rounded(math.ceil),
    "math.floor": _rounded(math.floor),
    "math.trunc": _rounded(math.trunc),
    "math.round": _rounded(half_away),
    "math.isNaN": lambda value: math.isnan(_number(value)),
    "math.isInf": lambda value: math.isinf(_number(value)),
    "math.isFinite": lambda value: math.isfinite(_number(value)),
    "math.bitAnd": _bits(lambda a, b: a & b),
    "math.bitOr": _bits(lambda a, b: a | b),
    "math.bitXor": _bits(lambda a, b: a ^ b),
    "math.bitShiftLeft": _bits(_shift_left),
    "math.bitShiftRight": _bits(_shift_right),
}
METHODS: dict[str, Callable[..., Any]] = {}
RESULTS = {
    "sets.contains": "bool",
    "sets.equivalent": "bool",
    "sets.intersects": "bool",
    "math.isNaN": "bool",
    "math.isInf": "bool",
    "math.isFinite": "bool",
}
