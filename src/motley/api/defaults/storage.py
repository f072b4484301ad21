"""Defaults of volumes, claims and what drivers say of themselves."""

from typing import Any

from motley.api.defaults import pod as pods

Document = dict[str, Any]

# What a claim may be filled from without a populator, and therefore in the old field too.
_CORE_SOURCES = (("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot"))


def persistent_volume(obj: Document) -> None:
    """A PersistentVolume."""
    spec = obj.setdefault("spec", {})
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    spec.setdefault("volumeMode", "Filesystem")
    pods.volume_source(spec)


def persistent_volume_claim(obj: Document) -> None:
    """A PersistentVolumeClaim."""
    claim_spec(obj.setdefault("spec", {}))


def claim_spec(spec: Document) -> None:
    """What a claim wants, wherever it stands."""
    spec.setdefault("resources", {})
    spec.setdefault("volumeMode", "Filesystem")


def align_sources(spec: Document) -> None:
    """A claim's old and new field for what to fill it from say the same, where both can."""
    old, new = spec.get("dataSource"), spec.get("dataSourceRef")
    if old is not None and new is None:
        if (old.get("apiGroup") or "", old.get("kind")) in _CORE_SOURCES:
            spec["dataSourceRef"] = dict(old)
        else:
            del spec["dataSource"]  # only the new field can name other kinds
    elif new is not None and old is None and not new.get("namespace"):
        spec["dataSource"] = {k: v for k, v in new.items() if k != "namespace"}


def storage_class(obj: Document) -> None:
    """A StorageClass."""
    obj.setdefault("reclaimPolicy", "Delete")
    obj.setdefault("volumeBindingMode", "Immediate")


def csi_driver(obj: Document) -> None:
    """A CSIDriver."""
    spec = obj.setdefault("spec", {})
    spec.setdefault("attachRequired", True)
    spec.setdefault("fsGroupPolicy", "ReadWriteOnceWithFSType")
    if not spec.get("volumeLifecycleModes"):
        spec["volumeLifecycleModes"] = ["Persistent"]
    for name in (
        "podInfoOnMount",
        "storageCapacity",
        "requiresRepublish",
        "seLinuxMount",
        "preventPodSchedulingIfMissing",
    ):
        spec.setdefault(name, False)
