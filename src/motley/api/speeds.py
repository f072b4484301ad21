"""How fast nodes are, as labels and annotations say it: everybody reads them alike.

Invariant: whoever scales by a speed, estimates one or shows one takes a text for the same number,
or for none.
"""

import re
from collections.abc import Mapping
from fractions import Fraction

LABEL = "hice.kj"  # of a node, set by people or for them
ESTIMATED = "motley.io/estimated-speed"  # annotation of a node

_DECIMAL = re.compile(r"[0-9]+(\.[0-9]*)?|\.[0-9]+")


def parse(text: str) -> Fraction | None:
    """A speed as a label spells it; None: not a positive decimal."""
    if not _DECIMAL.fullmatch(text):
        return None
    return Fraction(text.removesuffix(".")) or None


def of_node(labels: Mapping[str, str], annotations: Mapping[str, str]) -> float:
    """How much a core of a node does: what a person says, else what was estimated, else 1."""
    found = parse(labels.get(LABEL, "")) or parse(annotations.get(ESTIMATED, "")) or 1
    return float(found)
