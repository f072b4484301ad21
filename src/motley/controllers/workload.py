"""Deployment and ReplicaSet as their controllers read them: with the whole pod template.

The shared views know only the template's fields that components act on. These controllers copy
templates, so they keep them as plain documents and lose nothing.
"""

from typing import Any, ClassVar, TypeAlias

import msgspec

from motley.api.views.apps import DeploymentStatus, DeploymentStrategy, ReplicaSetStatus
from motley.api.views.base import Condition, LabelSelector, Object, OwnerReference, View
from motley.api.views.workloads import ReplicationController

POD_TEMPLATE_HASH = "pod-template-hash"


class ReplicaSetSpec(View):
    """How many of which pods."""

    replicas: int = 1
    min_ready_seconds: int = 0
    selector: LabelSelector = msgspec.field(default_factory=LabelSelector)
    template: dict[str, Any] = msgspec.field(default_factory=dict)


class ReplicaSet(Object):
    """Keeps a number of equal pods."""

    API_VERSION: ClassVar[str] = "apps/v1"
    KIND: ClassVar[str] = "ReplicaSet"
    PLURAL: ClassVar[str] = "replicasets"

    spec: ReplicaSetSpec = msgspec.field(default_factory=ReplicaSetSpec)
    status: ReplicaSetStatus = msgspec.field(default_factory=ReplicaSetStatus)


# Both keep a number of equal pods, and differ in how they select them.
Replicated: TypeAlias = ReplicaSet | ReplicationController


class DeploymentSpec(View):
    """Which pods, how many, and how to change them."""

    replicas: int = 1
    min_ready_seconds: int = 0
    paused: bool = False
    progress_deadline_seconds: int | None = None
    revision_history_limit: int | None = None
    selector: LabelSelector = msgspec.field(default_factory=LabelSelector)
    strategy: DeploymentStrategy = msgspec.field(default_factory=DeploymentStrategy)
    template: dict[str, Any] = msgspec.field(default_factory=dict)


class Deployment(Object):
    """Pods that can be changed without stopping."""

    API_VERSION: ClassVar[str] = "apps/v1"
    KIND: ClassVar[str] = "Deployment"
    PLURAL: ClassVar[str] = "deployments"

    spec: DeploymentSpec = msgspec.field(default_factory=DeploymentSpec)
    status: DeploymentStatus = msgspec.field(default_factory=DeploymentStatus)


def condition(conditions: list[Condition], type_: str) -> Condition | None:
    """The condition of this type, if it is set."""
    return next((c for c in conditions if c.type == type_), None)


def controller_reference(owner: Object) -> dict[str, Any]:
    """The ownerReference that makes `owner` an object's controller."""
    return {
        "apiVersion": owner.API_VERSION,
        "kind": owner.KIND,
        "name": owner.metadata.name,
        "uid": owner.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def is_controlled_by(obj: Object, owner: Object) -> bool:
    """Is `owner` (this very one, by uid) the object's controller?"""
    reference = obj.metadata.controller()
    return reference is not None and reference.uid == owner.metadata.uid


def reference_documents(references: list[OwnerReference]) -> list[dict[str, Any]]:
    """ownerReferences as they are written back in a patch."""
    return [msgspec.to_builtins(reference) for reference in references]
