"""What a workflow does next, from what is written down of it.

Every time the program is run from its beginning, over the records of the steps that were done: a
Task with a record has that outcome, one without is to be started. What a run decides depends on the
program, the argument, the records and the time alone, so it can be asked again after any crash.

A step's id is its path: `2.pay` is the second step of the run, `3.both/0/1.pack` the first one of
the first branch of the third. A loop gives every round an id of its own.

Invariant: no id is started twice, except as a further attempt after the one before has failed.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from motley.api import cel
from motley.api.cel import CelError
from motley.serverless.workflow.program import (
    OUTPUT_VARIABLES,
    RETURN,
    VARIABLES,
    Case,
    Catch,
    Program,
    Step,
)

RUNNING, SUCCEEDED, FAILED = "Running", "Succeeded", "Failed"
# Errors that are made here; those of functions come from the executor.
EXPRESSION_ERROR = "ExpressionError"
LIMIT_EXCEEDED = "StepLimitExceeded"
TIMEOUT = "Timeout"
NO_CHOICE = "NoChoiceMatched"


class Record(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What is written down of a step: its last attempt."""

    id: str
    phase: str
    attempt: int = 1
    output: Any = None
    error: str = ""
    message: str = ""
    started: float = 0.0
    completed: float = 0.0


class Start(NamedTuple):
    """A function is to be called; the record of the attempt is written first."""

    id: str
    step: str
    function: str
    attempt: int
    input: Any
    timeout_s: int  # 0: the function's own


class Begin(NamedTuple):
    """A pause begins: its record is written, so that a crash does not begin it again."""

    id: str
    step: str


class Failure(NamedTuple):
    """How a run, or a chain in it, ended badly."""

    error: str
    message: str


class Decision(NamedTuple):
    """What to do now; `done` without a failure: the result counts."""

    start: list[Start]
    begin: list[Begin]
    live: frozenset[str] = frozenset()  # what runs and is still wanted; other calls are cancelled
    wake_at: float | None = None  # when to ask again though nothing has happened
    done: bool = False
    result: Any = None
    failure: Failure | None = None


class _Stop(Exception):
    def __init__(self, failure: Failure) -> None:
        self.failure = failure


class _Outcome(NamedTuple):
    is_done: bool
    data: Any = None
    failure: Failure | None = None


_BLOCKED = _Outcome(False)


def decide(
    program: Program, arg: Any, records: Sequence[Record], begun: float, now: float
) -> Decision:
    """What to do now; `records`: the last of each id, `begun`: when the run began."""
    return _Run(program, arg, {record.id: record for record in records}, begun, now).decision()


