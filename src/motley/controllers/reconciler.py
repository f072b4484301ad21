"""The contract of a controller, and the loop that works for it.

A controller's handlers turn changes into keys; workers take keys from its queue and call
`reconcile`. What a controller decides lives in pure functions beside it; `reconcile` reads,
asks them, and performs.
Invariant: no key is reconciled by two workers at once, and a failed key always comes back.
"""

import asyncio
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from motley.api import status
from motley.client.workqueue import Closed, WorkQueue
from motley.controllers.metrics import Meters, NoMeters
from motley.lib import journal

log = journal.get(__name__)

K = TypeVar("K", contravariant=True)


@dataclass(frozen=True)
class Requeue:
    """Come back to this key after a while, whether or not anything changes."""

    after_s: float


class Terminal(Exception):
    """This key cannot succeed until its object changes: do not retry."""


class Reconciler(Protocol[K]):
    """Brings one kind of object's world closer to its spec."""

    name: str

    async def reconcile(self, key: K) -> Requeue | None:
        """Bring the world closer to the object's spec. Level-based: re-read, never trust the event.
        Raising retries with back-off; `Terminal` does not retry."""


_UNCOUNTED: Meters = NoMeters()


async def work(
    reconciler: Reconciler[Any],
    queue: WorkQueue[Any],
    workers: int,
    meters: Meters = _UNCOUNTED,
) -> None:
    """Reconcile keys with `workers` tasks until the queue is closed and drained."""
    async with asyncio.TaskGroup() as group:
        for _ in range(workers):
            group.create_task(_worker(reconciler, queue, meters))


async def _worker(reconciler: Reconciler[Any], queue: WorkQueue[Any], meters: Meters) -> None:
    while True:
        try:
            key = await queue.get()
        except Closed:
            return
        try:
            if not await _step(reconciler, queue, key):
                meters.failed(reconciler.name)
        finally:
            queue.done(key)


async def _step(reconciler: Reconciler[Any], queue: WorkQueue[Any], key: Any) -> bool:
    """Whether it went well."""
    try:
        again = await reconciler.reconcile(key)
    except Terminal as error:
        log.warning("given up until it changes", controller=reconciler.name, key=key, error=error)
        queue.forget(key)
    except status.Conflict as error:
        # Someone else wrote first; the newer version is on its way to our cache.
        log.debug("conflict, retrying", controller=reconciler.name, key=key, error=error.message)
        queue.retry(key)
    except status.ApiError as error:
        log.info("retrying", controller=reconciler.name, key=key, error=error.message)
        queue.retry(key)
    except Exception as error:
        log.error("reconcile failed", exc_info=error, controller=reconciler.name, key=key)
        queue.retry(key)
    else:
        queue.forget(key)
        if again is not None:
            queue.add_after(key, again.after_s)
        return True
    return False
