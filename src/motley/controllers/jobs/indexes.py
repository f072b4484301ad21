"""Sets of completion indexes as Kubernetes writes them: `0,2-4,7`. Pure.

A Job may have 100,000 indexes, so a set is kept as its runs, never as its members.
Invariant: `runs` are in order, disjoint and not adjacent, so equal sets are equal values and have
one text.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import merge
from typing import Self

Run = tuple[int, int]


@dataclass(frozen=True)
class Indexes:
    """A set of numbers, as runs of first and last."""

    runs: tuple[Run, ...] = ()

    @classmethod
    def of(cls, numbers: Iterable[int]) -> Self:
        """The set of these numbers."""
        return cls(_joined((n, n) for n in sorted(set(numbers))))

    @classmethod
    def parse(cls, text: str, below: int) -> Self:
        """The numbers under `below` that the text names; parts nobody can read are left out."""
        found: list[Run] = []
        for part in text.split(",") if text else ():
            low, dash, high = part.partition("-")
            try:
                run = (int(low), int(high) if dash else int(low))
            except ValueError:
                continue
            if run[0] < below and run[0] <= run[1]:
                found.append((run[0], min(run[1], below - 1)))
        return cls(_joined(sorted(found)))

    def __str__(self) -> str:
        return ",".join(_text(first, last) for first, last in self.runs)

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self.runs)

    def __iter__(self) -> Iterator[int]:
        for first, last in self.runs:
            yield from range(first, last + 1)

    def __contains__(self, number: object) -> bool:
        if not isinstance(number, int):
            return False
        at = bisect_left(self.runs, number, key=lambda run: run[1])
        return at < len(self.runs) and self.runs[at][0] <= number

    def __or__(self, other: "Indexes") -> "Indexes":
        return Indexes(_joined(merge(self.runs, other.runs)))

    def overlap(self, other: "Indexes") -> int:
        """How many numbers both have."""
        mine, theirs, count = iter(self.runs), iter(other.runs), 0
        a, b = next(mine, None), next(theirs, None)
        while a and b:
            count += max(0, min(a[1], b[1]) - max(a[0], b[0]) + 1)
            if a[1] < b[1]:
                a = next(mine, None)
            else:
                b = next(theirs, None)
        return count

    def first_missing(self, count: int, below: int) -> list[int]:
        """The lowest `count` numbers under `below` that are not in the set."""
        missing: list[int] = []
        candidate = 0
        for first, last in (*self.runs, (below, below)):
            stop = min(first, below, candidate + count - len(missing))
            missing.extend(range(candidate, stop))
            candidate = max(candidate, last + 1)
            if len(missing) == count:
                break
        return missing


def _joined(runs: Iterable[Run]) -> tuple[Run, ...]:
    result: list[Run] = []
    for first, last in runs:
        if result and first <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(result[-1][1], last))
        else:
            result.append((first, last))
    return tuple(result)


def _text(first: int, last: int) -> str:
    if first == last:
        return str(first)
    return f"{first}{',' if last == first + 1 else '-'}{last}"
