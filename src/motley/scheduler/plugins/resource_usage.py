"""How full nodes would be with the pod on them: what the resource scorers share."""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np

from motley.scheduler.columns import CPU_ROW, MEMORY_ROW, PODS_ROW
from motley.scheduler.contract import Columns, Mask, PodInfo, Scores


class ResourceSpec(msgspec.Struct, forbid_unknown_fields=True):
    """A resource that is scored, and how much it weighs."""

    name: str
    weight: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.weight <= 100:
            raise ValueError(f"weight of resource {self.name!r} must be 1 to 100")


CPU_AND_MEMORY = (ResourceSpec("cpu"), ResourceSpec("memory"))


class Usage(NamedTuple):
    """One resource over all nodes."""

    weight: int
    allocatable: Scores
    requested: Scores  # before the pod
    wanted: int  # by the pod
    usable: Mask | None  # where allocatable is not zero; None: on every node


class UsageReader:
    """Reads the resources that are to be scored out of the columns."""

    def __init__(self, resources: tuple[ResourceSpec, ...], *, nonzero: bool) -> None:
        self._resources = resources
        self._nonzero = nonzero  # count a default for pods that state no request
        self._usable: dict[int, Mask | None] = {}
        self._generation = -1

    def wanted(self, pod: PodInfo, name: str) -> int:
        """What the pod asks of a resource, as this reader counts."""
        if self._nonzero and name == "cpu":
            return pod.nonzero_cpu
        if self._nonzero and name == "memory":
            return pod.nonzero_memory
        return pod.requests.get(name, 0)

    def asks_for_nothing(self, pod: PodInfo) -> bool:
        """Does the pod want none of the resources?"""
        return all(self.wanted(pod, spec.name) == 0 for spec in self._resources)

    def read(self, pod: PodInfo, nodes: Columns) -> Iterator[Usage]:
        """The usage of each resource that counts for this pod."""
        for spec in self._resources:
            row = nodes.resource(spec.name)
            wanted = self.wanted(pod, spec.name)
            # An extended resource that the pod does not want says nothing about the node.
            if row is None or (row > PODS_ROW and wanted == 0):
                continue
            if self._nonzero and row in (CPU_ROW, MEMORY_ROW):
                requested = nodes.nonzero[row]
            else:
                requested = nodes.requested[row]
            yield Usage(
                spec.weight, nodes.allocatable[row], requested, wanted, self._where(row, nodes)
            )

    def _where(self, row: int, nodes: Columns) -> Mask | None:
        if self._generation != nodes.generation:
            self._usable.clear()
            self._generation = nodes.generation
        if row not in self._usable:
            usable = nodes.allocatable[row] > 0
            everywhere = bool((usable | ~nodes.live).all())
            self._usable[row] = None if everywhere else usable
        return self._usable[row]


def quietly() -> np.errstate:
    """Free rows divide zero by zero; their scores are never looked at."""
    return np.errstate(divide="ignore", invalid="ignore")
