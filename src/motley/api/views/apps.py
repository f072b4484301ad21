"""Deployment and ReplicaSet."""

from typing import ClassVar

import msgspec

from motley.api.views.base import Condition, LabelSelector, Object, View
from motley.api.views.pod import PodTemplateSpec


class ReplicaSetSpec(View):
    """How many of which pods."""

    replicas: int = 1
    min_ready_seconds: int = 0
    selector: LabelSelector = msgspec.field(default_factory=LabelSelector)
    template: PodTemplateSpec = msgspec.field(default_factory=PodTemplateSpec)


class ReplicaSetStatus(View):
    """How many there are."""

    replicas: int = 0
    fully_labeled_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    observed_generation: int = 0
    conditions: list[Condition] = []


class ReplicaSet(Object):
    """Keeps a number of equal pods."""

    API_VERSION: ClassVar[str] = "apps/v1"
    KIND: ClassVar[str] = "ReplicaSet"
    PLURAL: ClassVar[str] = "replicasets"

    spec: ReplicaSetSpec = msgspec.field(default_factory=ReplicaSetSpec)
    status: ReplicaSetStatus = msgspec.field(default_factory=ReplicaSetStatus)


class RollingUpdate(View):
    """How fast a rolling update goes."""

    max_unavailable: int | str = "25%"
    max_surge: int | str = "25%"


class DeploymentStrategy(View):
    """How old pods are replaced."""

    type: str = "RollingUpdate"
    rolling_update: RollingUpdate | None = None


class DeploymentSpec(View):
    """Which pods, how many, and how to change them."""

    replicas: int = 1
    min_ready_seconds: int = 0
    paused: bool = False
    progress_deadline_seconds: int = 600
    revision_history_limit: int = 10
    selector: LabelSelector = msgspec.field(default_factory=LabelSelector)
    strategy: DeploymentStrategy = msgspec.field(default_factory=DeploymentStrategy)
    template: PodTemplateSpec = msgspec.field(default_factory=PodTemplateSpec)


class DeploymentStatus(View):
    """How far the change has come."""

    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    unavailable_replicas: int = 0
    collision_count: int | None = None
    conditions: list[Condition] = []


class Deployment(Object):
    """Pods that can be changed without stopping."""

    API_VERSION: ClassVar[str] = "apps/v1"
    KIND: ClassVar[str] = "Deployment"
    PLURAL: ClassVar[str] = "deployments"

    spec: DeploymentSpec = msgspec.field(default_factory=DeploymentSpec)
    status: DeploymentStatus = msgspec.field(default_factory=DeploymentStatus)
