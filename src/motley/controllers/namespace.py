"""Namespace: empties a namespace that is being deleted, then lets it go.

Kinds are found by discovery and emptied one after the other, pods first: as long as one runs, what
it relies on (NetworkPolicies, above all) stays. Pods end in their own time; until everything is
gone the namespace says in its conditions what it waits for.
"""

from collections import Counter
from typing import Any

from motley.api import status
from motley.api.views.base import Key, Object
from motley.api.views.core import Namespace
from motley.client.rest import resource_path
from motley.client.workqueue import WorkQueue
from motley.controllers import discovery
from motley.controllers.manager import Context
from motley.controllers.reconciler import Requeue
from motley.controllers.workload import condition
from motley.lib import clock as clocks
from motley.lib import journal

log = journal.get(__name__)

FINALIZER = "kubernetes"
# A deleted namespace with nothing left is looked at again soon: users wait for it.
_LOOK_AGAIN_S = 0.5
_LOOK_AGAIN_CAP_S = 10.0

# Condition type -> (reason and message when all is well). The texts are Kubernetes'.
_CLEAR = {
    "NamespaceDeletionDiscoveryFailure": (
        "ResourcesDiscovered",
        "All resources successfully discovered",
    ),
    "NamespaceDeletionGroupVersionParsingFailure": (
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    "NamespaceDeletionContentFailure": (
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    "NamespaceContentRemaining": (
        "ContentRemoved",
        "All content successfully removed",
    ),
    "NamespaceFinalizersRemaining": (
        "ContentHasNoFinalizers",
        "All content-preserving finalizers finished",
    ),
}


class NamespaceController:
    """See the module's docstring."""

    name = "namespace"
    workers = 3

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._clock = context.clock
        self.queue: WorkQueue[Key] = WorkQueue(context.clock)
        self._namespaces = context.informers.of(Namespace)
        self._namespaces.add_handler(lambda change: self.queue.add(change.key))
        self._looks: dict[Key, int] = {}

    async def reconcile(self, key: Key) -> Requeue | None:
        """Delete what is in a terminating namespace; finalize it once it is empty."""
        cached = self._namespaces.get(key)
        if cached is None or cached.metadata.deletion_timestamp is None:
            self._looks.pop(key, None)
            return None
        try:
            namespace = await self._client.get(Namespace, key.name)
        except status.NotFound:
            return None
        if FINALIZER not in namespace.spec.finalizers:
            return None
        found = await discovery.discover(self._client)
        problems = {}
        if found.failed:
            problems["NamespaceDeletionDiscoveryFailure"] = (
                "DiscoveryFailed",
                f"Discovery failed for some groups: {', '.join(found.failed)}",
            )
        remaining, failures = await self._empty(key.name, found.resources)
        if failures:
            problems["NamespaceDeletionContentFailure"] = (
                "ContentDeletionFailed",
                "Failed to delete all resource types, " + ", ".join(failures),
            )
        problems |= describe(remaining)
        await self._report(namespace, problems)
        if problems:
            looks = self._looks[key] = self._looks.get(key, 0) + 1
            return Requeue(min(_LOOK_AGAIN_S * 1.5 ** min(looks, 16), _LOOK_AGAIN_CAP_S))
        await self._finalize(key.name)
        self._looks.pop(key, None)
        return None

    async def _empty(
        self, namespace: str, resources: list[discovery.Resource]
    ) -> tuple[dict[str, list[Object]], list[str]]:
        """Ask for everything's deletion; what is still there, and what could not be asked."""
        remaining: dict[str, list[Object]] = {}
        failures = []
        for resource in sorted(resources, key=lambda one: not _is_pods(one)):
            if not resource.namespaced or not resource.can("list", "delete"):
                continue
            if "pods" in remaining:
                break
            cls = discovery.view(resource)
            name = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
            try:
                left = await self._empty_kind(cls, namespace, resource)
            except (status.NotFound, status.MethodNotAllowed):
                continue  # the kind itself is gone, or cannot be deleted
            except status.ApiError as error:
                failures.append(f"{name}: {error.message}")
                continue
            if left:
                remaining[name] = left
        return remaining, failures

    async def _empty_kind(
        self, cls: type[Object], namespace: str, resource: discovery.Resource
    ) -> list[Object]:
        before = (await self._client.list(cls, namespace=namespace)).items
        fresh = [obj for obj in before if obj.metadata.deletion_timestamp is None]
        if not fresh:
            return before
        if resource.can("deletecollection"):
            await self._client.raw(
                "DELETE",
                resource_path(cls, namespace),
                body={
                    "apiVersion": "v1",
                    "kind": "DeleteOptions",
                    "propagationPolicy": "Background",
                },
            )
        else:
            for obj in fresh:
                await self._client.delete(
                    cls, obj.metadata.name, namespace, propagation="Background"
                )
        return (await self._client.list(cls, namespace=namespace)).items

    async def _report(self, namespace: Namespace, problems: dict[str, tuple[str, str]]) -> None:
        now = clocks.rfc3339(self._clock.now())
        fresh = conditions(namespace, problems, now)
        if fresh is None:
            return
        await self._client.patch(
            Namespace,
            namespace.metadata.name,
            "",
            {"status": {"phase": "Terminating", "conditions": fresh}},
            subresource="status",
        )

    async def _finalize(self, name: str) -> None:
        document = await self._client.document(Namespace, name)
        spec = document.setdefault("spec", {})
        spec["finalizers"] = [f for f in spec.get("finalizers") or () if f != FINALIZER]
        try:
            await self._client.raw("PUT", f"/api/v1/namespaces/{name}/finalize", body=document)
        except status.NotFound:
            return
        log.info("namespace finalized", namespace=name)


def _is_pods(resource: discovery.Resource) -> bool:
    return (resource.group, resource.plural) == ("", "pods")


def describe(remaining: dict[str, list[Object]]) -> dict[str, tuple[str, str]]:
    """Conditions for what is still in the namespace."""
    if not remaining:
        return {}
    # Kubernetes writes `plural.group`, and so a lonely dot after the core group's kinds.
    counts = ", ".join(
        f"{name if '.' in name else name + '.'} has {len(left)} resource instances"
        for name, left in sorted(remaining.items())
    )
    problems = {
        "NamespaceContentRemaining": (
            "SomeResourcesRemain",
            f"Some resources are remaining: {counts}",
        )
    }
    finalizers = Counter(
        f for left in remaining.values() for obj in left for f in obj.metadata.finalizers
    )
    if finalizers:
        listed = ", ".join(f"{f} in {n} resource instances" for f, n in sorted(finalizers.items()))
        problems["NamespaceFinalizersRemaining"] = (
            "SomeFinalizersRemain",
            f"Some content in the namespace has finalizers remaining: {listed}",
        )
    return problems


def conditions(
    namespace: Namespace, problems: dict[str, tuple[str, str]], now: str
) -> list[dict[str, Any]] | None:
    """The status conditions for these problems, or None when nothing changed."""
    result = []
    changed = False
    for type_, clear in _CLEAR.items():
        reason, message = problems.get(type_, clear)
        value = "True" if type_ in problems else "False"
        old = condition(namespace.status.conditions, type_)
        same = old is not None and old.status == value
        changed |= not same or (old is not None and (old.reason, old.message) != (reason, message))
        result.append(
            {
                "type": type_,
                "status": value,
                "reason": reason,
                "message": message,
                "lastTransitionTime": (old.last_transition_time if same and old else None) or now,
            }
        )
    return result if changed else None
