"""A workflow's spec as a program: read once, checked once, then only looked up.

Invariant: a Program without problems never makes the engine look for a step that is not there, nor
compile an expression that cannot be.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from motley.api import cel
from motley.api.cel import CompileError

RETURN = "RETURN"  # the documents' name for the end of a chain
VARIABLES = ("input", "arg")
OUTPUT_VARIABLES = (*VARIABLES, "output")


class Retry(msgspec.Struct, frozen=True, rename="camel"):
    """When, how often and after which pauses a failed Task is tried again."""

    attempts: int = 3
    backoff_seconds: float = 1.0
    factor: float = 2.0
    max_backoff_seconds: float = 60.0
    errors: tuple[str, ...] = ()

    def pause_s(self, attempt: int) -> float:
        """The pause after an attempt; the first is 1."""
        # A large power of the factor would be no number any more.
        steps = min(attempt - 1, 64)
        return min(self.backoff_seconds * self.factor**steps, self.max_backoff_seconds)


class Catch(msgspec.Struct, frozen=True):
    """Where a failure leads."""

    next: str
    errors: tuple[str, ...] = ()


class Case(msgspec.Struct, frozen=True):
    """One of a Choice's ways."""

    when: str
    next: str


class Step(msgspec.Struct, frozen=True, rename="camel"):
    """One step, as its author wrote it."""

    name: str
    type: str = "Task"
    function: str = ""
    input: str = ""
    output: str = ""
    next: str = ""
    timeout_seconds: int = 0
    retry: Retry | None = None
    catch: tuple[Catch, ...] = ()
    choices: tuple[Case, ...] = ()
    default: str = ""
    branches: tuple[str, ...] = ()
    items: str = ""
    each: str = ""
    max_concurrency: int = 0
    seconds: float = 0.0
    error: str = ""
    message: str = ""

    @property
    def ways(self) -> Iterator[tuple[str, str]]:
        """Every step it may lead to, with the field that says so."""
        yield "next", self.next
        yield "default", self.default
        yield "each", self.each
        for place, case in enumerate(self.choices):
            yield f"choices[{place}].next", case.next
        for place, branch in enumerate(self.branches):
            yield f"branches[{place}]", branch
        for place, caught in enumerate(self.catch):
            yield f"catch[{place}].next", caught.next

    @property
    def expressions(self) -> Iterator[tuple[str, str, tuple[str, ...]]]:
        """Every expression in it: the field, the text, the variables it may speak of."""
        yield "input", self.input, VARIABLES
        yield "output", self.output, OUTPUT_VARIABLES
        yield "items", self.items, VARIABLES
        for place, case in enumerate(self.choices):
            yield f"choices[{place}].when", case.when, VARIABLES


class Program(msgspec.Struct, frozen=True, rename="camel"):
    """A Workflow's spec."""

    steps: tuple[Step, ...]
    start: str = ""
    arg: Any = None
    timeout_seconds: int = 3600
    max_steps: int = 1000

    @property
    def first(self) -> str:
        """The step it begins with."""
        return self.start or self.steps[0].name

    def by_name(self) -> dict[str, Step]:
        """The steps, to look up."""
        return {step.name: step for step in self.steps}


def followers(program: Program, name: str) -> set[str]:
    """The Functions that may be called next after a step: they can be woken while it runs."""
    known = program.by_name()
    found: set[str] = set()
    seen = {name}
    ways = [way for _, way in known[name].ways] if name in known else []
    while ways:
        step = known.get(ways.pop())
        if step is None or step.name in seen:
            continue
        seen.add(step.name)
        if step.type == "Task":
            found.add(step.function)
        else:
            ways += [way for _, way in step.ways]
    return found


def read(spec: Mapping[str, Any]) -> Program:
    """The program of a spec that the schema has accepted."""
    return msgspec.convert(spec, Program)


_NEEDED = {"Task": "function", "Map": "items", "Fail": "error"}


def problems(program: Program) -> list[str]:
    """What is wrong with it, each with the field; the schema has checked the rest."""
    known = program.by_name()
    found = []
    if program.first not in known:
        found.append(f"spec.start: no step is called {program.first!r}")
    for place, step in enumerate(program.steps):
        found += [f"spec.steps[{place}].{said}" for said in _of_step(step, known)]
    return found


def _of_step(step: Step, known: Mapping[str, Step]) -> Iterator[str]:
    needed = _NEEDED.get(step.type, "")
    if needed and not getattr(step, needed):
        yield f"{needed}: a {step.type} needs it"
    if step.type == "Choice" and not (step.choices or step.default):
        yield "choices: a Choice needs one, or a default"
    if step.type == "Parallel" and not step.branches:
        yield "branches: a Parallel needs them"
    if step.type == "Map" and not step.each:
        yield "each: a Map needs it"
    if step.retry and step.type != "Task":
        yield f"retry: only a Task is tried again, not a {step.type}"
    if step.catch and step.type not in ("Task", "Parallel", "Map"):
        yield f"catch: a {step.type} does not fail, or is meant to"
    if step.name == RETURN:
        yield f"name: {RETURN} is the end, not a step"
    for field, name in step.ways:
        if name and name != RETURN and name not in known:
            yield f"{field}: no step is called {name!r}"
    for field, text, variables in step.expressions:
        if text:
            try:
                cel.compile_expression(text, variables)
            except CompileError as error:
                yield f"{field}: {error}"
