"""What is written down of an invocation's steps. Pure."""

from collections.abc import Sequence
from typing import Any

import msgspec

from motley.api.views.serverless import Invocation
from motley.lib import clock as clocks
from motley.serverless.workflow.engine import FAILED, RUNNING, SUCCEEDED, Record, Start

_FULL = 20  # the latest steps of a chain keep what they were given and gave
_MOST_INPUT = 4096

Step = dict[str, Any]
RUNNING_STEP = "motley.io/running-step"  # annotation: a call that began before it was accepted


def so_far(invocation: Invocation) -> list[Step]:
    """The steps that are written down; of a call handed over by a router, the one it began."""
    if invocation.status.steps or RUNNING_STEP not in invocation.metadata.annotations:
        return list(invocation.status.steps)
    try:
        return [msgspec.json.decode(invocation.metadata.annotations[RUNNING_STEP], type=Step)]
    except msgspec.DecodeError:
        return []


def call_id(invocation: Invocation, start: Start) -> str:
    """Names one attempt of one step among all calls there ever were."""
    return f"{invocation.metadata.uid}:{start.id}:{start.attempt}"


def begun(start: Start, call: str, instance: str, now: float) -> Step:
    """A step that an instance is about to get."""
    shown: Step = {
        "id": start.id,
        "name": start.step,
        "function": start.function,
        "attempt": start.attempt,
        "phase": RUNNING,
        "callID": call,
        "instance": instance,
        "startTime": clocks.rfc3339_micro(now),
    }
    if len(msgspec.json.encode(start.input)) <= _MOST_INPUT:
        shown["input"] = start.input
    return shown


def succeeded(step: Step, output: Any, check: bool | None, now: float) -> Step:
    """It gave this back."""
    done = {**step, "phase": SUCCEEDED, "output": output}
    done["completionTime"] = clocks.rfc3339_micro(now)
    if check is not None:
        done["check"] = check
    return done


def failed(step: Step, error: str, message: str, now: float) -> Step:
    """It failed."""
    done = {**step, "phase": FAILED, "error": error, "message": message[:4096]}
    done["completionTime"] = clocks.rfc3339_micro(now)
    return done


def replaced(steps: Sequence[Step], step: Step) -> list[Step]:
    """The steps with the latest word on one of them; each id has one record."""
    if any(one["id"] == step["id"] for one in steps):
        return [step if one["id"] == step["id"] else one for one in steps]
    return [*steps, step]


def slimmed(steps: Sequence[Step]) -> list[Step]:
    """A long loop's early steps without their values: an object has a largest size."""
    early = len(steps) - _FULL
    return [
        {k: v for k, v in one.items() if k not in ("input", "output")} if place < early else one
        for place, one in enumerate(steps)
    ]


def for_engine(steps: Sequence[Step]) -> list[Record]:
    """The records as a workflow's engine reads them."""
    return [
        Record(
            id=one["id"],
            phase=one["phase"],
            attempt=one.get("attempt", 1),
            output=one.get("output"),
            error=one.get("error", ""),
            message=one.get("message", ""),
            started=_seconds(one.get("startTime")),
            completed=_seconds(one.get("completionTime")),
        )
        for one in steps
    ]


def _seconds(text: str | None) -> float:
    return clocks.parse_rfc3339(text) if text else 0.0
