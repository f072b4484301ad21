"""local-path: a provisioner whose volumes are directories of the node the pod runs on.

It works as any other provisioner: a claim comes to it by an annotation that the binder writes, the
volume it makes names the claim, and the binder binds the two. A released volume's directory is
removed by a pod on its node, then the volume goes. Growing is a matter of words: a directory has
no size of its own.
"""

from motley.api import status, storage
from motley.api.views.base import Key
from motley.api.views.core import Node
from motley.api.views.pod import Pod
from motley.api.views.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from motley.client.informer import Change
from motley.client.workqueue import WorkQueue
from motley.controllers import localvolume
from motley.controllers.localvolume import HELPER_NAMESPACE, Unsuitable
from motley.controllers.manager import Context
from motley.controllers.persistentvolume import Subject, reference
from motley.controllers.reconciler import Requeue, Terminal
from motley.lib import journal

log = journal.get(__name__)

_LAG_S = 1.0  # a node that the server knows is in the cache by then


class LocalPathProvisioner:
    """See the module's docstring."""

    name = "localpath"
    workers = 4

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._recorder = context.recorder.source(localvolume.PROVISIONER)
        self.queue: WorkQueue[Subject] = WorkQueue(context.clock)
        self._claims = context.informers.of(PersistentVolumeClaim)
        self._volumes = context.informers.of(PersistentVolume)
        self._classes = context.informers.of(StorageClass)
        self._nodes = context.informers.of(Node)
        self._pods = context.informers.of(Pod)
        self._claims.add_handler(lambda change: self.queue.add(Subject("claim", change.key)))
        self._volumes.add_handler(self._volume_changed)
        self._classes.add_handler(self._class_changed)
        self._nodes.add_handler(self._node_changed)
        self._pods.add_handler(self._pod_changed)

    def _node_changed(self, change: Change[Node]) -> None:
        if change.old is None or change.new is None:
            for claim in self._claims.items():
                if not storage.is_fully_bound(claim):
                    self.queue.add(Subject("claim", claim.key))

    def _volume_changed(self, change: Change[PersistentVolume]) -> None:
        if localvolume.is_ours(change.object):
            self.queue.add(Subject("volume", change.key))

    def _class_changed(self, change: Change[StorageClass]) -> None:
        for claim in self._claims.items():
            if storage.claim_class(claim) == change.key.name:
                self.queue.add(Subject("claim", claim.key))

    def _pod_changed(self, change: Change[Pod]) -> None:
        """A helper got further; its name says whose it is."""
        prefix = "local-path-delete-"
        if change.key.namespace == HELPER_NAMESPACE and change.key.name.startswith(prefix):
            name = change.key.name.removeprefix(prefix)
            self.queue.add(Subject("volume", Key("", name)))

    async def reconcile(self, key: Subject) -> Requeue | None:
        """Make a volume, let one grow, or remove one."""
        if key.kind == "claim":
            claim = self._claims.get(key.key)
            if claim is not None and claim.metadata.deletion_timestamp is None:
                await self._claim(claim)
            return None
        volume = self._volumes.get(key.key)
        if volume is None:
            await self._forget_helper(f"local-path-delete-{key.key.name}")
        elif localvolume.is_ours(volume):
            await self._reclaim(volume)
        return None

    # -- making -----------------------------------------------------------------------------

    async def _claim(self, claim: PersistentVolumeClaim) -> None:
        annotations = claim.metadata.annotations
        asked = annotations.get(storage.PROVISIONER) or annotations.get(storage.BETA_PROVISIONER)
        if asked != localvolume.PROVISIONER:
            return
        storage_class = self._classes.get(Key("", storage.claim_class(claim)))
        if storage.is_fully_bound(claim):
            await self._grow(claim, storage_class)
        elif (
            not claim.spec.volume_name
            and storage_class is not None
            and storage_class.provisioner == localvolume.PROVISIONER
        ):
            await self._make(claim, storage_class)

    async def _make(self, claim: PersistentVolumeClaim, storage_class: StorageClass) -> None:
        node = self._node(claim, storage_class)
        if node is None:
            await self._choose_again(claim)
            return
        name = localvolume.name_of(claim)
        if self._volumes.get(Key("", name)) is not None:
            return
        try:
            body = localvolume.volume(claim, storage_class, node, reference(claim))
            await self._client.create(PersistentVolume, body)
        except Unsuitable as why:
            await self._refuse(claim, storage_class, str(why))
        except status.AlreadyExists:
            log.debug("volume exists already", volume=name)
        except status.Invalid as error:
            await self._refuse(claim, storage_class, error.message)
        else:
            log.info("volume provisioned", claim=claim.key, volume=name, node=node.metadata.name)
            message = f"Successfully provisioned volume {name}"
            self._recorder.event(claim, "Normal", "ProvisioningSucceeded", message)

    def _node(self, claim: PersistentVolumeClaim, storage_class: StorageClass) -> Node | None:
        """The node the scheduler chose; a class that does not wait for it gets the node that
        carries the fewest volumes, ready ones first."""
        if storage_class.volume_binding_mode == storage.WAIT_FOR_FIRST_CONSUMER:
            selected = claim.metadata.annotations.get(storage.SELECTED_NODE)
            return self._nodes.get(Key("", selected)) if selected else None
        carried = [localvolume.node_of(v) for v in self._volumes.items() if localvolume.is_ours(v)]
        return min(
            (n for n in self._nodes.items() if not n.spec.unschedulable),
            key=lambda n: (not n.is_ready, carried.count(n.metadata.name), n.metadata.name),
            default=None,
        )

    async def _choose_again(self, claim: PersistentVolumeClaim) -> None:
        """The node that was chosen has gone: without the mark the scheduler chooses another."""
        selected = claim.metadata.annotations.get(storage.SELECTED_NODE)
        if not selected:
            return
        try:
            await self._client.get(Node, selected)
        except status.NotFound:
            meta = claim.metadata
            change = {
                "metadata": {
                    "resourceVersion": meta.resource_version,
                    "annotations": {storage.SELECTED_NODE: None},
                }
            }
            await self._client.patch(PersistentVolumeClaim, meta.name, meta.namespace, change)
        else:
            self.queue.add_after(Subject("claim", claim.key), _LAG_S)

    async def _refuse(
        self, claim: PersistentVolumeClaim, storage_class: StorageClass, why: str
    ) -> None:
        name = storage_class.metadata.name
        message = f'failed to provision volume with StorageClass "{name}": {why}'
        self._recorder.event(claim, "Warning", "ProvisioningFailed", message)
        raise Terminal(message)

    async def _grow(self, claim: PersistentVolumeClaim, storage_class: StorageClass | None) -> None:
        volume = self._volumes.get(Key("", claim.spec.volume_name))
        if volume is None or not localvolume.is_ours(volume) or claim.status.phase != "Bound":
            return
        size = claim.spec.resources.requests.get("storage", "0")
        may_grow = storage_class is not None and storage_class.allow_volume_expansion
        if storage.capacity(volume) < storage.requested(claim):
            if not may_grow:
                return
            change = {
                "metadata": {"resourceVersion": volume.metadata.resource_version},
                "spec": {"capacity": {"storage": size}},
            }
            volume = await self._client.patch(PersistentVolume, volume.metadata.name, "", change)
        if claim.status.capacity != volume.spec.capacity:
            meta = claim.metadata
            state = {
                "metadata": {"resourceVersion": meta.resource_version},
                "status": {"capacity": volume.spec.capacity},
            }
            await self._client.patch(
                PersistentVolumeClaim, meta.name, meta.namespace, state, subresource="status"
            )
            log.info("volume grown", claim=claim.key, size=size)
            self._recorder.event(
                claim, "Normal", "VolumeResizeSuccessful", "Resize volume succeeded"
            )

    # -- removing ---------------------------------------------------------------------------

    async def _reclaim(self, volume: PersistentVolume) -> None:
        policy, phase = volume.spec.persistent_volume_reclaim_policy, volume.status.phase
        is_leaving = volume.metadata.deletion_timestamp is not None
        if policy != "Delete":
            if is_leaving and phase != "Bound":
                await self._let_go(volume)  # its files are to be kept
            return
        if phase not in ("Released", "Failed") and not (is_leaving and phase != "Bound"):
            return
        if await self._is_removed(volume):
            await self._let_go(volume)
            if not is_leaving:
                await self._delete(PersistentVolume, Key("", volume.metadata.name))
            await self._forget_helper(localvolume.helper_name(volume))

    async def _is_removed(self, volume: PersistentVolume) -> bool:
        """Is the directory gone? A pod sees to it, one step each time this is asked."""
        node = localvolume.node_of(volume)
        if self._nodes.get(Key("", node)) is None:
            message = f"node {node} is gone, and the volume's files with it"
            self._recorder.event(volume, "Normal", "VolumeDelete", message)
            return True
        key = Key(HELPER_NAMESPACE, localvolume.helper_name(volume))
        helper = self._pods.get(key)
        if helper is None:
            try:
                await self._client.create(Pod, localvolume.helper(volume), key.namespace)
            except Unsuitable as error:
                await self._fail(volume, str(error))
                raise Terminal(str(error)) from None
            except status.AlreadyExists:
                log.debug("helper exists already", pod=key)
            return False
        if helper.status.phase == "Succeeded":
            return True
        if helper.status.phase == "Failed":
            why = helper.status.message or "the pod that was to remove its files has failed"
            await self._fail(volume, why)
            await self._delete(Pod, key)
            raise status.InternalError(f"volume {volume.metadata.name}: {why}")  # again, later
        return False

    async def _fail(self, volume: PersistentVolume, why: str) -> None:
        self._recorder.event(volume, "Warning", "VolumeFailedDelete", why)
        if volume.status.phase != "Failed":
            state = {"status": {"phase": "Failed", "message": why}}
            await self._client.patch(
                PersistentVolume, volume.metadata.name, "", state, subresource="status"
            )

    async def _let_go(self, volume: PersistentVolume) -> None:
        meta = volume.metadata
        if localvolume.FINALIZER not in meta.finalizers:
            return
        kept = [f for f in meta.finalizers if f != localvolume.FINALIZER]
        change = {
            "metadata": {"resourceVersion": meta.resource_version, "finalizers": kept or None}
        }
        try:
            await self._client.patch(PersistentVolume, meta.name, "", change)
        except status.NotFound:
            log.debug("volume is gone already", volume=meta.name)

    async def _forget_helper(self, name: str) -> None:
        if self._pods.get(Key(HELPER_NAMESPACE, name)) is not None:
            await self._delete(Pod, Key(HELPER_NAMESPACE, name))

    async def _delete(self, kind: type[Pod] | type[PersistentVolume], key: Key) -> None:
        try:
            await self._client.delete(kind, key.name, key.namespace)
        except status.NotFound:
            log.debug("gone already", kind=kind.KIND, key=key)
