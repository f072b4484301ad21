"""Volumes that are directories of a node: what they look like in the API. Pure.

A volume `pvc-UID` of the claim `ns/data` is the directory `PATH/pvc-UID_ns_data` of the one node it
was made on. The node agent makes the directory when a pod first mounts it; a short-lived pod on
that node removes it.
"""

from pathlib import PurePosixPath
from typing import Any

from motley.api import storage
from motley.api.views.core import Node
from motley.api.views.storage import PersistentVolume, PersistentVolumeClaim, StorageClass

PROVISIONER = storage.LOCAL_PATH
FINALIZER = storage.LOCAL_PATH
HOSTNAME = "kubernetes.io/hostname"
# Parameters of a StorageClass, and what holds without them.
PATH_PARAMETER, DEFAULT_PATH = "path", "/var/lib/motley/volumes"
IMAGE_PARAMETER, DEFAULT_IMAGE = "helperImage", "localhost/motley/busybox:1"
HELPER_NAMESPACE = "kube-system"
_HELPER_S = 300  # a directory tree that takes longer to remove is tried again
_IMAGE_ANNOTATION = "motley.io/helper-image"


class Unsuitable(Exception):
    """This claim can have no volume of this class; the message says why."""


def name_of(claim: PersistentVolumeClaim) -> str:
    """The volume's name: one claim, one volume, however often it is tried."""
    return f"pvc-{claim.metadata.uid}"


def volume(
    claim: PersistentVolumeClaim, storage_class: StorageClass, node: Node, reference: dict[str, str]
) -> dict[str, Any]:
    """The volume for a claim on a node. Raises Unsuitable."""
    if claim.spec.selector is not None:
        raise Unsuitable("claim.Spec.Selector is not supported")
    if claim.spec.volume_mode != "Filesystem":
        raise Unsuitable(f"volume mode {claim.spec.volume_mode} is not supported")
    if not set(claim.spec.access_modes) <= {"ReadWriteOnce", "ReadWriteOncePod"}:
        raise Unsuitable("only the access modes ReadWriteOnce and ReadWriteOncePod are supported")
    base = PurePosixPath(storage_class.parameters.get(PATH_PARAMETER) or DEFAULT_PATH)
    if not base.is_absolute() or ".." in base.parts or len(base.parts) < 2:
        raise Unsuitable(f"parameter {PATH_PARAMETER} of the class is no absolute path: {base}")
    name, (namespace, claimed) = name_of(claim), claim.key
    hostname = node.metadata.labels.get(HOSTNAME, node.metadata.name)
    return {
        "metadata": {
            "name": name,
            "annotations": {
                storage.PROVISIONED_BY: PROVISIONER,
                storage.SELECTED_NODE: node.metadata.name,
                _IMAGE_ANNOTATION: storage_class.parameters.get(IMAGE_PARAMETER) or DEFAULT_IMAGE,
            },
            "finalizers": [FINALIZER],
        },
        "spec": {
            "capacity": {"storage": claim.spec.resources.requests.get("storage", "0")},
            "accessModes": claim.spec.access_modes,
            "volumeMode": "Filesystem",
            "persistentVolumeReclaimPolicy": storage_class.reclaim_policy,
            "storageClassName": storage_class.metadata.name,
            "claimRef": reference,
            "hostPath": {
                "path": str(base / f"{name}_{namespace}_{claimed}"),
                "type": "DirectoryOrCreate",
            },
            "nodeAffinity": {
                "required": {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [
                                {"key": HOSTNAME, "operator": "In", "values": [hostname]}
                            ]
                        }
                    ]
                }
            },
        },
    }


def is_ours(found: PersistentVolume) -> bool:
    """Did this provisioner make the volume?"""
    return found.metadata.annotations.get(storage.PROVISIONED_BY) == PROVISIONER


def node_of(found: PersistentVolume) -> str:
    """The node a volume is on."""
    return found.metadata.annotations.get(storage.SELECTED_NODE, "")


def helper_name(found: PersistentVolume) -> str:
    """The pod that removes a volume's directory."""
    return f"local-path-delete-{found.metadata.name}"


def helper(found: PersistentVolume) -> dict[str, Any]:
    """A pod that removes a volume's directory from its node and ends. Raises Unsuitable.

    It sees the directory's parent, and no more is removed than a directory that bears the
    volume's name.
    """
    source, name = found.spec.host_path, found.metadata.name
    path = PurePosixPath(source.path if source is not None else "")
    if not path.name.startswith(f"{name}_") or ".." in path.parts or len(path.parts) < 3:
        raise Unsuitable(f"the volume's path is not one this provisioner made: {path}")
    annotations = found.metadata.annotations
    return {
        "metadata": {
            "name": helper_name(found),
            "labels": {"app.kubernetes.io/managed-by": "motley-local-path"},
        },
        "spec": {
            "nodeName": node_of(found),
            "restartPolicy": "Never",
            "activeDeadlineSeconds": _HELPER_S,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "hostNetwork": True,  # needs none, but must not wait for a pod network either
            "priorityClassName": "system-node-critical",
            "tolerations": [{"operator": "Exists"}],
            "containers": [
                {
                    "name": "remove",
                    "image": annotations.get(_IMAGE_ANNOTATION, DEFAULT_IMAGE),
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["rm", "-rf", "--", f"/volumes/{path.name}"],
                    "securityContext": {"runAsUser": 0},
                    "volumeMounts": [{"name": "volumes", "mountPath": "/volumes"}],
                }
            ],
            "volumes": [
                {
                    "name": "volumes",
                    "hostPath": {"path": str(path.parent), "type": "DirectoryOrCreate"},
                }
            ],
        },
    }
