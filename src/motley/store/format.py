"""Which stores a program may open: the version of the format, and who can still read it.

A store says two numbers: the format it is written in, and the oldest format a program must know to
use it. A change that older programs may ignore (another column, another table, another mark) raises
only the first; one they would misread raises both. Fields of objects are no matter of the format:
objects are kept as bytes, so a program keeps what it does not know.

    what the store says          this program knows format 2
    format 1                     opened, and brought up to format 2
    format 2                     opened
    format 3, readable from 2    opened and left in format 3
    format 3, readable from 3    refused, untouched: `Newer`

Invariant: a refused store was not changed, and none is ever taken back to an older format.
"""

from typing import NamedTuple

from motley.store.contract import Newer

CURRENT = 1


class Format(NamedTuple):
    """What a store says of itself."""

    version: int
    readable_from: int
    """The oldest format that a program must know."""


OURS = Format(CURRENT, CURRENT)


def check(found: Format, where: str, known: int = CURRENT) -> None:
    """Refuse what a program that knows formats up to `known` would misread."""
    if found.readable_from > known:
        raise Newer(
            f"{where} has format {found.version}, this version of Motley reads {known}: it was"
            " written by a newer version; start that one again, or restore a backup made by this"
        )
