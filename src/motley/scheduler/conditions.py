"""The PodScheduled condition of pods that could not be scheduled.

Users and autoscalers read it; it is written in the background, the latest word per pod only, and
not at all when the pod says so already.
"""

import asyncio
from typing import Any, NamedTuple

from motley.api import status
from motley.api.views.pod import Pod
from motley.client.together import Writes
from motley.lib import clock as clocks
from motley.lib import journal
from motley.lib.clock import SYSTEM, Clock

log = journal.get(__name__)

_WORKERS = 32  # patches under way at once


class _Note(NamedTuple):
    pod: Pod
    reason: str
    message: str
    nominated: str | None


class ConditionWriter:
    """Patches pods' status; `run` it in a task group."""

    def __init__(self, client: Writes, *, clock: Clock = SYSTEM) -> None:
        self._client = client
        self._clock = clock
        self._notes: dict[str, _Note] = {}  # by uid: at most one per pending pod
        self._work = asyncio.Event()

    def unschedulable(
        self, pod: Pod, reason: str, message: str, nominated: str | None = None
    ) -> None:
        """Say that the pod is not scheduled, and why; returns at once.

        `nominated`: the node that room is made on for it, empty: none; None: as it is.
        """
        self._notes[pod.metadata.uid] = _Note(pod, reason, message, nominated)
        self._work.set()

    def forget(self, uid: str) -> None:
        """The pod is bound or gone: what is left to say is no longer true."""
        self._notes.pop(uid, None)

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(_WORKERS):
                group.create_task(self._worker())

    async def _worker(self) -> None:
        while True:
            await self._work.wait()
            if not self._notes:
                self._work.clear()
                continue
            note = self._notes.pop(next(iter(self._notes)))
            body = patch(note.pod, note.reason, note.message, self._clock.now(), note.nominated)
            if body is None:
                continue
            meta = note.pod.metadata
            try:
                await self._client.patch(
                    Pod, meta.name, meta.namespace, body, type="strategic", subresource="status"
                )
            except (status.ApiError, OSError, TimeoutError) as error:
                # The next failed attempt says it again.
                log.debug("condition not written", pod=note.pod.key, error=str(error))


def patch(
    pod: Pod, reason: str, message: str, now: float, nominated: str | None = None
) -> dict[str, Any] | None:
    """The patch of the pod's status, or None when it says so already."""
    fields: dict[str, Any] = {}
    if nominated is not None and nominated != pod.status.nominated_node_name:
        fields["nominatedNodeName"] = nominated or None
    current = pod.status.condition("PodScheduled")
    if current is not None and (current.status, current.reason, current.message) == (
        "False",
        reason,
        message,
    ):
        return {"status": fields} if fields else None
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": reason,
        "message": message,
    }
    if current is None or current.status != "False":
        condition["lastTransitionTime"] = clocks.rfc3339(now)
    return {"status": {"conditions": [condition], **fields}}
