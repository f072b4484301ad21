"""What nobody asks for but must be done: leftovers removed, logs rotated, class shares kept."""

import asyncio
import shutil
from collections.abc import Sequence

from motley.lib import journal
from motley.node import logrotate, resources
from motley.node.context import Context
from motley.node.podworker import PodWorker

log = journal.get(__name__)


class Housekeeper:
    """Keeps a node tidy; call `round` now and then.

    A leftover is removed when it was one in the round before, too: a pod that has just come has
    a directory before this round knows of its worker.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._suspects: set[str] = set()

    async def round(self, workers: Sequence[PodWorker]) -> None:
        """Tidy up once."""
        context = self._context
        await asyncio.to_thread(self._remove_leftovers, {w.uid for w in workers})
        burstable = 0
        for worker in workers:
            pod = worker.pod
            if pod is None or pod.is_terminal or resources.qos_class(pod) != "Burstable":
                continue
            burstable += resources.pod_requests(pod).get("cpu", 0)
        context.cgroups.set_class_shares(burstable)
        for worker in workers:
            await logrotate.rotate(
                context.runtime,
                worker.observed.containers,
                context.clock,
                max_bytes=context.settings.log_max_bytes,
                max_files=context.settings.log_max_files,
            )

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
