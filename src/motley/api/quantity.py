"""Kubernetes quantities: `500m`, `1.5Gi`, `1e3`; exact, and printed as Kubernetes prints them.

A quantity is a whole number of nano-units and the family it was written in (`DecimalSI`,
`BinarySI`, `DecimalExponent`); anything finer is rounded away from zero, under the theory that
who wants some resources should get some.

Invariant: no floating point anywhere; `canonical(canonical(q)) == canonical(q)`.
"""

from fractions import Fraction
from functools import lru_cache
from typing import Literal, NamedTuple

Format = Literal["DecimalSI", "BinarySI", "DecimalExponent"]

WRONG_FORMAT = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
WRONG_SUFFIX = "unable to parse quantity's suffix"

_NANO = 10**9
_MILLI = 10**6  # nano-units in one milli-unit
_MAX = (2**63 - 1) * _NANO
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIX = {exponent: suffix for suffix, exponent in _BINARY.items()} | {0: ""}
_EXPONENT_MAX = 300  # a bound of ours: 1e999999999 must not cost a gigabyte


class Quantity(NamedTuple):
    """An exact amount: nano-units, and the family it is written in."""

    nano: int
    format: Format

    def __str__(self) -> str:
        return _write(self)

    @property
    def is_whole(self) -> bool:
        """Whether it is a number of whole units."""
        return self.nano % _NANO == 0


def quantity(q: str | int | float) -> Quantity:
    """The quantity that a JSON value stands for. Raises ValueError in Kubernetes' words."""
    return _read(q if isinstance(q, str) else repr(q))


def parse(q: str | int | float) -> Fraction:
    """The exact amount. Raises ValueError."""
    return Fraction(quantity(q).nano, _NANO)


def cpu_milli(q: str | int | float) -> int:
    """Thousandths, rounded up: what the scheduler counts CPU in."""
    return -(-quantity(q).nano // _MILLI)


def to_int(q: str | int | float) -> int:
    """Whole units (bytes, counts), rounded up."""
    return -(-quantity(q).nano // _NANO)


def canonical(q: str | int | float) -> str:
    """As Kubernetes prints it: `0.5` → `500m`, `1024Mi` → `1Gi`; the family stays."""
    return _write(quantity(q))


@lru_cache(maxsize=4096)
def _canonical_resource(text: str) -> str:
    nano, family = _read(text)
    return _write(Quantity(_round_away(nano, _MILLI) * _MILLI, family))


def canonical_resource(q: str | int | float) -> str:
    """As Kubernetes stores an entry of a resource list: rounded up to thousandths."""
    return _canonical_resource(q if isinstance(q, str) else repr(q))


def format_milli(milli: int) -> str:
    """An amount of CPU, decimal."""
    return _write(Quantity(milli * _MILLI, "DecimalSI"))


def format_decimal(units: int) -> str:
    """A count, decimal."""
    return _write(Quantity(units * _NANO, "DecimalSI"))


def format_binary(units: int) -> str:
    """An amount of bytes, in powers of 1024."""
    return _write(Quantity(units * _NANO, "BinarySI"))


def _round_away(value: int, unit: int) -> int:
    return -(-value // unit) if value >= 0 else value // unit


@lru_cache(maxsize=4096)
def _read(text: str) -> Quantity:
    sign, whole, fraction, suffix = _split(text)
    base, exponent, family = _interpret(suffix)
    digits = int((whole + fraction) or "0")
    if base == 10:
        shift = exponent - len(fraction) + 9  # power of ten from digits to nano-units
        nano = digits * 10**shift if shift >= 0 else -(-digits // 10**-shift)
        exact_in_64_bits = len(whole) + len(fraction) <= 18 and shift >= 0
    else:
        scaled = digits * 2**exponent * _NANO
        nano = -(-scaled // 10 ** len(fraction))
        exact_in_64_bits = not fraction and len(whole) + exponent * 3 // 10 < 15
        if 0 < nano < _NANO:
            family = "DecimalSI"
    if not exact_in_64_bits:
        nano = min(nano, _MAX)  # Kubernetes caps only what its 64-bit path cannot hold
    return Quantity(sign * nano, family)


def _split(text: str) -> tuple[int, str, str, str]:
    if not text:
        raise ValueError(WRONG_FORMAT)
    sign = -1 if text[0] == "-" else 1
    at = end = 1 if text[0] in "+-" else 0
    while end < len(text) and "0" <= text[end] <= "9":
        end += 1
    whole, fraction = text[at:end].lstrip("0"), ""
    digits = end - at
    if end < len(text) and text[end] == ".":
        at = end = end + 1
        while end < len(text) and "0" <= text[end] <= "9":
            end += 1
        fraction = text[at:end]
        digits += end - at
    if not digits or digits > 1000:
        raise ValueError(WRONG_FORMAT)
    return sign, whole, fraction, text[end:]


def _interpret(suffix: str) -> tuple[int, int, Format]:
    if suffix in _DECIMAL:
        return 10, _DECIMAL[suffix], "DecimalSI"
    if suffix in _BINARY:
        return 2, _BINARY[suffix], "BinarySI"
    letters = suffix.rstrip("0123456789").rstrip("+-")
    if letters.strip("eEinumkKMGTP") or suffix.count("+") + suffix.count("-") > 1:
        raise ValueError(WRONG_FORMAT)
    power = suffix[1:]
    if letters in ("e", "E") and power.lstrip("+-").isdecimal():
        exponent = int(power) if len(power) < 9 else _EXPONENT_MAX + 1
        if abs(exponent) <= _EXPONENT_MAX:
            return 10, exponent, "DecimalExponent"
    raise ValueError(WRONG_SUFFIX)


@lru_cache(maxsize=4096)
def _write(q: Quantity) -> str:
    nano, family = q
    if nano == 0:
        return "0"
    if family == "BinarySI" and abs(nano) >= 1024 * _NANO and nano % _NANO == 0:
        number, exponent = nano // _NANO, 0
        while exponent < 60 and number % 1024 == 0:
            number, exponent = number // 1024, exponent + 10
        return f"{number}{_BINARY_SUFFIX[exponent]}"
    number, exponent = nano, -9
    while number % 1000 == 0 and (exponent < 18 or family == "DecimalExponent"):
        number, exponent = number // 1000, exponent + 3
    if family == "DecimalExponent":
        return f"{number}e{exponent}" if exponent else str(number)
    return f"{number}{_DECIMAL_SUFFIX[exponent]}"
