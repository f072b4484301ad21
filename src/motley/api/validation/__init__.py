"""What an object must hold beyond its types, with Kubernetes' fields and words.

`create` looks at an object that has its defaults and its name; `update` also at what it was.
Everything that is wrong is reported at once.

Invariant: nothing here changes an object, and an object that passed `create` passes `update`
against itself.
"""

from collections.abc import Callable
from typing import Any

from motley.api import scheme
from motley.api.status import FieldError
from motley.api.validation import cluster, data, meta, pod, service, workload
from motley.api.validation.errors import Errors

__all__ = ["create", "update"]

Document = dict[str, Any]
Check = Callable[[Document], Errors]
UpdateCheck = Callable[[Document, Document], Errors]


def _keeping_selector(check: Check) -> UpdateCheck:
    def checked(new: Document, old: Document) -> Errors:
        yield from check(new)
        yield from workload.selector_is_kept(new, old)

    return checked


_CREATE: dict[tuple[str, str], Check] = {
    ("", "ConfigMap"): data.config_map,
    ("", "Endpoints"): service.endpoints,
    ("", "Event"): data.event,
    ("", "Namespace"): cluster.namespace,
    ("", "Node"): cluster.node,
    ("", "Pod"): pod.create,
    ("", "Secret"): data.secret,
    ("", "Service"): service.create,
    ("apps", "DaemonSet"): workload.daemon_set,
    ("apps", "Deployment"): workload.deployment,
    ("apps", "ReplicaSet"): workload.replica_set,
    ("apps", "StatefulSet"): workload.stateful_set,
    ("batch", "Job"): workload.job,
    ("coordination.k8s.io", "Lease"): data.lease,
    ("discovery.k8s.io", "EndpointSlice"): service.endpoint_slice,
    ("scheduling.k8s.io", "PriorityClass"): cluster.priority_class,
    ("storage.k8s.io", "StorageClass"): cluster.storage_class,
}
# Kinds whose updates obey more than the rules for creation.
_UPDATE: dict[tuple[str, str], UpdateCheck] = {
    ("", "ConfigMap"): data.config_map_update,
    ("", "Node"): cluster.node_update,
    ("", "Pod"): pod.update,
    ("", "Secret"): data.secret_update,
    ("", "Service"): service.update,
    ("apps", "DaemonSet"): _keeping_selector(workload.daemon_set),
    ("apps", "Deployment"): _keeping_selector(workload.deployment),
    ("apps", "ReplicaSet"): _keeping_selector(workload.replica_set),
    ("apps", "StatefulSet"): _keeping_selector(workload.stateful_set),
    ("discovery.k8s.io", "EndpointSlice"): service.endpoint_slice_update,
}


def create(kind: scheme.Kind, obj: Document) -> list[FieldError]:
    """All that is wrong with a new object."""
    errors = list(meta.create(kind, obj.get("metadata") or {}))
    check = _CREATE.get((kind.group, kind.kind))
    return errors + list(check(obj)) if check is not None else errors


def update(
    kind: scheme.Kind, new: Document, old: Document, subresource: str = ""
) -> list[FieldError]:
    """All that is wrong with a changed object.

    A subresource changes what the main resource may not (a binding sets the node, a resize the
    resources), and answers for that itself: through it only the metadata is checked.
    """
    metadata = new.get("metadata") or {}
    errors = list(meta.update(kind, metadata, old.get("metadata") or {}))
    if subresource:
        return errors
    key = (kind.group, kind.kind)
    if key in _UPDATE:
        return errors + list(_UPDATE[key](new, old))
    check = _CREATE.get(key)
    return errors + list(check(new)) if check is not None else errors
