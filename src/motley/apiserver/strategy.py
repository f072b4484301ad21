"""What the server itself decides about an object's fields, kind by kind.

Clients propose; the server owns uid, times, generation and, on the main resource, status. Each
function takes documents and changes the new one in place: no store, no clock of its own.

Invariant: nothing a client sends can change `uid`, `creationTimestamp`, `generation` or a
deletion in progress.
"""

from typing import Any

from motley.api import scheme

Document = dict[str, Any]

# Kinds whose spec changes are counted in metadata.generation, as in Kubernetes.
_COUNTED = frozenset(
    {
        ("", "pods"),
        ("apps", "daemonsets"),
        ("apps", "deployments"),
        ("apps", "replicasets"),
        ("apps", "statefulsets"),
        ("autoscaling", "horizontalpodautoscalers"),
        ("batch", "cronjobs"),
        ("batch", "jobs"),
        ("discovery.k8s.io", "endpointslices"),
        ("networking.k8s.io", "ingressclasses"),
        ("networking.k8s.io", "ingresses"),
        ("networking.k8s.io", "networkpolicies"),
        ("policy", "poddisruptionbudgets"),
        ("scheduling.k8s.io", "priorityclasses"),
    }
)
_INITIAL_STATUS: dict[tuple[str, str], Document] = {
    ("", "namespaces"): {"phase": "Active"},
    ("", "persistentvolumeclaims"): {"phase": "Pending"},
    ("", "persistentvolumes"): {"phase": "Pending"},
    ("", "pods"): {"phase": "Pending"},
    ("", "services"): {"loadBalancer": {}},
    ("apps", "daemonsets"): {
        "currentNumberScheduled": 0,
        "numberMisscheduled": 0,
        "desiredNumberScheduled": 0,
        "numberReady": 0,
    },
    ("apps", "replicasets"): {"replicas": 0},
    ("apps", "statefulsets"): {"replicas": 0, "availableReplicas": 0},
    ("autoscaling", "horizontalpodautoscalers"): {"desiredReplicas": 0, "currentMetrics": None},
    ("networking.k8s.io", "ingresses"): {"loadBalancer": {}},
    ("policy", "poddisruptionbudgets"): {
        "disruptionsAllowed": 0,
        "currentHealthy": 0,
        "desiredHealthy": 0,
        "expectedPods": 0,
    },
}
# The server owns these; what a client sends for them on an update is replaced by what is stored.
_OWNED_METADATA = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
)
_NAMESPACE_LABEL = "kubernetes.io/metadata.name"
_NAMESPACE_FINALIZER = "kubernetes"


def _id(kind: scheme.Kind) -> tuple[str, str]:
    return kind.group, kind.plural


def has_status(kind: scheme.Kind) -> bool:
    """Whether status is written only through its subresource."""
    return "status" in kind.subresources


def is_counted(kind: scheme.Kind) -> bool:
    """Whether the kind has a generation."""
    return _id(kind) in _COUNTED


def before_create(kind: scheme.Kind, document: Document, *, uid: str, created: str) -> None:
    """Set what the server owns on a new object."""
    metadata = document["metadata"]
    for field in (*_OWNED_METADATA, "resourceVersion", "managedFields"):
        metadata.pop(field, None)
    metadata["uid"] = uid
    if is_counted(kind):
        metadata["generation"] = 1
    metadata["creationTimestamp"] = created
    if not kind.namespaced:
        metadata.pop("namespace", None)
    if _id(kind) == ("", "nodes"):
        return  # a node registers itself with its status
    if has_status(kind):
        initial = _INITIAL_STATUS.get(_id(kind), {})
        document["status"] = dict(initial)
    if _id(kind) == ("", "namespaces"):
        metadata.setdefault("labels", {})[_NAMESPACE_LABEL] = metadata.get("name", "")
        spec = document.setdefault("spec", {})
        if _NAMESPACE_FINALIZER not in spec.setdefault("finalizers", []):
            spec["finalizers"].append(_NAMESPACE_FINALIZER)


def before_update(kind: scheme.Kind, new: Document, old: Document) -> None:
    """Give back to the server what is its own, then count a change of the spec."""
    _keep_owned_metadata(new, old)
    if has_status(kind):
        _keep(new, old, "status")
    if _id(kind) == ("", "namespaces"):
        _keep(new.setdefault("spec", {}), old.get("spec") or {}, "finalizers")
        name = old["metadata"]["name"]
        new["metadata"].setdefault("labels", {})[_NAMESPACE_LABEL] = name
    if is_counted(kind) and _counted_part(new) != _counted_part(old):
        new["metadata"]["generation"] = int(old["metadata"].get("generation") or 0) + 1


def before_status_update(kind: scheme.Kind, new: Document, old: Document) -> Document:
    """The object to store when only its status (and a little metadata) may change."""
    result = dict(old)
    metadata = dict(new.get("metadata") or {})
    kept = [*_OWNED_METADATA, "name", "namespace", "generateName", "ownerReferences"]
    if kind.group == "apps":
        kept += ["labels"]
    for field in kept:
        _keep(metadata, old["metadata"], field)
    result["metadata"] = metadata
    if "status" in new:
        result["status"] = new["status"]
    else:
        result["status"] = dict(_INITIAL_STATUS.get(_id(kind), {}))
    return result


def _counted_part(document: Document) -> Any:
    """What a generation counts: the spec or, for kinds without one, everything but the frame."""
    if "spec" in document:
        return document["spec"]
    frame = ("apiVersion", "kind", "metadata", "status")
    return {k: v for k, v in document.items() if k not in frame}


def _keep_owned_metadata(new: Document, old: Document) -> None:
    metadata = new["metadata"]
    for field in _OWNED_METADATA:
        _keep(metadata, old["metadata"], field)
    # A generateName is history, and a client that forgets it does not mean to rewrite history.
    if "generateName" not in metadata and "generateName" in old["metadata"]:
        metadata["generateName"] = old["metadata"]["generateName"]
    metadata.pop("managedFields", None)


def _keep(new: Document, old: Document, field: str) -> None:
    if field in old:
        new[field] = old[field]
    else:
        new.pop(field, None)


def is_released(document: Document) -> bool:
    """Whether an object being deleted has nothing left to wait for."""
    metadata = document["metadata"]
    if not metadata.get("deletionTimestamp"):
        return False
    if metadata.get("deletionGracePeriodSeconds"):
        return False
    if metadata.get("finalizers"):
        return False
    return not (document.get("kind") == "Namespace" and namespace_finalizers(document))


def namespace_finalizers(document: Document) -> list[str]:
    """A namespace's own finalizers, which live in its spec."""
    found: list[str] = (document.get("spec") or {}).get("finalizers") or []
    return found
