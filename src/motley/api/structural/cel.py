"""Expressions in CEL, with the functions Kubernetes adds to the language.

A thin door to the package `common-expression-language`: `compile_expression` once, `evaluate`
often. What the package lacks of Kubernetes' library (strings, lists, quantities, addresses) is
given to it as Python functions, only those an expression uses. Optional field syntax (`a.?b`) is
not part of the package and is refused when an expression is compiled.

Invariant: evaluation is a function of the variables; no expression can reach anything else.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from motley.api.structural.celfunctions import FUNCTIONS

if TYPE_CHECKING:
    import cel

# Kubernetes calls these through a namespace, which the package would take for a variable.
_NAMESPACES = re.compile(r"\b(sets|math|strings|lists|ip|cidr|semver)\.([a-zA-Z]+)\(")
_STRINGS = re.compile(r"""[rR]?(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')""", re.DOTALL)
_BUILTIN_NAMES = """
    all bool bytes contains double duration dyn endsWith exists exists_one filter getDate
    getDayOfMonth getDayOfWeek getDayOfYear getFullYear getHours getMilliseconds getMinutes getMonth
    getSeconds has hasValue int map matches max min none of ofNonZeroValue optMap or orValue size
    startsWith string timestamp type uint value
    """
_BUILTIN = frozenset(_BUILTIN_NAMES.split())


class CompileError(ValueError):
    """The text is no expression; the message shows where."""


class EvaluationError(ValueError):
    """The expression has no value for these variables."""


class Expression:
    """A compiled expression."""

    def __init__(self, text: str, program: "cel.Program") -> None:
        self.text = text
        self._program = program
        self.variables = frozenset(program.variables())
        self._functions = {n: FUNCTIONS[n] for n in program.functions() if n in FUNCTIONS}

    def evaluate(self, variables: Mapping[str, Any]) -> Any:
        """The value. Raises `EvaluationError`."""
        import cel

        context = cel.Context(dict(variables), self._functions or None)
        try:
            return self._program.execute(context)
        except KeyError as error:
            raise EvaluationError(f"no such key: {error.args[0]}") from None
        except (RuntimeError, TypeError, ValueError, ArithmeticError, LookupError) as error:
            problem = str(error)
            if problem.startswith("No such overload"):
                problem = "no such overload"  # the package adds a lesson in CEL
            raise EvaluationError(problem) from None


def without_strings(text: str) -> str:
    """The text with string literals blanked, so that names in them are not taken for names."""
    return _STRINGS.sub(lambda m: '"' + " " * (len(m.group()) - 2) + '"', text)


@lru_cache(maxsize=2048)
def compile_expression(text: str) -> Expression:
    """Compile; texts repeat, so the result is remembered. Raises `CompileError`."""
    import cel

    try:
        program = cel.compile(_rewritten(text))
    except ValueError as error:
        problem = str(error).partition("': ERROR: ")[2] or str(error)
        raise CompileError("ERROR: " + problem.replace("\n| ", "\n | ")) from None
    for name in program.functions():
        if name not in FUNCTIONS and name not in _BUILTIN and not name.startswith(("_", "@", "!")):
            raise problem_at(text, name, f"undeclared reference to '{name}' (in container '')")
    return Expression(text, program)


def problem_at(text: str, name: str, problem: str) -> CompileError:
    """A problem with a name in the text, drawn as CEL's own compiler draws it."""
    blank = without_strings(text)
    found = re.search(rf"(?<![A-Za-z0-9_]){re.escape(name)}(?![A-Za-z0-9_])", blank)
    column = found.start() if found else 0
    return CompileError(drawn(text, column, problem))


def drawn(text: str, column: int, problem: str) -> str:
    """The problem, the text, and a mark below the place."""
    return f"ERROR: <input>:1:{column + 1}: {problem}\n | {text}\n | {'.' * column}^"


def _rewritten(text: str) -> str:
    """Calls through a namespace become plain calls; string literals are left alone."""
    found, at = "", 0
    for literal in _STRINGS.finditer(text):
        found += _NAMESPACES.sub(r"\1_\2(", text[at : literal.start()]) + literal.group()
        at = literal.end()
    return found + _NAMESPACES.sub(r"\1_\2(", text[at:])
