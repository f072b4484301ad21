"""VerticalPodAutoscalers: what pods of a workload should request."""

from typing import Any, ClassVar

import msgspec

from motley.api.views.autoscaling import CrossVersionObjectReference
from motley.api.views.base import Object, View


class EvictionRequirement(View):
    """Which way one of these resources has to change for a pod to be evicted."""

    resources: list[str] = []
    change_requirement: str = ""


class UpdatePolicy(View):
    """What is done with a recommendation."""

    update_mode: str = "Auto"
    min_replicas: int | None = None
    eviction_requirements: list[EvictionRequirement] = []


class Recommender(View):
    """Who is to recommend."""

    name: str = ""


class VerticalPodAutoscalerSpec(View):
    """Whose pods, and what to do about them."""

    target_ref: CrossVersionObjectReference = msgspec.field(
        default_factory=CrossVersionObjectReference
    )
    update_policy: UpdatePolicy = msgspec.field(default_factory=UpdatePolicy)
    resource_policy: dict[str, Any] = {}  # `api.recommendation` reads it
    recommenders: list[Recommender] = []


class VerticalPodAutoscaler(Object):
    """Keeps what pods request in step with what they use."""

    API_VERSION: ClassVar[str] = "autoscaling.k8s.io/v1"
    KIND: ClassVar[str] = "VerticalPodAutoscaler"
    PLURAL: ClassVar[str] = "verticalpodautoscalers"

    spec: VerticalPodAutoscalerSpec = msgspec.field(default_factory=VerticalPodAutoscalerSpec)
    status: dict[str, Any] = {}  # as it is: it is compared and replaced as a whole
