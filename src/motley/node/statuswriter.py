"""Writes one pod's status to the API, beside the work.

Containers are started and restarted whether or not the API server can be reached; what is to be
said about them waits here. Only the newest status is kept, and only a change is written. A status
that is about to change may linger: a pod that is up within a moment is written once, not thrice,
and starting it does not share the machine with writing that it is being started.
"""

import asyncio
from typing import Any

from motley.api import status as api_status
from motley.api.views.pod import Pod
from motley.client.rest import Client
from motley.lib import journal
from motley.lib.backoff import Backoff
from motley.lib.clock import Clock

log = journal.get(__name__)

# At most ten writes a second per pod, however its containers behave; a few may come at once.
MIN_INTERVAL_S = 0.1
BURST = 4
LINGER_S = 0.5


def version(pod: Pod) -> int:
    """The resourceVersion as a number, to tell older news from newer."""
    text = pod.metadata.resource_version
    return int(text) if text.isdigit() else 0


def agrees(pod: Pod, status: dict[str, Any]) -> bool:
    """Does the API show what was written? Others may write a pod's status too."""
    if pod.status.phase != status.get("phase"):
        return False
    for condition in status.get("conditions", ()):
        known = pod.status.condition(condition["type"])
        if known is None or known.status != condition["status"]:
            return False
    shown = {c["type"] for c in status.get("conditions", ())}
    return not any(
        pod.status.condition(kind) is not None and kind not in shown for kind in _PASSING
    )


# Conditions that are there only while they hold.
_PASSING = ("PodResizePending", "PodResizeInProgress")


class StatusWriter:
    """Keeps the API's idea of one pod's status current; `run` it in a task group."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._pod: Pod | None = None
        self._wanted: dict[str, Any] = {}
        self._written: dict[str, Any] = {}
        self._version = 0
        self._changed = asyncio.Event()
        self._urgent = asyncio.Event()
        self._allowance = float(BURST)
        self._allowed_at = 0.0
        self._settled = asyncio.Event()
        self._settled.set()

    def set(self, pod: Pod, status: dict[str, Any], *, is_passing: bool = False) -> None:
        """This is the pod's status now; one that `is_passing` may be left out if another comes."""
        self._pod, self._wanted = pod, status
        if self._written and version(pod) >= self._version and not agrees(pod, self._written):
            self._written = {}
        if self._wanted != self._written:
            self._settled.clear()
            self._changed.set()
            if not is_passing:
                self._urgent.set()

    async def settled(self, timeout_s: float) -> bool:
        """Wait until everything is written; False when it took too long."""
        self._urgent.set()
        try:
            async with asyncio.timeout(timeout_s):
                await self._settled.wait()
        except TimeoutError:
            return False
        return True

    async def run(self) -> None:
        """Write changes until cancelled."""
        backoff = Backoff(base_s=0.2, cap_s=10.0)
        while True:
            await self._changed.wait()
            await self._linger()
            self._changed.clear()
            try:
                await self._write()
            except api_status.ApiError as error:
                log.warning("pod status not written", error=error.message)
                self._changed.set()
                self._urgent.set()
                await self._clock.sleep(backoff.next())
                continue
            backoff.reset()
            if self._wanted == self._written:
                self._settled.set()
            await self._pace()

    async def _linger(self) -> None:
        try:
            async with asyncio.timeout(LINGER_S):
                await self._urgent.wait()
        except TimeoutError:
            return
        self._urgent.clear()

    async def _pace(self) -> None:
        now = self._clock.monotonic()
        earned = (now - self._allowed_at) / MIN_INTERVAL_S
        self._allowance = min(float(BURST), self._allowance + earned) - 1.0
        self._allowed_at = now
        if self._allowance < 1.0:
            await self._clock.sleep(MIN_INTERVAL_S)

    async def _write(self) -> None:
        pod, status = self._pod, self._wanted
        if pod is None or status == self._written:
            return
        patch = dict(status)
        had = [{"ip": p.ip} for p in pod.status.pod_ips]
        if had and had != status["podIPs"]:  # this list merges by address unless told otherwise
            patch["podIPs"] = [{"$patch": "replace"}, *status["podIPs"]]
        wanted = {c["type"] for c in status.get("conditions", ())}
        over = [
            {"type": kind, "$patch": "delete"}
            for kind in _PASSING
            if kind not in wanted and pod.status.condition(kind) is not None
        ]
        if over:
            patch["conditions"] = [*status["conditions"], *over]
        meta = pod.metadata
        body = {"metadata": {"uid": meta.uid}, "status": patch}
        try:
            fresh = await self._client.patch(
                Pod, meta.name, meta.namespace, body, type="strategic", subresource="status"
            )
        except (api_status.NotFound, api_status.Conflict) as error:
            # Gone, or another pod has its name by now: the informer will say.
            log.debug("pod status not wanted", pod=pod.key, error=error.message)
        else:
            self._version = version(fresh)
        self._written = status
