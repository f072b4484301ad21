"""A policy's expressions, compiled once per version of it.

What does not compile got in before it was checked, or by another server: it is remembered as the
policy's problem, and the failure policy decides what that means.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from motley.api.cel import CelError, CompileError, Program, compile_expression
from motley.apiserver.admission.matching import Matcher
from motley.apiserver.admission.policy import environment

Document = dict[str, Any]


class Condition(NamedTuple):
    """A matchCondition."""

    name: str
    program: Program


class Compiled:
    """The parts that validating and mutating policies share."""

    def __init__(self, policy: Document) -> None:
        spec = policy.get("spec") or {}
        self.name = str(policy["metadata"]["name"])
        self.fails = spec.get("failurePolicy", "Fail") != "Ignore"
        self.param_kind: Document | None = spec.get("paramKind")
        constraints = spec.get("matchConstraints") or {}
        self.matcher = Matcher(constraints, constraints.get("resourceRules") or ())
        self.problem = ""
        self.variables: dict[str, Program] = {}
        self.conditions: list[Condition] = []
        self.asks = False  # whether any of its expressions speaks of the authorizer
        declared = spec.get("variables") or ()
        self._names = environment.names(
            params=self.param_kind is not None, variables=bool(declared)
        )
        try:
            for variable in declared:
                self.variables[variable["name"]] = self.compile(variable["expression"])
            for condition in spec.get("matchConditions") or ():
                program = self.compile(condition["expression"])
                self.conditions.append(Condition(str(condition.get("name")), program))
            self.read(spec)
        except CompileError as error:
            self.problem = f"compilation error: compilation failed: {error}"

    def compile(self, source: str) -> Program:
        """One of its expressions."""
        program = compile_expression(source, self._names, environment.MESSAGES)
        self.asks = self.asks or "authorizer" in program.names
        return program

    def read(self, spec: Document) -> None:
        """Compile what is particular to the kind of policy."""

    def is_meant(self, values: Mapping[str, Any]) -> bool:
        """Whether every matchCondition holds; one that is false outweighs those that fail."""
        problems = []
        for condition in self.conditions:
            try:
                if condition.program.evaluate(values) is not True:
                    return False
            except CelError as error:
                problems.append(
                    f"expression '{condition.program.source}' resulted in error: {error}"
                )
        if problems:
            raise CelError(problems[0])
        return True
