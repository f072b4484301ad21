"""Protection of VolumeAttributesClasses: one that a claim or a volume names stays until none does.

Admission gives the class a finalizer when it is made; this controller takes it off a class that is
being deleted once nobody has, had, or is to have its attributes.
"""

from typing import ClassVar

from motley.api import status
from motley.api.views.base import Key, Object
from motley.api.views.storage import PersistentVolume, PersistentVolumeClaim
from motley.client.informer import Change
from motley.client.workqueue import WorkQueue
from motley.controllers.manager import Context
from motley.controllers.reconciler import Requeue

FINALIZER = "kubernetes.io/vac-protection"


class VolumeAttributesClass(Object):
    """A VolumeAttributesClass's metadata."""

    API_VERSION: ClassVar[str] = "storage.k8s.io/v1"
    KIND: ClassVar[str] = "VolumeAttributesClass"
    PLURAL: ClassVar[str] = "volumeattributesclasses"
    NAMESPACED: ClassVar[bool] = False


def classes_of(user: PersistentVolumeClaim | PersistentVolume | None) -> set[str]:
    """The classes that a claim or a volume names, in its spec or on the way to it."""
    if user is None:
        return set()
    named = {user.spec.volume_attributes_class_name}
    if isinstance(user, PersistentVolumeClaim):
        named.add(user.status.current_volume_attributes_class_name)
        if user.status.modify_volume_status is not None:
            named.add(user.status.modify_volume_status.target_volume_attributes_class_name)
    return {name for name in named if name}


class VolumeAttributesClassProtectionController:
    """See the module's docstring."""

    name = "volumeattributesclassprotection"
    workers = 1

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self.queue: WorkQueue[Key] = WorkQueue(context.clock)
        self._classes = context.informers.of(VolumeAttributesClass)
        self._classes.add_handler(lambda change: self.queue.add(change.key))
        context.informers.of(PersistentVolumeClaim).add_handler(self._user_changed)
        context.informers.of(PersistentVolume).add_handler(self._user_changed)

    def _user_changed(
        self, change: Change[PersistentVolumeClaim] | Change[PersistentVolume]
    ) -> None:
        for name in classes_of(change.old) - classes_of(change.new):
            self.queue.add(Key("", name))

    async def reconcile(self, key: Key) -> Requeue | None:
        """Let go of one class that is being deleted, if it is free."""
        found = self._classes.get(key)
        if found is None:
            return None
        meta = found.metadata
        if meta.deletion_timestamp is None or FINALIZER not in meta.finalizers:
            return None
        if await self._is_used(meta.name):
            return None
        patch = {
            "metadata": {
                "resourceVersion": meta.resource_version,
                "finalizers": [f for f in meta.finalizers if f != FINALIZER] or None,
            }
        }
        try:
            await self._client.patch(VolumeAttributesClass, meta.name, "", patch)
        except status.NotFound:
            return None
        return None

    async def _is_used(self, name: str) -> bool:
        """The server is asked: what was written a moment ago may not be in the cache yet."""
        claims = await self._client.list(PersistentVolumeClaim)
        if any(name in classes_of(claim) for claim in claims.items):
            return True
        volumes = await self._client.list(PersistentVolume)
        return any(name in classes_of(volume) for volume in volumes.items)
