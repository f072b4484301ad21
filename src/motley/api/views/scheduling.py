"""What a pod says about where it may run, and what it must run together with."""

from typing import ClassVar

import msgspec

from motley.api.views.base import LabelSelector, Object, View
from motley.api.views.container import ResourceList

POD_GROUP_LABEL = "scheduling.x-k8s.io/pod-group"


class Toleration(View):
    """A taint the pod accepts."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class NodeSelectorRequirement(View):
    """One expression over node labels (or fields)."""

    key: str = ""
    operator: str = ""
    values: list[str] = []


class NodeSelectorTerm(View):
    """Expressions that must all hold."""

    match_expressions: list[NodeSelectorRequirement] = []
    match_fields: list[NodeSelectorRequirement] = []


class NodeSelector(View):
    """Terms of which one must hold."""

    node_selector_terms: list[NodeSelectorTerm] = []


class PreferredSchedulingTerm(View):
    """A term that adds its weight to a node's score."""

    weight: int = 0
    preference: NodeSelectorTerm = msgspec.field(default_factory=NodeSelectorTerm)


class NodeAffinity(View):
    """Which nodes a pod must or would rather run on."""

    required: NodeSelector | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: list[PreferredSchedulingTerm] = msgspec.field(
        default_factory=list, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(View):
    """Pods to be near to, or away from."""

    label_selector: LabelSelector | None = None
    namespaces: list[str] = []
    namespace_selector: LabelSelector | None = None
    topology_key: str = ""
    match_label_keys: list[str] = []
    mismatch_label_keys: list[str] = []


class WeightedPodAffinityTerm(View):
    """A preference over pods."""

    weight: int = 0
    pod_affinity_term: PodAffinityTerm = msgspec.field(default_factory=PodAffinityTerm)


class PodAffinity(View):
    """Affinity (or anti-affinity) to pods."""

    required: list[PodAffinityTerm] = msgspec.field(
        default_factory=list, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: list[WeightedPodAffinityTerm] = msgspec.field(
        default_factory=list, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(View):
    """All affinities of a pod."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(View):
    """How evenly pods must be spread over a topology."""

    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: list[str] = []


class PodGroupSpec(View):
    """How many members there must be, what they need, and how long they wait for each other."""

    min_member: int = 1
    min_resources: ResourceList = {}
    schedule_timeout_seconds: int | None = None


class PodGroupStatus(View):
    """How far the group is."""

    phase: str = ""
    occupied_by: str = ""
    scheduled: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    schedule_start_time: str | None = None


class PodGroup(Object):
    """Pods that run together or not at all; they carry its name in `POD_GROUP_LABEL`."""

    API_VERSION: ClassVar[str] = "scheduling.x-k8s.io/v1alpha1"
    KIND: ClassVar[str] = "PodGroup"
    PLURAL: ClassVar[str] = "podgroups"

    spec: PodGroupSpec = msgspec.field(default_factory=PodGroupSpec)
    status: PodGroupStatus = msgspec.field(default_factory=PodGroupStatus)


class ElasticQuotaSpec(View):
    """What the namespace is guaranteed, and what it may use at most."""

    min: ResourceList = {}
    max: ResourceList = {}


class ElasticQuotaStatus(View):
    """What its pods request."""

    used: ResourceList = {}


class ElasticQuota(Object):
    """A namespace's share of the cluster, part of which others may borrow while it is unused."""

    API_VERSION: ClassVar[str] = "scheduling.x-k8s.io/v1alpha1"
    KIND: ClassVar[str] = "ElasticQuota"
    PLURAL: ClassVar[str] = "elasticquotas"

    spec: ElasticQuotaSpec = msgspec.field(default_factory=ElasticQuotaSpec)
    status: ElasticQuotaStatus = msgspec.field(default_factory=ElasticQuotaStatus)
