"""Keeps a node from running out: watches the signals, and ends pods before the kernel has to.

Every moment the signals are read. What is short is first looked for where no pod suffers
(images nobody uses, dead containers); then one pod goes at a time, and its room is waited for
before the next has to.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from motley.api.views.core import Node
from motley.api.views.pod import Pod
from motley.lib import journal
from motley.node import diskusage
from motley.node.context import Context
from motley.node.cri.errors import RuntimeFailure
from motley.node.cri.values import ContainerUsage
from motley.node.eviction import localstorage, pressure, ranking, signals
from motley.node.eviction.pressure import Observation, Policy, Pressure, Shortage
from motley.node.podworker import PodWorker

log = journal.get(__name__)

MONITOR_S = 2.0
CLEANUP_S = 30.0  # the longest a pod's end is waited for before another has to go
LOCAL_STORAGE_S = 10.0


class Evictor:
    """The evictions of one node; `run` it in a task group."""

    def __init__(
        self,
        context: Context,
        policy: Policy,
        workers: Callable[[], Sequence[PodWorker]],
        reclaim_disk: Callable[[], Awaitable[int]],
        node: Callable[[], Node | None],
        changed: Callable[[], None],
    ) -> None:
        self._context = context
        self._policy = policy
        self._workers = workers
        self._reclaim_disk = reclaim_disk
        self._node = node
        self._changed = changed
        self._pressure = Pressure(policy.thresholds, policy.transition_s)
        self._image_root: Path | None = None
        self._local_storage_at = float("-inf")

    @property
    def conditions(self) -> frozenset[str]:
        """The pressures the node is under."""
        return self._pressure.conditions

    def refusal(self, pod: Pod) -> str:
        """Why the node does not take this pod now; empty when it does."""
        if not self.conditions or ranking.is_critical(pod):
            return ""
        tolerates = any(
            t.key in ("", "node.kubernetes.io/memory-pressure") and t.effect in ("", "NoSchedule")
            for t in pod.spec.tolerations
        )
        return pressure.refusal(
            self.conditions,
            is_best_effort=pod.status.qos_class == "BestEffort",
            tolerates_memory=tolerates,
        )

    async def run(self) -> None:
        """Watch until cancelled."""
        clock = self._context.clock
        while True:
            try:
                await self._round()
            except (OSError, RuntimeFailure) as error:
                log.warning("eviction signals not read", error=error)
            await clock.sleep(MONITOR_S)

    async def _round(self) -> None:
        observed = await self._observe()
        before = self.conditions
        shortages = self._pressure.step(observed, self._context.clock.monotonic())
        if self.conditions != before:
            log.warning("node pressure changed", conditions=sorted(self.conditions))
            self._changed()
        if await self._keep_local_storage():
            return
        if shortages:
            await self._relieve(shortages)

    async def _observe(self) -> dict[str, Observation]:
        context = self._context
        if self._image_root is None:
            directories = await context.runtime.image_directories()
            self._image_root = Path(directories[0]) if directories else context.settings.root
        return await asyncio.to_thread(
            signals.observe,
            context.settings.root,
            self._image_root,
            context.cgroups,
            context.resources.allocatable,
        )

    async def _relieve(self, shortages: Sequence[Shortage]) -> None:
        worst = shortages[0]
        resource = worst.threshold.resource
        log.warning("node is short", signal=worst.threshold.signal, left=worst.observed.available)
        node = self._node()
        if node is not None:
            said = f"Attempting to reclaim {resource}"
            self._context.recorder.event(node, "Warning", "EvictionThresholdMet", said)
        if worst.threshold.condition == "DiskPressure":
            freed = await self._reclaim_disk()
            if freed and self._pressure.is_relieved(worst, await self._observe()):
                log.info("disk reclaimed without evicting pods", bytes=freed)
                return
        candidates = await self._candidates(resource)
        ranked = ranking.rank(candidates, resource)
        if not ranked:
            log.warning("nothing can be evicted", resource=resource)
            return
        first = ranked[0]
        grace = ranking.grace_s(
            first.pod,
            is_hard=worst.threshold.is_hard,
            max_pod_grace_s=self._policy.max_pod_grace_s,
        )
        await self._evict(first.pod, ranking.message(first, shortages, resource), grace)

    async def _candidates(self, resource: str) -> list[ranking.Candidate]:
        usages = await self._context.runtime.container_usage()
        found = []
        for worker in self._active():
            usage = await self._usage(worker, resource, usages)
            if worker.pod is not None:
                found.append(ranking.Candidate(worker.pod, usage))
        return found

    async def _usage(
        self, worker: PodWorker, resource: str, usages: Mapping[str, ContainerUsage]
    ) -> ranking.Usage:
        context = self._context
        if resource == "pids":
            return ranking.Usage({resource: context.cgroups.pids_of(worker.uid)})
        if resource == "memory":
            by_container = {
                c.name: {resource: usages[c.id].working_set_bytes}
                for c in worker.observed.running()
                if c.id in usages
            }
            total = sum(used[resource] for used in by_container.values())
            return ranking.Usage({resource: total}, by_container)
        disk = await self._disk(worker, usages)
        inodes = resource == "inodes"
        return ranking.Usage(
            {resource: disk.total.inodes if inodes else disk.total.bytes},
            {n: {resource: u.inodes if inodes else u.bytes} for n, u in disk.containers.items()},
        )

    async def _disk(
        self, worker: PodWorker, usages: Mapping[str, ContainerUsage]
    ) -> diskusage.PodDisk:
        if worker.pod is None:
            return diskusage.PodDisk()
        return await asyncio.to_thread(
            diskusage.of_pod,
            worker.pod,
            self._context.volumes.directory(worker.uid),
            worker.observed.containers,
            usages,
        )

    async def _keep_local_storage(self) -> bool:
        """Evict whoever broke its own disk limits; True if somebody had to go."""
        now = self._context.clock.monotonic()
        if now - self._local_storage_at < LOCAL_STORAGE_S:
            return False
        self._local_storage_at = now
        limited = [w for w in self._active() if w.pod and localstorage.has_limits(w.pod)]
        if not limited:
            return False
        usages = await self._context.runtime.container_usage()
        has_evicted = False
        for worker in limited:
            disk = await self._disk(worker, usages)
            said = localstorage.broken(worker.pod, disk) if worker.pod else ""
            if worker.pod is not None and said and not ranking.is_critical(worker.pod):
                await self._evict(worker.pod, said, 0.0)
                has_evicted = True
        return has_evicted

    def _active(self) -> list[PodWorker]:
        """Pods that run and are not about to end anyway."""
        return [
            worker
            for worker in self._workers()
            if worker.pod is not None
            and not worker.pod.is_terminal
            and worker.pod.metadata.deletion_timestamp is None
            and worker.notes.rejected is None
        ]

    async def _evict(self, pod: Pod, message: str, grace_s: float) -> None:
        context = self._context
        worker = next((w for w in self._workers() if w.uid == pod.metadata.uid), None)
        if worker is None:
            return
        log.warning("evicting pod", pod=pod.key, why=message, grace_s=grace_s)
        context.recorder.event(pod, "Warning", ranking.REASON, message)
        worker.evict(message, grace_s)
        deadline = context.clock.monotonic() + grace_s + CLEANUP_S
        while context.clock.monotonic() < deadline:
            if worker.notes.is_released:
                return
            await context.clock.sleep(0.1)
        log.warning("evicted pod has not ended yet", pod=pod.key)
