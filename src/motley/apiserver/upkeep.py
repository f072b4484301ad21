"""What a server does by itself: forget old revisions and old Events.

The loops work in small steps and survive errors: upkeep that fails once is tried again.
"""

import asyncio
import signal

from motley.api import scheme
from motley.apiserver import document
from motley.lib import journal
from motley.lib.clock import Clock, parse_rfc3339
from motley.store.contract import Delete, Mismatch, Record, Revision, Store, StoreError

log = journal.get(__name__)

COMPACT_EVERY_S = 300.0  # kube-apiserver's --etcd-compaction-interval
KEEP_REVISIONS = 10_000
EVENT_TTL_S = 3600.0  # kube-apiserver's --event-ttl
EVENT_SWEEP_EVERY_S = 60.0


async def compact_forever(store: Store, clock: Clock) -> None:
    """Keep the last revisions, so that watchers may resume, and no more."""
    while True:
        await clock.sleep(COMPACT_EVERY_S)
        try:
            revision = await store.revision()
            if revision > KEEP_REVISIONS:
                await store.compact(Revision(revision - KEEP_REVISIONS))
        except StoreError as error:
            log.error("compaction failed", exc_info=error)


async def compact_on_signal(store: Store) -> None:
    """Forget every revision but the present one whenever SIGUSR1 comes.

    What `etcdctl compact` is for etcd: an operator whose disk fills cannot wait, and a test of
    clients that come back too late needs a past that is gone.
    """
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    loop.add_signal_handler(signal.SIGUSR1, asked.set)
    try:
        while True:
            await asked.wait()
            asked.clear()
            try:
                revision = await store.revision()
                await store.compact(revision)
                log.info("compacted on request", revision=revision)
            except StoreError as error:
                log.error("compaction failed", exc_info=error)
    finally:
        loop.remove_signal_handler(signal.SIGUSR1)


async def expire_events_forever(store: Store, clock: Clock) -> None:
    """Delete Events that nobody has added to for an hour."""
    kind = scheme.resource("", "v1", "events")
    assert kind is not None
    while True:
        await clock.sleep(EVENT_SWEEP_EVERY_S)
        try:
            await expire_events(store, kind, clock.now())
        except StoreError as error:
            log.error("expiry of events failed", exc_info=error)


async def expire_events(store: Store, kind: scheme.Kind, now: float) -> int:
    """Delete the Events that are too old now; how many were."""
    expired = 0
    for record in (await store.range(kind.storage_prefix)).records:
        if is_expired(record, now):
            try:
                await store.commit([Delete(record.key, record.revision)])
            except Mismatch:
                continue  # it was added to meanwhile
            expired += 1
    if expired:
        log.info("events expired", count=expired)
    return expired


def is_expired(record: Record, now: float) -> bool:
    """Whether an Event's last mention is older than the time to live."""
    event = document.decode(record.value)
    series = event.get("series") or {}
    seen = (
        series.get("lastObservedTime")
        or event.get("lastTimestamp")
        or event.get("eventTime")
        or event["metadata"].get("creationTimestamp")
    )
    try:
        return now - parse_rfc3339(str(seen)) > EVENT_TTL_S
    except ValueError:
        return True  # an Event without any time is of no use
