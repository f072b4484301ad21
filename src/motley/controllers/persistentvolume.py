"""PersistentVolume binding: every claim gets its volume, every volume its claim, for good.

What to do is decided in `binding`; this is who reads and writes. A binding is four writes (volume,
its phase, claim, its phase) in an order that can be taken up again after any of them. There is one
worker, so that no two claims are promised the same volume, and own writes are seen at once
(`written`). Making and removing the storage itself is the provisioners' (see `localpath`).
"""

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from motley.api import status, storage
from motley.api.views.base import Key
from motley.api.views.pod import Pod
from motley.api.views.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from motley.client.informer import Change
from motley.client.workqueue import WorkQueue
from motley.controllers import binding
from motley.controllers.binding import Note
from motley.controllers.manager import Context
from motley.controllers.reconciler import Requeue
from motley.controllers.volumeprotection import claims_of
from motley.controllers.written import Written
from motley.lib import journal

log = journal.get(__name__)

_GONE = ("Released", "Failed")


class Subject(NamedTuple):
    """What to look at; a volume's key has no namespace."""

    kind: Literal["claim", "volume"]
    key: Key


def by_claim(pod: Pod) -> Iterable[str]:
    """Find pods by the claims they use."""
    return (str(key) for key in claims_of(pod))


def by_claim_reference(volume: PersistentVolume) -> Iterable[str]:
    """Find volumes by the claim they name."""
    ref = volume.spec.claim_ref
    return (f"{ref.namespace}/{ref.name}",) if ref is not None else ()


