"""What plugins read: objects of other kinds, decoded once per version.

Reads come from the watch caches, never from before this server's own last write: who creates a
LimitRange and then a pod finds the pod limited. What a cache does not have is asked of the store
before anybody is refused for its absence.

Invariant: the documents and lists handed out are shared; nobody changes them.
"""

from collections.abc import Sequence
from typing import Any

from motley.api import scheme
from motley.apiserver import document
from motley.apiserver.caches import Cache, Caches
from motley.store.contract import Record, Revision, Store

Document = dict[str, Any]

_REMEMBERED = 4096  # decoded objects, and lists; policies, classes and accounts are few
_REMEMBERED_ITEMS = 64  # of a list that is kept: those that are asked for at every write are short


def kind_of(group: str, plural: str, version: str = "v1") -> scheme.Kind:
    """A kind that is always served."""
    kind = scheme.resource(group, version, plural)
    assert kind is not None, f"{plural}.{group}/{version}"
    return kind


class Lookup:
    """Reads for plugins."""

    def __init__(self, store: Store, caches: Caches) -> None:
        self._store = store
        self._caches = caches
        self._written = Revision(0)
        self._ready: set[str] = set()
        self._decoded: dict[str, tuple[bytes, Document]] = {}
        self._listed: dict[str, tuple[Revision, list[Document]]] = {}

    def wrote(self, revision: Revision) -> None:
        """This server has written: from now on reads show at least this."""
        self._written = max(self._written, revision)

    async def get(self, kind: scheme.Kind, namespace: str, name: str) -> Document | None:
        """One object, or None when it does not exist."""
        key = kind.key(namespace, name)
        cache = self._at_hand(kind) or await self._current(kind)
        cached = cache.get(key) if cache is not None else None
        record = cached.record if cached is not None else await self._store.get(key)
        return self._decode(record) if record is not None else None

    async def fresh(self, kind: scheme.Kind, namespace: str, name: str) -> Record | None:
        """One object as the store has it this moment."""
        return await self._store.get(kind.key(namespace, name))

    async def records(self, kind: scheme.Kind, namespace: str = "") -> Sequence[Record]:
        """The objects of a kind, undecoded: for whoever keeps something made of them."""
        cache = self._at_hand(kind) or await self._current(kind)
        if cache is None:
            return (await self._store.range(kind.prefix(namespace))).records
        if cache.is_empty:
            return ()
        return [c.record for c in cache.list(kind.prefix(namespace)).items]

    async def list(self, kind: scheme.Kind, namespace: str = "") -> list[Document]:
        """The objects of a kind, in the order of their names."""
        cache = self._at_hand(kind)
        if cache is None:
            return [self._decode(record) for record in await self.records(kind, namespace)]
        if cache.is_empty:
            return []
        prefix, changed = kind.prefix(namespace), cache.changed
        known = self._listed.get(prefix)
        if known is not None and known[0] == changed:
            return known[1]
        found = [self._decode(c.record) for c in cache.list(prefix).items]
        if len(found) <= _REMEMBERED_ITEMS:
            if len(self._listed) >= _REMEMBERED:
                self._listed.clear()
            self._listed[prefix] = (changed, found)
        return found

    def _at_hand(self, kind: scheme.Kind) -> Cache | None:
        """As `_current`, in the usual case, in which there is nothing to wait for."""
        if kind.storage_prefix not in self._ready:
            return None
        cache = self._caches[kind]
        return cache if cache.revision >= self._written else None

    async def _current(self, kind: scheme.Kind) -> Cache | None:
        """The kind's cache with every write of this server; None before caches have started."""
        cache = self._caches[kind]
        if kind.storage_prefix not in self._ready:
            if not cache.is_ready:
                return None
            self._ready.add(kind.storage_prefix)
        if cache.revision < self._written:
            cache = await self._caches.not_older_than(kind, self._written)
        return cache

    def _decode(self, record: Record) -> Document:
        known = self._decoded.get(record.key)
        if known is not None and known[0] is record.value:
            return known[1]
        if len(self._decoded) >= _REMEMBERED:
            self._decoded.clear()
        decoded = document.decode(record.value)
        self._decoded[record.key] = (record.value, decoded)
        return decoded
