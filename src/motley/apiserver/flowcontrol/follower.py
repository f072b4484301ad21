"""Keeps the default objects stored, and the seats as the stored objects say.

Both kinds are read from their caches whenever one of them changes; they are few. A FlowSchema
whose level does not exist is told so in its status (`Dangling`), as Kubernetes does, and counts for
nothing.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

from motley.api import scheme, status
from motley.api.patch import apply as patch
from motley.api.patch.apply import Applier
from motley.apiserver import document
from motley.apiserver.admission.lookup import kind_of
from motley.apiserver.caches import Caches
from motley.apiserver.flowcontrol import defaults
from motley.apiserver.flowcontrol.control import FlowControl
from motley.apiserver.writer import Writer
from motley.lib import journal
from motley.lib.clock import Clock
from motley.store.contract import Compacted, StoreError

Document = dict[str, Any]

log = journal.get(__name__)

RESTORE_EVERY_S = 60.0  # as Kubernetes: a default that was deleted or changed comes back
PRODUCER = "api-priority-and-fairness-config-producer-v1"
CONSUMER = "api-priority-and-fairness-config-consumer-v1"


def kinds() -> tuple[scheme.Kind, scheme.Kind]:
    """FlowSchema and PriorityLevelConfiguration."""
    return (
        kind_of(defaults.GROUP, "flowschemas"),
        kind_of(defaults.GROUP, "prioritylevelconfigurations"),
    )


async def ensure(writer: Writer) -> None:
    """Create the default objects that are missing, and put right those that are ours to keep."""
    schemas, levels = kinds()
    async with asyncio.TaskGroup() as group:  # side by side: their writes share commits
        for kind, mandatory, suggested in (
            (levels, defaults.MANDATORY_LEVELS, defaults.SUGGESTED_LEVELS),
            (schemas, defaults.MANDATORY_SCHEMAS, defaults.SUGGESTED_SCHEMAS),
        ):
            records = (await writer.store.range(kind.storage_prefix)).records
            decoded = (document.decode(record.value) for record in records)
            stored = {one["metadata"]["name"]: one for one in decoded}
            for wanted in (*mandatory, *suggested):
                name = wanted["metadata"]["name"]
                if name not in stored:
                    group.create_task(_create(writer, kind, wanted))
                elif corrected(stored[name], wanted, is_mandatory=wanted in mandatory) is not None:
                    group.create_task(_correct(writer, kind, wanted, wanted in mandatory))


def corrected(stored: Document, wanted: Document, *, is_mandatory: bool) -> Document | None:
    """The stored object as it should be; None when it is so, or an administrator's own."""
    annotations = stored["metadata"].get("annotations") or {}
    if not is_mandatory and annotations.get(defaults.AUTO_UPDATE) != "true":
        return None
    spec = wanted["spec"]
    if is_mandatory and stored["metadata"]["name"] == defaults.EXEMPT and "exempt" in spec:
        # How much the exempt level lends is for administrators to say.
        spec = {**spec, "exempt": (stored.get("spec") or {}).get("exempt") or spec["exempt"]}
    if stored.get("spec") == spec:
        return None
    metadata = {k: v for k, v in stored["metadata"].items() if k != "resourceVersion"}
    return {**stored, "metadata": metadata, "spec": spec}


async def _create(writer: Writer, kind: scheme.Kind, wanted: Document) -> None:
    try:
        await writer.create(kind, "", document.copy(wanted), manager=PRODUCER)
    except status.AlreadyExists:
        return  # another server of the cluster was quicker


async def _correct(writer: Writer, kind: scheme.Kind, wanted: Document, is_mandatory: bool) -> None:
    def modify(stored: Document) -> Document:
        return corrected(stored, document.copy(wanted), is_mandatory=is_mandatory) or stored

    name = wanted["metadata"]["name"]
    await writer.update(kind, "", name, modify, manager=PRODUCER)
    log.info("flow control default restored", kind=kind.kind, name=name)


async def restore_forever(writer: Writer, clock: Clock) -> None:
    """Keep the default objects."""
    while True:
        await clock.sleep(RESTORE_EVERY_S)
        try:
            await ensure(writer)
        except* (StoreError, status.ApiError) as errors:
            log.error("flow control defaults not restored", exc_info=errors)


async def follow_forever(caches: Caches, writer: Writer, control: FlowControl) -> None:
    """Apply every change of the stored configuration."""
    changed = asyncio.Event()

    async def listen(kind: scheme.Kind) -> None:
        cache = caches[kind]
        await cache.ready()
        while True:
            cursor = cache.watch(cache.revision)
            changed.set()
            try:
                async for _ in cursor:
                    changed.set()
            except Compacted:
                continue  # the next round looks at everything anyway

    async with asyncio.TaskGroup() as group:
        for kind in kinds():
            group.create_task(listen(kind))
        while True:
            await changed.wait()
            changed.clear()
            schemas, levels = (_stored(caches, kind) for kind in kinds())
            control.configure(schemas, levels)
            known = {one["metadata"]["name"] for one in levels}
            for schema in schemas:
                await _tell(writer, schema, known)


def _stored(caches: Caches, kind: scheme.Kind) -> list[Document]:
    return [document.decode(item.record.value) for item in caches[kind].list().items]


def dangling(schema: Document, levels: Iterable[str], now: str) -> Document | None:
    """The condition a schema should have; None when it has it."""
    name = ((schema.get("spec") or {}).get("priorityLevelConfiguration") or {}).get("name", "")
    is_there = name in levels
    wanted = "False" if is_there else "True"
    for one in (schema.get("status") or {}).get("conditions") or ():
        if one.get("type") == "Dangling" and one.get("status") == wanted:
            return None
    how = "and it exists" if is_there else "but there is no such object"
    return {
        "type": "Dangling",
        "status": wanted,
        "lastTransitionTime": now,
        "reason": "Found" if is_there else "NotFound",
        "message": f"This FlowSchema references the PriorityLevelConfiguration object named "
        f'"{name}" {how}',
    }


async def _tell(writer: Writer, schema: Document, levels: Iterable[str]) -> None:
    now = writer.timestamp()
    condition = dangling(schema, levels, now)
    if condition is None:
        return
    kind, _ = kinds()
    name = schema["metadata"]["name"]
    config = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name},
        "status": {"conditions": [condition]},
    }
    applier = Applier(CONSUMER, now, True, "status")

    def modify(stored: Document) -> Document:
        applied = patch.apply(kind, stored, config, applier)
        del applied["metadata"]["resourceVersion"]
        return applied

    try:
        await writer.update(kind, "", name, modify, subresource="status")
    except (status.ApiError, StoreError) as error:
        log.info("flow schema status not written", schema=name, error=str(error))
