"""Volume protection: a claim that pods use, and a volume that is bound, stay until they are free.

Admission gives both a finalizer when they are made; this controller takes it off an object that is
being deleted once nobody uses it.
"""

from typing import NamedTuple

from motley.api import status, storage
from motley.api.views.base import Key, Object
from motley.api.views.pod import Pod
from motley.api.views.storage import PersistentVolume, PersistentVolumeClaim
from motley.client.informer import Change
from motley.client.workqueue import WorkQueue
from motley.controllers.manager import Context
from motley.controllers.reconciler import Requeue

CLAIM_FINALIZER = "kubernetes.io/pvc-protection"
VOLUME_FINALIZER = "kubernetes.io/pv-protection"
_FINISHED = ("Succeeded", "Failed")


class Protected(NamedTuple):
    """What to look at: a claim has a namespace, a volume has none."""

    kind: str
    key: Key


def claims_of(pod: Pod) -> set[Key]:
    """The claims a pod uses; one that has ended uses none."""
    if pod.status.phase in _FINISHED:
        return set()
    return {Key(pod.metadata.namespace, name) for name in storage.claims_of(pod).values()}


class VolumeProtectionController:
    """See the module's docstring."""

    name = "volumeprotection"
    workers = 1

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self.queue: WorkQueue[Protected] = WorkQueue(context.clock)
        self._pods = context.informers.of(Pod)
        self._claims = context.informers.of(PersistentVolumeClaim)
        self._volumes = context.informers.of(PersistentVolume)
        self._pods.add_handler(self._pod_changed)
        self._claims.add_handler(lambda c: self.queue.add(Protected("claim", c.key)))
        self._volumes.add_handler(lambda c: self.queue.add(Protected("volume", c.key)))

    def _pod_changed(self, change: Change[Pod]) -> None:
        before = claims_of(change.old) if change.old is not None else set()
        after = claims_of(change.new) if change.new is not None else set()
        for key in before - after:
            self.queue.add(Protected("claim", key))

    async def reconcile(self, key: Protected) -> Requeue | None:
        """Let go of one object that is being deleted, if it is free."""
        if key.kind == "volume":
            volume = self._volumes.get(key.key)
            if volume is not None and volume.status.phase != "Bound":
                await self._release(volume, VOLUME_FINALIZER)
            return None
        claim = self._claims.get(key.key)
        if claim is None or claim.metadata.deletion_timestamp is None:
            return None
        # The server is asked: a pod that was created a moment ago may not be in the cache yet.
        listing = await self._client.list(Pod, namespace=key.key.namespace)
        if not any(key.key in claims_of(pod) for pod in listing.items):
            await self._release(claim, CLAIM_FINALIZER)
        return None

    async def _release(self, found: Object, finalizer: str) -> None:
        meta = found.metadata
        if meta.deletion_timestamp is None or finalizer not in meta.finalizers:
            return
        patch = {
            "metadata": {
                "resourceVersion": meta.resource_version,
                "finalizers": [f for f in meta.finalizers if f != finalizer] or None,
            }
        }
        try:
            await self._client.patch(type(found), meta.name, meta.namespace, patch)
        except status.NotFound:
            return
