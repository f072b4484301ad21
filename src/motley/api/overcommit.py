"""How far a node lets its requests be exceeded: two labels that scheduler and node agent obey.

A node agent refuses pods whose requests add up to more than the node has, so a scheduler that
counts requests at less than they say needs the node's consent. The labels are that consent: on a
node labelled `motley.io/overcommit-cpu=2` requests of CPU may add up to twice what is allocatable.
Pods of the class Guaranteed are never part of it: what they request they get.
"""

import re
from collections.abc import Mapping
from fractions import Fraction

LABELS = {"cpu": "motley.io/overcommit-cpu", "memory": "motley.io/overcommit-memory"}
HIGHEST = 10  # beyond this a label is a slip of the pen

_DECIMAL = re.compile(r"[0-9]+(\.[0-9]+)?")


def ratio(text: str) -> Fraction | None:
    """What a label says; None: not a decimal number from 1 to 10."""
    if not _DECIMAL.fullmatch(text):
        return None
    found = Fraction(text)
    return found if 1 <= found <= HIGHEST else None


def ratios(labels: Mapping[str, str]) -> dict[str, Fraction]:
    """By resource, where the labels allow more than there is; a label that is wrong allows none."""
    found = {resource: ratio(labels.get(label, "1")) for resource, label in LABELS.items()}
    return {resource: value for resource, value in found.items() if value is not None and value > 1}
