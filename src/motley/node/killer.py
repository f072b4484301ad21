"""Ending containers: the preStop hook first, then the signal, within one grace period."""

import asyncio
from collections.abc import Callable

from motley.api.views.pod import Pod
from motley.lib import journal
from motley.node import actions, pods
from motley.node.checks import Target
from motley.node.context import Context
from motley.node.cri.errors import RuntimeFailure
from motley.node.model import Notes

log = journal.get(__name__)

# Kubernetes gives a container at least this long after its preStop hook has used up the rest.
MIN_GRACE_S = 2.0


class Killer:
    """Ends containers of one pod in the background; `done` is called after each."""

    def __init__(
        self,
        context: Context,
        uid: str,
        notes: Notes,
        tasks: asyncio.TaskGroup,
        done: Callable[[], None],
    ) -> None:
        self._context = context
        self._uid = uid
        self._notes = notes
        self._tasks = tasks
        self._done = done
        self._kills: dict[str, asyncio.Task[None]] = {}

    def begin(self, pod: Pod | None, action: actions.KillContainer, address: str) -> None:
        """Start to end a container; one that is being ended gets the new grace period."""
        if before := self._kills.pop(action.id, None):
            before.cancel()  # a shorter grace period replaces a longer one
        self._notes.killing[action.id] = self._context.clock.now() + action.grace_s
        self._kills[action.id] = self._tasks.create_task(self._kill(pod, action, address))

    async def _kill(self, pod: Pod | None, action: actions.KillContainer, address: str) -> None:
        context = self._context
        log.info("stopping container", uid=self._uid, container=action.name, why=action.message)
        began = context.clock.monotonic()
        grace = action.grace_s
        try:
            if pod is not None:
                context.recorder.event(pod, "Normal", "Killing", action.message)
                await self._pre_stop(pod, action, address)
            if grace > 0:
                spent = context.clock.monotonic() - began
                grace = max(MIN_GRACE_S, grace - spent) if spent >= 1 else grace
            await context.runtime.stop_container(action.id, grace)
        except RuntimeFailure as error:
            log.warning("container not stopped", id=action.id, error=error)
            await context.clock.sleep(1.0)
        finally:
            if self._kills.get(action.id) is asyncio.current_task():
                del self._kills[action.id]
                self._notes.killing.pop(action.id, None)
            self._done()

    async def _pre_stop(self, pod: Pod, action: actions.KillContainer, address: str) -> None:
        spec = pods.container(pod, action.name)
        hook = spec.lifecycle.pre_stop if spec and spec.lifecycle else None
        if spec is None or hook is None or action.grace_s <= 0:
            return
        target = Target(action.id, spec, address)
        verdict = await self._context.checker.hook(hook, target, action.grace_s)
        if not verdict.is_good:
            message = f"PreStopHook failed: {verdict.output}"
            self._context.recorder.event(pod, "Warning", "FailedPreStopHook", message)
