"""Claims and volumes: a class for who names none, growth where it is possible, and protection.

Three plugins of Kubernetes that all look at the same few kinds. The protecting finalizers are
taken off by the controllers once nothing uses the claim, the volume or its attributes.
"""

from typing import Any

from motley.api import quantity
from motley.apiserver.admission.change import Change, interest
from motley.apiserver.admission.defaultclass import default_class
from motley.apiserver.admission.lookup import Lookup, kind_of

Document = dict[str, Any]

_DEFAULT = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
PROTECTION = {
    "persistentvolumeclaims": "kubernetes.io/pvc-protection",
    "persistentvolumes": "kubernetes.io/pv-protection",
    "volumeattributesclasses": "kubernetes.io/vac-protection",
}


class DefaultStorageClass:
    """The class of claims that name none; an empty name is a name."""

    name = "DefaultStorageClass"
    interests = (interest("create", "persistentvolumeclaims"),)

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._kind = kind_of("storage.k8s.io", "storageclasses")

    async def mutate(self, change: Change) -> None:
        """Fill in the default class, where there is one."""
        spec = change.spec
        if spec is None or spec.get("storageClassName") is not None or change.new is None:
            return
        annotations = change.new["metadata"].get("annotations") or {}
        if annotations.get(_CLASS_ANNOTATION):
            return
        found = default_class(await self._lookup.list(self._kind), _DEFAULT)
        if found is not None:
            spec["storageClassName"] = found["metadata"]["name"]


class StorageObjectInUseProtection:
    """A claim in use, a bound volume, a class in use: none is deleted under its user."""

    name = "StorageObjectInUseProtection"
    interests = (
        interest(
            "create",
            "persistentvolumeclaims",
            "persistentvolumes",
            "storage.k8s.io/volumeattributesclasses",
        ),
    )

    async def mutate(self, change: Change) -> None:
        """Add the protecting finalizer."""
        if change.new is None:
            return
        metadata = change.new["metadata"]
        finalizers = metadata.get("finalizers") or []
        finalizer = PROTECTION[change.kind.plural]
        if finalizer not in finalizers:
            metadata["finalizers"] = [*finalizers, finalizer]


class PersistentVolumeClaimResize:
    """A claim grows only where its class says that volumes can."""

    name = "PersistentVolumeClaimResize"
    interests = (interest("update", "persistentvolumeclaims"),)

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._kind = kind_of("storage.k8s.io", "storageclasses")

    async def validate(self, change: Change) -> None:
        """403 for a growth the class does not allow."""
        spec, old = change.spec, (change.old or {}).get("spec") or {}
        if spec is None or _size(spec) <= _size(old):
            return
        name = spec.get("storageClassName")
        found = await self._lookup.get(self._kind, "", str(name)) if name else None
        if found is None or not found.get("allowVolumeExpansion"):
            raise change.forbidden(
                "only dynamically provisioned pvc can be resized and the storageclass that "
                "provisions the pvc must support resize"
            )


def _size(spec: Document) -> int:
    requests = (spec.get("resources") or {}).get("requests") or {}
    try:
        return quantity.quantity(requests.get("storage", "0")).nano
    except ValueError:
        return 0
