"""What a node has granted its pods: the resources they run with, which may not be those they want.

A running pod may ask for other resources (`pods/resize`). The node grants that when there is room,
at once or later; until then the pod runs with what it has. What was granted is written down as
soon as it differs from what the API says, so that an agent that starts anew knows the difference.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from motley.api.views.container import ResourceRequirements
from motley.api.views.pod import Container, Pod
from motley.lib import atomicfile, journal
from motley.node import resources

log = journal.get(__name__)

Granted = Mapping[str, ResourceRequirements]  # by container

FILE = "resources.json"


class Pending(NamedTuple):
    """Why a resize waits: `Deferred` may be granted later, `Infeasible` never on this node."""

    reason: str
    message: str


def wanted(pod: Pod) -> Granted:
    """What the pod's spec asks for."""
    everyone = (*pod.spec.init_containers, *pod.spec.containers)
    return {c.name: c.resources for c in everyone}


def with_resources(pod: Pod, granted: Granted) -> Pod:
    """The pod as if its spec asked for what was granted."""

    def changed(containers: list[Container]) -> list[Container]:
        return [
            msgspec.structs.replace(c, resources=granted.get(c.name, c.resources))
            for c in containers
        ]

    spec = msgspec.structs.replace(
        pod.spec,
        containers=changed(pod.spec.containers),
        init_containers=changed(pod.spec.init_containers),
    )
    return msgspec.structs.replace(pod, spec=spec)


def verdict(
    pod: Pod, present: Iterable[Pod], allocatable: Mapping[str, int], *, has_own_cpus: bool
) -> Pending | None:
    """May the pod have what it asks for, beside the others? None: yes."""
    if has_own_cpus:
        message = "Resize is infeasible for Guaranteed Pods alongside CPU Manager static policy"
        return Pending("Infeasible", message)
    alone = resources.admit(pod, (), allocatable)
    if alone is not None:
        text = alone.message.removeprefix("Pod was rejected: ")
        return Pending("Infeasible", text.replace("enough resource", "enough capacity"))
    beside = resources.admit(pod, present, allocatable)
    if beside is not None:
        return Pending("Deferred", beside.message.removeprefix("Pod was rejected: "))
    return None


class Allocations:
    """The grants of one node; `directory` says where a pod's files are."""

    def __init__(self, directory: Callable[[str], Path]) -> None:
        self._directory = directory
        self._granted: dict[str, Granted] = {}

    def of(self, pod: Pod) -> Pod:
        """The pod with what it was granted; what it wants where nothing was said."""
        granted = self._granted.get(pod.metadata.uid)
        if granted is None:
            granted = self._granted[pod.metadata.uid] = self._load(pod) or wanted(pod)
        return pod if granted == wanted(pod) else with_resources(pod, granted)

    def wants_other(self, pod: Pod) -> bool:
        """Does it ask for something it does not have?"""
        return wanted(self.of(pod)) != wanted(pod)

    def keep(self, pod: Pod) -> None:
        """Write down what the pod has, which is no longer what it wants."""
        self._save(pod.metadata.uid, wanted(self.of(pod)))

    def grant(self, pod: Pod) -> None:
        """It may have what it asks for."""
        self._granted[pod.metadata.uid] = wanted(pod)
        self._save(pod.metadata.uid, wanted(pod))

    def forget(self, uid: str) -> None:
        """The pod is gone; its file goes with its directory."""
        self._granted.pop(uid, None)

    def _save(self, uid: str, granted: Granted) -> None:
        directory = self._directory(uid)
        if directory.is_dir():  # a pod of which nothing is here yet has nothing to remember
            atomicfile.write(directory / FILE, msgspec.json.encode(granted))

    def _load(self, pod: Pod) -> Granted | None:
        path = self._directory(pod.metadata.uid) / FILE
        try:
            return msgspec.json.decode(path.read_bytes(), type=dict[str, ResourceRequirements])
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            log.error("grants not readable", pod=pod.key, error=str(error))
            return None
