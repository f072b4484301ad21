"""MutatingAdmissionPolicy: change a write by an expression.

A mutation gives a part of the object (`Object{…}`), which is merged in, or a list of
`JSONPatch{…}`. Each mutation sees what the one before made.
"""

from typing import Any, NamedTuple

from motley.api import status
from motley.api.cel import CelError, Program
from motley.api.patch import json as json_patch
from motley.api.patch import strategic
from motley.apiserver import document
from motley.apiserver.admission import mutation as mutations
from motley.apiserver.admission.change import Change, interest
from motley.apiserver.admission.lookup import Lookup, kind_of
from motley.apiserver.admission.matching import CONFIGURATION
from motley.apiserver.admission.policy import environment
from motley.apiserver.admission.policy.authorizer import Decides
from motley.apiserver.admission.policy.bindings import Applied, Misconfigured, Registry
from motley.apiserver.admission.policy.compiled import Compiled

Document = dict[str, Any]


class Mutation(NamedTuple):
    """One mutation."""

    type: str  # ApplyConfiguration or JSONPatch
    program: Program


class MutatingPolicy(Compiled):
    """A policy, compiled."""

    def read(self, spec: Document) -> None:
        """Compile the mutations."""
        self.again = spec.get("reinvocationPolicy") == "IfNeeded"
        self.mutations = []
        for mutation in spec.get("mutations") or ():
            type_ = str(mutation.get("patchType"))
            field = "applyConfiguration" if type_ == "ApplyConfiguration" else "jsonPatch"
            source = (mutation.get(field) or {}).get("expression") or ""
            self.mutations.append(Mutation(type_, self.compile(source)))


class MutatingAdmissionPolicy:
    """Applies the stored policies."""

    name = "MutatingAdmissionPolicy"
    interests = (interest("create update", subresources="*"),)

    def __init__(self, lookup: Lookup, authorizer: Decides | None = None) -> None:
        self._lookup = lookup
        self._authorizer = authorizer
        self._registry = Registry(
            lookup,
            kind_of(CONFIGURATION, "mutatingadmissionpolicies"),
            kind_of(CONFIGURATION, "mutatingadmissionpolicybindings"),
            MutatingPolicy,
        )

    async def mutate(self, change: Change) -> None:
        """Let every policy that looks at this write change it."""
        applying = await self._registry.applying(change)
        if not applying or change.new is None:
            return
        done = change.notes.setdefault(self.name, set())
        for applied in applying:
            name = applied.policy.name
            if name in done and not applied.policy.again:
                continue
            done.add(name)
            await self._apply(change, applied)
        mutations.prune(change)

    async def _apply(self, change: Change, applied: Applied[MutatingPolicy]) -> None:
        policy = applied.policy
        authorizer = self._authorizer if policy.asks else None
        try:
            if policy.problem:
                raise CelError(policy.problem)
            for params in await self._registry.parameters(change, applied):
                facts = await environment.facts(change, self._lookup, authorizer)
                values = {**facts, "params": params}
                if not policy.is_meant(environment.with_variables(values, policy.variables)):
                    continue
                for mutation in policy.mutations:
                    facts = await environment.facts(change, self._lookup, authorizer)
                    values = environment.with_variables(
                        {**facts, "params": params}, policy.variables
                    )
                    _mutate(change, mutation, values)
        except (CelError, Misconfigured, status.ApiError) as problem:
            if policy.fails:
                raise _failed(change, applied, str(problem)) from None


def _failed(change: Change, applied: Applied[MutatingPolicy], problem: str) -> status.ApiError:
    text = (
        f"policy '{applied.policy.name}' with binding '{applied.binding.name}' denied request: "
        f"{problem}"
    )
    return status.Invalid(
        change.forbidden(text).message,
        details={**change.details, "causes": [{"message": text}]},
    )


def _mutate(change: Change, mutation: Mutation, values: Document) -> None:
    assert change.new is not None
    found = plain(mutation.program.evaluate(values))
    before = document.copy(change.new)
    if mutation.type == "JSONPatch":
        if not isinstance(found, list):
            raise CelError("a JSONPatch expression gives a list of JSONPatch")
        after: Any = json_patch.apply(before, found)
    else:
        if not isinstance(found, dict):
            raise CelError("an ApplyConfiguration expression gives an Object")
        after = strategic.apply(change.kind, before, found)
    mutations.become(change, after)


def plain(value: Any) -> Any:
    """A CEL value as JSON."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value
