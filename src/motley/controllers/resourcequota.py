"""ResourceQuota: keeps `status.used` true when objects go, end or shrink.

What is created is counted by the API server in the transaction that creates it. This controller
counts everything anew: for a quota that was never counted or changed its limits, and whenever
something it counts was deleted. The count is written only if the quota is still at the version
that was read before counting, and every charge changes that version, so no charge is ever lost.
"""

from typing import Any, ClassVar

from motley.api import quota, scheme, status
from motley.api.views.base import Key, Object
from motley.api.views.core import ConfigMap, Service
from motley.api.views.pod import Pod
from motley.api.views.storage import PersistentVolumeClaim
from motley.client.informer import Change
from motley.client.rest import resource_path
from motley.client.workqueue import WorkQueue
from motley.controllers import discovery
from motley.controllers.discovery import Resource
from motley.controllers.manager import Context
from motley.controllers.reconciler import Requeue

# Kinds without a watch here (secrets, custom ones) are counted again this often.
_AGAIN_S = 10.0
_FINISHED = ("Succeeded", "Failed")


class ResourceQuota(Object):
    """The quota's metadata; its content is read as a document, because it is written back."""

    API_VERSION: ClassVar[str] = "v1"
    KIND: ClassVar[str] = "ResourceQuota"
    PLURAL: ClassVar[str] = "resourcequotas"
    NAMESPACED: ClassVar[bool] = True


class ResourceQuotaController:
    """See the module's docstring."""

    name = "resourcequota"
    workers = 2

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self.queue: WorkQueue[Key] = WorkQueue(context.clock)
        self._quotas = context.informers.of(ResourceQuota)
        self._quotas.add_handler(lambda change: self.queue.add(change.key))
        context.informers.of(Pod).add_handler(self._pod_changed)
        context.informers.of(Service).add_handler(self._changed)
        context.informers.of(ConfigMap).add_handler(self._changed)
        context.informers.of(PersistentVolumeClaim).add_handler(self._changed)

    def _pod_changed(self, change: Change[Pod]) -> None:
        new = change.new
        if new is None or new.status.phase in _FINISHED:
            self._wake(change.key.namespace)

    def _changed(self, change: Change[Any]) -> None:
        if change.new is None or change.old is not None:
            self._wake(change.key.namespace)

    def _wake(self, namespace: str) -> None:
        for known in self._quotas.items():
            if known.metadata.namespace == namespace:
                self.queue.add(known.key)

    async def reconcile(self, key: Key) -> Requeue | None:
        """Count one quota anew; a conflict means that it was charged meanwhile: again."""
        try:
            found = await self._client.document(ResourceQuota, key.name, key.namespace)
        except status.NotFound:
            return None
        if found["metadata"].get("deletionTimestamp"):
            return None
        hard = (found.get("spec") or {}).get("hard") or {}
        objects = {
            kind: await self._list(kind, key.namespace)
            for kind in {quota.counted_kind(name) for name in hard}
            if kind is not None
        }
        used = {name: str(q) for name, q in sorted(quota.recount(found, objects).items())}
        state = {"hard": hard, "used": used}
        if found.get("status") != state:
            await self._client.update(
                ResourceQuota, {**found, "status": state}, subresource="status"
            )
        return Requeue(_AGAIN_S)

    async def _list(self, kind: tuple[str, str], namespace: str) -> list[dict[str, Any]]:
        """Every object of a kind, from the server itself: a cache would miss the latest ones."""
        resource = await self._resource(*kind)
        if resource is None:
            return []
        listed = await self._client.raw("GET", resource_path(discovery.view(resource), namespace))
        items: list[dict[str, Any]] = listed.get("items") or []
        return items

    async def _resource(self, group: str, plural: str) -> Resource | None:
        for kind in scheme.kinds():
            if (kind.group, kind.plural) == (group, plural):
                return Resource(
                    kind.api_version, kind.kind, plural, kind.namespaced, frozenset(kind.verbs)
                )
        for resource in (await discovery.discover(self._client)).resources:
            if (resource.group, resource.plural) == (group, plural):
                return resource
        return None
