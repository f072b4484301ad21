"""Garbage collection: what no owner needs any more is deleted.

Metadata of every kind that discovery lists is watched, indexed by uid and by owner. An object
is looked at when an owner of it is missing or has gone, and before anything is deleted its owners
are asked for live, by name and uid: a cache that lags never costs an object its life. A uid never
comes back, so an owner that was once seen to be gone is not asked for again.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from motley.api import status
from motley.api.views.base import Object, OwnerReference
from motley.client.informer import Change, Informer
from motley.client.workqueue import WorkQueue
from motley.controllers import discovery, ownership
from motley.controllers.manager import Context
from motley.controllers.ownership import Fate, Owner, Verdict
from motley.controllers.reconciler import Requeue
from motley.controllers.workload import reference_documents
from motley.lib import journal

log = journal.get(__name__)

# Kinds that come and go by the thousand and own nothing.
_IGNORED = frozenset({("", "events"), ("events.k8s.io", "events")})
_REDISCOVER_S = 30.0
# A reference to an owner not yet in the cache is normal for a moment after both were created.
_SETTLE_S = 1.0
_REMEMBERED = 4096  # owners that have gone


class Item(NamedTuple):
    """An object's identity across kinds."""

    resource: discovery.Resource
    namespace: str
    name: str
    uid: str


