"""One step of an invocation: call its function once, also when things break in between.

Invariant: before an instance is asked, it is written down which one and under which id; so whoever
comes after a crash asks the same instance for the same call, and a step that ended does not run
again. Only when the instance itself is gone, and with it what it knew, is the step tried anew.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from motley.api.views.base import Key
from motley.api.views.serverless import Function
from motley.lib import journal
from motley.lib.clock import Clock
from motley.serverless import records, values
from motley.serverless.calls import START_ALLOWANCE_S, Asked, Begun, Calls, resolve_timeout_s
from motley.serverless.channel import Lost
from motley.serverless.instances import Broken, Overloaded, Slot, Unavailable
from motley.serverless.records import Step
from motley.serverless.workflow.engine import TIMEOUT, Start

log = journal.get(__name__)

FUNCTION_ERROR = "FunctionError"
NOT_FOUND = "NotFound"
_LOST_ATTEMPTS = 5

Write = Callable[[Step], Awaitable[None]]


class Stepper:
    """Runs steps."""

    def __init__(
        self, calls: Calls, function: Callable[[Key], Function | None], clock: Clock
    ) -> None:
        self._calls = calls
        self._function = function
        self._clock = clock

    async def run(
        self, namespace: str, start: Start, call_id: str, write: Write, known: Step | None = None
    ) -> Step:
        """The step's record at its end; `known`: what was written of it before a crash."""
        key = Key(namespace, start.function)
        function = self._function(key)
        step = known or records.begun(start, call_id, "", self._clock.now())
        if function is None:
            return self._failed(step, NOT_FOUND, f"there is no function {key}")
        kind, body = values.to_wire(start.input)
        timeout_s = resolve_timeout_s(function, float(start.timeout_s))
        for attempt in range(_LOST_ATTEMPTS):
            suffix = f"+{attempt}" if attempt else ""
            asked = Asked(function, call_id + suffix, body, {"Content-Type": kind}, timeout_s)

            async def note(slot: Slot, call: str = call_id + suffix) -> None:
                nonlocal step
                step = {**step, "instance": slot.instance.pod.name, "callID": call}
                await write(step)

            try:
                if known is not None and known.get("instance"):
                    pod = Key(namespace, known["instance"])
                    same = Asked(function, known["callID"], body, {"Content-Type": kind}, timeout_s)
                    known = None
                    begun = await self._calls.again(same, pod)
                else:
                    begun = await self._calls.begin(asked, before=note, wait_s=START_ALLOWANCE_S)
                return await self._read(begun, step)
            except Lost as error:
                log.info("step is tried anew, its instance is gone", id=call_id, error=str(error))
            except Broken as error:
                return self._failed(step, FUNCTION_ERROR, _described(error.error))
            except (Unavailable, Overloaded) as error:
                return self._failed(step, type(error).__name__, str(error))
        return self._failed(step, "InstanceLost", f"{_LOST_ATTEMPTS} instances ended during it")

    async def _read(self, begun: Begun, step: Step) -> Step:
        """The whole answer as a record."""
        answer = begun.answer
        try:
            data = await answer.whole()
        finally:
            self._calls.done(begun)
        if answer.status == 504:
            return self._failed(step, TIMEOUT, _described(answer.json(data)))
        if answer.status != 200:
            return self._failed(step, FUNCTION_ERROR, _described(answer.json(data)))
        if len(data) > values.MOST_STORED:
            message = f"the result has {len(data)} bytes; {values.MOST_STORED} can be kept"
            return self._failed(step, "ResultTooLarge", message)
        check = {"true": True, "false": False}.get(answer.headers.get("x-motley-check", ""))
        output = values.from_wire(answer.headers.get("content-type", ""), data)
        return records.succeeded(step, output, check, self._clock.now())

    def _failed(self, step: Step, error: str, message: str) -> Step:
        return records.failed(step, error, message, self._clock.now())


def _described(said: Any) -> str:
    """An instance's error in one line."""
    error = said.get("error", said) if isinstance(said, dict) else said
    if not isinstance(error, dict):
        return str(error)
    where = f" ({error['file']}, line {error['line']})" if error.get("line") else ""
    return f"{error.get('type')}: {error.get('message')}{where}"
