"""One watch cache per kind: where lists and watches read.

Invariant: a client that lists after its own write sees it. `fresh` waits until the cache has
everything the store has, which is almost always at once.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from motley.api import scheme, status
from motley.apiserver import attributes, document
from motley.apiserver.attributes import Attributes
from motley.lib.clock import Clock
from motley.store.contract import Ahead, Revision, Store
from motley.store.watchcache import WatchCache

Cache = WatchCache[Attributes]


class Caches:
    """The caches of every kind; also what the node rule asks about pods."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._caches: dict[scheme.Kind, Cache] = {
            kind: WatchCache(store, kind.storage_prefix, attributes.reader(kind), clock=clock)
            for kind in scheme.kinds()
        }
        pods = scheme.resource("", "v1", "pods")
        assert pods is not None
        self._pods = pods

    def __getitem__(self, kind: scheme.Kind) -> Cache:
        return self._caches[kind]

    async def run(self) -> None:
        """Follow the store until cancelled."""
        async with asyncio.TaskGroup() as group:
            for cache in self._caches.values():
                group.create_task(cache.run(), name=f"cache {cache.prefix}")

    async def ready(self) -> None:
        """Wait until every cache has its first listing."""
        for cache in self._caches.values():
            await cache.ready()

    @property
    def unready(self) -> list[str]:
        """The kinds whose cache has no listing yet."""
        return [k.qualified for k, c in self._caches.items() if not c.is_ready]

    async def fresh(self, kind: scheme.Kind) -> Cache:
        """The kind's cache, once it shows everything the store has now."""
        return await self.not_older_than(kind, await self._store.revision())

    async def not_older_than(self, kind: scheme.Kind, revision: Revision) -> Cache:
        """The kind's cache, once it shows this revision; 504 when that does not come."""
        cache = self._caches[kind]
        if cache.revision < revision:
            try:
                await cache.wait_until(revision)
            except Ahead as ahead:
                raise too_large_version(revision, ahead.current) from None
        return cache

    def node_of(self, namespace: str, name: str) -> str | None:
        """See `authz.node.Pods`."""
        cached = self._caches[self._pods].get(self._pods.key(namespace, name))
        return cached.attributes.fields[0] if cached is not None else None

    def on_node(self, node: str, namespace: str) -> Iterable[Mapping[str, Any]]:
        """See `authz.node.Pods`."""
        for cached in self._caches[self._pods].list(self._pods.prefix(namespace)).items:
            if cached.attributes.fields[0] == node:
                yield document.decode(cached.record.value)


def too_large_version(asked: int, current: int) -> status.GatewayTimeout:
    """Somebody knows a revision this server does not: come back in a second."""
    return status.GatewayTimeout(
        f"Too large resource version: {asked}, current: {current}",
        details={
            "causes": [
                {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
            ]
        },
        retry_after_s=1,
    )
