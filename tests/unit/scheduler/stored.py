"""Claims, volumes and what belongs to them, as short as tests want them."""

from typing import Any

from motley.api import storage
from motley.api.views.pod import Pod
from motley.api.views.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)


def claim(
    name: str,
    *,
    volume: str = "",
    kind: str | None = "waiting",
    size: str = "1Gi",
    modes: tuple[str, ...] = ("ReadWriteOnce",),
    owner: str = "",
    selected: str = "",
    **more: Any,
) -> PersistentVolumeClaim:
    annotations = {storage.BIND_COMPLETED: "yes"} if volume else {}
    if selected:
        annotations[storage.SELECTED_NODE] = selected
    owners = [{"kind": "Pod", "name": owner, "uid": owner, "controller": True}] if owner else []
    return PersistentVolumeClaim.of(
        {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": f"uid-{name}",
                "annotations": annotations,
                "ownerReferences": owners,
                **more,
            },
            "spec": {
                "accessModes": list(modes),
                "resources": {"requests": {"storage": size}},
                "volumeName": volume,
                **({} if kind is None else {"storageClassName": kind}),
            },
            "status": {"phase": "Bound" if volume else "Pending"},
        }
    )


def volume(
    name: str,
    *,
    size: str = "1Gi",
    kind: str = "waiting",
    labels: dict[str, str] | None = None,
    affinity: dict[str, list[str]] | None = None,
    phase: str = "Available",
    modes: tuple[str, ...] = ("ReadWriteOnce",),
    **source: Any,
) -> PersistentVolume:
    spec: dict[str, Any] = {
        "capacity": {"storage": size},
        "accessModes": list(modes),
        "storageClassName": kind,
        **source,
    }
    if affinity:
        expressions = [{"key": k, "operator": "In", "values": v} for k, v in affinity.items()]
        terms = [{"matchExpressions": expressions}]
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    meta = {"name": name, "uid": f"uid-{name}", "labels": labels or {}}
    return PersistentVolume.of({"metadata": meta, "spec": spec, "status": {"phase": phase}})


def csi(driver: str, handle: str) -> dict[str, str]:
    return {"driver": driver, "volumeHandle": handle}


def storage_class(
    name: str = "waiting", provisioner: str = "d.example", **more: Any
) -> StorageClass:
    body = {"volumeBindingMode": "WaitForFirstConsumer", "provisioner": provisioner, **more}
    return StorageClass.of({"metadata": {"name": name}, **body})


def csi_node(name: str, *, migrated: str = "", **drivers: int | None) -> CSINode:
    """`d_example=3`: the driver d.example may have three volumes there; None: any number."""
    listed = [
        {
            "name": driver.replace("_", "."),
            "nodeID": name,
            **({} if count is None else {"allocatable": {"count": count}}),
        }
        for driver, count in drivers.items()
    ]
    annotations = {"storage.alpha.kubernetes.io/migrated-plugins": migrated} if migrated else {}
    meta = {"name": name, "annotations": annotations}
    return CSINode.of({"metadata": meta, "spec": {"drivers": listed}})


def driver(name: str = "d.example", **spec: bool) -> CSIDriver:
    return CSIDriver.of({"metadata": {"name": name}, "spec": spec})


def capacity(
    name: str, *, kind: str = "waiting", topology: Any = None, **amounts: str
) -> CSIStorageCapacity:
    return CSIStorageCapacity.of(
        {
            "metadata": {"name": name, "namespace": "kube-system"},
            "storageClassName": kind,
            **({} if topology is None else {"nodeTopology": topology}),
            **amounts,
        }
    )


def attachment(name: str, volume: str, node: str, driver: str = "d.example") -> VolumeAttachment:
    spec = {"attacher": driver, "nodeName": node, "source": {"persistentVolumeName": volume}}
    return VolumeAttachment.of({"metadata": {"name": name}, "spec": spec})


def pod(
    name: str, *claims: str, ephemeral: tuple[str, ...] = (), priority: int = 0, **inline: Any
) -> Pod:
    """`gcePersistentDisk={…}` and the like are inline volumes."""
    volumes = [{"name": f"c-{c}", "persistentVolumeClaim": {"claimName": c}} for c in claims]
    volumes += [{"name": v, "ephemeral": {"volumeClaimTemplate": {}}} for v in ephemeral]
    volumes += [{"name": kind.lower(), kind: source} for kind, source in inline.items()]
    return Pod.of(
        {
            "metadata": {"name": name, "namespace": "default", "uid": name},
            "spec": {"containers": [{"name": "c"}], "volumes": volumes, "priority": priority},
        }
    )


_SETTERS = {
    PersistentVolumeClaim: "set_claim",
    PersistentVolume: "set_volume",
    StorageClass: "set_class",
    CSINode: "set_csi_node",
    CSIDriver: "set_driver",
    CSIStorageCapacity: "set_capacity",
    VolumeAttachment: "set_attachment",
}


def know(cluster: Any, *found: Any) -> None:
    """Put objects into the scheduler's book."""
    for one in found:
        getattr(cluster.handle.volumes, _SETTERS[type(one)])(one.key, one)


def forget(cluster: Any, *found: Any) -> None:
    """Take objects out of the book."""
    for one in found:
        getattr(cluster.handle.volumes, _SETTERS[type(one)])(one.key, None)


def verdict(cluster: Any, plugin: str, asked: Pod) -> tuple[list[str], dict[str, int]]:
    """Where one filter lets a pod run, and its reasons for the other nodes."""
    made = cluster.profile.plugins[plugin]
    info = cluster.info(asked)
    answer = made.pre_filter(info, cluster.nodes)
    rows = cluster.nodes.rows
    if hasattr(answer, "reason"):
        return [], {answer.reason: len(rows)}
    if answer is not None:
        return sorted(rows), {}
    mask = made.filter(info, cluster.nodes)
    refused = cluster.nodes.live & ~mask
    reasons = {}
    if refused.any():
        has_more = hasattr(made, "explain")
        reasons = (
            made.explain(info, cluster.nodes, refused)
            if has_more
            else {made.reason: int(refused.sum())}
        )
    return sorted(name for name, row in rows.items() if mask[row]), reasons