class PersistentVolumeBinder:
    """See the module's docstring."""

    name = "persistentvolumebinder"
    workers = 1

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._recorder = context.recorder.source("persistentvolume-controller")
        self.queue: WorkQueue[Subject] = WorkQueue(context.clock)
        self._claims = context.informers.of(PersistentVolumeClaim)
        self._volumes = context.informers.of(PersistentVolume)
        self._classes = context.informers.of(StorageClass)
        self._pods = context.informers.of(Pod)
        self._pods.add_index("claim", by_claim)
        self._volumes.add_index("claim", by_claim_reference)
        self._written_claims: Written[PersistentVolumeClaim] = Written(self._claims, context.clock)
        self._written_volumes: Written[PersistentVolume] = Written(self._volumes, context.clock)
        self._claims.add_handler(self._claim_changed)
        self._volumes.add_handler(self._volume_changed)
        self._classes.add_handler(lambda _: self._wake_pending())
        self._pods.add_handler(self._pod_changed)

    # -- what wakes it ----------------------------------------------------------------------

    def _claim_changed(self, change: Change[PersistentVolumeClaim]) -> None:
        self.queue.add(Subject("claim", change.key))
        for volume in self._volumes.by_index("claim", str(change.key)):
            self.queue.add(Subject("volume", volume.key))

    def _volume_changed(self, change: Change[PersistentVolume]) -> None:
        self.queue.add(Subject("volume", change.key))
        ref = change.object.spec.claim_ref
        if ref is not None:
            self.queue.add(Subject("claim", Key(ref.namespace, ref.name)))
        elif change.new is not None:
            self._wake_pending(storage.volume_class(change.new))

    def _pod_changed(self, change: Change[Pod]) -> None:
        if change.new is None or change.old is not None:
            return
        for key in claims_of(change.new):
            claim = self._claims.get(key)
            if claim is not None and not storage.is_fully_bound(claim):
                self.queue.add(Subject("claim", key))

    def _wake_pending(self, name: str | None = None) -> None:
        for claim in self._claims.items():
            if not storage.is_fully_bound(claim) and name in (None, storage.claim_class(claim)):
                self.queue.add(Subject("claim", claim.key))

    # -- what it does -----------------------------------------------------------------------

    async def reconcile(self, key: Subject) -> Requeue | None:
        """One step of a claim or a volume; the change it makes wakes the next."""
        try:
            if key.kind == "claim":
                await self._claim(key.key)
            else:
                await self._volume(key.key)
        except status.NotFound:
            log.debug("gone meanwhile", kind=key.kind, key=key.key)
        return None

    async def _claim(self, key: Key) -> None:
        claim = self._written_claims.get(key)
        if claim is None:
            return
        around = binding.Surroundings(
            self._written_volumes.over(self._volumes.items()),
            self._classes.items(),
            self._pods.by_index("claim", str(key)),
        )
        step = binding.claim_step(claim, around)
        match step:
            case binding.Bind(volume):
                await self._bind(volume, claim)
            case binding.Lost(note):
                if claim.status.phase != "Lost":
                    await self._claim_status(claim, "Lost")
                    self._note(claim, note)
            case binding.AssignClass(name):
                log.info("default class assigned", claim=key, storage_class=name)
                await self._patch_claim(claim, {"spec": {"storageClassName": name}})
            case binding.Provision(provisioner, note):
                await self._ask(claim, provisioner, note)
            case binding.Pending(note):
                if note is not None:
                    self._note(claim, note)
                await self._claim_status(claim, "Pending")

    async def _ask(self, claim: PersistentVolumeClaim, provisioner: str, note: Note) -> None:
        """The annotations are how a claim reaches its provisioner, ours as any other."""
        marks = {storage.BETA_PROVISIONER: provisioner, storage.PROVISIONER: provisioner}
        if not marks.items() <= claim.metadata.annotations.items():
            claim = await self._patch_claim(claim, {"metadata": {"annotations": marks}})
            self._note(claim, note)
        await self._claim_status(claim, "Pending")

    async def _volume(self, key: Key) -> None:
        volume = self._written_volumes.get(key)
        if volume is None:
            return
        claim = await self._claim_of(volume)
        step = binding.volume_step(volume, claim)
        match step:
            case binding.SetPhase(phase):
                await self._volume_status(volume, phase)
            case binding.WakeClaim():
                assert claim is not None
                self.queue.add(Subject("claim", claim.key))
            case binding.Mismatch(on_volume, on_claim):
                assert claim is not None
                self._note(volume, on_volume)
                self._note(claim, on_claim)
            case binding.Unbind():
                await self._unbind(volume)
            case binding.Reclaim(failed):
                if volume.status.phase not in _GONE:
                    log.info("volume released", volume=key.name)
                    volume = await self._volume_status(volume, "Released")
                if failed is not None and volume.status.phase != "Failed":
                    volume = await self._volume_status(volume, "Failed", failed.message)
                    self._note(volume, failed)

    async def _claim_of(self, volume: PersistentVolume) -> PersistentVolumeClaim | None:
        """The claim a volume names. The server is asked before a volume is given up: the claim
        may be so new that it is in no cache."""
        ref = volume.spec.claim_ref
        if ref is None or not ref.uid:
            return None
        found = self._written_claims.get(Key(ref.namespace, ref.name))
        if (found is None or found.metadata.uid != ref.uid) and volume.status.phase not in _GONE:
            try:
                return await self._client.get(PersistentVolumeClaim, ref.name, ref.namespace)
            except status.NotFound:
                return None
        return found

    # -- writing ----------------------------------------------------------------------------

    async def _bind(self, volume: PersistentVolume, claim: PersistentVolumeClaim) -> None:
        ref, meta = volume.spec.claim_ref, claim.metadata
        if ref is None or (ref.namespace, ref.name, ref.uid) != (*claim.key, meta.uid):
            body: dict[str, Any] = {"spec": {"claimRef": reference(claim)}}
            if not storage.is_for(volume, claim):
                body["metadata"] = {"annotations": {storage.BOUND_BY_CONTROLLER: "yes"}}
            volume = await self._patch_volume(volume, body)
        volume = await self._volume_status(volume, "Bound")
        is_named = claim.spec.volume_name == volume.metadata.name
        if not is_named or storage.BIND_COMPLETED not in meta.annotations:
            marks = {storage.BIND_COMPLETED: "yes"}
            if not is_named:
                marks[storage.BOUND_BY_CONTROLLER] = "yes"
            body = {
                "metadata": {"annotations": marks},
                "spec": {"volumeName": volume.metadata.name},
            }
            claim = await self._patch_claim(claim, body)
            log.info("claim bound", claim=claim.key, volume=volume.metadata.name)
        await self._claim_status(claim, "Bound", volume)

    async def _unbind(self, volume: PersistentVolume) -> None:
        if storage.BOUND_BY_CONTROLLER in volume.metadata.annotations:
            annotations = {storage.BOUND_BY_CONTROLLER: None}
            body: dict[str, Any] = {
                "metadata": {"annotations": annotations},
                "spec": {"claimRef": None},
            }
        else:
            body = {"spec": {"claimRef": {"uid": None}}}
        await self._volume_status(await self._patch_volume(volume, body), "Available")

    async def _claim_status(
        self, claim: PersistentVolumeClaim, phase: str, volume: PersistentVolume | None = None
    ) -> None:
        state = claim.status
        change: dict[str, Any] = {}
        if state.phase != phase:
            change["phase"] = phase
        modes = volume.spec.access_modes if volume is not None else []
        if state.access_modes != modes:
            change["accessModes"] = modes or None
        # Of a claim that is bound already its size is the business of whoever made it grow.
        sizes = volume.spec.capacity if volume is not None else {}
        if (volume is None or "phase" in change) and state.capacity != sizes:
            change["capacity"] = sizes or None
        if change:
            await self._patch_claim(claim, {"status": change}, "status")

    async def _volume_status(
        self, volume: PersistentVolume, phase: str, message: str = ""
    ) -> PersistentVolume:
        if volume.status.phase == phase:
            return volume
        body = {"status": {"phase": phase, "message": message or None}}
        return await self._patch_volume(volume, body, "status")

    async def _patch_claim(
        self, claim: PersistentVolumeClaim, body: dict[str, Any], subresource: str = ""
    ) -> PersistentVolumeClaim:
        meta = claim.metadata
        changed = await self._client.patch(
            PersistentVolumeClaim,
            meta.name,
            meta.namespace,
            _conditional(body, meta.resource_version),
            subresource=subresource,
        )
        self._written_claims.put(changed)
        return changed

    async def _patch_volume(
        self, volume: PersistentVolume, body: dict[str, Any], subresource: str = ""
    ) -> PersistentVolume:
        meta = volume.metadata
        changed = await self._client.patch(
            PersistentVolume,
            meta.name,
            "",
            _conditional(body, meta.resource_version),
            subresource=subresource,
        )
        self._written_volumes.put(changed)
        return changed

    def _note(self, found: PersistentVolume | PersistentVolumeClaim, note: Note) -> None:
        self._recorder.event(found, note.type, note.reason, note.message)


def reference(claim: PersistentVolumeClaim) -> dict[str, str]:
    """How a volume names a claim."""
    meta = claim.metadata
    return {
        "apiVersion": claim.API_VERSION,
        "kind": claim.KIND,
        "namespace": meta.namespace,
        "name": meta.name,
        "uid": meta.uid,
        "resourceVersion": meta.resource_version,
    }


def _conditional(body: dict[str, Any], resource_version: str) -> dict[str, Any]:
    """Only if it is still what was decided on."""
    metadata = {**body.get("metadata", {}), "resourceVersion": resource_version}
    return {**body, "metadata": metadata}
