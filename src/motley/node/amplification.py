"""Raising what a Node says is allocatable, for kubelets that know no over-commitment.

A stock kubelet admits pods against `status.allocatable` of its own Node object, as the API has it.
So what the node's labels allow (`motley.api.overcommit`) is written there, and what the kubelet
reported is kept in an annotation. A kubelet compares its figures with the object's every ten
seconds and writes them back where they differ, which is when they are raised again: on their way
in, by the webhook (`webhook`). A label that changes between two reports is acted on by `amplifier`.
Both ask the one function here, of the object as it is.

Invariant: applied to its own result it changes nothing; without labels the result is what the
kubelet reported; nothing is ever above ten times what the machine has.
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, NamedTuple

import msgspec

from motley.api import overcommit, quantity
from motley.api.overcommit import Amounts, Raised

_MILLI = 1000
_PAGE = 1024  # kubelets count memory in Ki; so do we


class Amplified(NamedTuple):
    """How a Node should be."""

    allocatable: dict[str, str]  # the resources whose figure is another one
    note: str | None  # the annotation; None: none
    wrong: tuple[str, ...]  # labels that say nothing


def amplified(
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    capacity: Amounts,
    allocatable: Amounts,
) -> Amplified:
    """What the labels make of what the kubelet reported."""
    ratios = overcommit.ratios(labels)
    reported = overcommit.reported(annotations, capacity, allocatable)
    changed: dict[str, str] = {}
    noted: dict[str, Raised] = {}
    for resource in overcommit.LABELS:
        if resource not in capacity or resource not in allocatable:
            continue
        try:
            more = _raised(resource, ratios.get(resource), capacity[resource], reported[resource])
            text = more.raised if more else quantity.canonical(reported[resource])
            if quantity.parse(text) != quantity.parse(allocatable[resource]):
                changed[resource] = text
            if more:
                noted[resource] = more
        except ValueError:
            continue  # no amounts: for the API server to refuse
    note = msgspec.json.encode(noted).decode() if noted else None
    wrong = tuple(
        f'{label}="{labels[label]}"'
        for label in overcommit.LABELS.values()
        if label in labels and overcommit.ratio(labels[label]) is None
    )
    return Amplified(changed, note, wrong)


def _raised(
    resource: str, ratio: Fraction | None, capacity: str | int | float, raw: str | int | float
) -> Raised | None:
    """What a resource is raised to; None: it stays as the kubelet reported it."""
    if ratio is None:
        return None
    # Nobody can report more than there is: a figure above it is one that lost its annotation.
    real = min(raw, capacity, key=quantity.parse)
    if resource == "cpu":
        text = quantity.format_milli(int(quantity.parse(real) * _MILLI * ratio))
    else:
        text = quantity.format_binary(int(quantity.parse(real) * ratio) // _PAGE * _PAGE)
    if quantity.parse(text) <= quantity.parse(raw):
        return None
    return Raised(quantity.canonical(real), text, quantity.canonical(capacity))


def json_patch(annotations: Mapping[str, str] | None, wanted: Amplified) -> list[dict[str, Any]]:
    """The change as an admission webhook answers it; empty: none. `annotations`: the object's."""
    path = "/metadata/annotations/" + overcommit.RAISED.replace("/", "~1")
    have = (annotations or {}).get(overcommit.RAISED)
    found: list[dict[str, Any]] = [
        {"op": "replace", "path": f"/status/allocatable/{resource}", "value": text}
        for resource, text in wanted.allocatable.items()
    ]
    if wanted.note is None and have is not None:
        found.append({"op": "remove", "path": path})
    elif wanted.note is not None and wanted.note != have:
        if annotations is None:
            found.append({"op": "add", "path": "/metadata/annotations", "value": {}})
        found.append({"op": "add", "path": path, "value": wanted.note})
    return found


def merge_patch(annotations: Mapping[str, str], wanted: Amplified) -> dict[str, Any]:
    """The change as a merge patch of the status subresource; empty: none."""
    if not wanted.allocatable and wanted.note == annotations.get(overcommit.RAISED):
        return {}
    return {
        "metadata": {"annotations": {overcommit.RAISED: wanted.note}},
        "status": {"allocatable": wanted.allocatable},
    }
