"""ValidatingAdmissionPolicy: refuse a write, warn about it, or note it, for reasons in CEL.

All policies are asked, also after one has refused: who is refused sees every warning, and the
audit log every failure.
"""

from typing import Any, NamedTuple

from motley.api import codec, status
from motley.api.cel import CelError, Program
from motley.api.cel.values import type_name
from motley.apiserver import audit
from motley.apiserver.admission.change import Change, interest
from motley.apiserver.admission.lookup import Lookup, kind_of
from motley.apiserver.admission.matching import CONFIGURATION
from motley.apiserver.admission.policy import environment
from motley.apiserver.admission.policy.authorizer import Decides
from motley.apiserver.admission.policy.bindings import Applied, Misconfigured, Registry
from motley.apiserver.admission.policy.compiled import Compiled

Document = dict[str, Any]

# Kubernetes' bound on what a messageExpression may give.
_MESSAGE_MAX = 5 * 1024
# ... and on what audit annotations hold.
_NOTE_MAX = 10 * 1024
_FAILURES_MAX = 50
_FAILURES = "validation.policy.admission.k8s.io/validation_failure"
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


class Note(NamedTuple):
    """One audit annotation."""

    key: str
    program: Program


class Broken(NamedTuple):
    """A rule that does not hold."""

    message: str
    reason: str = "Invalid"
    position: int = 0  # among the policy's rules


class Judged(NamedTuple):
    """What a policy says about a write."""

    broken: list[Broken]
    notes: dict[str, str]  # for the audit log
    failed: list[Broken]  # of the notes themselves; whatever the binding does, this refuses


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
        self.notes = [
            Note(str(note.get("key")), self.compile(note["valueExpression"]))
            for note in spec.get("auditAnnotations") or ()
        ]

    def judge(self, values: Document) -> Judged:
        """Every rule that does not hold; what cannot be told counts as the failure policy says."""
        values = environment.with_variables(values, self.variables)
        try:
            if self.problem:
                raise CelError(self.problem)
            if not self.is_meant(values):
                return Judged([], {}, [])
        except CelError as error:
            return Judged([Broken(str(error))] if self.fails else [], {}, [])
        broken = []
        for position, rule in enumerate(self.rules):
            try:
                if rule.program.evaluate(values) is not True:
                    broken.append(Broken(_message(rule, values), rule.reason, position))
            except CelError as error:
                if self.fails:
                    problem = f"expression '{rule.program.source}' resulted in error: {error}"
                    broken.append(Broken(problem, position=position))
        return Judged(broken, *self._noted(values))

    def _noted(self, values: Document) -> tuple[dict[str, str], list[Broken]]:
        notes, failed = {}, []
        for key, program in self.notes:
            try:
                found = program.evaluate(values)
            except CelError as error:
                if self.fails:
                    problem = f"expression '{program.source}' resulted in error: {error}"
                    failed.append(Broken(problem))
                continue
            if isinstance(found, str):
                if text := found.strip()[:_NOTE_MAX]:
                    notes[key] = text
            elif found is not None:
                problem = (
                    f"valueExpression '{program.source}' resulted in unsupported return type: "
                    f"{type_name(found)}. Return type must be either string or null."
                )
                failed.append(Broken(problem))
        return notes, failed


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
    interests = (interest("create update delete connect", subresources="*"),)

    def __init__(self, lookup: Lookup, authorizer: Decides | None = None) -> None:
        self._lookup = lookup
        self._authorizer = authorizer
        self._registry = Registry(
            lookup,
            kind_of(CONFIGURATION, "validatingadmissionpolicies"),
            kind_of(CONFIGURATION, "validatingadmissionpolicybindings"),
            ValidatingPolicy,
        )

    async def validate(self, change: Change) -> None:
        """Refuse for the first broken rule of a denying binding; warn and note for the others."""
        applying = await self._registry.applying(change)
        if not applying:
            return
        asks = any(applied.policy.asks for applied in applying)
        values = await environment.facts(change, self._lookup, self._authorizer if asks else None)
        refusals: list[status.ApiError] = []
        failures: list[Document] = []
        notes: dict[str, list[str]] = {}
        for applied in applying:
            for judged in await self._judge(change, applied, values):
                refusals += [_refusal(change, applied, one) for one in judged.failed]
                for broken in judged.broken:
                    refusals += _acted(change, applied, broken, failures)
                for key, text in judged.notes.items():
                    said = notes.setdefault(f"{applied.policy.name}/{key}", [])
                    if text not in said:
                        said.append(text)
        for key, said in notes.items():
            audit.annotate(key, ", ".join(said))
        if failures:
            audit.annotate(_FAILURES, codec.encode(failures[:_FAILURES_MAX]).decode())
        if refusals:
            raise refusals[0]

    async def _judge(
        self, change: Change, applied: Applied[ValidatingPolicy], values: Document
    ) -> list[Judged]:
        try:
            parameters = await self._registry.parameters(change, applied)
        except Misconfigured as problem:
            if not applied.policy.fails:
                return []
            return [Judged([Broken(f"failed to configure binding: {problem}")], {}, [])]
        return [applied.policy.judge({**values, "params": params}) for params in parameters]


def _acted(
    change: Change,
    applied: Applied[ValidatingPolicy],
    broken: Broken,
    failures: list[Document],
) -> list[status.ApiError]:
    """What the binding says is to be done about a broken rule; the refusal, if that is among it."""
    actions = applied.binding.actions
    if "Warn" in actions:
        change.warnings.append(f"Validation failed for {_named(applied)}: {broken.message}")
    if "Audit" in actions:
        failure = {
            "message": broken.message,
            "policy": applied.policy.name,
            "binding": applied.binding.name,
            "expressionIndex": broken.position,
            "validationActions": list(actions),
        }
        failures.append(failure)
    return [_refusal(change, applied, broken)] if "Deny" in actions else []


def _named(applied: Applied[ValidatingPolicy]) -> str:
    return (
        f"ValidatingAdmissionPolicy '{applied.policy.name}' with binding '{applied.binding.name}'"
    )


def _refusal(change: Change, applied: Applied[ValidatingPolicy], broken: Broken) -> status.ApiError:
    problem = f"{_named(applied)} denied request: {broken.message}"
    refusal = _REFUSALS.get(broken.reason, status.Invalid)
    return refusal(
        change.forbidden(problem).message,
        details={**change.details, "causes": [{"message": problem}]},
    )
