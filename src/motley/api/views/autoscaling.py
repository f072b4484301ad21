"""HorizontalPodAutoscalers: what to measure, and how fast to follow it."""

from typing import Any, ClassVar

import msgspec

from motley.api.views.base import Object, View
from motley.api.views.container import Quantity


class CrossVersionObjectReference(View):
    """An object by group, kind and name, in the autoscaler's namespace."""

    api_version: str = ""
    kind: str = ""
    name: str = ""


class MetricTarget(View):
    """What a metric should be: exactly one of the three, as `type` says."""

    type: str = ""
    value: Quantity | None = None
    average_value: Quantity | None = None
    average_utilization: int | None = None


class MetricIdentifier(View):
    """A metric by name, perhaps narrowed by labels of the metric itself."""

    name: str = ""
    selector: dict[str, Any] | None = None


class ResourceMetricSource(View):
    """A resource of the pods; of one of their containers where `container` is set."""

    name: str = ""
    container: str = ""
    target: MetricTarget = msgspec.field(default_factory=MetricTarget)


class CustomMetricSource(View):
    """A metric of the pods, of an object of the cluster, or of something outside of it."""

    metric: MetricIdentifier = msgspec.field(default_factory=MetricIdentifier)
    target: MetricTarget = msgspec.field(default_factory=MetricTarget)
    described_object: CrossVersionObjectReference = msgspec.field(
        default_factory=CrossVersionObjectReference
    )


class MetricSpec(View):
    """One metric and its target; the field named by `type` is set."""

    type: str = ""
    resource: ResourceMetricSource | None = None
    container_resource: ResourceMetricSource | None = None
    pods: CustomMetricSource | None = None
    object: CustomMetricSource | None = None
    external: CustomMetricSource | None = None


class ScalingPolicy(View):
    """At most this many pods, or this share of them, in a period."""

    type: str = ""
    value: int = 0
    period_seconds: int = 0


class ScalingRules(View):
    """How fast to go in one direction."""

    stabilization_window_seconds: int | None = None
    select_policy: str = "Max"
    policies: list[ScalingPolicy] = []
    tolerance: Quantity | None = None


class Behavior(View):
    """How fast to go up and down."""

    scale_up: ScalingRules | None = None
    scale_down: ScalingRules | None = None


class HorizontalPodAutoscalerSpec(View):
    """What to scale, between which bounds, by which metrics."""

    scale_target_ref: CrossVersionObjectReference = msgspec.field(
        default_factory=CrossVersionObjectReference
    )
    min_replicas: int | None = None
    max_replicas: int = 0
    metrics: list[MetricSpec] = []
    behavior: Behavior | None = None


class HorizontalPodAutoscaler(Object):
    """Keeps the number of pods in step with their load."""

    API_VERSION: ClassVar[str] = "autoscaling/v2"
    KIND: ClassVar[str] = "HorizontalPodAutoscaler"
    PLURAL: ClassVar[str] = "horizontalpodautoscalers"

    spec: HorizontalPodAutoscalerSpec = msgspec.field(default_factory=HorizontalPodAutoscalerSpec)
    status: dict[str, Any] = {}  # as it is: it is compared and replaced as a whole
