"""One invocation on its way: what to do is asked, done, written down, and asked again."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from motley.api import status
from motley.api.views.base import Key, Object
from motley.api.views.serverless import Function, Invocation
from motley.client.rest import Client
from motley.lib import clock as clocks
from motley.lib import journal
from motley.lib.backoff import Backoff
from motley.lib.clock import Clock
from motley.serverless import chain, records
from motley.serverless.calls import Calls
from motley.serverless.records import Step
from motley.serverless.stepping import NOT_FOUND, Stepper
from motley.serverless.workflow import engine, program
from motley.serverless.workflow.engine import Decision, Failure, Start

log = journal.get(__name__)


class Surroundings(Protocol):
    """What every drive shares: the executor."""

    client: Client
    calls: Calls
    clock: Clock
    stepper: Stepper
    function: Callable[[Key], Function | None]

    def stamp(self) -> str:
        """Now, as it is written."""

    def prewarm(self, key: Key) -> None:
        """Wake a function that is likely to be called soon."""


class WorkflowObject(Object):
    """A Workflow; its spec is the engine's to read."""

    API_VERSION = "motley.io/v1"
    KIND = "Workflow"
    PLURAL = "workflows"

    spec: dict[str, Any] = msgspec.field(default_factory=dict)


class Gone(Exception):
    """The Invocation was deleted."""


