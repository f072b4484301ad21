"""How a definition goes: it says so, waits until its objects are gone, and is released. Pure."""

from typing import Any

from motley.apiserver.crds import naming

Document = dict[str, Any]

FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
_PENDING = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"


def mark(marked: Document, now: str) -> None:
    """Begin: the first request to delete a definition only marks it."""
    metadata = marked["metadata"]
    metadata["deletionTimestamp"] = now
    finalizers = metadata.get("finalizers") or []
    if FINALIZER not in finalizers:
        metadata["finalizers"] = [*finalizers, FINALIZER]
    state = dict(marked.get("status") or {})
    state["conditions"] = naming.with_conditions(
        state.get("conditions") or [],
        [("Terminating", "True", "InstanceDeletionPending", _PENDING)],
        now,
    )
    marked["status"] = state


def released(stored: Document) -> Document:
    """End: nothing holds the definition back any more."""
    metadata = stored["metadata"]
    metadata.pop("resourceVersion", None)
    kept = [f for f in metadata.get("finalizers") or () if f != FINALIZER]
    if kept:
        metadata["finalizers"] = kept
    else:
        metadata.pop("finalizers", None)
    return stored
