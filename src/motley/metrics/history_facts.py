"""Which node a pod runs on and which workload it is of, from the API server's own caches.

Read again only when an object has changed: a round over ten thousand quiet pods decodes none.
"""

from typing import Any

import msgspec

from motley.api import scheme
from motley.apiserver.caches import Cache
from motley.apiserver.core import Core
from motley.metrics import history_rollup
from motley.metrics.history_rollup import Fact, Owner


class _Reference(msgspec.Struct, gc=False):
    kind: str = ""
    name: str = ""
    controller: bool = False


class _Meta(msgspec.Struct, gc=False, rename="camel"):
    owner_references: list[_Reference] | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Spec(msgspec.Struct, gc=False, rename="camel"):
    node_name: str = ""


class _Object(msgspec.Struct, gc=False):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec = msgspec.field(default_factory=_Spec)


_decode = msgspec.json.Decoder(_Object).decode
# Controllers that have controllers of their own, and where they are found.
_BETWEEN = {"ReplicaSet": ("apps", "replicasets"), "Job": ("batch", "jobs")}


class Facts:
    """What is remembered of pods, nodes and what controls them."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._known: dict[str, tuple[bytes, _Object]] = {}

    async def pods(self) -> dict[tuple[str, str], Fact]:
        """Every pod that has a node."""
        between = {kind: await self._cache(*where) for kind, where in _BETWEEN.items()}
        found = {}
        seen: dict[str, tuple[bytes, _Object]] = {}
        for cached in (await self._cache("", "pods")).list().items:
            pod = self._read(cached.record.key, cached.record.value, seen)
            if not pod.spec.node_name:
                continue
            namespace, name = cached.attributes.namespace, cached.attributes.name
            owner = self._owner(pod, namespace, between, seen)
            found[namespace, name] = Fact(pod.spec.node_name, owner)
        self._known = seen
        return found

    async def speeds(self) -> dict[str, float]:
        """By node."""
        found = {}
        for cached in (await self._cache("", "nodes")).list().items:
            node = _decode(cached.record.value).metadata
            found[cached.attributes.name] = history_rollup.speed(
                node.labels or {}, node.annotations or {}
            )
        return found

    def _owner(
        self, pod: _Object, namespace: str, between: dict[str, Cache], seen: dict[str, Any]
    ) -> Owner | None:
        owner = _controller(pod)
        if owner is None or owner.kind not in between:
            return owner
        kind = scheme.resource(_BETWEEN[owner.kind][0], "v1", _BETWEEN[owner.kind][1])
        assert kind is not None
        cached = between[owner.kind].get(kind.key(namespace, owner.name))
        if cached is None:
            return owner
        above = self._read(cached.record.key, cached.record.value, seen)
        return _controller(above) or owner

    def _read(self, key: str, value: bytes, seen: dict[str, tuple[bytes, _Object]]) -> _Object:
        known = seen.get(key) or self._known.get(key)
        if known is None or known[0] is not value:
            known = (value, _decode(value))
        seen[key] = known
        return known[1]

    async def _cache(self, group: str, plural: str) -> Cache:
        kind = scheme.resource(group, "v1", plural)
        assert kind is not None
        return await self._core.caches.of(kind)


def _controller(of: _Object) -> Owner | None:
    for reference in of.metadata.owner_references or ():
        if reference.controller:
            return Owner(reference.kind, reference.name)
    return None
