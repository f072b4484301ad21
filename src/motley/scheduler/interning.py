"""Strings as small integers.

Comparing a column of thousands of label values with one wanted value is one vector operation
when the values are integers. An interner gives every value the next free number and never
takes it back, so a number once stored in a column stays true.

Invariant: number 0 means "absent" and belongs to no value.
"""

import re
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

V = TypeVar("V", bound=Hashable)

ABSENT = 0
UNKNOWN = -1  # the number of a value that no node has: equal to nothing in a column

_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")


class Interner(Generic[V]):
    """Values to numbers and back."""

    def __init__(self) -> None:
        self._numbers: dict[V, int] = {}
        self._values: list[V] = []

    def intern(self, value: V) -> int:
        """The number of a value, which gets one now if it has none."""
        number = self._numbers.get(value)
        if number is None:
            self._values.append(value)
            number = self._numbers[value] = len(self._values)
        return number

    def find(self, value: V) -> int:
        """The number of a value, or UNKNOWN."""
        return self._numbers.get(value, UNKNOWN)

    def value(self, number: int) -> V:
        """The value of a number; ABSENT has none."""
        if number <= ABSENT:
            raise KeyError(number)
        return self._values[number - 1]

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[V]:
        return iter(self._values)


class Strings(Interner[str]):
    """Label values, which `Gt` and `Lt` also read as integers."""

    def __init__(self) -> None:
        super().__init__()
        self._integers = np.zeros(1, dtype=np.int64)
        self._is_integer = np.zeros(1, dtype=np.bool_)

    def integers(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """By number: the integer a value spells, and whether it spells one."""
        known = len(self._integers) - 1
        if known < len(self):
            fresh = [parse_integer(value) for value in self._values[known:]]
            self._integers = np.append(self._integers, np.array([n or 0 for n in fresh], np.int64))
            self._is_integer = np.append(self._is_integer, np.array([n is not None for n in fresh]))
        return self._integers, self._is_integer


def parse_integer(text: str) -> int | None:
    """A label value as `Gt` and `Lt` read it, or None when it spells no integer."""
    return int(text) if _INTEGER.fullmatch(text) else None
