"""Leader election on a Lease: of several equal processes one works, the others stand by.

The holder renews; whoever sees the lease unchanged for its whole duration, by its *own* clock,
takes it. Clocks of different machines are never compared. A holder that cannot renew in time
stops before anyone else may start.
Invariant: `work` runs only while this process holds the lease.
"""

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from motley.api import status
from motley.api.views.core import Lease
from motley.client.rest import Client
from motley.lib import clock as clocks
from motley.lib import journal
from motley.lib.clock import SYSTEM, Clock

log = journal.get(__name__)


class LostLeadership(Exception):
    """The lease could not be renewed in time, or someone else holds it: stop and start anew."""


class LeaderElection:
    """One candidate for one lease."""

    def __init__(
        self,
        client: Client,
        name: str,
        *,
        namespace: str = "kube-system",
        identity: str | None = None,
        # kube-controller-manager's defaults.
        duration_s: float = 15.0,
        renew_deadline_s: float = 10.0,
        retry_s: float = 2.0,
        clock: Clock = SYSTEM,
    ) -> None:
        self._client = client
        self._name = name
        self._namespace = namespace
        self._identity = identity or process_identity()
        self._duration_s = duration_s
        self._renew_deadline_s = renew_deadline_s
        self._retry_s = retry_s
        self._clock = clock
        self._observed: tuple[str | None, str | None] | None = None
        self._observed_at = 0.0
        self._has_complained = False
        self.is_leader = False

    async def lead(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Wait for leadership, then run `work` for as long as it lasts.

        Raises LostLeadership; returns when `work` does. The lease is given back at a clean end.
        """
        while not await self._try():
            await self._clock.sleep(self._retry_s)
        self.is_leader = True
        log.info("leadership acquired", lease=self._name, identity=self._identity)
        try:
            async with asyncio.TaskGroup() as group:
                renewal = group.create_task(self._renew())
                await work()
                renewal.cancel()
        except ExceptionGroup as failures:
            if failures.subgroup(LostLeadership) is None:
                raise
            self.is_leader = False
            log.error("leadership lost", lease=self._name, identity=self._identity)
            raise LostLeadership(f"lease {self._namespace}/{self._name}") from None
        finally:
            if self.is_leader:
                self.is_leader = False
                await self._release()

    async def _renew(self) -> None:
        renewed = self._clock.monotonic()
        while True:
            await self._clock.sleep(self._retry_s)
            if await self._try():
                renewed = self._clock.monotonic()
            elif self._held_by_other() or (
                self._clock.monotonic() - renewed > self._renew_deadline_s
            ):
                raise LostLeadership(f"lease {self._namespace}/{self._name}")

    async def _try(self) -> bool:
        """Take or renew the lease, if it is free, ours or silent for too long."""
        try:
            async with asyncio.timeout(self._renew_deadline_s):
                return await self._take()
        except (status.ApiError, TimeoutError) as error:
            if isinstance(error, status.Forbidden) and not self._has_complained:
                self._has_complained = True  # once: no time will change it, and nobody works
                log.warning("lease may not be taken", lease=self._name, error=str(error))
            log.debug("lease not taken", lease=self._name, error=str(error))
            return False

    async def _take(self) -> bool:
        try:
            lease = await self._client.get(Lease, self._name, self._namespace)
        except status.NotFound:
            await self._client.create(
                Lease,
                {
                    "metadata": {"name": self._name, "namespace": self._namespace},
                    "spec": self._spec(None),
                },
            )
            return True
        self._observe(lease)
        if not self._is_free(lease):
            return False
        await self._client.patch(
            Lease,
            self._name,
            self._namespace,
            {
                "metadata": {"resourceVersion": lease.metadata.resource_version},
                "spec": self._spec(lease),
            },
        )
        return True

    def _observe(self, lease: Lease) -> None:
        seen = (lease.spec.holder_identity, lease.spec.renew_time)
        if seen != self._observed:
            self._observed, self._observed_at = seen, self._clock.monotonic()

    def _held_by_other(self) -> bool:
        holder = self._observed[0] if self._observed else None
        return bool(holder) and holder != self._identity

    def _is_free(self, lease: Lease) -> bool:
        holder = lease.spec.holder_identity
        if not holder or holder == self._identity or is_dead_process(holder):
            return True
        duration_s = lease.spec.lease_duration_seconds or self._duration_s
        return self._clock.monotonic() - self._observed_at > duration_s

    def _spec(self, held: Lease | None) -> dict[str, Any]:
        now = clocks.rfc3339_micro(self._clock.now())
        spec = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": int(self._duration_s),
            "renewTime": now,
        }
        if held is None or held.spec.holder_identity != self._identity:
            spec["acquireTime"] = now
            before = held.spec.lease_transitions or 0 if held else -1
            spec["leaseTransitions"] = before + 1
        return spec

    async def _release(self) -> None:
        """Let a successor start at once instead of after the lease's duration."""
        change = {"spec": {"holderIdentity": "", "renewTime": None}}
        try:
            async with asyncio.timeout(2.0):
                await self._client.patch(Lease, self._name, self._namespace, change)
        except (status.ApiError, TimeoutError) as error:
            log.debug("lease not released", lease=self._name, error=str(error))


def process_identity() -> str:
    """Names this process among all machines and restarts: host, boot, pid namespace, pid, start."""
    pid = os.getpid()
    return f"{socket.gethostname()}_{_scope()}_{pid}_{_started(pid)}"


def is_dead_process(identity: str) -> bool:
    """Is it certain that this identity's process has ended?

    Only a process of the same boot and the same pid namespace can be judged. A successor on the
    same machine then need not wait for a lease to run out after a crash.
    """
    parts = identity.rsplit("_", 3)
    if len(parts) != 4 or parts[1] != _scope() or not parts[2].isdigit():
        return False
    return _started(int(parts[2])) != parts[3]


def _scope() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]
        return f"{boot}-{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return "unknown"


def _started(pid: int) -> str:
    """Start of a process in clock ticks since boot (field 22 of /proc/pid/stat), '' if ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    ended = fields[0] in ("Z", "X")  # a zombie only waits for its parent
    return "" if ended else fields[19]