class GarbageCollector:
    """See the module's docstring."""

    name = "garbagecollector"
    workers = 20  # kube-controller-manager's

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._clock = context.clock
        self.queue: WorkQueue[Item] = WorkQueue(context.clock)
        self._informers: dict[discovery.Resource, Informer[Any]] = {}
        self._by_kind: dict[tuple[str, str], discovery.Resource] = {}
        self._warm = False
        self._gone: OrderedDict[str, None] = OrderedDict()

    async def run(self) -> None:
        """Watch every kind there is, and look for new kinds from time to time."""
        async with asyncio.TaskGroup() as group:
            while True:
                try:
                    found = await discovery.discover(self._client)
                except status.ApiError as error:
                    log.warning("discovery failed", error=error.message)
                else:
                    fresh = [self._follow(r) for r in found.resources if self._is_followed(r)]
                    for informer in fresh:
                        group.create_task(informer.run())
                    for informer in fresh:
                        await informer.synced()
                    if fresh:
                        self._begin()
                await self._clock.sleep(_REDISCOVER_S)

    def _is_followed(self, resource: discovery.Resource) -> bool:
        return (
            resource.can("list", "watch", "delete")
            and (resource.group, resource.plural) not in _IGNORED
            and resource not in self._informers
        )

    def _follow(self, resource: discovery.Resource) -> Informer[Any]:
        informer: Informer[Any] = Informer(
            self._client,
            discovery.view(resource),
            indexes={"uid": _uid, "owner": _owners},
            clock=self._clock,
        )
        self._informers[resource] = informer
        self._by_kind[resource.group, resource.kind] = resource
        informer.add_handler(lambda change: self._changed(resource, change))
        return informer

    def _begin(self) -> None:
        """Everything is in the cache now: a missing owner means something from here on."""
        self._warm = True
        for resource, informer in self._informers.items():
            for obj in informer.items():
                self._consider(resource, obj)

    def _changed(self, resource: discovery.Resource, change: Change[Any]) -> None:
        if not self._warm:
            return
        if change.new is not None:
            self._consider(resource, change.new)
            if change.old is not None:
                self._wake_owners(ownership.unblocked(change.old, change.new))
            return
        gone = change.object
        dependents = self._dependents(gone.metadata.uid)
        if dependents:
            self._remember_gone(gone.metadata.uid)
        for kind, dependent in dependents:
            self.queue.add(_item(kind, dependent))
        self._wake_owners(reference.uid for reference in gone.metadata.owner_references)

    def _wake_owners(self, uids: Iterable[str]) -> None:
        """Whoever waits for its dependents to go may have one less to wait for."""
        for uid in uids:
            owner = self._cached(uid)
            if owner is not None and ownership.is_deleting_dependents(owner[1]):
                self.queue.add(_item(*owner))

    def _consider(self, resource: discovery.Resource, obj: Object) -> None:
        if ownership.is_deleting_dependents(obj) or ownership.is_orphaning(obj):
            self.queue.add(_item(resource, obj))
            return
        for reference in obj.metadata.owner_references:
            owner = self._cached(reference.uid)
            if owner is None:
                self.queue.add_after(_item(resource, obj), _SETTLE_S)
            elif ownership.is_deleting_dependents(owner[1]):
                self.queue.add(_item(resource, obj))

    def _dependents(self, uid: str) -> list[tuple[discovery.Resource, Object]]:
        return [
            (resource, obj)
            for resource, informer in self._informers.items()
            for obj in informer.by_index("owner", uid)
        ]

    def _cached(self, uid: str) -> tuple[discovery.Resource, Object] | None:
        for resource, informer in self._informers.items():
            found = informer.by_index("uid", uid)
            if found:
                return resource, found[0]
        return None

    async def reconcile(self, key: Item) -> Requeue | None:
        """Decide about one object.

        From the cache first: every write names the version it was decided on, so a copy that lags
        costs a refused write and a look at the live state, never a wrong deletion.
        """
        cached = self._informers[key.resource].by_index("uid", key.uid)
        if cached:
            try:
                return await self._decide(cached[0])
            except status.Conflict:
                log.debug("decided on an old version", kind=key.resource.kind, name=key.name)
        try:
            obj = await self._client.get(discovery.view(key.resource), key.name, key.namespace)
        except status.NotFound:
            return None
        return await self._decide(obj) if obj.metadata.uid == key.uid else None

    async def _decide(self, obj: Object) -> Requeue | None:
        if ownership.is_orphaning(obj):
            await self._orphan_dependents(obj)
            return None
        if ownership.is_deleting_dependents(obj):
            await self._release_when_alone(obj)
            return None
        if obj.metadata.deletion_timestamp is not None:
            return None
        owners = [Owner(r, await self._fate(obj, r)) for r in obj.metadata.owner_references]
        dependents = self._dependents(obj.metadata.uid)
        blocks = any(r.block_owner_deletion for r in obj.metadata.owner_references)
        if blocks and ownership.is_in_circle(owners, [d for _, d in dependents]):
            await self._unblock(obj)
            return Requeue(0.0)
        decision = ownership.judge(obj, owners, has_dependents=bool(dependents))
        if decision.verdict is Verdict.UNLINK:
            await self._unlink(obj, decision.unlink)
        elif decision.verdict is Verdict.DELETE:
            await self._delete(obj, decision.propagation)
        return None

    async def _fate(self, obj: Object, reference: OwnerReference) -> Fate:
        group = reference.api_version.rpartition("/")[0]
        resource = self._by_kind.get((group, reference.kind))
        if resource is None:
            # An unknown kind may be one whose group cannot be asked now: when in doubt, keep.
            return Fate.SOLID
        if reference.uid in self._gone:
            return Fate.DANGLING
        namespace = obj.metadata.namespace if resource.namespaced else ""
        try:
            owner = await self._client.get(discovery.view(resource), reference.name, namespace)
        except status.NotFound:
            self._remember_gone(reference.uid)
            return Fate.DANGLING
        if owner.metadata.uid != reference.uid:
            self._remember_gone(reference.uid)
            return Fate.DANGLING
        return Fate.WAITING if ownership.is_deleting_dependents(owner) else Fate.SOLID

    def _remember_gone(self, uid: str) -> None:
        self._gone[uid] = None
        while len(self._gone) > _REMEMBERED:
            self._gone.popitem(last=False)

    async def _orphan_dependents(self, owner: Object) -> None:
        for _, dependent in self._dependents(owner.metadata.uid):
            await self._unlink(dependent, (owner.metadata.uid,))
        await self._drop_finalizer(owner, ownership.ORPHAN)

    async def _release_when_alone(self, owner: Object) -> None:
        dependents = self._dependents(owner.metadata.uid)
        blocking = [d for _, d in dependents if ownership.is_blocking(d, owner)]
        if not blocking:
            await self._drop_finalizer(owner, ownership.FOREGROUND)
            return
        for resource, dependent in dependents:
            if dependent.metadata.deletion_timestamp is None:
                self.queue.add(_item(resource, dependent))

    async def _unlink(self, obj: Object, uids: Sequence[str]) -> None:
        kept = ownership.without(obj.metadata.owner_references, uids)
        await self._patch_metadata(obj, {"ownerReferences": reference_documents(kept) or None})

    async def _unblock(self, obj: Object) -> None:
        """Two objects that own each other would wait for ever: this one no longer holds up its
        owner."""
        references = reference_documents(obj.metadata.owner_references)
        for reference in references:
            reference["blockOwnerDeletion"] = False
        await self._patch_metadata(obj, {"ownerReferences": references})

    async def _drop_finalizer(self, obj: Object, finalizer: str) -> None:
        kept = [f for f in obj.metadata.finalizers if f != finalizer]
        await self._patch_metadata(obj, {"finalizers": kept or None})

    async def _patch_metadata(self, obj: Object, change: dict[str, Any]) -> None:
        meta = obj.metadata
        condition = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        body = {"metadata": {**condition, **change}}
        try:
            await self._client.patch(type(obj), meta.name, meta.namespace, body)
        except status.NotFound:
            pass  # gone meanwhile, which is as good

    async def _delete(self, obj: Object, propagation: str) -> None:
        meta = obj.metadata
        log.info("deleting", kind=obj.KIND, object=obj.key, propagation=propagation)
        try:
            await self._client.delete(
                type(obj),
                meta.name,
                meta.namespace,
                uid=meta.uid,
                resource_version=meta.resource_version,
                propagation=propagation,
            )
        except status.NotFound:
            pass  # gone meanwhile


def _item(resource: discovery.Resource, obj: Object) -> Item:
    return Item(resource, obj.metadata.namespace, obj.metadata.name, obj.metadata.uid)


def _uid(obj: Object) -> Iterable[str]:
    return (obj.metadata.uid,)


def _owners(obj: Object) -> Iterable[str]:
    return {reference.uid for reference in obj.metadata.owner_references}
