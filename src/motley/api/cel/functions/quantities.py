"""`quantity("1Gi")`: Kubernetes' amounts, compared and added exactly."""

from collections.abc import Callable
from typing import Any

from motley.api import quantity
from motley.api.cel.errors import CelError
from motley.api.cel.functions.operators import no_overload
from motley.api.cel.values import INT_MAX, INT_MIN, Amount, Semver

_NANO = 10**9


def read(text: Any) -> Amount:
    """The amount a text stands for."""
    if not isinstance(text, str):
        raise no_overload(text)
    try:
        return Amount(quantity.quantity(text).nano)
    except ValueError as error:
        raise CelError(str(error)) from None


def is_quantity(text: Any) -> bool:
    """Whether a text is one."""
    try:
        read(text)
    except CelError:
        return False
    return True


def _amount(value: Any) -> Amount:
    if not isinstance(value, Amount):
        raise no_overload(value)
    return value


def _key(value: Any) -> Any:
    """What `isGreaterThan` and its kin compare: quantities, and versions."""
    if isinstance(value, Semver):
        return value.key
    return (_amount(value).nano,)


def compare(left: Any, right: Any) -> int:
    """-1, 0 or 1."""
    if type(left) is not type(right):
        raise no_overload(left, right)
    return int(_key(left) > _key(right)) - int(_key(left) < _key(right))


def _other(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value * _NANO
    return _amount(value).nano


def as_integer(value: Any) -> int:
    """The whole number it is; an error when it is none."""
    nano = _amount(value).nano
    if nano % _NANO or not INT_MIN <= nano // _NANO <= INT_MAX:
        raise CelError("cannot convert value to integer")
    return nano // _NANO


GLOBAL: dict[str, Callable[..., Any]] = {"quantity": read, "isQuantity": is_quantity}
METHODS: dict[str, Callable[..., Any]] = {
    "isGreaterThan": lambda left, right: compare(left, right) > 0,
    "isLessThan": lambda left, right: compare(left, right) < 0,
    "compareTo": compare,
    "add": lambda left, right: Amount(_amount(left).nano + _other(right)),
    "sub": lambda left, right: Amount(_amount(left).nano - _other(right)),
    "sign": lambda value: (_amount(value).nano > 0) - (_amount(value).nano < 0),
    "isInteger": lambda value: _amount(value).nano % _NANO == 0,
    "asInteger": as_integer,
    "asApproximateFloat": lambda value: _amount(value).nano / _NANO,
}
RESULTS = {
    "isQuantity": "bool",
    "quantity": "kubernetes.Quantity",
    "isGreaterThan": "bool",
    "isLessThan": "bool",
    "compareTo": "int",
    "isInteger": "bool",
    "asInteger": "int",
    "asApproximateFloat": "double",
}
