"""Following the container runtime: events as they come, and a relist in case one was lost.

Both only wake the worker of the pod concerned. An event may reach us before the runtime's own CRI
part has taken note of it, so a worker is woken until it sees what the event told.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from motley.lib import journal
from motley.lib.clock import Clock
from motley.node.cri import containerd
from motley.node.cri.errors import RuntimeFailure, RuntimeUnavailable
from motley.node.cri.runtime import Runtime
from motley.node.podworker import PodWorker

log = journal.get(__name__)

RELIST_S = 10.0
# containerd's CRI part hears of an exit by the same event as we do: it may need a moment.
LOOKS_S = (0.0, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)


class RuntimeWatch:
    """Wakes workers when their pods change in the runtime; `run` it in a task group.

    `wanted` tells which uids the API has on this node, `orphan` is called with others.
    """

    def __init__(
        self,
        runtime: Runtime,
        workers: Mapping[str, PodWorker],
        wanted: Callable[[], Iterable[str]],
        orphan: Callable[[str], None],
        clock: Clock,
    ) -> None:
        self._runtime = runtime
        self._workers = workers
        self._wanted = wanted
        self._orphan = orphan
        self._clock = clock
        self._must_relist = asyncio.Event()
        self._tasks: asyncio.TaskGroup

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            self._tasks.create_task(self._follow())
            self._tasks.create_task(self._relist())

    async def _follow(self) -> None:
        while True:
            try:
                async for topic, runtime_id in containerd.events(self._runtime):
                    self._event(topic, runtime_id)
            except RuntimeUnavailable as error:
                log.warning("runtime events interrupted", error=error)
            except RuntimeFailure as error:
                log.warning("no runtime events, relying on relists", error=error)
                await self._clock.sleep(RELIST_S)
            self._must_relist.set()
            await self._clock.sleep(1.0)

    def _event(self, topic: str, runtime_id: str) -> None:
        if topic != "/tasks/start":  # our own doing
            self._tasks.create_task(self._follow_up(runtime_id, is_exit=topic == "/tasks/exit"))

    async def _follow_up(self, runtime_id: str, *, is_exit: bool) -> None:
        """Find whose it is: a short-lived container may end before its worker has seen it."""
        for pause in LOOKS_S:
            await self._clock.sleep(pause)
            for worker in self._workers.values():
                observed = worker.observed
                if any(c.id == runtime_id for c in observed.containers) or any(
                    s.id == runtime_id for s in observed.sandboxes
                ):
                    await self._look(worker, runtime_id, is_exit=is_exit)
                    return
        self._must_relist.set()

    async def _look(self, worker: PodWorker, runtime_id: str, *, is_exit: bool) -> None:
        """Wake a worker until it sees what the event told.

        That memory ran out may be noted after the end it caused, so that is looked for throughout.
        """
        for pause in LOOKS_S:
            await self._clock.sleep(pause)
            alive = {c.id for c in worker.observed.running()}
            alive |= {s.id for s in worker.observed.sandboxes if s.is_ready}
            if is_exit and runtime_id not in alive:
                return
            worker.wake()

    async def _relist(self) -> None:
        while True:
            await self._pause()
            try:
                sandboxes = await self._runtime.list_sandboxes()
                containers = await self._runtime.list_containers()
            except RuntimeFailure as error:
                log.warning("relist failed", error=error)
                continue
            present: dict[str, set[tuple[str, object]]] = {}
            for sandbox in sandboxes:
                present.setdefault(sandbox.uid, set()).add((sandbox.id, sandbox.is_ready))
            for uid, listed in containers.items():
                present.setdefault(uid, set()).update((c.id, c.state) for c in listed)
            for uid, worker in list(self._workers.items()):
                seen = worker.observed
                known: set[tuple[str, object]] = {(s.id, s.is_ready) for s in seen.sandboxes}
                known |= {(c.id, c.state) for c in seen.containers}
                if known != present.get(uid, set()):
                    worker.wake()
            for uid in present.keys() - set(self._wanted()):
                self._orphan(uid)

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(RELIST_S):
                await self._must_relist.wait()
        except TimeoutError:
            return
        await self._clock.sleep(0.1)  # several at once are one
        self._must_relist.clear()
