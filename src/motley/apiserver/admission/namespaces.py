"""Namespace lifecycle: nothing is created where there is no namespace or where one is ending.

Invariant: once a namespace is terminating its content only shrinks, so its deletion ends.
"""

from motley.api import status
from motley.apiserver import document
from motley.apiserver.admission.change import Change, interest
from motley.apiserver.admission.lookup import Lookup, kind_of

IMMORTAL = frozenset({"default", "kube-system", "kube-public"})


class NamespaceLifecycle:
    """Looks at the namespace of every new object."""

    name = "NamespaceLifecycle"
    interests = (interest("create", subresources="*"), interest("delete", "namespaces"))

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._namespaces = kind_of("", "namespaces")

    async def mutate(self, change: Change) -> None:
        """404 in a missing namespace, 403 in a terminating one."""
        if change.verb == "delete":
            self._protect(change)
            return
        if not change.kind.namespaced:
            return
        record = await self._lookup.fresh(self._namespaces, "", change.namespace)
        if record is None:
            raise status.not_found("", "namespaces", change.namespace)
        if b'"deletionTimestamp"' not in record.value:
            return
        if document.decode(record.value)["metadata"].get("deletionTimestamp"):
            raise _terminating(change)

    @staticmethod
    def _protect(change: Change) -> None:
        if change.name in IMMORTAL:
            raise change.forbidden("this namespace may not be deleted")


def _terminating(change: Change) -> status.Forbidden:
    namespace = change.namespace
    refusal = change.forbidden(
        f"unable to create new content in namespace {namespace} because it is being terminated"
    )
    refusal.details["causes"] = [
        {
            "reason": "NamespaceTerminating",
            "message": f"namespace {namespace} is being terminated",
            "field": "metadata.namespace",
        }
    ]
    return refusal
