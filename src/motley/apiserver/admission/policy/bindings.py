"""Which policies apply to a write, through which bindings, with which parameters."""

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from motley.api import scheme
from motley.api.selectors import Selector
from motley.apiserver import document
from motley.apiserver.admission.change import Change
from motley.apiserver.admission.lookup import Lookup
from motley.apiserver.admission.matching import Matcher
from motley.apiserver.admission.policy.compiled import Compiled
from motley.store.contract import Record

Document = dict[str, Any]
P = TypeVar("P", bound=Compiled)


class Binding:
    """A binding, read once per version."""

    def __init__(self, found: Document) -> None:
        spec = found.get("spec") or {}
        self.name = str(found["metadata"]["name"])
        self.policy = str(spec.get("policyName", ""))
        self.actions = tuple(spec.get("validationActions") or ())
        self.param_ref: Document | None = spec.get("paramRef")
        resources = spec.get("matchResources") or {}
        self.matcher = Matcher(resources, resources.get("resourceRules") or ())


class Misconfigured(Exception):
    """The parameters a binding names are not there, and it says to refuse then."""


class Applied(NamedTuple, Generic[P]):
    """A policy that looks at this write."""

    policy: P
    binding: Binding


class Registry(Generic[P]):
    """The stored policies and bindings of one sort, compiled."""

    def __init__(
        self,
        lookup: Lookup,
        policies: scheme.Kind,
        bindings: scheme.Kind,
        compile_policy: Callable[[Document], P],
    ) -> None:
        self._lookup = lookup
        self._policies = policies
        self._bindings = bindings
        self._compile = compile_policy
        self._compiled: dict[str, tuple[bytes, P]] = {}
        self._read: dict[str, tuple[bytes, Binding]] = {}

    async def applying(self, change: Change) -> list[Applied[P]]:
        """Every policy and binding that wants to see a write, by the names of the bindings."""
        records = await self._lookup.records(self._bindings)
        if not records:
            return []
        policies = {p.name: p for p in await self._current_policies()}
        found = []
        for record in records:
            binding = self._binding(record)
            policy = policies.get(binding.policy)
            if (
                policy is not None
                and await policy.matcher.matches(change, self._lookup)
                and await binding.matcher.matches(change, self._lookup)
            ):
                found.append(Applied(policy, binding))
        found.sort(key=lambda applied: (applied.policy.name, applied.binding.name))
        return found

    async def _current_policies(self) -> list[P]:
        found = []
        for record in await self._lookup.records(self._policies):
            known = self._compiled.get(record.key)
            if known is None or known[0] is not record.value:
                known = (record.value, self._compile(document.decode(record.value)))
                self._compiled[record.key] = known
            found.append(known[1])
        return found

    def _binding(self, record: Record) -> Binding:
        known = self._read.get(record.key)
        if known is None or known[0] is not record.value:
            known = (record.value, Binding(document.decode(record.value)))
            self._read[record.key] = known
        return known[1]

    async def parameters(self, change: Change, applied: Applied[P]) -> list[Document | None]:
        """The parameter objects to judge with, one after the other; [None] without any.

        Raises Misconfigured.
        """
        kind_ref, ref = applied.policy.param_kind, applied.binding.param_ref
        if kind_ref is None or ref is None:
            return [None]
        kind = scheme.by_kind(str(kind_ref.get("apiVersion")), str(kind_ref.get("kind")))
        if kind is None:
            raise Misconfigured(
                "failed to find resource referenced by paramKind: "
                f"'{kind_ref.get('apiVersion')}, Kind={kind_ref.get('kind')}'"
            )
        namespace = str(ref.get("namespace") or change.namespace) if kind.namespaced else ""
        found: list[Document] = []
        if ref.get("name"):
            one = await self._lookup.get(kind, namespace, str(ref["name"]))
            found = [one] if one is not None else []
        elif ref.get("selector") is not None:
            selector = Selector.of(ref["selector"])
            found = [
                o
                for o in await self._lookup.list(kind, namespace)
                if selector.matches(o["metadata"].get("labels") or {})
            ]
        if not found:
            if ref.get("parameterNotFoundAction", "Deny") == "Allow":
                return []
            raise Misconfigured(
                "no params found for policy binding with `Deny` parameterNotFoundAction"
            )
        return list(found)
