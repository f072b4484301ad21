"""One worker per pod: look, decide, report, act, and look again.

The deciding is `pods.plan`; a worker only carries it out. Workers of different pods never wait for
each other. A worker may fail at any point and be started again: everything it needs to go on is in
the runtime, the API and the pod's directory.
"""

import asyncio
from collections.abc import Awaitable
from typing import Any

import msgspec

from motley.api import status as api_status
from motley.api.views.pod import Pod
from motley.lib import journal
from motley.lib.backoff import Backoff
from motley.node import actions, logs, pods, podstatus
from motley.node.context import Context
from motley.node.cri.errors import RuntimeFailure
from motley.node.killer import Killer
from motley.node.messages import TerminationMessages
from motley.node.model import Notes, Probes, RuntimePod
from motley.node.probes import Prober
from motley.node.resizer import Resizer
from motley.node.starter import Starter
from motley.node.statuswriter import StatusWriter, version

log = journal.get(__name__)

# Nothing tells of a change that was missed; looking again now and then does.
SAFETY_S = 60.0
FINAL_STATUS_S = 10.0
_WAITS_FOR_OBJECTS = (
    "CreateContainerConfigError",
    "ContainerCreating",
    "ErrImagePull",
    "ImagePullBackOff",
)


class PodWorker:
    """Drives one pod uid from first sight until nothing of it is left."""

    def __init__(
        self, context: Context, uid: str, pod: Pod | None, rejected: tuple[str, str] | None = None
    ) -> None:
        self.uid = uid
        self.notes = Notes(rejected=rejected)
        self.observed = RuntimePod(uid)
        self._context = context
        self._pod = pod
        self._last_grace: float | None = None
        self._woken = asyncio.Event()
        self._leaving = asyncio.Event()
        self._must_refresh = False
        self._messages = TerminationMessages()
        self._status: dict[str, Any] = {}
        self._writer = StatusWriter(context.client, context.clock)
        self._starter = Starter(context, self.notes, self._unless_leaving)
        self._resizer = Resizer(context, self.notes)
        self._tasks: asyncio.TaskGroup
        self._prober: Prober
        self._killer: Killer
        self._woken.set()

    # -- what others tell the worker

    @property
    def pod(self) -> Pod | None:
        """The pod as last known; None once the API has forgotten it."""
        return self._pod

    def update(self, pod: Pod) -> None:
        """The pod changed."""
        if self._pod is not None and version(pod) < version(self._pod):
            return  # older news than we have
        if self._pod is not None and _written_about(pod) != _written_about(self._pod):
            self._must_refresh = True  # files of the downward API may say so
        self._pod = pod
        if pod.metadata.deletion_timestamp is not None:
            self._leaving.set()
        self._woken.set()

    def removed(self, last: Pod | None) -> None:
        """The API no longer has the pod."""
        if last is not None and last.metadata.deletion_grace_period_seconds is not None:
            self._last_grace = float(last.metadata.deletion_grace_period_seconds)
        self._pod = None
        self._leaving.set()
        self._woken.set()

    def wake(self) -> None:
        """Look again."""
        self._woken.set()

    def evict(self, message: str, grace_s: float) -> None:
        """The node needs the room: end the pod for good."""
        self.notes.rejected = ("Evicted", message)
        self.notes.end_grace_s = grace_s
        self._leaving.set()
        self._woken.set()

    def objects_changed(self) -> None:
        """A ConfigMap or Secret it uses changed: retry at once, refresh files."""
        self._must_refresh = True
        self.retry_now()

    def retry_now(self) -> None:
        """What was waited for may be there: do not sit out the rest of the wait."""
        if self.notes.sandbox is not None:
            self.notes.sandbox = self.notes.sandbox._replace(retry_at=0.0)
        for name, waiting in self.notes.waiting.items():
            if waiting.reason in _WAITS_FOR_OBJECTS:
                self.notes.waiting[name] = waiting._replace(retry_at=0.0)
        self._woken.set()

    # -- the loop

    async def run(self) -> None:
        """Work until nothing is left to do for this pod."""
        context = self._context
        try:
            async with asyncio.TaskGroup() as self._tasks:
                self._prober = Prober(
                    context.checker, self._tasks, context.clock, self.wake, self._probe_failed
                )
                self._killer = Killer(context, self.uid, self.notes, self._tasks, self.wake)
                writing = self._tasks.create_task(self._writer.run())
                await self._loop()
                self._prober.keep_only(set())
                writing.cancel()
        finally:
            context.objects.release(self.uid)

    async def _loop(self) -> None:
        clock = self._context.clock
        backoff = Backoff(base_s=0.2, cap_s=10.0)
        while True:
            self._woken.clear()
            try:
                plan = await self._round()
            except (RuntimeFailure, api_status.ApiError, OSError, TimeoutError) as error:
                pause = backoff.next()
                log.warning("pod round failed", uid=self.uid, error=error, retry_s=round(pause, 1))
                await self._wait(pause)
                continue
            except Exception as error:
                # A defect met by one pod must not take the node's other pods with it.
                log.error("pod round failed unexpectedly", exc_info=error, uid=self.uid)
                await self._wait(backoff.next() + 5.0)
                continue
            backoff.reset()
            if plan.is_done:
                return
            pause = SAFETY_S if plan.wake_at is None else plan.wake_at - clock.now()
            await self._wait(max(0.0, min(SAFETY_S, pause)))

    async def _wait(self, seconds: float) -> None:
        if self._woken.is_set() or seconds <= 0:
            return
        clock = self._context.clock
        timer = self._tasks.create_task(clock.sleep(seconds))
        woken = self._tasks.create_task(_wait_for(self._woken))
        try:
            await asyncio.wait({timer, woken}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            woken.cancel()

    async def _round(self) -> pods.Plan:
        context, pod = self._context, self._pod
        if pod is not None:  # it runs with what it was granted, whatever it asks for by now
            pod = self._with_status(context.allocations.of(pod))
        observed = self.observed = self._messages.added_to(await context.runtime.pod(self.uid))
        self._follow_probes(pod, observed)
        ips = observed.sandbox.ips if observed.sandbox else ()
        if pod is not None and observed.running() and not self._leaving.is_set():
            await self._starter.adopt(pod, ips)
        if self._must_refresh and pod is not None:
            self._must_refresh = False
            await self._starter.refresh(pod, ips)
        if pod is not None and not self._leaving.is_set():
            await self._resizer.apply(pod, observed.running(), self._starter.cgroup(pod))
        verdicts = self._prober.verdicts()
        plan = pods.plan(
            pod,
            observed,
            self.notes,
            verdicts,
            context.clock.now(),
            orphan_grace_s=self._last_grace,
        )
        if plan.failed is not None:
            self.notes.rejected = plan.failed
            self._woken.set()
        if pod is not None:
            self._report(pod, observed, verdicts, is_starting=plan.starts)
        for action in plan.actions:
            await self._perform(action, observed)
            if self._leaving.is_set() and isinstance(action, actions.StartContainer):
                break
        if plan.actions and not isinstance(plan.actions[-1], actions.DeletePod):
            self._woken.set()
        return plan

    def _follow_probes(self, pod: Pod | None, observed: RuntimePod) -> None:
        running = observed.running()
        self._prober.keep_only({c.id for c in running})
        if pod is None or not running:
            return
        known = podstatus.known_ready(
            [*pod.status.container_statuses, *pod.status.init_container_statuses]
        )
        for container in running:
            spec = pods.container(pod, container.name)
            if spec is not None:
                address = self._address(pod, observed)
                self._prober.follow(spec, container, address, known.get(container.id))

    def _address(self, pod: Pod, observed: RuntimePod) -> str:
        if pod.spec.host_network:
            return self._context.settings.node_ip
        return observed.sandbox.ips[0] if observed.sandbox and observed.sandbox.ips else ""

    def _probe_failed(self, container: str, kind: str, output: str) -> None:
        if self._pod is not None:
            message = f"{kind.capitalize()} probe failed: {output}"
            self._context.recorder.event(self._pod, "Warning", "Unhealthy", message)
            log.debug("probe failed", uid=self.uid, container=container, kind=kind, why=output)

    # -- status

    def _report(
        self, pod: Pod, observed: RuntimePod, verdicts: Probes, *, is_starting: bool = False
    ) -> None:
        context = self._context
        status = podstatus.compute(
            podstatus.View(
                pod,
                observed,
                self.notes,
                verdicts,
                context.clock.now(),
                context.settings.node_ip,
                self._status,
            )
        )
        self._status = status
        shown = context.as_shown(pod)
        if shown is not None:
            is_passing = is_starting and status["phase"] == "Pending"
            self._writer.set(shown, status, is_passing=is_passing)

    def _with_status(self, pod: Pod) -> Pod:
        """A static pod's file has no status; what is known of it is in its mirror."""
        shown = self._context.as_shown(pod)
        return pod if shown is None else msgspec.structs.replace(pod, status=shown.status)

    # -- actions

    async def _perform(self, action: actions.Action, observed: RuntimePod) -> None:
        context, runtime = self._context, self._context.runtime
        pod = context.allocations.of(self._pod) if self._pod is not None else None
        match action:
            case actions.KillContainer():
                self._killer.begin(pod, action, self._address(pod, observed) if pod else "")
            case actions.RemoveContainer():
                await runtime.remove_container(action.id)
                self.notes.failed_starts.pop(action.id, None)
            case actions.RemoveSandbox():
                await runtime.stop_sandbox(action.id)
                await runtime.remove_sandbox(action.id)
            case actions.RunSandbox() if pod is not None:
                await self._starter.run_sandbox(pod, action)
            case actions.StartContainer() if pod is not None and observed.sandbox is not None:
                target = pods.looks_into(pod, action.name, observed)
                await self._starter.start_container(pod, action, observed.sandbox, target)
            case actions.ReleasePod():
                await self._release(observed)
            case actions.RemovePod():
                await self._remove(observed)
            case actions.DeletePod() if pod is not None:
                await self._delete(pod)

    async def _release(self, observed: RuntimePod) -> None:
        for sandbox in observed.sandboxes:
            if sandbox.is_ready:
                await self._context.runtime.stop_sandbox(sandbox.id)
        await asyncio.to_thread(self._context.volumes.release, self.uid)
        self._context.cgroups.remove_pod(self.uid)
        self._context.cpus.release(self.uid)
        self._starter.forget()
        self.notes.is_released = True

    async def _remove(self, observed: RuntimePod) -> None:
        context = self._context
        if self._pod is not None:  # the ends of its containers, before they are forgotten
            self._report(self._pod, observed, self._prober.verdicts())
        for sandbox in observed.sandboxes:
            await context.runtime.stop_sandbox(sandbox.id)
        for container in observed.containers:
            await context.runtime.remove_container(container.id)
        for sandbox in observed.sandboxes:
            await context.runtime.remove_sandbox(sandbox.id)
        await asyncio.to_thread(context.volumes.remove, self.uid)
        await asyncio.to_thread(logs.remove, context.settings.log_root, self.uid)
        context.cgroups.remove_pod(self.uid)
        context.cpus.release(self.uid)
        context.allocations.forget(self.uid)
        self._starter.forget()
        self.notes.is_released = True
        log.info("pod removed from the node", uid=self.uid)

    async def _delete(self, pod: Pod) -> None:
        meta = pod.metadata
        if not await self._writer.settled(FINAL_STATUS_S):
            raise TimeoutError("the pod's last status could not be written yet")
        try:
            await self._context.client.delete(
                Pod, meta.name, meta.namespace, grace_period_s=0, uid=meta.uid
            )
        except (api_status.NotFound, api_status.Conflict):
            log.debug("pod is gone already", pod=pod.key)

    async def _unless_leaving(self, work: Awaitable[Any]) -> Any:
        """The result of a long wait, or None when the pod must go meanwhile."""
        failed: list[Exception] = []

        async def guarded() -> Any:
            try:
                return await work
            except Exception as error:
                failed.append(error)
                return None

        task = self._tasks.create_task(guarded())
        leaving = self._tasks.create_task(_wait_for(self._leaving))
        try:
            await asyncio.wait({task, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            if not task.done():
                task.cancel()
        if failed:
            raise failed[0]
        return task.result() if task.done() and not task.cancelled() else None


def _written_about(pod: Pod) -> tuple[dict[str, str], dict[str, str]]:
    return pod.metadata.labels, pod.metadata.annotations


async def _wait_for(event: asyncio.Event) -> None:
    await event.wait()