class Drive:
    """One invocation on its way."""

    def __init__(self, executor: Surroundings, invocation: Invocation) -> None:
        self._executor = executor
        self._invocation = invocation
        self.key = invocation.key
        self.steps: list[Step] = records.so_far(invocation)
        self._program: program.Program | None = None
        self._news = asyncio.Event()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._lock = asyncio.Lock()
        self.is_cancelled = invocation.spec.cancel

    def cancel(self) -> None:
        """Stop it."""
        self.is_cancelled = True
        self._news.set()

    async def run(self) -> None:
        """To the end. Raises Gone."""
        clock = self._executor.clock
        shown = self._invocation.status
        begun = clocks.parse_rfc3339(shown.start_time) if shown.start_time else clock.now()
        if not shown.start_time:
            await self._write(phase="Running", startTime=clocks.rfc3339_micro(begun))
        ends = begun + self._invocation.spec.timeout_seconds
        async with asyncio.TaskGroup() as group:
            while True:
                self._news.clear()
                if self.is_cancelled:
                    await self._end(group, Failure("Cancelled", "it was cancelled"), "Cancelled")
                    return
                now = clock.now()
                if now >= ends:
                    limit_s = self._invocation.spec.timeout_seconds
                    message = f"it took longer than {limit_s} s"
                    await self._end(group, Failure(engine.TIMEOUT, message), "Failed")
                    return
                decision = await self._decide(begun, now)
                if decision.done:
                    await self._done(group, decision)
                    return
                self._advance(group, decision)
                wake = min(ends, decision.wake_at or ends)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, wake - now) + 0.001):
                        await self._news.wait()

    async def _decide(self, begun: float, now: float) -> Decision:
        spec = self._invocation.spec
        if not spec.workflow:
            return chain.decide(spec.function, spec.arg, self.steps, self._branches, spec.max_steps)
        if self._program is None:
            found = await self._load_program(spec.workflow)
            if isinstance(found, Failure):
                return Decision([], [], done=True, failure=found)
            self._program = found
        arg = spec.arg if spec.arg is not None else self._program.arg
        return engine.decide(self._program, arg, records.for_engine(self.steps), begun, now)

    def _branches(self, name: str) -> tuple[str, str] | None:
        function = self._executor.function(Key(self.key.namespace, name))
        return (function.spec.left, function.spec.right) if function else None

    async def _load_program(self, name: str) -> program.Program | Failure:
        """As it was when the run began: a change is for the runs after it."""
        document = await self._executor.client.document(
            Invocation, self.key.name, self.key.namespace
        )
        spec = document.get("status", {}).get("program")
        if spec is None:
            try:
                found = await self._executor.client.get(WorkflowObject, name, self.key.namespace)
            except status.NotFound:
                return Failure(NOT_FOUND, f"there is no workflow {self.key.namespace}/{name}")
            spec = found.spec
            await self._write(program=spec)
        read = program.read(spec)
        wrong = program.problems(read)
        return Failure("InvalidWorkflow", "; ".join(wrong)) if wrong else read

    def _advance(self, group: asyncio.TaskGroup, decision: Decision) -> None:
        """Begin what is to begin, go on with what was under way, stop what nobody wants."""
        known = {one["id"]: one for one in self.steps}
        for start in decision.start:
            if start.id not in self._tasks:
                task = group.create_task(self._step(start, None))
                self._tasks[start.id] = task
        for id_ in decision.live:
            if id_ not in self._tasks:
                one = known[id_]
                start = Start(
                    id_, one["name"], one["function"], one["attempt"], self._input(one), 0
                )
                self._tasks[id_] = group.create_task(self._step(start, one))
        for begin in decision.begin:
            if begin.id not in known:
                waited = {
                    "id": begin.id,
                    "name": begin.step,
                    "phase": engine.RUNNING,
                    "startTime": clocks.rfc3339_micro(self._executor.clock.now()),
                }
                self._tasks[begin.id] = group.create_task(self._note(waited))
        begun = {one.id for one in decision.begin}
        wanted = decision.live | {one.id for one in decision.start} | begun
        for id_, task in list(self._tasks.items()):
            if id_ not in wanted:
                task.cancel()

    def _input(self, step: Step) -> Any:
        """What a step was given: written with it, or, if large, what the step before gave."""
        if "input" in step:
            return step["input"]
        place = next(i for i, one in enumerate(self.steps) if one["id"] == step["id"])
        return self.steps[place - 1].get("output") if place else self._invocation.spec.arg

    def _followers(self, start: Start) -> set[str]:
        """The functions that may come after this step."""
        if self._program is not None:
            return program.followers(self._program, start.step)
        return {name for name in self._branches(start.function) or () if name} - {program.RETURN}

    async def _step(self, start: Start, known: Step | None) -> None:
        for name in self._followers(start):
            self._executor.prewarm(Key(self.key.namespace, name))
        call_id = records.call_id(self._invocation, start)
        try:
            done = await self._executor.stepper.run(
                self.key.namespace, start, call_id, self._note, known
            )
            await self._note(self._branched(done))
        except asyncio.CancelledError:
            await self._stop(start.id)
            raise
        finally:
            self._tasks.pop(start.id, None)
            self._news.set()

    def _branched(self, step: Step) -> Step:
        """A chain's step says which way it went."""
        if self._invocation.spec.workflow or step["phase"] != engine.SUCCEEDED:
            return step
        left, right = self._branches(step["function"]) or ("", "")
        if not left and not right:
            return step
        return {**step, "branch": chain.branch(step.get("check"), left, right)[0]}

    async def _note(self, step: Step) -> None:
        """Write a step down; nothing goes on before that."""
        async with self._lock:
            steps = records.replaced(self.steps, step)
            if not self._invocation.spec.workflow:
                steps = records.slimmed(steps)
            await self._write(steps=steps)
            self.steps = steps
        if "function" not in step:
            self._tasks.pop(step["id"], None)
            self._news.set()

    async def _stop(self, id_: str) -> None:
        """End a call that runs somewhere."""
        step = next((one for one in self.steps if one["id"] == id_), None)
        if step is not None and step.get("instance") and step["phase"] == engine.RUNNING:
            namespace = self.key.namespace
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(2.0):
                    await self._executor.calls.cancel(
                        Key(namespace, step["instance"]),
                        Key(namespace, step["function"]),
                        step["callID"],
                    )

    async def _done(self, group: asyncio.TaskGroup, decision: Decision) -> None:
        if decision.failure is not None:
            await self._end(group, decision.failure, "Failed")
            return
        await self._write(
            phase="Succeeded", result=decision.result, completionTime=self._executor.stamp()
        )

    async def _end(self, group: asyncio.TaskGroup, failure: Failure, phase: str) -> None:
        running = list(self._tasks.values())
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        error = {"type": failure.error, "message": failure.message}
        await self._write(
            phase=phase,
            error=error,
            message=failure.message[:1024],
            completionTime=self._executor.stamp(),
        )

    async def _write(self, **changes: Any) -> None:
        """Until it is written: without that nothing may go on. Raises Gone."""
        backoff = Backoff(base_s=0.1, cap_s=5.0)
        while True:
            try:
                await self._patch(changes)
                return
            except status.NotFound:
                raise Gone from None
            except (status.Invalid, status.BadRequest, status.TooLarge) as error:
                await self._give_up(error)
                raise Gone from error
            except status.ApiError as error:
                log.warning("invocation not written yet", invocation=self.key, error=error.message)
                await self._executor.clock.sleep(backoff.next())

    async def _give_up(self, error: status.ApiError) -> None:
        """What there is to write will never be taken: the end is that, in few words."""
        log.warning("invocation cannot be kept", invocation=self.key, error=error.message)
        said = {"type": "NotStorable", "message": error.message[:1024]}
        try:
            await self._patch(
                {"phase": "Failed", "error": said, "completionTime": self._executor.stamp()}
            )
        except status.ApiError as again:
            log.error("invocation is left as it is", invocation=self.key, error=again.message)

    async def _patch(self, changes: dict[str, Any]) -> None:
        await self._executor.client.patch(
            Invocation,
            self.key.name,
            self.key.namespace,
            {"status": changes},
            subresource="status",
        )