class _Run:
    """One pass over the program."""

    def __init__(
        self,
        program: Program,
        arg: Any,
        records: Mapping[str, Record],
        begun: float,
        now: float,
    ) -> None:
        self._program = program
        self._steps = program.by_name()
        self._arg = arg
        self._records = records
        self._ends = begun + program.timeout_seconds
        self._now = now
        self._visited = 0
        self._start: list[Start] = []
        self._begin: list[Begin] = []
        self._live: list[str] = []
        self._due: list[float] = []

    @property
    def _wishes(self) -> tuple[list[Any], ...]:
        return self._start, self._begin, self._live, self._due

    def decision(self) -> Decision:
        try:
            outcome = self._chain(self._program.first, self._arg, "")
        except _Stop as stop:
            outcome = _Outcome(True, failure=stop.failure)
        if outcome.is_done:
            return Decision([], [], done=True, result=outcome.data, failure=outcome.failure)
        if self._now >= self._ends:
            message = f"the workflow took longer than {self._program.timeout_seconds} s"
            return Decision([], [], done=True, failure=Failure(TIMEOUT, message))
        return Decision(
            self._start, self._begin, frozenset(self._live), min([self._ends, *self._due])
        )

    def _chain(self, name: str, data: Any, prefix: str) -> _Outcome:
        """Steps one after the other, until no next one is named."""
        place = 0
        while name and name != RETURN:
            place += 1
            self._visited += 1
            if self._visited > self._program.max_steps:
                raise _Stop(
                    Failure(
                        LIMIT_EXCEEDED,
                        f"more than {self._program.max_steps} steps: a loop that does not end?"
                        " spec.maxSteps sets the limit",
                    )
                )
            step = self._steps[name]
            id_ = f"{prefix}{place}.{name}"
            if step.type == "Succeed":
                return self._shaped(step, data, data)
            if step.type == "Fail":
                return _Outcome(True, failure=Failure(step.error, step.message))
            if step.type == "Choice":
                chosen = self._choice(step.choices, step, data)
                if isinstance(chosen, Failure):
                    return _Outcome(True, failure=chosen)
                name = chosen
                continue
            outcome = self._perform(step, data, id_)
            if not outcome.is_done:
                return outcome
            if outcome.failure is not None:
                caught = _caught(step.catch, outcome.failure)
                if caught is None:
                    return outcome
                error, message = outcome.failure
                name, data = caught.next, {"error": error, "message": message, "input": data}
                continue
            name, data = step.next, outcome.data
        return _Outcome(True, data)

    def _choice(self, cases: Sequence[Case], step: Step, data: Any) -> str | Failure:
        for case in cases:
            found = self._value(case.when, {"input": data, "arg": self._arg}, VARIABLES)
            if isinstance(found, Failure):
                return found
            if found is True:
                return case.next
        if not step.default:
            return Failure(NO_CHOICE, f"no choice of step {step.name} holds, and it has no default")
        return step.default

    def _perform(self, step: Step, data: Any, id_: str) -> _Outcome:
        given: Any = data
        if step.input:
            given = self._value(step.input, {"input": data, "arg": self._arg}, VARIABLES)
            if isinstance(given, Failure):
                return _Outcome(True, failure=given)
        match step.type:
            case "Parallel":
                outcome = self._together([(one, given) for one in step.branches], id_, 0)
            case "Map":
                outcome = self._map(step, given, id_)
            case "Wait":
                outcome = self._wait(step, given, id_)
            case "Pass":
                outcome = _Outcome(True, given)
            case _:
                outcome = self._task(step, given, id_)
        if outcome.is_done and outcome.failure is None:
            return self._shaped(step, data, outcome.data)
        return outcome

    def _shaped(self, step: Step, data: Any, output: Any) -> _Outcome:
        """What the step gives on."""
        if not step.output:
            return _Outcome(True, output)
        variables = {"input": data, "arg": self._arg, "output": output}
        value = self._value(step.output, variables, OUTPUT_VARIABLES)
        is_failure = isinstance(value, Failure)
        return _Outcome(True, None if is_failure else value, value if is_failure else None)

    def _task(self, step: Step, given: Any, id_: str) -> _Outcome:
        record = self._records.get(id_)
        if record is None:
            return self._begin_attempt(step, given, id_, 1)
        if record.phase == SUCCEEDED:
            return _Outcome(True, record.output)
        if record.phase != FAILED:
            self._live.append(id_)
            return _BLOCKED
        failure = Failure(record.error, record.message)
        retry = step.retry
        if retry is None or record.attempt >= retry.attempts or not _fits(retry.errors, failure):
            return _Outcome(True, failure=failure)
        due = record.completed + retry.pause_s(record.attempt)
        if due > self._now:
            self._due.append(due)
            return _BLOCKED
        return self._begin_attempt(step, given, id_, record.attempt + 1)

    def _begin_attempt(self, step: Step, given: Any, id_: str, attempt: int) -> _Outcome:
        self._start.append(
            Start(id_, step.name, step.function, attempt, given, step.timeout_seconds)
        )
        return _BLOCKED

    def _wait(self, step: Step, given: Any, id_: str) -> _Outcome:
        record = self._records.get(id_)
        if record is None:
            self._begin.append(Begin(id_, step.name))
            return _BLOCKED
        due = record.started + step.seconds
        if due > self._now:
            self._due.append(due)
            return _BLOCKED
        return _Outcome(True, given)

    def _map(self, step: Step, given: Any, id_: str) -> _Outcome:
        items = self._value(step.items, {"input": given, "arg": self._arg}, VARIABLES)
        if isinstance(items, Failure):
            return _Outcome(True, failure=items)
        if not isinstance(items, list):
            said = f"items of step {step.name} is no list: {type(items).__name__}"
            return _Outcome(True, failure=Failure(EXPRESSION_ERROR, said))
        return self._together([(step.each, item) for item in items], id_, step.max_concurrency)

    def _together(self, chains: Sequence[tuple[str, Any]], id_: str, concurrency: int) -> _Outcome:
        """Chains side by side: done when all are, failed when one is."""
        before = [len(wanted) for wanted in self._wishes]
        results: list[Any] = []
        waiting = 0
        for place, (first, data) in enumerate(chains):
            if concurrency and waiting >= concurrency:
                return _BLOCKED  # those behind have not begun: chains begin in their order
            outcome = self._chain(first, data, f"{id_}/{place}/")
            if outcome.failure is not None:
                # What the others wanted is wanted no more.
                for wanted, count in zip(self._wishes, before, strict=True):
                    del wanted[count:]
                return outcome
            waiting += not outcome.is_done
            results.append(outcome.data)
        return _BLOCKED if waiting else _Outcome(True, results)

    def _value(self, text: str, variables: Mapping[str, Any], names: Sequence[str]) -> Any:
        """What an expression gives, or why it gives nothing."""
        try:
            value = cel.compile_expression(text, names).evaluate(variables)
            # Through JSON: what an expression makes (a duration, a set) must be storable.
            return msgspec.json.decode(msgspec.json.encode(value))
        except (CelError, TypeError, ValueError) as error:
            return Failure(EXPRESSION_ERROR, f"{text}: {error}")


def _fits(errors: Sequence[str], failure: Failure) -> bool:
    return not errors or failure.error in errors


def _caught(catches: Sequence[Catch], failure: Failure) -> Catch | None:
    return next((one for one in catches if _fits(one.errors, failure)), None)
