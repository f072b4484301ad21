"""What nobody asks for but must be done: leftovers removed, logs rotated."""

import asyncio
import os
import shutil
from collections.abc import Callable, Sequence

from motley.lib import journal
from motley.node import logrotate
from motley.node.context import Context
from motley.node.cri.errors import RuntimeFailure
from motley.node.podworker import PodWorker

log = journal.get(__name__)

EVERY_S = 15.0
Workers = Callable[[], Sequence[PodWorker]]


class Housekeeper:
    """Keeps a node tidy; `run` it in a task group.

    A leftover is removed when it was one in the round before, too: a pod that has just come has
    a directory before this round knows of its worker.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._suspects: set[str] = set()
        self._is_full = False

    async def run(self, workers: Workers) -> None:
        """Tidy up now and then, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_logs_small(workers))
            while True:
                try:
                    await self.round(workers())
                except (OSError, RuntimeFailure) as error:
                    log.warning("housekeeping failed", error=error)
                await self._context.clock.sleep(EVERY_S)

    async def _keep_logs_small(self, workers: Workers) -> None:
        context = self._context
        while True:
            self._look_for_room()
            for worker in workers():
                try:
                    await logrotate.rotate(
                        context.runtime,
                        worker.observed.containers,
                        context.clock,
                        max_bytes=context.settings.log_max_bytes,
                        max_files=context.settings.log_max_files,
                    )
                except (OSError, RuntimeFailure) as error:
                    log.warning("logs not rotated", uid=worker.uid, error=error)
            await context.clock.sleep(context.settings.log_look_every_s)

    def _look_for_room(self) -> None:
        """Containers go on when their logs cannot be written: only the agent can say so."""
        found = os.statvfs(self._context.settings.log_root)
        is_full = found.f_bavail == 0 or (found.f_files > 0 and found.f_favail == 0)
        if is_full == self._is_full:
            return
        self._is_full = is_full
        path = self._context.settings.log_root
        if is_full:
            log.error("the volume of container logs is full, lines are being lost", path=path)
        else:
            log.warning("the volume of container logs has room again", path=path)

    async def round(self, workers: Sequence[PodWorker]) -> None:
        """Tidy up once."""
        await asyncio.to_thread(self._remove_leftovers, {w.uid for w in workers})

    def _remove_leftovers(self, known: set[str]) -> None:
        """Directories, mounts, logs and control groups of pods that no worker looks after."""
        context = self._context
        logs = {}
        if context.settings.log_root.is_dir():
            for directory in context.settings.log_root.iterdir():
                logs[directory.name.rpartition("_")[2]] = directory
        found = (context.volumes.pods() | context.cgroups.pods() | logs.keys()) - known
        for uid in found & self._suspects:
            log.info("removing what an earlier pod left", uid=uid)
            context.volumes.remove(uid)
            context.cgroups.remove_pod(uid)
            if uid in logs:
                shutil.rmtree(logs[uid])
        self._suspects = found
