"""How far a node lets its requests be exceeded: two labels that scheduler and node agent obey.

A node agent refuses pods whose requests add up to more than the node has, so a scheduler that
counts requests at less than they say needs the node's consent. The labels are that consent: on a
node labelled `motley.io/overcommit-cpu=2` requests of CPU may add up to twice what is allocatable.
Pods of the class Guaranteed are never part of it: what they request they get.

Motley's node agent reads the labels itself. A stock kubelet goes by the Node object, so there a
webhook raises `status.allocatable` (`motley.node.amplification`) and notes in an annotation what it
did. Whoever wants to know what a node really has asks `reported`.

Invariant: a figure counts as raised only while it is the one that the annotation says was written,
on a machine of the size it says; anything else is what a node agent reported.
"""

import re
from collections.abc import Mapping
from fractions import Fraction

import msgspec

from motley.api import quantity
from motley.api.views.core import Node

LABELS = {"cpu": "motley.io/overcommit-cpu", "memory": "motley.io/overcommit-memory"}
RAISED = "motley.io/raw-allocatable"  # annotation: what was raised, in JSON, by resource
HIGHEST = 10  # beyond this a label is a slip of the pen
WRONG = "not a decimal number from 1 to 10; 1 is assumed"  # said of labels that are no ratio

Amounts = Mapping[str, str | int | float]  # a ResourceList

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


class Raised(msgspec.Struct, frozen=True):
    """What was done to one resource: the kubelet's figure, ours, and the node's size then."""

    raw: str
    raised: str
    capacity: str


def raised(annotations: Mapping[str, str]) -> dict[str, Raised]:
    """What an annotation says was raised, by resource; one that is broken says nothing."""
    text = annotations.get(RAISED)
    if text is None:
        return {}
    try:
        return _decode(text)
    except msgspec.MsgspecError:
        return {}


_decode = msgspec.json.Decoder(dict[str, Raised]).decode


def reported(
    annotations: Mapping[str, str], capacity: Amounts, allocatable: Amounts
) -> dict[str, str | int | float]:
    """What is allocatable as the node's agent reported it, before anybody raised it.

    A machine that grew reports a figure that may by chance be the raised one: hence its size."""
    found = dict(allocatable)
    for resource, noted in raised(annotations).items():
        here = (capacity.get(resource), allocatable.get(resource))
        if all(map(_equal, (noted.capacity, noted.raised), here)):
            found[resource] = noted.raw
    return found


def reported_by(node: Node) -> dict[str, str | int | float]:
    """As `reported`, of a Node."""
    said = node.status
    return reported(node.metadata.annotations, said.capacity, said.allocatable)


def _equal(noted: str, here: str | int | float | None) -> bool:
    try:
        return here is not None and quantity.parse(noted) == quantity.parse(here)
    except ValueError:
        return False
