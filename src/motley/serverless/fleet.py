"""The controller of functions: as many instances as the calls need, of the newest code.

One of the routers leads, and this is its work. It looks twice a second, and at once when a call has
to wait. The state is in the cluster: pods say by labels whose instances they are and whether they
have their code, so a successor goes on where the leader before it ended.
"""

import asyncio
import contextlib
from collections.abc import Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Any

from motley.api import status
from motley.api.views.base import Key
from motley.api.views.core import Service
from motley.api.views.pod import Pod
from motley.api.views.serverless import Function
from motley.client.informer import Change, Informer
from motley.client.rest import Client
from motley.lib import journal
from motley.lib.backoff import Backoff
from motley.lib.clock import Clock
from motley.serverless import objects, plan, scaler
from motley.serverless.demand import Remote
from motley.serverless.discovery import BY_FUNCTION, is_live
from motley.serverless.instances import Broken, Group, Instance, Table
from motley.serverless.metrics import Meters
from motley.serverless.specialist import Refused
from motley.serverless.starting import Starter, Starting
from motley.serverless.warmpods import WarmPods

log = journal.get(__name__)

_TICK_S = 0.5
_V1_UNUSED_S = 10.0
_PARALLEL_STARTS = 16


@dataclass
class _State:
    """What the leader remembers of one function."""

    scaler: scaler.Scaler
    generation: int = 0
    sampled_at: float = 0.0
    backoff: Backoff = field(default_factory=lambda: Backoff(base_s=1.0, cap_s=60.0))
    blocked_until: float = 0.0
    written: dict[str, Any] = field(default_factory=dict)
    is_prepared: bool = False


