"""Lists: Kubernetes' `isSorted`, `sum`, `min`, `max`, `indexOf`, and cel-go's extensions."""

from collections.abc import Callable
from functools import cmp_to_key, reduce
from itertools import pairwise
from typing import Any

from motley.api.cel.errors import CelError
from motley.api.cel.functions.operators import GLOBAL as OPERATORS
from motley.api.cel.functions.operators import add, no_overload
from motley.api.cel.values import NONE, Amount, Duration, Optional, Semver, equals

_MAX_RANGE = 100_000
_at_most = OPERATORS["_<=_"]


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise no_overload(value)
    return value


def _in_order(left: Any, right: Any) -> bool:
    if isinstance(left, Amount) and isinstance(right, Amount):
        return left.nano <= right.nano
    if isinstance(left, Semver) and isinstance(right, Semver):
        return bool(left.key <= right.key)
    return bool(_at_most(left, right))


def is_sorted(items: Any) -> bool:
    """Whether nothing is smaller than what stands before it."""
    found = _list(items)
    return all(_in_order(a, b) for a, b in pairwise(found))


def total(items: Any) -> Any:
    """The sum; zero for none."""
    found = _list(items)
    if not found:
        return 0
    if any(not isinstance(i, int | float | Duration) or isinstance(i, bool) for i in found):
        raise no_overload(items)
    return reduce(add, found)


def smallest(items: Any) -> Any:
    """The least; an empty list has none."""
    found = _list(items)
    if not found:
        raise CelError("min called on empty list")
    return reduce(lambda a, b: a if _in_order(a, b) else b, found)


def largest(items: Any) -> Any:
    """The greatest; an empty list has none."""
    found = _list(items)
    if not found:
        raise CelError("max called on empty list")
    return reduce(lambda a, b: b if _in_order(a, b) else a, found)


def index_of(items: Any, wanted: Any, start: Any = 0) -> int:
    """Where something first is, or -1."""
    if isinstance(items, str) and isinstance(wanted, str):
        return items.find(wanted, start)
    for at, item in enumerate(_list(items)):
        if at >= start and equals(item, wanted):
            return at
    return -1


def last_index_of(items: Any, wanted: Any) -> int:
    """Where something last is, or -1."""
    if isinstance(items, str) and isinstance(wanted, str):
        return items.rfind(wanted)
    found = [at for at, item in enumerate(_list(items)) if equals(item, wanted)]
    return found[-1] if found else -1


def distinct(items: Any) -> list[Any]:
    """Without repetitions, in order."""
    found: list[Any] = []
    for item in _list(items):
        if not any(equals(item, known) for known in found):
            found.append(item)
    return found


def flatten(items: Any, depth: Any = 1) -> list[Any]:
    """Lists in the list opened, so many levels deep."""
    found: list[Any] = []
    for item in _list(items):
        if isinstance(item, list) and depth > 0:
            found += flatten(item, depth - 1)
        else:
            found.append(item)
    return found


def slice_(items: Any, start: Any, end: Any) -> list[Any]:
    """A part of a list."""
    found = _list(items)
    if not 0 <= start <= end <= len(found):
        raise CelError(f"cannot slice({start}, {end}), list is length {len(found)}")
    return found[start:end]


def sort(items: Any) -> list[Any]:
    """In order, by CEL's rules about what can be compared."""
    return sort_by(_list(items), items)


def sort_by(keys: list[Any], items: list[Any]) -> list[Any]:
    """Items in the order of their keys; those with equal keys stay as they are."""
    pairs = sorted(zip(keys, items, strict=True), key=_ordered)
    return [item for _, item in pairs]


def _compare(left: tuple[Any, Any], right: tuple[Any, Any]) -> int:
    if not _in_order(left[0], right[0]):
        return 1
    return 0 if _in_order(right[0], left[0]) else -1


_ordered = cmp_to_key(_compare)


def first(items: Any) -> Optional:
    """The first element, if there is one."""
    found = _list(items)
    return Optional(found[0], True) if found else NONE


def last(items: Any) -> Optional:
    """The last element, if there is one."""
    found = _list(items)
    return Optional(found[-1], True) if found else NONE


def range_(count: Any) -> list[int]:
    """`[0, 1, …]`."""
    if not isinstance(count, int) or isinstance(count, bool):
        raise no_overload(count)
    if count > _MAX_RANGE:
        raise CelError("operation cancelled: actual cost limit exceeded")
    return list(range(count))


def greatest(*values: Any) -> Any:
    """`math.greatest(…)`: of its arguments, or of one list."""
    return largest(values[0] if len(values) == 1 and isinstance(values[0], list) else list(values))


def least(*values: Any) -> Any:
    """`math.least(…)`."""
    return smallest(values[0] if len(values) == 1 and isinstance(values[0], list) else list(values))


GLOBAL: dict[str, Callable[..., Any]] = {
    "lists.range": range_,
    "math.greatest": greatest,
    "math.least": least,
}
METHODS: dict[str, Callable[..., Any]] = {
    "isSorted": is_sorted,
    "sum": total,
    "min": smallest,
    "max": largest,
    "indexOf": index_of,
    "lastIndexOf": last_index_of,
    "distinct": distinct,
    "flatten": flatten,
    "slice": slice_,
    "sort": sort,
    "first": first,
    "last": last,
}
RESULTS = {
    "isSorted": "bool",
    "indexOf": "int",
    "lastIndexOf": "int",
    "distinct": "list",
    "flatten": "list",
    "slice": "list",
    "sort": "list",
    "lists.range": "list",
}
