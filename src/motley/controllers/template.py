"""Pod templates: equality, hash, and the ReplicaSet made from one. Pure."""

import hashlib
from copy import deepcopy
from typing import Any

import msgspec

from motley.controllers.rollout import (
    DESIRED,
    MAXIMUM,
    REVISION,
    REVISION_HISTORY,
    bounds,
    revision,
)
from motley.controllers.workload import (
    POD_TEMPLATE_HASH,
    Deployment,
    ReplicaSet,
    controller_reference,
)

# No vowels and no look-alikes: a hash in a name never spells a word (Kubernetes' alphabet).
ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
# Annotations that belong to the Deployment alone.
_NOT_COPIED = frozenset(
    {
        "kubectl.kubernetes.io/last-applied-configuration",
        "deprecated.deployment.rollback.to",
        REVISION,
        REVISION_HISTORY,
        DESIRED,
        MAXIMUM,
    }
)


def bare(template: dict[str, Any]) -> dict[str, Any]:
    """The template without the hash label and without empty metadata fields."""
    meta = {k: v for k, v in (template.get("metadata") or {}).items() if v}
    labels = {k: v for k, v in meta.get("labels", {}).items() if k != POD_TEMPLATE_HASH}
    meta.pop("labels", None)
    if labels:
        meta["labels"] = labels
    return {**template, "metadata": meta}


def hash_of(template: dict[str, Any], collisions: int = 0) -> str:
    """Ten characters that stand for the template; `collisions` makes another ten of the same."""
    data = msgspec.json.encode(bare(template), order="deterministic")
    digest = hashlib.sha256(data + (str(collisions).encode() if collisions else b"")).digest()
    return "".join(ALPHABET[byte % len(ALPHABET)] for byte in digest[:10])


def is_current(rs: ReplicaSet, deployment: Deployment) -> bool:
    """Was this ReplicaSet made for the Deployment's template as it is now?"""
    return bare(rs.spec.template) == bare(deployment.spec.template)


def annotations(deployment: Deployment, rs: ReplicaSet | None, number: int) -> dict[str, str]:
    """What the new ReplicaSet should carry as revision `number`, with the revisions it was."""
    copied = {k: v for k, v in deployment.metadata.annotations.items() if k not in _NOT_COPIED}
    own = rs.metadata.annotations if rs else {}
    result = {**own, **copied}
    before = revision(own)
    if before < number:
        result[REVISION] = str(number)
        if before:
            history = own.get(REVISION_HISTORY)
            result[REVISION_HISTORY] = f"{history},{before}" if history else str(before)
    return result


def size_annotations(deployment: Deployment) -> dict[str, str]:
    """How big the Deployment was when a ReplicaSet was sized, for proportional scaling."""
    wanted = deployment.spec.replicas
    return {DESIRED: str(wanted), MAXIMUM: str(wanted + bounds(deployment).surge)}


def replica_set(deployment: Deployment, digest: str, number: int, replicas: int) -> dict[str, Any]:
    """The ReplicaSet to create for the Deployment's current template."""
    template = deepcopy(deployment.spec.template)
    meta = template.setdefault("metadata", {})
    meta["labels"] = {**(meta.get("labels") or {}), POD_TEMPLATE_HASH: digest}
    selector: dict[str, Any] = msgspec.to_builtins(deployment.spec.selector)
    selector["matchLabels"] = {**selector.get("matchLabels", {}), POD_TEMPLATE_HASH: digest}
    spec: dict[str, Any] = {"replicas": replicas, "selector": selector, "template": template}
    if deployment.spec.min_ready_seconds:
        spec["minReadySeconds"] = deployment.spec.min_ready_seconds
    return {
        "metadata": {
            "name": f"{deployment.metadata.name}-{digest}",
            "namespace": deployment.metadata.namespace,
            "labels": meta["labels"],
            "annotations": {
                **annotations(deployment, None, number),
                **size_annotations(deployment),
            },
            "ownerReferences": [controller_reference(deployment)],
        },
        "spec": spec,
    }
