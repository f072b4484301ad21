"""ValidatingAdmissionPolicy: refuse a write, or warn about it, for reasons written in CEL."""

from typing import Any, NamedTuple

from motley.api import status
from motley.api.cel import CelError, Program
from motley.apiserver.admission.change import Change, interest
from motley.apiserver.admission.lookup import Lookup, kind_of
from motley.apiserver.admission.matching import CONFIGURATION
from motley.apiserver.admission.policy import environment
from motley.apiserver.admission.policy.bindings import Applied, Misconfigured, Registry
from motley.apiserver.admission.policy.compiled import Compiled

Document = dict[str, Any]

# Kubernetes' bound on what a messageExpression may give.
_MESSAGE_MAX = 5 * 1024
_REFUSALS: dict[str, type[status.ApiError]] = {
    "Forbidden": status.Forbidden,
    "Unauthorized": status.Unauthorized,
    "RequestEntityTooLarge": status.TooLarge,
    "Invalid": status.Invalid,
}


class Rule(NamedTuple):
    """One validation."""

    program: Program
    message: str
    message_program: Program | None
    reason: str


class Broken(NamedTuple):
    """A rule that does not hold."""

    message: str
    reason: str = "Invalid"


class ValidatingPolicy(Compiled):
    """A policy, compiled."""

    def read(self, spec: Document) -> None:
        """Compile the validations."""
        self.rules = [
            Rule(
                self.compile(rule["expression"]),
                str(rule.get("message") or ""),
                self.compile(rule["messageExpression"]) if rule.get("messageExpression") else None,
                str(rule.get("reason") or "Invalid"),
            )
            for rule in spec.get("validations") or ()
        ]

    def judge(self, values: Document) -> list[Broken]:
        """Every rule that does not hold; what cannot be told counts as the failure policy says."""
        values = environment.with_variables(values, self.variables)
        try:
            if self.problem:
                raise CelError(self.problem)
            if not self.is_meant(values):
                return []
        except CelError as error:
            return [Broken(str(error))] if self.fails else []
        broken = []
        for rule in self.rules:
            try:
                if rule.program.evaluate(values) is not True:
                    broken.append(Broken(_message(rule, values), rule.reason))
            except CelError as error:
                if self.fails:
                    problem = f"expression '{rule.program.source}' resulted in error: {error}"
                    broken.append(Broken(problem))
        return broken


def _message(rule: Rule, values: Document) -> str:
    if rule.message_program is not None:
        try:
            found = rule.message_program.evaluate(values)
        except CelError:
            found = None
        if isinstance(found, str) and 0 < len(found.strip()) <= _MESSAGE_MAX and "\n" not in found:
            return found.strip()
    return rule.message.strip() or f"failed expression: {rule.program.source.strip()}"


class ValidatingAdmissionPolicy:
    """Applies the stored policies."""

    name = "ValidatingAdmissionPolicy"
    interests = (interest("create update delete", subresources="*"),)

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._registry = Registry(
            lookup,
            kind_of(CONFIGURATION, "validatingadmissionpolicies"),
            kind_of(CONFIGURATION, "validatingadmissionpolicybindings"),
            ValidatingPolicy,
        )

    async def validate(self, change: Change) -> None:
        """Refuse at the first broken rule of a denying binding; warn for the others."""
        applying = await self._registry.applying(change)
        if not applying:
            return
        values = await environment.facts(change, self._lookup)
        for applied in applying:
            for broken in await self._judge(change, applied, values):
                self._act(change, applied, broken)

    async def _judge(
        self, change: Change, applied: Applied[ValidatingPolicy], values: Document
    ) -> list[Broken]:
        try:
            parameters = await self._registry.parameters(change, applied)
        except Misconfigured as problem:
            if not applied.policy.fails:
                return []
            return [Broken(f"failed to configure binding: {problem}")]
        broken: list[Broken] = []
        for params in parameters:
            broken += applied.policy.judge({**values, "params": params})
        return broken

    @staticmethod
    def _act(change: Change, applied: Applied[ValidatingPolicy], broken: Broken) -> None:
        names = (
            f"ValidatingAdmissionPolicy '{applied.policy.name}' "
            f"with binding '{applied.binding.name}'"
        )
        if "Warn" in applied.binding.actions:
            change.warnings.append(f"Validation failed for {names}: {broken.message}")
        if "Deny" in applied.binding.actions:
            problem = f"{names} denied request: {broken.message}"
            refusal = _REFUSALS.get(broken.reason, status.Invalid)
            raise refusal(
                change.forbidden(problem).message,
                details={**change.details, "causes": [{"message": problem}]},
            )
