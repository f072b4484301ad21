"""A compiled expression: compile once when a policy changes, run for every write it looks at."""

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any

from motley.api.cel import parser, tree
from motley.api.cel.checker import Checker, Shape
from motley.api.cel.evaluator import BUDGET, Frame, Run, build


class Meter:
    """What several expressions may spend together: each may be cheap, all of them need not be."""

    __slots__ = ("left",)

    def __init__(self, steps: int) -> None:
        self.left = steps


class Program:
    """An expression that can be run."""

    __slots__ = ("_run", "names", "source", "type")

    def __init__(self, source: str, type_: str, names: frozenset[str], run: Run) -> None:
        self.source = source
        self.type = type_  # what it gives, `dyn` when that depends on the data
        self.names = names  # what it speaks of: variables, and what macros bind
        self._run = run

    def evaluate(
        self, variables: Mapping[str, Any], steps: int = BUDGET, meter: Meter | None = None
    ) -> Any:
        """Its value; raises CelError. A meter is charged, also when this fails."""
        if meter is None:
            return self._run(Frame(variables, steps))
        frame = Frame(variables, steps)
        try:
            return self._run(frame)
        finally:
            meter.left -= steps - frame.steps


def compile_expression(
    source: str,
    variables: Collection[str],
    messages: Collection[str] = (),
    *,
    shapes: Mapping[str, Shape] | None = None,
) -> Program:
    """Compile against these variables and message types; raises CompileError.

    Where a variable's shape is known, what does not fit it is refused too.
    """
    if shapes:
        known = {name: shapes.get(name) for name in variables}
        return _compiled(source, known, frozenset(messages))
    return _remembered(source, frozenset(variables), frozenset(messages))


@lru_cache(maxsize=4096)
def _remembered(source: str, variables: frozenset[str], messages: frozenset[str]) -> Program:
    return _compiled(source, dict.fromkeys(variables), messages)


def _compiled(
    source: str, variables: Mapping[str, Shape | None], messages: frozenset[str]
) -> Program:
    parsed = parser.parse(source)
    type_ = Checker(source, variables, messages).check(parsed)
    names = frozenset(node.name for node in tree.walk(parsed) if isinstance(node, tree.Name))
    return Program(source, str(type_), names, build(parsed))
