"""Namespace lifecycle: nothing is created where there is no namespace or where one is ending.

Invariant: once a namespace is terminating its content only shrinks, so its deletion ends.
"""

from motley.api import scheme, status
from motley.apiserver import document
from motley.apiserver.admission.change import Change
from motley.store.contract import Store

IMMORTAL = frozenset({"default", "kube-system", "kube-public"})


def _kind() -> scheme.Kind:
    kind = scheme.resource("", "v1", "namespaces")
    assert kind is not None
    return kind


class NamespaceLifecycle:
    """Looks at the namespace of every new object."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._namespaces = _kind()

    async def admit(self, change: Change) -> None:
        """404 in a missing namespace, 403 in a terminating one."""
        if change.verb == "delete":
            self._protect(change)
            return
        if change.verb != "create" or not change.kind.namespaced:
            return
        record = await self._store.get(self._namespaces.key("", change.namespace))
        if record is None:
            raise status.not_found("", "namespaces", change.namespace)
        if b'"deletionTimestamp"' not in record.value:
            return
        if document.decode(record.value)["metadata"].get("deletionTimestamp"):
            raise _terminating(change)

    def settle(self, change: Change, *, committed: bool) -> None:
        """Nothing is held."""

    @staticmethod
    def _protect(change: Change) -> None:
        if change.is_of("", "namespaces") and change.name in IMMORTAL:
            raise status.Forbidden(
                f'namespaces "{change.name}" is forbidden: this namespace may not be deleted',
                details={"name": change.name, "kind": "namespaces"},
            )


def _terminating(change: Change) -> status.Forbidden:
    kind, namespace = change.kind, change.namespace
    details = {"name": change.name, "group": kind.group, "kind": kind.plural}
    return status.Forbidden(
        f'{kind.qualified} "{change.name}" is forbidden: unable to create new content in '
        f"namespace {namespace} because it is being terminated",
        details={k: v for k, v in details.items() if v}
        | {
            "causes": [
                {
                    "reason": "NamespaceTerminating",
                    "message": f"namespace {namespace} is being terminated",
                    "field": "metadata.namespace",
                }
            ]
        },
    )
