"""VolumeBinding: a pod runs only where its volumes are, or can be.

Bound claims tie a pod to the nodes their volumes can be reached from. A claim of a class that waits
for its first consumer is decided together with the pod: on each node the smallest free volume
that node can reach, else a volume that the class's provisioner makes there. Before the pod is
bound the choice is written down, and waited for until the binding controller has carried it out.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from motley.api import storage
from motley.api.views.base import Key
from motley.api.views.pod import NodeSelectorRequirement, NodeSelectorTerm
from motley.api.views.storage import PersistentVolume, PersistentVolumeClaim
from motley.scheduler import contract, events
from motley.scheduler.contract import SKIP, Api, Columns, Mask, PodInfo, Reject, Verdict
from motley.scheduler.feed import Feed
from motley.scheduler.plugins.node_affinity import match_term
from motley.scheduler.volumes import Promise, Volumes

_NOT_REACHABLE = "node(s) didn't match PersistentVolume's node affinity"
_MISSING = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
_NOTHING = -1


class VolumeBindingArgs(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """`bindTimeoutSeconds`: how long a pod waits for its volumes to be made and bound."""

    bind_timeout_seconds: int = 600

    def __post_init__(self) -> None:
        if self.bind_timeout_seconds < 0:
            raise ValueError("bindTimeoutSeconds is negative")


class NotBound(Exception):
    """The volumes were not bound as decided; the pod is tried again."""


@dataclass(slots=True)
class _Choice:
    """For one claim: the volume of each row, as an index; where there is none, make one."""

    claim: PersistentVolumeClaim
    volumes: Sequence[PersistentVolume] = ()
    by_row: npt.NDArray[np.int64] | None = None


@dataclass(slots=True)
class _State:
    """What one cycle finds out about a pod's claims."""

    bound: list[PersistentVolumeClaim] = field(default_factory=list)
    waiting: list[PersistentVolumeClaim] = field(default_factory=list)
    choices: list[_Choice] = field(default_factory=list)
    rejected: dict[str, Mask] = field(default_factory=dict)  # by reason


def claim_keys(pod: PodInfo) -> list[Key]:
    """The claims a pod's volumes name."""
    return [Key(pod.key.namespace, name) for name in storage.claims_of(pod.pod).values()]


