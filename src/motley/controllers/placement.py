"""May a pod that runs on one node run on another? Pure.

Whoever evicts a pod so that it leaves its node must know that: a pod that fits nowhere else comes
back at once, or waits for ever. What counts is what the scheduler will insist upon: selectors and
taints, where its volumes can be reached, the pods it must be kept apart from, and whether the
machine can run its images. What is free on a node in cores and bytes is judged elsewhere.

Invariant: a pod is never sent to a machine of another architecture unless all its images are known
to be built for it, or a replica of it runs on such a machine already.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from motley.api import nodeselector, quantity
from motley.api.selectors import Selector
from motley.api.views.base import Key
from motley.api.views.core import Node
from motley.api.views.motley import ImageMap
from motley.api.views.pod import NodeSelectorTerm, Pod
from motley.api.views.storage import PersistentVolume
from motley.controllers.nodefit import Rules
from motley.controllers.topowner import Owner
from motley.registry import platforms, references

_ARCHITECTURES = "motley.io/architectures"  # of a pod: what it runs on, as a person says
_AS_WRITTEN = "motley.io/images-as-written"  # by container: before they became a platform's own
_ARCH, _OS = "kubernetes.io/arch", "kubernetes.io/os"

Machine = tuple[str, str]  # operating system and architecture
Volumes = Mapping[tuple[str, str], Sequence[NodeSelectorTerm] | None]
"""By the namespace and name of a claim: which nodes reach its volume; None: all of them."""


class _Apart(NamedTuple):
    """The pods of some namespaces that must not be in the same place; no namespaces: of all."""

    namespaces: frozenset[str]
    selector: Selector
    topology: str

    def means(self, pod: Pod) -> bool:
        """Is the pod one of them?"""
        is_there = not self.namespaces or pod.metadata.namespace in self.namespaces
        return is_there and self.selector.matches(pod.metadata.labels)


class _Asked(NamedTuple):
    """What one pod insists upon."""

    rules: Rules
    judged: dict[str, bool]  # nodes by those rules; shared by all pods that ask for the same
    reach: list[Sequence[NodeSelectorTerm]]
    apart: list[_Apart]
    machines: frozenset[Machine]


class Placement:
    """What is known of a cluster, for one round of questions."""

    def __init__(
        self,
        nodes: Iterable[Node],
        pods: Iterable[Pod],
        owner: Callable[[Pod], Owner | None],
        volumes: Iterable[PersistentVolume] | None = (),
        images: Iterable[ImageMap] = (),
    ) -> None:
        """`pods`: those that have a node and have not ended; `volumes`: None where nobody may tell
        them."""
        self._nodes = {node.metadata.name: node for node in nodes}
        self._pods = list(pods)
        self._owner = owner
        self._count = Counter(pod.spec.node_name for pod in self._pods)
        self._volumes = None if volumes is None else _reachable(volumes)
        self._images = _built_for(images)
        self._running = self._by_workload()
        self._asked: dict[Key, _Asked] = {}
        self._judged: dict[bytes, dict[str, bool]] = {}
        self._taken: dict[_Apart, Counter[str | None]] = {}

    def objection(self, pod: Pod) -> str:
        """Why a pod must stay where it is, whatever nodes there are."""
        if self._volumes is None and any(v.persistent_volume_claim for v in pod.spec.volumes):
            return "where its volumes can be reached is not known"
        return ""

    def why_not(self, pod: Pod, node: Node) -> str:
        """Why a pod cannot run on another node; empty: it can. Said of several such nodes."""
        asked = self._asked.get(pod.key)
        if asked is None:
            asked = self._asked[pod.key] = self._of(pod)
        name = node.metadata.name
        is_selected = asked.judged.get(name)
        if is_selected is None:
            is_selected = asked.judged[name] = asked.rules.fit(node).run
        if not is_selected:
            return "do not match its selectors or tolerations"
        if machine(node) not in asked.machines:
            return "may not run its images"
        if not all(nodeselector.matches_any(terms, node) for terms in asked.reach):
            return "do not reach its volumes"
        most = node.status.allocatable.get("pods")
        if most is not None and self._count[name] >= quantity.to_int(most):
            return "have no room for one more pod"
        if any(self._meets(pod, apart, node) for apart in asked.apart):
            return "have pods that it must be kept apart from"
        return ""

    def _of(self, pod: Pod) -> _Asked:
        affinity = pod.spec.affinity
        node_affinity = affinity.node_affinity if affinity else None
        required = node_affinity.required if node_affinity else None
        rules = Rules(
            "",
            pod.spec.node_selector,
            required.node_selector_terms if required else None,
            pod.spec.tolerations,
        )
        words = (pod.spec.node_selector, node_affinity, pod.spec.tolerations)
        judged = self._judged.setdefault(msgspec.json.encode(words), {})
        claims = (v.persistent_volume_claim for v in pod.spec.volumes)
        names = [c.claim_name for c in claims if c is not None]
        known = [(self._volumes or {}).get((pod.metadata.namespace, name)) for name in names]
        reach = [terms for terms in known if terms is not None]
        return _Asked(rules, judged, reach, _apart(pod), self._machines(pod))

    # -- images -----------------------------------------------------------------------------

    def _machines(self, pod: Pod) -> frozenset[Machine]:
        """Where its images run: here, where replicas of it run, and where they are built for."""
        found = set(self._running.get(self._workload(pod), ()))
        if pod.spec.node_name in self._nodes:
            found.add(machine(self._nodes[pod.spec.node_name]))
        if said := pod.metadata.annotations.get(_ARCHITECTURES):
            parsed = (platforms.parse(text) for text in said.split(",") if text.strip())
            return frozenset(found | {(p.os, p.arch) for p in parsed})
        written = _as_written(pod)
        built = [
            self._images.get(references.canonical(written.get(c.name, c.image)), frozenset())
            for c in (*pod.spec.containers, *pod.spec.init_containers)
        ]
        return frozenset(found).union(frozenset.intersection(*built) if built else ())

    def _by_workload(self) -> dict[tuple[str, Owner | None], set[Machine]]:
        found: dict[tuple[str, Owner | None], set[Machine]] = {}
        for pod in self._pods:
            if pod.is_ready and pod.spec.node_name in self._nodes:
                here = machine(self._nodes[pod.spec.node_name])
                found.setdefault(self._workload(pod), set()).add(here)
        return {key: machines for key, machines in found.items() if key[1] is not None}

    def _workload(self, pod: Pod) -> tuple[str, Owner | None]:
        return pod.metadata.namespace, self._owner(pod)

    # -- other pods -------------------------------------------------------------------------

    def _meets(self, pod: Pod, apart: _Apart, node: Node) -> bool:
        place = node.metadata.labels.get(apart.topology)
        if place is None:
            return False
        taken = self._taken.get(apart)
        if taken is None:
            matching = (p for p in self._pods if apart.means(p))
            taken = Counter(self._place(p, apart.topology) for p in matching)
            self._taken[apart] = taken
        is_itself = apart.means(pod) and self._place(pod, apart.topology) == place
        return taken[place] > is_itself

    def _place(self, pod: Pod, topology: str) -> str | None:
        node = self._nodes.get(pod.spec.node_name)
        return node.metadata.labels.get(topology) if node is not None else None


def machine(node: Node) -> Machine:
    """What a node is, by the labels its agent gives it; two that say nothing are alike."""
    labels = node.metadata.labels
    return labels.get(_OS, "linux"), labels.get(_ARCH, "")


def _apart(pod: Pod) -> list[_Apart]:
    affinity = pod.spec.affinity
    anti = affinity.pod_anti_affinity if affinity else None
    found = []
    for term in anti.required if anti else ():
        named = frozenset(term.namespaces)
        if not named and term.namespace_selector is None:
            named = frozenset((pod.metadata.namespace,))
        elif term.namespace_selector is not None:  # which they are is not known: more than enough
            named = frozenset()
        found.append(_Apart(named, Selector.of(term.label_selector), term.topology_key))
    return found


def _reachable(volumes: Iterable[PersistentVolume]) -> Volumes:
    found: dict[tuple[str, str], Sequence[NodeSelectorTerm] | None] = {}
    for volume in volumes:
        claim, affinity = volume.spec.claim_ref, volume.spec.node_affinity
        if claim is not None:
            required = affinity.required if affinity else None
            found[claim.namespace, claim.name] = required.node_selector_terms if required else None
    return found


def _built_for(images: Iterable[ImageMap]) -> dict[str, frozenset[Machine]]:
    """By image; where several objects speak of one, only what all of them say counts."""
    found: dict[str, frozenset[Machine]] = {}
    for one in (image for listed in images for image in listed.spec.images):
        listed = (platforms.normal(a.os, a.architecture) for a in one.architectures)
        machines = frozenset((p.os, p.arch) for p in listed)
        name = references.canonical(one.name)
        found[name] = machines & found[name] if name in found else machines
    return found


def _as_written(pod: Pod) -> dict[str, str]:
    text = pod.metadata.annotations.get(_AS_WRITTEN)
    if not text:
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except msgspec.MsgspecError:
        return {}
