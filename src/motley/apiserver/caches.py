"""One watch cache per kind: where lists and watches read.

Built-in kinds have theirs from the start. A custom resource gets one when somebody first lists or
watches it, and loses it with its definition.

Invariant: a client that lists after its own write sees it. `fresh` waits until the cache has
everything the store has, which is almost always at once.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from motley.api import scheme, status
from motley.apiserver import document
from motley.apiserver.attributes import Attributes
from motley.apiserver.crds import selection
from motley.lib.clock import Clock
from motley.store.contract import Ahead, Revision, Store
from motley.store.watchcache import WatchCache

Cache = WatchCache[Attributes]


class Caches:
    """The caches of every kind; also what the node rule asks about pods."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._caches: dict[str, Cache] = {
            kind.storage_prefix: self._made(kind)
            for kind in scheme.kinds()
            if kind.is_stored and kind.stored_as is None and not is_custom(kind)
        }
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None
        pods = scheme.resource("", "v1", "pods")
        assert pods is not None
        self._pods = pods

    def __getitem__(self, kind: scheme.Kind) -> Cache:
        return self._caches[kind.storage_prefix]

    def _made(self, kind: scheme.Kind) -> Cache:
        reader = selection.reader(kind.storage)
        return WatchCache(self._store, kind.storage_prefix, reader, clock=self._clock)

    async def of(self, kind: scheme.Kind) -> Cache:
        """The kind's cache, made now if nobody needed it yet.

        503 when the request took the kind from a definition that has changed since.
        """
        prefix = kind.storage_prefix
        while True:
            cache = self._caches.get(prefix)
            if cache is None:
                cache = self._caches[prefix] = self._made(selection.current(kind))
                self._start(cache)
            await cache.ready()
            if self._caches.get(prefix) is cache:  # else it was dropped meanwhile
                selection.check_current(kind)
                return cache

    def drop(self, kind: scheme.Kind) -> None:
        """Forget the cache of a kind that is served no longer; its watches end."""
        prefix = kind.storage_prefix
        cache = self._caches.pop(prefix, None)
        task = self._tasks.pop(prefix, None)
        if task is not None:
            task.cancel()
        if cache is not None:
            cache.stop()

    def _start(self, cache: Cache) -> None:
        if self._group is not None:
            task = self._group.create_task(cache.run(), name=f"cache {cache.prefix}")
            self._tasks[cache.prefix] = task

    async def run(self) -> None:
        """Follow the store until cancelled."""
        async with asyncio.TaskGroup() as self._group:
            for cache in self._caches.values():
                self._start(cache)
            await asyncio.get_running_loop().create_future()  # caches may come and go

    async def ready(self) -> None:
        """Wait until every cache has its first listing."""
        for cache in list(self._caches.values()):
            await cache.ready()

    @property
    def unready(self) -> list[str]:
        """The kinds whose cache has no listing yet."""
        return [
            kind.qualified
            for kind in scheme.kinds()
            if (cache := self._caches.get(kind.storage_prefix)) is not None and not cache.is_ready
        ]

    async def fresh(self, kind: scheme.Kind) -> Cache:
        """The kind's cache, once it shows everything the store has now."""
        return await self.not_older_than(kind, await self._store.revision())

    async def not_older_than(self, kind: scheme.Kind, revision: Revision) -> Cache:
        """The kind's cache, once it shows this revision; 504 when that does not come."""
        cache = await self.of(kind)
        if cache.revision < revision:
            try:
                await cache.wait_until(revision)
            except Ahead as ahead:
                raise too_large_version(revision, ahead.current) from None
        return cache

    def node_of(self, namespace: str, name: str) -> str | None:
        """See `authz.node.Pods`."""
        cached = self[self._pods].get(self._pods.key(namespace, name))
        return cached.attributes.fields[0] if cached is not None else None

    def on_node(self, node: str, namespace: str) -> Iterable[Mapping[str, Any]]:
        """See `authz.node.Pods`."""
        for cached in self[self._pods].list(self._pods.prefix(namespace)).items:
            if cached.attributes.fields[0] == node:
                yield document.decode(cached.record.value)


def is_custom(kind: scheme.Kind) -> bool:
    """Whether a CustomResourceDefinition brought the kind."""
    return kind.definition is not None and kind.definition.is_custom


def too_large_version(asked: int, current: int) -> status.GatewayTimeout:
    """Somebody knows a revision this server does not: come back in a second."""
    return status.GatewayTimeout(
        f"Timeout: Too large resource version: {asked}, current: {current}",
        details={
            "causes": [
                {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
            ]
        },
        retry_after_s=1,
    )