class VolumeBinding:
    """See the module's docstring."""

    name = "VolumeBinding"
    reason = "node(s) didn't find available persistent volumes to bind"
    wakes_on = (
        events.NodeAdded,
        events.NodeLabelsChanged,
        events.ClaimChanged,
        events.VolumeChanged,
        events.StorageClassChanged,
    )
    removal_helps = False
    Args = VolumeBindingArgs

    def __init__(self, args: VolumeBindingArgs, handle: contract.Handle) -> None:
        self._timeout_s = float(args.bind_timeout_seconds)
        self._book: Volumes = handle.volumes
        self._nodes = handle.nodes

    def follow(self, feed: Feed) -> None:
        """Claims, volumes and classes."""
        self._book.follow(feed)

    # -- deciding ---------------------------------------------------------------------------

    def pre_filter(self, pod: PodInfo, nodes: Columns) -> Mask | Reject | Verdict | None:
        """Sort the pod's claims; some make any node impossible."""
        names = storage.claims_of(pod.pod)
        if not names:
            return SKIP
        state = _State()
        for volume in pod.pod.spec.volumes:
            if volume.name not in names:
                continue
            key = Key(pod.key.namespace, names[volume.name])
            claim = self._book.claims.get(key)
            if claim is None and volume.ephemeral is not None:
                what = "waiting for ephemeral volume controller to create the"
                return Reject(f'{what} persistentvolumeclaim "{key.name}"')
            if claim is None:
                return Reject(f'persistentvolumeclaim "{key.name}" not found')
            if why := storage.foreign(pod.pod, volume, claim):
                return Reject(why)
            if claim.status.phase == "Lost":
                gone = claim.spec.volume_name
                what = f'bound to non-existent persistentvolume "{gone}"'
                return Reject(f'persistentvolumeclaim "{key.name}" {what}')
            if claim.metadata.deletion_timestamp is not None:
                return Reject(f'persistentvolumeclaim "{key.name}" is being deleted')
            if storage.is_fully_bound(claim):
                state.bound.append(claim)
            elif self._is_delayed(claim) and not claim.spec.volume_name:
                state.waiting.append(claim)
            else:
                return Reject("pod has unbound immediate PersistentVolumeClaims")
        pod.state[self.name] = state
        return None

    def _is_delayed(self, claim: PersistentVolumeClaim) -> bool:
        found = self._book.storage_class(claim)
        return found is not None and found.volume_binding_mode == storage.WAIT_FOR_FIRST_CONSUMER

    def filter(self, pod: PodInfo, nodes: Columns) -> Mask:
        """True where every volume is, or can be."""
        state: _State = pod.state[self.name]
        state.choices.clear()
        everywhere = np.ones(nodes.size, np.bool_)
        reachable, exists = everywhere.copy(), everywhere.copy()
        for claim in state.bound:
            volume = self._book.volumes.get(Key("", claim.spec.volume_name))
            if volume is None:
                exists[:] = False
            else:
                reachable &= reaches(volume, nodes)
        possible = self._choose(state, nodes)
        state.rejected = {
            _NOT_REACHABLE: ~reachable,
            self.reason: reachable & ~possible,
            _MISSING: reachable & possible & ~exists,
        }
        return reachable & possible & exists

    def _choose(self, state: _State, nodes: Columns) -> Mask:
        """Volumes for claims that wait, the smallest claim first so that it takes the least."""
        possible = np.ones(nodes.size, np.bool_)
        taken: dict[str, Mask] = {}
        for claim in sorted(state.waiting, key=storage.requested):
            selected = self._book.selected_node(claim)
            if selected is not None:
                there = np.zeros(nodes.size, np.bool_)
                there[nodes.rows_named([selected])] = True
                possible &= there & self._can_be_made(claim, nodes)
                state.choices.append(_Choice(claim))
                continue
            found = self._book.free(claim)
            by_row = np.full(nodes.size, _NOTHING, np.int64)
            for index, volume in enumerate(found):
                used = taken.setdefault(volume.metadata.name, np.zeros(nodes.size, np.bool_))
                here = (by_row == _NOTHING) & ~used & reaches(volume, nodes)
                by_row[here] = index
                used |= here
            state.choices.append(_Choice(claim, found, by_row))
            possible &= (by_row != _NOTHING) | self._can_be_made(claim, nodes)
        return possible

    def _can_be_made(self, claim: PersistentVolumeClaim, nodes: Columns) -> Mask:
        found = self._book.storage_class(claim)
        if found is None or found.provisioner in ("", storage.NO_PROVISIONER):
            return np.zeros(nodes.size, np.bool_)
        if not found.allowed_topologies:
            return np.ones(nodes.size, np.bool_)
        return _any(map(_topology, found.allowed_topologies), nodes)

    def explain(self, pod: PodInfo, nodes: Columns, rejected: Mask) -> dict[str, int]:
        """Each node under what is wrong with it first."""
        state: _State = pod.state[self.name]
        counts = {
            reason: int(np.count_nonzero(rejected & mask))
            for reason, mask in state.rejected.items()
        }
        return {reason: count for reason, count in counts.items() if count}

    def may_help(self, pod: PodInfo, event: events.ClusterEvent) -> bool:
        """Of claims only the pod's own matter."""
        return not isinstance(event, events.ClaimChanged) or event.claim.key in claim_keys(pod)

    # -- promising and keeping --------------------------------------------------------------

    def reserve(self, pod: PodInfo, node: str) -> Reject | None:
        """Promise the node's choice to the pod."""
        state: _State | None = pod.state.get(self.name)
        if state is None or not state.choices:
            return None
        row = self._nodes.rows[node]
        bindings, provisions = [], []
        for choice in state.choices:
            index = _NOTHING if choice.by_row is None else int(choice.by_row[row])
            if index == _NOTHING:
                provisions.append(choice.claim)
            else:
                bindings.append((choice.volumes[index], choice.claim))
        self._book.promises[pod.uid] = Promise(node, tuple(bindings), tuple(provisions))
        return None

    def unreserve(self, pod: PodInfo, node: str) -> None:
        """Take the promise back; what was written of it already stays, and is found again."""
        self._book.promises.pop(pod.uid, None)

    def waits_s(self, pod: PodInfo) -> float:
        """How long `pre_bind` may take; 0 for a pod whose volumes are all bound."""
        return self._timeout_s if pod.uid in self._book.promises else 0.0

    async def pre_bind(self, pod: PodInfo, node: str, api: Api) -> None:
        """Write the choice, and wait until it has come true. Raises NotBound."""
        promise = self._book.promises.get(pod.uid)
        if promise is None:
            return
        for volume, claim in promise.bindings:
            changed = await api.patch(PersistentVolume, volume.key, _claimed(volume, claim))
            self._book.set_volume(changed.key, changed)
        for claim in promise.provisions:
            if claim.metadata.annotations.get(storage.SELECTED_NODE) != node:
                marked = await api.patch(PersistentVolumeClaim, claim.key, _selected(claim, node))
                self._book.set_claim(marked.key, marked)
        claims = [*(claim for _, claim in promise.bindings), *promise.provisions]
        while not all([self._is_bound(claim.key, promise) for claim in claims]):
            await self._book.changed()
        self._book.promises.pop(pod.uid, None)

    def _is_bound(self, key: Key, promise: Promise) -> bool:
        claim = self._book.claims.get(key)
        if claim is None:
            raise NotBound(f'persistentvolumeclaim "{key.name}" is gone')
        volume = self._book.volumes.get(Key("", claim.spec.volume_name))
        if volume is not None:
            rows = self._nodes.rows_named([promise.node])
            if not rows or not reaches(volume, self._nodes)[rows[0]]:
                name = volume.metadata.name
                raise NotBound(f'pv "{name}" node affinity doesn\'t match node "{promise.node}"')
        elif any(key == provision.key for provision in promise.provisions):
            selected = claim.metadata.annotations.get(storage.SELECTED_NODE)
            if selected != promise.node:
                raise NotBound(f'provisioning failed for PVC "{key.name}"')
        return storage.is_fully_bound(claim)


