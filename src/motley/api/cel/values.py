"""Values beyond JSON's, and what CEL says about all of them: type, equality, order.

Plain JSON values stand for themselves, so an object is never copied before it is looked at.
Python's habit of taking True for 1 stops here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Any, ClassVar
from urllib.parse import SplitResult

from motley.api.cel.errors import CelError

INT_MIN, INT_MAX, UINT_MAX = -(2**63), 2**63 - 1, 2**64 - 1


class Uint(int):
    """An unsigned integer: CEL keeps it apart from the signed ones."""

    def __repr__(self) -> str:
        return f"{int(self)}u"


class Timestamp(datetime):
    """A moment, always with its zone."""


class Duration(timedelta):
    """A span of time."""


class Message(dict[str, Any]):
    """`Type{…}`: a map that remembers what it was called."""

    def __init__(self, type_: str, fields: Mapping[str, Any]) -> None:
        super().__init__(fields)
        self.type = type_


@dataclass(frozen=True, slots=True)
class Type:
    """A type as a value: `type(x) == int`."""

    name: str


@dataclass(frozen=True, slots=True)
class Optional:
    """A value that may be missing."""

    value: Any = None
    is_present: bool = False


NONE = Optional()


@dataclass(frozen=True, slots=True, order=True)
class Amount:
    """A Kubernetes quantity, exact; how it was written matters only for printing."""

    nano: int


@dataclass(frozen=True, slots=True)
class Url:
    """A parsed absolute URL or path."""

    text: str
    parts: SplitResult


@dataclass(frozen=True, slots=True)
class Ip:
    """An address."""

    address: IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class Cidr:
    """A network, with the address it was written with."""

    text: str
    network: IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class Format:
    """A named format of strings."""

    name: str
    check: Callable[[str], list[str]]


@dataclass(frozen=True, slots=True)
class Semver:
    """A semantic version, comparable by its key."""

    major: int
    minor: int
    patch: int
    prerelease: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[Any, ...]:
        """Order: a prerelease comes before its release; numbers before words."""
        parts = tuple((0, int(p), "") if p.isdigit() else (1, 0, p) for p in self.prerelease)
        return self.major, self.minor, self.patch, not self.prerelease, parts


class Opaque:
    """A value with functions of its own and no parts."""

    __slots__ = ()
    cel_type: ClassVar[str]


class Lazy:
    """A map whose entries are computed when they are first asked for: `variables`."""

    cel_type: ClassVar[str] = "map"

    def __init__(self, compute: Mapping[str, Callable[[], Any]]) -> None:
        self._compute = compute
        self._known: dict[str, Any] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._compute

    def lookup(self, name: str) -> Any:
        """The value; CelError when there is none or it cannot be computed."""
        if name not in self._known:
            if name not in self._compute:
                raise CelError(f"no such key: {name}")
            self._known[name] = self._compute[name]()
        return self._known[name]


_NAMES: tuple[tuple[type, str], ...] = (
    (bool, "bool"),
    (Uint, "uint"),
    (int, "int"),
    (float, "double"),
    (str, "string"),
    (bytes, "bytes"),
    (Timestamp, "google.protobuf.Timestamp"),
    (Duration, "google.protobuf.Duration"),
    (list, "list"),
    (Type, "type"),
    (Optional, "optional_type"),
    (Amount, "kubernetes.Quantity"),
    (Url, "kubernetes.URL"),
    (Ip, "net.IP"),
    (Cidr, "net.CIDR"),
    (Format, "kubernetes.NamedFormat"),
    (Semver, "kubernetes.Semver"),
)


def type_name(value: Any) -> str:
    """The CEL type of a value."""
    if value is None:
        return "null_type"
    if isinstance(value, Message):
        return value.type
    if isinstance(value, dict):
        return "map"
    if isinstance(value, Opaque | Lazy):
        return value.cel_type
    for kind, name in _NAMES:
        if isinstance(value, kind):
            return name
    return "dyn"


def is_number(value: Any) -> bool:
    """Whether a value is a number; a truth value is none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def equals(left: Any, right: Any) -> bool:
    """CEL's `==`: numbers by value, everything else only within its type."""
    if is_number(left) and is_number(right):
        return bool(left == right)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(equals, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(equals(v, right[k]) for k, v in left.items())
    if isinstance(left, bool) != isinstance(right, bool):
        return False
    return type(left) is type(right) and bool(left == right)


def contains(items: Any, wanted: Any) -> bool:
    """CEL's `in`."""
    if isinstance(items, list):
        return any(equals(item, wanted) for item in items)
    if isinstance(items, dict):
        return hashable(wanted) in items
    if isinstance(items, Lazy):
        return isinstance(wanted, str) and wanted in items
    raise CelError("no such overload")


def hashable(key: Any) -> Any:
    """A map's key; lists and maps are none."""
    if isinstance(key, bool | int | float | str):
        return key
    raise CelError(f"unsupported key type: {type_name(key)}")


def checked_int(value: int) -> int:
    """An integer that fits into 64 bits."""
    if not INT_MIN <= value <= INT_MAX:
        raise CelError("integer overflow")
    return value


def checked_uint(value: int) -> Uint:
    """An unsigned integer that fits into 64 bits."""
    if not 0 <= value <= UINT_MAX:
        raise CelError("unsigned integer overflow")
    return Uint(value)


def timestamp(moment: datetime) -> Timestamp:
    """A datetime as a CEL value."""
    zoned = moment.astimezone(UTC)
    return Timestamp(
        zoned.year,
        zoned.month,
        zoned.day,
        zoned.hour,
        zoned.minute,
        zoned.second,
        zoned.microsecond,
        UTC,
    )


def duration(span: timedelta) -> Duration:
    """A timedelta as a CEL value."""
    return Duration(span.days, span.seconds, span.microseconds)
