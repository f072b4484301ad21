"""The workload a pod belongs to: what a person made, not what a controller made for it.

A Deployment's pods belong to its ReplicaSets, a CronJob's to its Jobs; who scales, moves or
measures a workload means the Deployment and the CronJob.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from motley.api.views.base import Key
from motley.api.views.batch import Job
from motley.api.views.pod import Pod
from motley.controllers.manager import Informers
from motley.controllers.workload import ReplicaSet


class Owner(NamedTuple):
    """The kind and the name of a workload."""

    kind: str
    name: str


Between = Mapping[str, Callable[[Key], Any]]
"""How controllers that have controllers of their own are found, by kind."""


def top(pod: Pod, between: Between) -> Owner | None:
    """A pod's workload; None for a pod that nobody controls."""
    reference = pod.metadata.controller()
    if reference is None:
        return None
    find = between.get(reference.kind)
    found = find(Key(pod.metadata.namespace, reference.name)) if find is not None else None
    above = found.metadata.controller() if found is not None else None
    chosen = above or reference
    return Owner(chosen.kind, chosen.name)


class TopOwners:
    """Finds workloads in shared informers."""

    def __init__(self, informers: Informers) -> None:
        self._between: Between = {
            "ReplicaSet": informers.of(ReplicaSet).get,
            "Job": informers.of(Job).get,
        }

    def of(self, pod: Pod) -> Owner | None:
        """See `top`."""
        return top(pod, self._between)