def reaches(volume: PersistentVolume, nodes: Columns) -> Mask:
    """From which nodes a volume can be reached."""
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return np.ones(nodes.size, np.bool_)
    return _any(affinity.required.node_selector_terms, nodes)


def _any(terms: Iterable[NodeSelectorTerm], nodes: Columns) -> Mask:
    mask = np.zeros(nodes.size, np.bool_)
    for term in terms:
        mask |= match_term(term, nodes)
    return mask


def _topology(term: dict[str, Any]) -> NodeSelectorTerm:
    return NodeSelectorTerm(
        match_expressions=[
            NodeSelectorRequirement(key=e["key"], operator="In", values=e.get("values") or [])
            for e in term.get("matchLabelExpressions") or []
        ]
    )


def _claimed(volume: PersistentVolume, claim: PersistentVolumeClaim) -> dict[str, Any]:
    meta = claim.metadata
    metadata: dict[str, Any] = {"resourceVersion": volume.metadata.resource_version}
    if not storage.is_for(volume, claim):
        metadata["annotations"] = {storage.BOUND_BY_CONTROLLER: "yes"}
    reference = {
        "apiVersion": claim.API_VERSION,
        "kind": claim.KIND,
        "namespace": meta.namespace,
        "name": meta.name,
        "uid": meta.uid,
        "resourceVersion": meta.resource_version,
    }
    return {"metadata": metadata, "spec": {"claimRef": reference}}


def _selected(claim: PersistentVolumeClaim, node: str) -> dict[str, Any]:
    return {
        "metadata": {
            "resourceVersion": claim.metadata.resource_version,
            "annotations": {storage.SELECTED_NODE: node},
        }
    }


_f: contract.Made[contract.FilterPlugin] = VolumeBinding
_r: contract.Made[contract.ReservePlugin] = VolumeBinding
_p: contract.Made[contract.PreBindPlugin] = VolumeBinding
