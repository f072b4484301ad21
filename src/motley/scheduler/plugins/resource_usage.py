"""How full nodes would be with the pod on them: what the resource scorers share."""

from dataclasses import dataclass

import msgspec
import numpy as np

from motley.scheduler.columns import CPU_ROW, EVERY_ROW, MEMORY_ROW, PODS_ROW
from motley.scheduler.contract import Columns, Mask, PodInfo, Rows, Scores


class ResourceSpec(msgspec.Struct, forbid_unknown_fields=True):
    """A resource that is scored, and how much it weighs."""

    name: str
    weight: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.weight <= 100:
            raise ValueError(f"weight of resource {self.name!r} must be 1 to 100")


_DEFAULTED = (CPU_ROW, MEMORY_ROW)  # what `nodes.nonzero` has: the first two
_TEMPLATES = 1024
CPU_AND_MEMORY = (ResourceSpec("cpu"), ResourceSpec("memory"))


@dataclass(frozen=True, slots=True)
class Asked:
    """What a template asks of the resources that count for it: columns [resource, 1]."""

    which: tuple[int, ...]  # in the columns
    weights: Scores
    weight: float  # of all together
    wanted: Scores


@dataclass(slots=True)
class Usage:
    """The same resources over nodes: matrices [resource, row]."""

    asked: Asked
    allocatable: Scores
    requested: Scores  # before the pod
    usable: Mask | None  # where allocatable is not zero; None: on every node


class UsageReader:
    """Reads the resources that are to be scored out of the columns."""

    def __init__(self, resources: tuple[ResourceSpec, ...], *, nonzero: bool) -> None:
        self._resources = resources
        self._nonzero = nonzero  # count a default for pods that state no request
        self._asked: dict[int, Asked | None] = {}  # by template
        self._usable: dict[tuple[int, ...], Mask | None] = {}
        self._true_for = (-1, -1)

    def wanted(self, pod: PodInfo, name: str) -> int:
        """What the pod asks of a resource, as this reader counts."""
        if self._nonzero and name == "cpu":
            return pod.scored_cpu
        if self._nonzero and name == "memory":
            return pod.scored_memory
        return pod.requests.get(name, 0)

    def asks_for_nothing(self, pod: PodInfo) -> bool:
        """Does the pod want none of the resources?"""
        return all(self.wanted(pod, spec.name) == 0 for spec in self._resources)

    def read(self, pod: PodInfo, nodes: Columns, rows: Rows = EVERY_ROW) -> Usage | None:
        """The usage of the resources that count for this pod, on these rows; None: none does."""
        true_for = (nodes.generation, len(nodes.resources))
        if self._true_for != true_for or len(self._asked) > _TEMPLATES:
            self._asked.clear()
            self._usable.clear()
            self._true_for = true_for
        if pod.template not in self._asked:
            self._asked[pod.template] = self._ask(pod, nodes)
        asked = self._asked[pod.template]
        if asked is None:
            return None
        usable = self._where(asked.which, nodes)
        return Usage(
            asked,
            _part(nodes.allocatable, asked.which)[:, rows],
            self._requested(asked.which, nodes)[:, rows],
            None if usable is None else usable[:, rows],
        )

    def _ask(self, pod: PodInfo, nodes: Columns) -> Asked | None:
        which, wanted, weights = [], [], []
        for spec in self._resources:
            resource, amount = nodes.resource(spec.name), self.wanted(pod, spec.name)
            # An extended resource that the pod does not want says nothing about the node.
            if resource is not None and (resource <= PODS_ROW or amount):
                which.append(resource)
                wanted.append([amount])
                weights.append([spec.weight])
        if not which:
            return None
        columns = np.array(weights, np.float64), np.array(wanted, np.float64)
        return Asked(tuple(which), columns[0], float(columns[0].sum()), columns[1])

    def _requested(self, which: tuple[int, ...], nodes: Columns) -> Scores:
        if not self._nonzero:
            return _part(nodes.requested, which)
        if which == _DEFAULTED:
            return nodes.nonzero
        requested = nodes.requested[list(which)]
        for position, resource in enumerate(which):
            if resource in _DEFAULTED:
                requested[position] = nodes.nonzero[resource]
        return requested

    def _where(self, which: tuple[int, ...], nodes: Columns) -> Mask | None:
        if which not in self._usable:
            usable = nodes.allocatable[list(which)] > 0
            everywhere = bool((usable | ~nodes.live).all())
            self._usable[which] = None if everywhere else usable
        return self._usable[which]


def _part(matrix: Scores, which: tuple[int, ...]) -> Scores:
    """These resources; a view for the usual ones, which lie together."""
    return matrix[:2] if which == _DEFAULTED else matrix[list(which)]


def quietly() -> np.errstate:
    """Free rows divide zero by zero; their scores are never looked at."""
    return np.errstate(divide="ignore", invalid="ignore")
