"""Which writes a webhook or a policy wants to see: rules, namespaces, labels.

    rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}]

Invariant: the objects that configure admission never pass through configured admission; a broken
rule can always be removed.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from motley.api import scheme
from motley.api.selectors import Selector
from motley.apiserver.admission.change import Change
from motley.apiserver.admission.lookup import Lookup, kind_of

Document = dict[str, Any]

CONFIGURATION = "admissionregistration.k8s.io"
_REVIEWS = frozenset({"authentication.k8s.io", "authorization.k8s.io"})


class Matcher:
    """Decides for one webhook, policy or binding."""

    def __init__(self, criteria: Mapping[str, Any], rules: Iterable[Mapping[str, Any]]) -> None:
        self._rules = list(rules)
        self._excluded = list(criteria.get("excludeResourceRules") or ())
        self._equivalent = criteria.get("matchPolicy", "Equivalent") != "Exact"
        self._namespaces = Selector.of(criteria.get("namespaceSelector") or {})
        self._objects = Selector.of(criteria.get("objectSelector") or {})

    async def matches(self, change: Change, lookup: Lookup) -> bool:
        """Whether this write is one of those."""
        return self.matches_rules(change) and await self._matches_labels(change, lookup)

    def matches_rules(self, change: Change) -> bool:
        """By kind and operation alone. No rules at all match everything (a binding's default)."""
        if is_exempt(change):
            return False
        if any(_fits(rule, change, self._equivalent) for rule in self._excluded):
            return False
        return not self._rules or any(_fits(rule, change, self._equivalent) for rule in self._rules)

    async def _matches_labels(self, change: Change, lookup: Lookup) -> bool:
        if not self._namespaces.is_everything:
            labels = await _namespace_labels(change, lookup)
            if labels is not None and not self._namespaces.matches(labels):
                return False
        if self._objects.is_everything:
            return True
        shown = [change.old] if change.verb == "delete" else [change.new, change.old]
        return any(self._objects.matches(_labels(found)) for found in shown if found is not None)


def is_exempt(change: Change) -> bool:
    """Whether the write is about admission itself, or only asks a question."""
    return change.kind.group == CONFIGURATION or change.kind.group in _REVIEWS


def _labels(found: Document | None) -> Mapping[str, str]:
    return ((found or {}).get("metadata") or {}).get("labels") or {}


async def namespace_object(change: Change, lookup: Lookup) -> Document | None:
    """The namespace a write happens in."""
    if not change.namespace:
        return None
    return await lookup.get(kind_of("", "namespaces"), "", change.namespace)


async def _namespace_labels(change: Change, lookup: Lookup) -> Mapping[str, str] | None:
    """The labels to select by; None for what is in no namespace, which every selector takes."""
    if change.is_of("", "namespaces"):
        return _labels(change.new if change.new is not None else change.old)
    if not change.namespace:
        return None
    return _labels(await namespace_object(change, lookup))


def _fits(rule: Mapping[str, Any], change: Change, equivalent: bool) -> bool:
    kind = change.kind
    if not _listed(rule.get("operations"), change.operation):
        return False
    if not _listed(rule.get("apiGroups"), kind.group):
        return False
    if not _fits_version(rule.get("apiVersions") or (), kind, equivalent):
        return False
    scope = rule.get("scope") or "*"
    if scope != "*" and (scope == "Namespaced") is not kind.namespaced:
        return False
    names = rule.get("resourceNames")
    if names and change.name not in names:
        return False
    return any(
        _fits_resource(str(resource), kind.plural, change.subresource)
        for resource in rule.get("resources") or ()
    )


def _listed(values: Iterable[str] | None, wanted: str) -> bool:
    return any(value in ("*", wanted) for value in values or ())


def _fits_version(versions: Iterable[str], kind: scheme.Kind, equivalent: bool) -> bool:
    if _listed(versions, kind.version):
        return True
    return equivalent and any(
        scheme.resource(kind.group, version, kind.plural) is not None for version in versions
    )


def _fits_resource(pattern: str, plural: str, subresource: str) -> bool:
    resource, slash, sub = pattern.partition("/")
    if resource not in ("*", plural):
        return False
    if not slash:
        return not subresource
    return sub == "*" or sub == subresource