class Fleet:
    """Every function's instances, and the pools."""

    def __init__(
        self,
        client: Client,
        table: Table,
        functions: Informer[Function],
        pods: Informer[Pod],
        starter: Starter,
        meters: Meters,
        clock: Clock,
        rng: Random,
        *,
        pool_size: int,
        pool_limit: int,
        default_image: str,
        url: str,
    ) -> None:
        self._client = client
        self._table = table
        self._functions = functions
        self._pods = pods
        self._starter = starter
        self._meters = meters
        self._clock = clock
        self._rng = rng
        self._url = url
        self._warm = WarmPods(
            functions,
            pods,
            starter,
            meters,
            clock,
            size=pool_size,
            limit=pool_limit,
            default_image=default_image,
            spawn=self._spawn,
            delete=self._delete,
        )
        self._states: dict[Key, _State] = {}
        self._starting: list[Starting] = []
        self._deleting: set[Key] = set()
        self._resumed: set[Key] = set()
        self._woken: set[Key] = set()
        self._wake = asyncio.Event()
        self._slots = asyncio.Semaphore(_PARALLEL_STARTS)
        self._remote = Remote(clock)
        self._group: asyncio.TaskGroup

    async def run(self) -> None:
        """Work until cancelled."""
        self._starter.attach()
        self._table.on_wait = self._waits
        self._functions.add_handler(self._function_changed)
        try:
            async with asyncio.TaskGroup() as self._group:
                await self._loop()
        finally:
            self._table.on_wait = lambda _: None
            self._functions.remove_handler(self._function_changed)
            self._starter.detach()

    def prewarm(self, key: Key) -> None:
        """A call of this function is likely to come soon."""
        state = self._states.get(key)
        function = self._functions.get(key)
        if state is not None and function is not None and function.spec.version == "v2":
            state.scaler.wake(self._clock.monotonic())
            self._notice(key)

    def spent(self, instance: Instance) -> None:
        """A v1 instance has had its call."""
        self._delete(instance.pod, grace_s=1)

    def _waits(self, group: Group) -> None:
        self._notice(group.key)

    def _function_changed(self, change: Change[Function]) -> None:
        if change.new is None:
            self._states.pop(change.key, None)
            self._meters.forget(change.key)
        else:
            self._warm.demand(change.new).touched(self._clock.monotonic())
            self._notice(change.key)

    def _notice(self, key: Key) -> None:
        self._woken.add(key)
        self._wake.set()

    async def _loop(self) -> None:
        next_tick = self._clock.monotonic()
        while True:
            now = self._clock.monotonic()
            if now >= next_tick:
                next_tick = now + _TICK_S
                keys = {function.key for function in self._functions.items()}
                self._woken.clear()
                for key in keys:
                    self._look(key, is_tick=True)
                self._warm.fill()
            else:
                woken, self._woken = self._woken, set()
                for key in woken:
                    self._look(key, is_tick=False)
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, next_tick - self._clock.monotonic())):
                    await self._wake.wait()

    def _look(self, key: Key, *, is_tick: bool) -> None:
        """Bring one function's instances closer to what is needed."""
        function = self._functions.get(key)
        if function is None or function.metadata.deletion_timestamp:
            return
        group = self._table.group(key)
        state = self._state(function)
        now = self._clock.monotonic()
        remote = self._remote.concurrency(function)
        if is_tick:
            self._sample(function, state, group, remote, now)
            self._clean(function)
        if group.waiting or remote:
            self._warm.demand(function).touched(now)
        revision = objects.revision(function)
        starting = sum(s.function == key and s.revision == revision for s in self._starting)
        if function.spec.version == "v1":
            todo = plan.plan_v1(
                group.waiting + int(remote),
                revision,
                group.instances.values(),
                starting,
                minimum=max(function.spec.min_instances, function.spec.initial_instances),
                maximum=function.spec.max_instances,
                now=now,
                idle_s=_V1_UNUSED_S,
            )
        else:
            if group.waiting or remote:
                state.scaler.wake(now)
            desired = state.scaler.decide(now) if is_tick else state.scaler.current
            todo = plan.plan(
                desired,
                revision,
                group.instances.values(),
                starting,
                maximum=function.spec.max_instances,
            )
        self._carry_out(function, state, group, todo, now)
        if is_tick:
            self._report(function, state, group, revision, starting)

    def _carry_out(
        self, function: Function, state: _State, group: Group, todo: plan.Plan, now: float
    ) -> None:
        for pod in todo.drain:
            group.instances[pod].is_draining = True
        for pod in todo.delete:
            group.retire(pod)
            self._delete(pod)
        if now < state.blocked_until:
            if group.failure is not None and group.waiting:
                group.fail(group.failure)
            return
        revision = objects.revision(function)
        for _ in range(todo.start):
            starting = Starting(function.key, revision)
            self._starting.append(starting)
            self._warm.demand(function).taken(now)
            self._group.create_task(self._start(function, starting))

    async def _start(self, function: Function, starting: Starting) -> None:
        group = self._table.group(function.key)
        try:
            async with self._slots:
                await self._starter.start(function, starting)
        except Broken as error:
            log.info("function cannot be loaded", function=function.key, error=error.error)
            self._block(function, error.error)
            if not any(one.is_free or one.in_flight for one in group.instances.values()):
                group.fail(error.error)
            else:
                group.failure = error.error
        except (Refused, status.ApiError, TimeoutError) as error:
            log.warning("instance did not start", function=function.key, error=str(error))
            self._block(function, None)
            group.reason = str(error)
        else:
            state = self._states.get(function.key)
            if state is not None:
                state.backoff.reset()
        finally:
            self._starting.remove(starting)
            self._notice(function.key)

    def _block(self, function: Function, error: dict[str, Any] | None) -> None:
        """Do not try the same again at once; another generation is not the same."""
        state = self._states.get(function.key)
        if state is not None:
            if error is not None:
                state.scaler.reset(self._clock.monotonic())  # only a caller makes it try again
            wait_s = state.backoff.next() * (5.0 if error else 1.0)
            state.blocked_until = self._clock.monotonic() + wait_s

    def _state(self, function: Function) -> _State:
        spec = function.spec
        limits = scaler.Limits(
            minimum=spec.min_instances,
            maximum=spec.max_instances,
            concurrency=spec.concurrency,
            rate=spec.target_rate,
            idle_s=float(spec.idle_seconds),
        )
        now = self._clock.monotonic()
        state = self._states.get(function.key)
        if state is None:
            here = len(self._pods.by_index(BY_FUNCTION, str(function.key)))
            is_new = function.status.revision != objects.revision(function)
            initial = max(here, spec.initial_instances if is_new else 0)
            state = self._states[function.key] = _State(scaler.Scaler(limits, now, initial))
            state.sampled_at = now
        if state.generation != function.metadata.generation:
            state.generation = function.metadata.generation
            state.scaler.limits = limits
            state.blocked_until = 0.0
            state.backoff.reset()
            if not state.is_prepared:
                state.is_prepared = True
                self._spawn(self._prepare(function))
        return state

    def _sample(
        self, function: Function, state: _State, group: Group, remote: float, now: float
    ) -> None:
        mean, arrivals = group.sample()
        took_s = now - state.sampled_at
        state.sampled_at = now
        if took_s > 0:
            state.scaler.observe(scaler.Sample(now, took_s, mean + remote, arrivals))
        if arrivals:
            self._warm.demand(function).touched(now)
        self._meters.state(function.key, group.in_flight, group.waiting, len(group.instances))

    def _clean(self, function: Function) -> None:
        """Pods that ended go; those that a leader before us began get their code."""
        tracked = {starting.pod for starting in self._starting}
        for pod in self._pods.by_index(BY_FUNCTION, str(function.key)):
            if pod.is_terminal and not pod.metadata.deletion_timestamp:
                self._delete(pod.key, grace_s=0)
            elif (
                is_live(pod)
                and objects.SERVING not in pod.metadata.labels
                and pod.key not in tracked
                and pod.key not in self._resumed
                and pod.key not in self._table.group(function.key).instances
                and None not in tracked  # one of ours may be this one, not yet known by name
            ):
                self._resumed.add(pod.key)
                self._spawn(self._resume(function, pod))

    async def _resume(self, function: Function, pod: Pod) -> None:
        revision = objects.revision(function)
        try:
            if pod.metadata.labels.get(objects.REVISION) != revision:
                raise Refused("it is of another revision")
            await self._starter.finish(function, pod, self._clock.monotonic())
        except (Broken, Refused, status.ApiError, TimeoutError) as error:
            log.info("instance of an earlier leader is removed", pod=pod.key, error=str(error))
            await self._starter.remove(pod.key)
        finally:
            self._resumed.discard(pod.key)

    def _delete(self, pod: Key, grace_s: int | None = None) -> None:
        if pod not in self._deleting:
            self._deleting.add(pod)
            self._spawn(self._removed(pod, grace_s))

    async def _removed(self, pod: Key, grace_s: int | None) -> None:
        try:
            await self._starter.remove(pod, grace_s)
        except status.ApiError as error:
            log.warning("pod not removed, tried again later", pod=pod, error=error.message)
        finally:
            self._deleting.discard(pod)

    async def _prepare(self, function: Function) -> None:
        """What a first call need not wait for: the runtime's files, and the documents' Service."""
        try:
            await self._starter.prepare(function.metadata.namespace)
            if function.spec.version == "v2":
                await self._client.create(Service, objects.service(function))
        except status.AlreadyExists:
            log.debug("service is there already", function=function.key)
        except status.ApiError as error:
            log.warning("function has no Service", function=function.key, error=error.message)

    def _report(
        self, function: Function, state: _State, group: Group, revision: str, starting: int
    ) -> None:
        failure = group.failure
        message = ""
        if failure is not None:
            where = f" ({failure['file']}, line {failure['line']})" if failure.get("line") else ""
            message = f"{failure.get('type')}: {failure.get('message')}{where}"
        elif group.waiting and group.reason:
            message = group.reason
        shown = {
            "instances": len(group.instances),
            "starting": starting,
            "revision": revision,
            "message": message,
            "observedGeneration": function.metadata.generation,
            "url": f"{self._url}/functions/{function.metadata.namespace}/{function.metadata.name}",
        }
        if shown != state.written:
            state.written = shown
            self._spawn(self._write_status(function.key, state, shown))

    async def _write_status(self, key: Key, state: _State, shown: dict[str, Any]) -> None:
        try:
            await self._client.patch(
                Function, key.name, key.namespace, {"status": shown}, subresource="status"
            )
        except status.NotFound:
            log.debug("function is gone", function=key)
        except status.ApiError as error:
            state.written = {}
            log.warning("status not written", function=key, error=error.message)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._group.create_task(work)
