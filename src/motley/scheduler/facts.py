"""What the scheduler knows of a node besides its pods, and what an update of it changed.

Most updates of a node are heartbeats. Comparing facts tells them from changes a plugin could see.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from motley.api import overcommit
from motley.api.views.core import Node
from motley.scheduler.podinfo import amount, normalized_image

ARCH_LABELS = ("kubernetes.io/arch", "beta.kubernetes.io/arch")
OS_LABELS = ("kubernetes.io/os", "beta.kubernetes.io/os")


class TaintKey(NamedTuple):
    """What makes two taints the same."""

    key: str
    value: str
    effect: str


@dataclass(slots=True)
class NodeFacts:
    """What a node was when its row was last written, to see what an update changed."""

    allocatable: dict[str, int]
    reported: dict[str, int]  # the same before over-commitment raised it
    labels: dict[str, str]
    taints: tuple[TaintKey, ...]
    images: dict[str, int]
    unschedulable: bool
    ready: bool
    arch: str
    os: str


class NodeChange(NamedTuple):
    """What an update of a node changed."""

    allocatable: bool
    labels: bool
    taints: bool
    images: bool
    conditions: bool

    @property
    def anything(self) -> bool:
        """Is there any difference a plugin could see?"""
        return any(self)


def _first(labels: Mapping[str, str], keys: tuple[str, ...], otherwise: str) -> str:
    return next((labels[key] for key in keys if labels.get(key)), otherwise)


def of(node: Node) -> NodeFacts:
    """The facts of a node as the API has it."""
    labels, status = node.metadata.labels, node.status
    allocatable = {name: amount(name, q) for name, q in status.allocatable.items()}
    return NodeFacts(
        allocatable=allocatable,
        reported=_reported(node) or allocatable,
        labels=labels,
        taints=tuple(TaintKey(t.key, t.value, t.effect) for t in node.spec.taints),
        images={
            normalized_image(name): image.size_bytes
            for image in status.images
            for name in image.names
        },
        unschedulable=node.spec.unschedulable,
        ready=node.is_ready,
        arch=_first(labels, ARCH_LABELS, status.node_info.architecture),
        os=_first(labels, OS_LABELS, status.node_info.operating_system or "linux"),
    )


def _reported(node: Node) -> dict[str, int] | None:
    """What the node's agent said is allocatable; None: what everybody sees."""
    if overcommit.RAISED not in node.metadata.annotations:
        return None
    return {name: amount(name, q) for name, q in overcommit.reported_by(node).items()}


NOTHING = NodeFacts({}, {}, {}, (), {}, unschedulable=False, ready=False, arch="", os="")


def difference(before: NodeFacts, after: NodeFacts) -> NodeChange:
    """What is other than before."""
    return NodeChange(
        allocatable=(before.allocatable, before.reported) != (after.allocatable, after.reported),
        labels=before.labels != after.labels or (before.arch, before.os) != (after.arch, after.os),
        taints=before.taints != after.taints or before.unschedulable != after.unschedulable,
        images=before.images != after.images,
        conditions=before.ready != after.ready,
    )
