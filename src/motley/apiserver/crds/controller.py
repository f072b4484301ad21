"""Follows CustomResourceDefinitions and keeps the table of kinds true to them.

    definition accepted → rows in the table (served at once) → condition Established
    definition deleted  → no new objects → objects deleted → finalizer removed → rows removed,
                          cache dropped, watches ended

Invariant: a resource is in the table if and only if its definition is established; clients that
see `Established` can use it, also at another server over the same store (`catch_up`).
"""

import asyncio
from collections.abc import Callable
from typing import Any

from motley.api import scheme, status
from motley.apiserver import document
from motley.apiserver.core import Core
from motley.apiserver.crds import ending, naming, rows
from motley.apiserver.options import DeleteOptions
from motley.apiserver.verbs import delete
from motley.lib import journal
from motley.lib.backoff import Backoff
from motley.store.contract import Compacted, Record, StoreError

log = journal.get(__name__)

Document = dict[str, Any]
_RETRY_S = 1.0
_MANAGER = "kube-apiserver"  # who Kubernetes says writes the status of a definition
_LOOK_AGAIN_S = 0.1  # for objects that their own finalizers hold back


def kind() -> scheme.Kind:
    """The kind of definitions."""
    found = scheme.resource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
    assert found is not None
    return found


class Definitions:
    """The definitions this server knows, and the rows made from them."""

    def __init__(self, core: Core, changed: Callable[[], None] = lambda: None) -> None:
        self._core = core
        self._table_changed = changed
        self._kind = kind()
        self._known: dict[str, Document] = {}
        self._at: dict[str, int] = {}  # the revision each of them is known at
        self._rows: dict[str, list[scheme.Kind]] = {}
        self._since: dict[str, tuple[Any, int]] = {}
        self._leaving: set[str] = set()
        self._group: asyncio.TaskGroup | None = None

    async def load(self) -> None:
        """Serve what was established before; to be done before the first request."""
        for record in (await self._core.store.range(self._kind.storage_prefix)).records:
            self._learn(record)

    async def catch_up(self) -> None:
        """Serve everything that is established now: a client may have been told by another server.

        The rest (statuses, endings) is left to `run`, which is on its way.
        """
        for item in (await self._core.caches.fresh(self._kind)).list().items:
            if item.record.revision > self._at.get(self._name(item.record.key), 0):
                try:
                    self._learn(item.record)
                except Exception as error:  # as in `_changed`, which says more of it
                    log.warning("definition makes no sense", key=item.record.key, error=error)

    async def run(self) -> None:
        """Follow the definitions until cancelled."""
        try:
            async with asyncio.TaskGroup() as self._group:
                while True:
                    try:
                        await self._follow()
                    except Compacted:
                        continue
                    except StoreError as error:
                        log.error("definitions cannot be followed", exc_info=error)
                        await self._core.clock.sleep(_RETRY_S)
        finally:
            self.forget()

    def forget(self) -> None:
        """Take every row out of the table."""
        for name in list(self._rows):
            self._drop(name)

    async def _follow(self) -> None:
        cache = await self._core.caches.fresh(self._kind)
        listing = cache.list()
        names = {self._name(item.record.key) for item in listing.items}
        for gone in set(self._known) - names:
            await self._removed(gone)
        for item in listing.items:
            await self._changed(item.record)
        cursor = cache.watch(listing.revision)
        try:
            async for events in cursor:
                for event in events:
                    if event.deleted:
                        await self._removed(self._name(event.key))
                    else:
                        created = (
                            event.previous.record.created if event.previous else event.revision
                        )
                        record = Record(event.key, event.value, event.revision, created)
                        await self._changed(record)
        finally:
            cursor.close()

    def _name(self, key: str) -> str:
        return key.rpartition("/")[2]

    def _learn(self, record: Record) -> Document:
        """Take in a definition and serve it if it is established."""
        name = self._name(record.key)
        if record.revision < self._at.get(name, 0):
            return self._known[name]  # a request was quicker
        crd = document.decode(record.value)
        self._known[name], self._at[name] = crd, int(record.revision)
        form = [(v["name"], v.get("storage"), v.get("schema")) for v in crd["spec"]["versions"]]
        if name not in self._since or self._since[name][0] != form:
            self._since[name] = (form, int(record.revision))
        if naming.is_established(crd):
            self._serve(name, rows.rows(crd, self._since[name][1]))
        return crd

    def _serve(self, name: str, served: list[scheme.Kind]) -> None:
        before = self._rows.get(name, [])
        for row in before:
            if row not in served:
                scheme.remove(row)
        if before and _selecting(before) != _selecting(served):
            self._core.caches.drop(before[0])  # it remembers other fields than are asked for now
        for row in served:
            scheme.add(row)
        self._rows[name] = served
        self._table_changed()

    async def _changed(self, record: Record) -> None:
        try:
            crd = self._learn(record)
            if crd["metadata"].get("deletionTimestamp"):
                self._begin_cleanup(crd)
            else:
                await self._write_status(crd)
        except status.ApiError as error:
            # Somebody changed or removed it meanwhile; that change is on its way here.
            log.debug("definition changed again", key=record.key, reason=error.message)
        except StoreError:
            raise
        except Exception as error:
            # One definition that makes no sense must not keep the others from being served.
            log.error("definition cannot be served", key=record.key, exc_info=error)

    async def _write_status(self, crd: Document) -> None:
        name = crd["metadata"]["name"]
        others = [c for n, c in self._known.items() if n != name]
        now = self._core.writer.timestamp()
        wanted = naming.status_of(crd, others, now)
        if wanted == crd.get("status"):
            return
        if naming.is_established({"status": wanted}) and name not in self._rows:
            self._serve(name, rows.rows({**crd, "status": wanted}, self._since[name][1]))

        def modify(stored: Document) -> Document:
            stored["status"] = naming.status_of(stored, others, now)
            stored["metadata"].pop("resourceVersion", None)
            return stored

        await self._core.writer.update(
            self._kind, "", name, modify, subresource="status", manager=_MANAGER
        )

    async def _removed(self, name: str) -> None:
        crd = self._known.pop(name, None)
        self._at.pop(name, None)
        self._since.pop(name, None)
        self._drop(name)
        if crd is None:
            return
        for other in list(self._known.values()):
            # Its names are free: somebody may have waited for them.
            if other["spec"]["group"] == crd["spec"]["group"] and not naming.is_established(other):
                try:
                    await self._write_status(other)
                except status.ApiError as error:
                    log.debug("definition changed again", reason=error.message)

    def _drop(self, name: str) -> None:
        for row in self._rows.pop(name, []):
            scheme.remove(row)
            self._core.caches.drop(row)
        self._table_changed()

    def _begin_cleanup(self, crd: Document) -> None:
        name = crd["metadata"]["name"]
        if (
            ending.FINALIZER not in (crd["metadata"].get("finalizers") or ())
            or name in self._leaving
        ):
            return
        assert self._group is not None
        self._leaving.add(name)
        self._group.create_task(self._clean_up(name, crd), name=f"cleanup {name}")

    async def _clean_up(self, name: str, crd: Document) -> None:
        """Delete every object, wait for those with finalizers, then let the definition go."""
        backoff = Backoff(base_s=_LOOK_AGAIN_S, cap_s=_RETRY_S)
        stored = rows.stored(crd)
        try:
            while True:
                try:
                    await self._empty(name, stored, backoff)
                    return
                except status.NotFound:
                    log.debug("definition is gone", name=name)
                    return
                except (status.ApiError, StoreError) as error:
                    log.error("definition cannot be cleaned up", name=name, exc_info=error)
                    await self._core.clock.sleep(backoff.next())
        finally:
            self._leaving.discard(name)

    async def _empty(self, name: str, stored: scheme.Kind, backoff: Backoff) -> None:
        message = "CustomResource deletion is in progress"
        await self._note(name, "True", "InstanceDeletionInProgress", message)
        while await self._delete_objects(stored):
            await self._core.clock.sleep(backoff.next())
        await self._note(name, "False", "InstanceDeletionCompleted", "removed all instances")
        await self._core.writer.update(self._kind, "", name, ending.released)

    async def _delete_objects(self, stored: scheme.Kind) -> int:
        """Ask every object to go; how many were still there."""
        records = (await self._core.store.range(stored.storage_prefix)).records
        for record in records:
            rest, _, name = record.key.rpartition("/")
            namespace = rest.rpartition("/")[2] if stored.namespaced else ""
            try:
                await delete.remove(self._core, stored, namespace, name, _OPTIONS)
            except status.NotFound:
                continue
        return len(records)

    async def _note(self, name: str, value: str, reason: str, message: str) -> None:
        now = self._core.writer.timestamp()

        def modify(stored: Document) -> Document:
            state = stored.setdefault("status", {})
            condition = ("Terminating", value, reason, message)
            have = state.get("conditions") or []
            state["conditions"] = naming.with_conditions(have, [condition], now)
            stored["metadata"].pop("resourceVersion", None)
            return stored

        await self._core.writer.update(
            self._kind, "", name, modify, subresource="status", manager=_MANAGER
        )


_OPTIONS = DeleteOptions()


def _selecting(served: list[scheme.Kind]) -> list[Any]:
    """What selectors depend on, and so the cache that is made for them and its watches."""
    kept = served[0].storage if served else None
    found: list[Any] = [kept and kept.version]
    for kind in {id(kind): kind for kind in (*served, kept) if kind is not None}.values():
        about = kind.definition
        assert about is not None
        schema = about.schema if about.selectable else None  # which says their defaults
        conversion = about.convertible or about.converter
        found.append((kind.version, about.selectable, schema, conversion))
    return found
