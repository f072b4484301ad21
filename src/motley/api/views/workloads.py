"""StatefulSet, DaemonSet, ReplicationController and ControllerRevision as controllers read them.

Their pod templates stay plain documents: a controller copies a template into pods and into the
history, and must lose nothing of it.
"""

from typing import Any, ClassVar

import msgspec

from motley.api.views.apps import ReplicaSetStatus
from motley.api.views.base import Condition, LabelSelector, Object, View


class ReplicationControllerSpec(View):
    """How many of which pods; the selector is a plain map of labels."""

    replicas: int = 1
    min_ready_seconds: int = 0
    selector: dict[str, str] = {}
    template: dict[str, Any] = msgspec.field(default_factory=dict)


class ReplicationController(Object):
    """The ReplicaSet's predecessor."""

    API_VERSION: ClassVar[str] = "v1"
    KIND: ClassVar[str] = "ReplicationController"
    PLURAL: ClassVar[str] = "replicationcontrollers"

    spec: ReplicationControllerSpec = msgspec.field(default_factory=ReplicationControllerSpec)
    status: ReplicaSetStatus = msgspec.field(default_factory=ReplicaSetStatus)


class ControllerRevision(Object):
    """One template a StatefulSet or DaemonSet has had, as a patch that brings it back."""

    API_VERSION: ClassVar[str] = "apps/v1"
    KIND: ClassVar[str] = "ControllerRevision"
    PLURAL: ClassVar[str] = "controllerrevisions"

    data: dict[str, Any] = msgspec.field(default_factory=dict)
    revision: int = 0


class StatefulRollingUpdate(View):
    """Which ordinals are updated, and how many pods may be down for it."""

    partition: int = 0
    max_unavailable: int | str = 1


class StatefulSetUpdateStrategy(View):
    """RollingUpdate, or OnDelete: the user deletes."""

    type: str = "RollingUpdate"
    rolling_update: StatefulRollingUpdate | None = None


class ClaimRetentionPolicy(View):
    """Retain or Delete a pod's claims when the set goes, and when the set shrinks."""

    when_deleted: str = "Retain"
    when_scaled: str = "Retain"


class Ordinals(View):
    """Where counting starts."""

    start: int = 0


class StatefulSetSpec(View):
    """Pods with names, an order and disks of their own."""

    replicas: int = 1
    min_ready_seconds: int = 0
    service_name: str = ""
    pod_management_policy: str = "OrderedReady"
    revision_history_limit: int = 10
    ordinals: Ordinals = msgspec.field(default_factory=Ordinals)
    selector: LabelSelector = msgspec.field(default_factory=LabelSelector)
    template: dict[str, Any] = msgspec.field(default_factory=dict)
    update_strategy: StatefulSetUpdateStrategy = msgspec.field(
        default_factory=StatefulSetUpdateStrategy
    )
    volume_claim_templates: list[dict[str, Any]] = []
    persistent_volume_claim_retention_policy: ClaimRetentionPolicy = msgspec.field(
        default_factory=ClaimRetentionPolicy
    )


class StatefulSetStatus(View):
    """How far pods and update have come."""

    observed_generation: int = 0
    replicas: int = 0
    ready_replicas: int = 0
    current_replicas: int = 0
    updated_replicas: int = 0
    available_replicas: int = 0
    current_revision: str = ""
    update_revision: str = ""
    collision_count: int | None = None
    conditions: list[Condition] = []


class StatefulSet(Object):
    """Pods with names that stay."""

    API_VERSION: ClassVar[str] = "apps/v1"
    KIND: ClassVar[str] = "StatefulSet"
    PLURAL: ClassVar[str] = "statefulsets"

    spec: StatefulSetSpec = msgspec.field(default_factory=StatefulSetSpec)
    status: StatefulSetStatus = msgspec.field(default_factory=StatefulSetStatus)


class DaemonRollingUpdate(View):
    """On how many nodes the pod may be down, or doubled, during an update."""

    max_unavailable: int | str = 1
    max_surge: int | str = 0


class DaemonSetUpdateStrategy(View):
    """RollingUpdate, or OnDelete: the user deletes."""

    type: str = "RollingUpdate"
    rolling_update: DaemonRollingUpdate | None = None


class DaemonSetSpec(View):
    """Which pod, on every node that it fits."""

    min_ready_seconds: int = 0
    revision_history_limit: int = 10
    selector: LabelSelector = msgspec.field(default_factory=LabelSelector)
    template: dict[str, Any] = msgspec.field(default_factory=dict)
    update_strategy: DaemonSetUpdateStrategy = msgspec.field(
        default_factory=DaemonSetUpdateStrategy
    )


class DaemonSetStatus(View):
    """On how many nodes the pod should run, runs, and runs as it should."""

    observed_generation: int = 0
    current_number_scheduled: int = 0
    number_misscheduled: int = 0
    desired_number_scheduled: int = 0
    number_ready: int = 0
    updated_number_scheduled: int = 0
    number_available: int = 0
    number_unavailable: int = 0
    collision_count: int | None = None
    conditions: list[Condition] = []


class DaemonSet(Object):
    """One pod on every node that it fits."""

    API_VERSION: ClassVar[str] = "apps/v1"
    KIND: ClassVar[str] = "DaemonSet"
    PLURAL: ClassVar[str] = "daemonsets"

    spec: DaemonSetSpec = msgspec.field(default_factory=DaemonSetSpec)
    status: DaemonSetStatus = msgspec.field(default_factory=DaemonSetStatus)
