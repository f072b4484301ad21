"""A compiled expression: compile once when a policy changes, run for every write it looks at."""

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any

from motley.api.cel import parser
from motley.api.cel.checker import Checker
from motley.api.cel.evaluator import BUDGET, Frame, Run, build


class Program:
    """An expression that can be run."""

    __slots__ = ("_run", "source", "type")

    def __init__(self, source: str, type_: str, run: Run) -> None:
        self.source = source
        self.type = type_  # what it gives, `dyn` when that depends on the data
        self._run = run

    def evaluate(self, variables: Mapping[str, Any], steps: int = BUDGET) -> Any:
        """Its value; raises CelError."""
        return self._run(Frame(variables, steps))


def compile_expression(
    source: str, variables: Collection[str], messages: Collection[str] = ()
) -> Program:
    """Compile against these variable names and message types; raises CompileError."""
    return _compile(source, frozenset(variables), frozenset(messages))


@lru_cache(maxsize=1024)
def _compile(source: str, variables: frozenset[str], messages: frozenset[str]) -> Program:
    parsed = parser.parse(source)
    type_ = Checker(source, variables, messages).check(parsed)
    return Program(source, type_, build(parsed))
