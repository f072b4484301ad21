"""VolumeBinding: a pod runs only where its volumes are, or can be.

Bound claims tie a pod to the nodes their volumes can be reached from. A claim of a class that waits
for its first consumer is decided together with the pod: on each node the smallest free volume
that node can reach, else a volume that the class's provisioner makes there, if it has the room.
Before the pod is bound the choice is written down, and waited for until the binding controller
has carried it out. Of two nodes the one is better whose volumes the claims fill less.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from motley.api import intree, storage
from motley.api.views.base import Key
from motley.api.views.storage import (
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from motley.scheduler import attached, contract, events
from motley.scheduler.contract import SKIP, Api, Columns, Mask, PodInfo, Reject, Scores, Verdict
from motley.scheduler.feed import Feed
from motley.scheduler.plugins import shapes
from motley.scheduler.plugins.shapes import Shape, ShapePoint
from motley.scheduler.plugins.storage_capacity import Capacities, Fill, largest_volume
from motley.scheduler.plugins.volume_topology import allowed, reaches
from motley.scheduler.volumes import Promise, Volumes

_NOT_REACHABLE = "node(s) didn't match PersistentVolume's node affinity"
_NO_SPACE = "node(s) did not have enough free storage"
_MISSING = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
_NOTHING = -1
_LEAST_FILLED: Shape = (ShapePoint(0, 10), ShapePoint(100, 0))


class VolumeBindingArgs(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """`bindTimeoutSeconds`: how long a pod waits for its volumes to be made and bound.

    `shape`: how nodes are scored by the share of their volumes that the claims would fill.
    """

    bind_timeout_seconds: int = 600
    shape: Shape = _LEAST_FILLED

    def __post_init__(self) -> None:
        if self.bind_timeout_seconds < 0:
            raise ValueError("bindTimeoutSeconds is negative")
        shapes.check(self.shape)


class NotBound(Exception):
    """The volumes were not bound as decided; the pod is tried again."""


@dataclass(slots=True)
class _Choice:
    """For one claim: the volume of each row, as an index; where there is none, make one."""

    claim: PersistentVolumeClaim
    volumes: Sequence[PersistentVolume] = ()
    by_row: npt.NDArray[np.int64] | None = None

    def provisioned(self, size: int) -> Mask:
        """Where a volume has to be made."""
        if self.by_row is None:
            return np.ones(size, np.bool_)
        made: Mask = self.by_row == _NOTHING
        return made


@dataclass(slots=True)
class _State:
    """What one cycle finds out about a pod's claims."""

    bound: list[PersistentVolumeClaim] = field(default_factory=list)
    waiting: list[PersistentVolumeClaim] = field(default_factory=list)
    choices: list[_Choice] = field(default_factory=list)
    rejected: dict[str, Mask] = field(default_factory=dict)  # by reason; a row may have several


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
        events.CSINodeChanged,
        events.CSIDriverChanged,
        events.CapacityChanged,
    )
    removal_helps = False
    Args = VolumeBindingArgs

    def __init__(self, args: VolumeBindingArgs, handle: contract.Handle) -> None:
        self._timeout_s = float(args.bind_timeout_seconds)
        self._line = shapes.broken_line(args.shape)
        self._book: Volumes = handle.volumes
        self._nodes = handle.nodes
        self._attached = handle.volumes.attached(handle.nodes)
        self._capacities = Capacities(handle.volumes, handle.nodes)

    def follow(self, feed: Feed) -> None:
        """Claims, volumes and classes, and what drivers say of themselves."""
        self._book.follow(feed)
        self._book.follow_nodes(feed)
        self._book.follow_drivers(feed)
        self._book.follow_capacities(feed)

    # -- deciding ---------------------------------------------------------------------------

    def pre_filter(self, pod: PodInfo, nodes: Columns) -> Mask | Reject | Verdict | None:
        """Sort the pod's claims; some make any node impossible."""
        if not pod.volumes:
            return SKIP
        names = storage.claims_of(pod.pod)
        if not names:
            return SKIP
        state = _State()
        unbound = False
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
            if claim.status.phase == "Lost":
                gone = claim.spec.volume_name
                what = f'bound to non-existent persistentvolume "{gone}"'
                return Reject(f'persistentvolumeclaim "{key.name}" {what}')
            if claim.metadata.deletion_timestamp is not None:
                return Reject(f'persistentvolumeclaim "{key.name}" is being deleted')
            if why := storage.foreign(pod.pod, volume, claim):
                return Reject(why)
            if storage.is_fully_bound(claim):
                state.bound.append(claim)
            elif self._is_delayed(claim) and not claim.spec.volume_name:
                state.waiting.append(claim)
            else:
                unbound = True
        if unbound:
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
        state.rejected = {**self._check_bound(state, nodes), **self._choose(state, nodes)}
        mask = np.ones(nodes.size, np.bool_)
        for rejected in state.rejected.values():
            mask &= ~rejected
        return mask

    def _check_bound(self, state: _State, nodes: Columns) -> dict[str, Mask]:
        """The first claim that fails on a node says why."""
        unreachable, missing = np.zeros((2, nodes.size), np.bool_)
        fine = np.ones(nodes.size, np.bool_)
        for claim in state.bound:
            volume = self._book.volumes.get(Key("", claim.spec.volume_name))
            if volume is None:
                missing |= fine
                break
            reached = self._reaches(volume, nodes)
            unreachable |= fine & ~reached
            fine &= reached
        return {_NOT_REACHABLE: unreachable, _MISSING: missing}

    def _reaches(self, volume: PersistentVolume, nodes: Columns) -> Mask:
        """From which nodes; where a driver does a built-in plugin's work, in its labels."""
        plugin = intree.plugin_of(volume.spec)
        mask = reaches(volume.spec.node_affinity, nodes)
        if plugin:
            migrated = self._attached.is_migrated(plugin)
            if migrated.any():
                other = reaches(intree.affinity_by_driver(volume), nodes)
                mask = np.where(migrated, other, mask)
        return mask

    def _choose(self, state: _State, nodes: Columns) -> dict[str, Mask]:
        """Volumes for claims that wait, the smallest claim first so that it takes the least."""
        elsewhere, short = np.zeros((2, nodes.size), np.bool_)
        made: list[_Choice] = []
        found: list[_Choice] = []
        taken: dict[str, Mask] = {}
        for claim in state.waiting:
            selected = self._book.selected_node(claim)
            if selected is not None:
                there = np.zeros(nodes.size, np.bool_)
                there[nodes.rows_named([selected])] = True
                elsewhere |= ~there
                made.append(_Choice(claim))
        for claim in sorted(state.waiting, key=storage.requested):
            if self._book.selected_node(claim) is not None:
                continue
            volumes = self._book.free(claim)
            by_row = np.full(nodes.size, _NOTHING, np.int64)
            for index, volume in enumerate(volumes):
                used = taken.setdefault(volume.metadata.name, np.zeros(nodes.size, np.bool_))
                here = (by_row == _NOTHING) & ~used & reaches(volume.spec.node_affinity, nodes)
                by_row[here] = index
                used |= here
            found.append(_Choice(claim, volumes, by_row))
        state.choices = made + found
        fine = ~elsewhere
        unmatched = elsewhere
        for choice in state.choices:
            rows = fine & choice.provisioned(nodes.size)
            if rows.any():
                makeable, enough = self._can_be_made(choice.claim, nodes)
                unmatched = unmatched | (rows & ~makeable)
                short |= rows & makeable & ~enough
                fine &= ~rows | (makeable & enough)
        return {self.reason: unmatched, _NO_SPACE: short}

    def _can_be_made(self, claim: PersistentVolumeClaim, nodes: Columns) -> tuple[Mask, Mask]:
        """Where a volume may be made for the claim, and where there is room for it."""
        found = self._book.storage_class(claim)
        everywhere = np.ones(nodes.size, np.bool_)
        if found is None or found.provisioner in ("", storage.NO_PROVISIONER):
            return ~everywhere, everywhere
        makeable = everywhere
        if found.allowed_topologies:
            makeable = allowed(found.allowed_topologies, nodes)
        if not self._minds_capacity(found) or "storage" not in claim.spec.resources.requests:
            return makeable, everywhere
        largest = self._capacities.of(found.metadata.name).largest
        return makeable, largest >= float(storage.requested(claim))

    def _minds_capacity(self, storage_class: StorageClass) -> bool:
        driver = self._book.drivers.get(Key("", storage_class.provisioner))
        return driver is not None and driver.spec.storage_capacity

    def explain(self, pod: PodInfo, nodes: Columns, rejected: Mask) -> dict[str, int]:
        """Everything that is wrong with a node is a reason of its own."""
        state: _State = pod.state[self.name]
        counts = {
            reason: int(np.count_nonzero(rejected & mask))
            for reason, mask in state.rejected.items()
        }
        return {reason: count for reason, count in counts.items() if count}

    def may_help(self, pod: PodInfo, event: events.ClusterEvent) -> bool:
        """Of claims only the pod's own matter, of most objects only what is new about them."""
        match event:
            case events.ClaimChanged(claim):
                return claim.key in attached.claims_of(pod)
            case events.StorageClassChanged(new, StorageClass() as old):
                return new.allowed_topologies != old.allowed_topologies
            case events.CSINodeChanged(new, CSINode() as old):
                now, before = (n.metadata.annotations.get(intree.MIGRATED) for n in (new, old))
                return now != before
            case events.CSIDriverChanged(new, old):
                return old is not None and old.spec.storage_capacity > new.spec.storage_capacity
            case events.CapacityChanged(new, CSIStorageCapacity() as old):
                return (largest_volume(new) or 0) > (largest_volume(old) or 0)
            case _:
                return True

    # -- preferring -------------------------------------------------------------------------

    def pre_score(self, pod: PodInfo, nodes: Columns, feasible: Mask) -> Verdict | None:
        """Volumes that are bound already make no difference."""
        state: _State | None = pod.state.get(self.name)
        return None if state is not None and state.choices else SKIP

    def score(self, pod: PodInfo, nodes: Columns) -> Scores:
        """The mean over classes of how little the claims would fill; found volumes come first."""
        state: _State = pod.state[self.name]
        found, made = Fill(nodes.size), Fill(nodes.size)
        for choice in state.choices:
            size = float(storage.requested(choice.claim))
            kind = storage.claim_class(choice.claim)
            anew = choice.provisioned(nodes.size)
            if choice.by_row is not None:
                sizes = np.array([*map(storage.capacity, choice.volumes), 0.0], np.float64)
                found.add(kind, ~anew, size, sizes[choice.by_row])
            storage_class = self._book.storage_class(choice.claim)
            if storage_class is not None and self._minds_capacity(storage_class):
                total = self._capacities.of(kind).total
                made.add(kind, anew & (total >= 0), size, total, anew=True)
        scores: Scores = np.where(found.any, found.mean(self._line), made.mean(self._line))
        return scores

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
        self._book.promise(pod.uid, Promise(node, tuple(bindings), tuple(provisions)))
        return None

    def unreserve(self, pod: PodInfo, node: str) -> None:
        """Take the promise back; what was written of it already stays, and is found again."""
        self._book.release(pod.uid)

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
        self._book.release(pod.uid)

    def _is_bound(self, key: Key, promise: Promise) -> bool:
        claim = self._book.claims.get(key)
        if claim is None:
            raise NotBound(f'persistentvolumeclaim "{key.name}" is gone')
        volume = self._book.volumes.get(Key("", claim.spec.volume_name))
        if volume is not None:
            rows = self._nodes.rows_named([promise.node])
            if not rows or not self._reaches(volume, self._nodes)[rows[0]]:
                name = volume.metadata.name
                raise NotBound(f'pv "{name}" node affinity doesn\'t match node "{promise.node}"')
        elif any(key == provision.key for provision in promise.provisions):
            selected = claim.metadata.annotations.get(storage.SELECTED_NODE)
            if selected != promise.node:
                raise NotBound(f'provisioning failed for PVC "{key.name}"')
        return storage.is_fully_bound(claim)


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
_s: contract.Made[contract.ScorePlugin] = VolumeBinding
