"""Ephemeral volumes: a pod's volume that comes with a claim of its own, and goes with the pod.

The claim `POD-VOLUME` is made of the template in the pod's volume and owned by the pod, so garbage
collection removes it; from there on it is a claim like any other.
"""

from motley.api import status, storage
from motley.api.views.base import Key
from motley.api.views.pod import Pod
from motley.api.views.storage import PersistentVolumeClaim
from motley.api.views.volume import Volume
from motley.client.informer import Change
from motley.client.workqueue import WorkQueue
from motley.controllers.manager import Context
from motley.controllers.reconciler import Requeue


class EphemeralVolumeController:
    """See the module's docstring."""

    name = "ephemeralvolume"
    workers = 2

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._recorder = context.recorder.source("ephemeral_volume")
        self.queue: WorkQueue[Key] = WorkQueue(context.clock)
        self._pods = context.informers.of(Pod)
        self._claims = context.informers.of(PersistentVolumeClaim)
        self._pods.add_handler(self._pod_changed)
        self._claims.add_handler(self._claim_changed)

    def _pod_changed(self, change: Change[Pod]) -> None:
        pod = change.new
        if pod is not None and change.old is None and any(v.ephemeral for v in pod.spec.volumes):
            self.queue.add(pod.key)

    def _claim_changed(self, change: Change[PersistentVolumeClaim]) -> None:
        """A claim that was deleted under its pod is made again; one in the way may be gone."""
        if change.new is None:
            for pod in self._pods.items():
                is_here = pod.metadata.namespace == change.key.namespace
                if is_here and change.key.name in storage.claims_of(pod).values():
                    self.queue.add(pod.key)

    async def reconcile(self, key: Key) -> Requeue | None:
        """Make the claims a pod lacks."""
        pod = self._pods.get(key)
        if pod is None or pod.metadata.deletion_timestamp is not None or pod.is_terminal:
            return None
        for volume in pod.spec.volumes:
            if volume.ephemeral is None:
                continue
            try:
                await self._ensure(pod, volume)
            except status.ApiError as error:
                message = f"ephemeral volume {volume.name}: {error.message}"
                self._recorder.event(pod, "Warning", "FailedBinding", message)
                raise
        return None

    async def _ensure(self, pod: Pod, volume: Volume) -> None:
        assert volume.ephemeral is not None
        name = f"{pod.metadata.name}-{volume.name}"
        found = self._claims.get(Key(pod.metadata.namespace, name))
        if found is not None:
            if why := storage.foreign(pod, volume, found):
                raise status.Conflict(why)
            return
        template = volume.ephemeral.volume_claim_template
        given = template.get("metadata") or {}
        owner = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": pod.metadata.name,
            "uid": pod.metadata.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
        metadata = {"name": name, "ownerReferences": [owner]}
        for part in ("labels", "annotations"):
            if given.get(part):
                metadata[part] = given[part]
        body = {"metadata": metadata, "spec": template.get("spec") or {}}
        try:
            await self._client.create(PersistentVolumeClaim, body, pod.metadata.namespace)
        except status.AlreadyExists:
            # Ours, not in the cache yet, or another's: the retry sees which.
            raise status.Conflict(f"claim {name} exists already") from None
