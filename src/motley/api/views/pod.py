"""Pods and pod templates.

The parts of a pod have modules of their own; all their names can be had from here.
"""

from typing import ClassVar

import msgspec

from motley.api.views.base import Condition, Object, ObjectMeta, View
from motley.api.views.container import (
    Capabilities,
    Container,
    ContainerPort,
    EnvFromSource,
    EnvVar,
    EnvVarSource,
    ExecAction,
    FieldSelector,
    GRPCAction,
    HTTPGetAction,
    HTTPHeader,
    KeySelector,
    Lifecycle,
    LifecycleHandler,
    LocalReference,
    Probe,
    Quantity,
    ResourceFieldSelector,
    ResourceList,
    ResourceRequirements,
    SeccompProfile,
    SecurityContext,
    SleepAction,
    TCPSocketAction,
    VolumeMount,
)
from motley.api.views.scheduling import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodAffinity,
    PodAffinityTerm,
    PreferredSchedulingTerm,
    Toleration,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from motley.api.views.volume import (
    ConfigMapVolumeSource,
    ConfigProjection,
    DownwardAPIFile,
    DownwardAPIVolumeSource,
    EmptyDirVolumeSource,
    HostPathVolumeSource,
    KeyToPath,
    ProjectedVolumeSource,
    SecretVolumeSource,
    Volume,
    VolumeProjection,
)

__all__ = [
    "Affinity",
    "Capabilities",
    "ConfigMapVolumeSource",
    "ConfigProjection",
    "Container",
    "ContainerPort",
    "ContainerState",
    "ContainerStateRunning",
    "ContainerStateTerminated",
    "ContainerStateWaiting",
    "ContainerStatus",
    "DNSOption",
    "DownwardAPIFile",
    "DownwardAPIVolumeSource",
    "EmptyDirVolumeSource",
    "EnvFromSource",
    "EnvVar",
    "EnvVarSource",
    "ExecAction",
    "FieldSelector",
    "GRPCAction",
    "HTTPGetAction",
    "HTTPHeader",
    "HostAlias",
    "HostPathVolumeSource",
    "KeySelector",
    "KeyToPath",
    "Lifecycle",
    "LifecycleHandler",
    "LocalReference",
    "NodeAffinity",
    "NodeSelector",
    "NodeSelectorRequirement",
    "NodeSelectorTerm",
    "Pod",
    "PodAffinity",
    "PodAffinityTerm",
    "PodDNSConfig",
    "PodIP",
    "PodSecurityContext",
    "PodSpec",
    "PodStatus",
    "PodTemplateSpec",
    "PreferredSchedulingTerm",
    "Probe",
    "ProjectedVolumeSource",
    "Quantity",
    "ReadinessGate",
    "ResourceFieldSelector",
    "ResourceList",
    "ResourceRequirements",
    "SchedulingGate",
    "SeccompProfile",
    "SecretVolumeSource",
    "SecurityContext",
    "SleepAction",
    "Sysctl",
    "TCPSocketAction",
    "Toleration",
    "TopologySpreadConstraint",
    "Volume",
    "VolumeMount",
    "VolumeProjection",
    "WeightedPodAffinityTerm",
]


class HostAlias(View):
    """Extra lines of /etc/hosts."""

    ip: str = ""
    hostnames: list[str] = []


class DNSOption(View):
    """An option line of resolv.conf."""

    name: str = ""
    value: str | None = None


class PodDNSConfig(View):
    """Additions to resolv.conf."""

    nameservers: list[str] = []
    searches: list[str] = []
    options: list[DNSOption] = []


class Sysctl(View):
    """A kernel parameter of the pod's namespaces."""

    name: str = ""
    value: str = ""


class PodSecurityContext(View):
    """Privileges common to a pod's containers."""

    run_as_user: int | None = None
    run_as_group: int | None = None
    run_as_non_root: bool | None = None
    fs_group: int | None = None
    supplemental_groups: list[int] = []
    seccomp_profile: SeccompProfile | None = None
    sysctls: list[Sysctl] = []


class SchedulingGate(View):
    """A reason not to schedule yet."""

    name: str = ""


class ReadinessGate(View):
    """A condition, set by someone else, that a ready pod must have."""

    condition_type: str = ""


class PodOS(View):
    """What the pod's containers are made for."""

    name: str = ""


class PodSpec(View):
    """What the user wants."""

    node_name: str = ""
    scheduler_name: str = "default-scheduler"
    containers: list[Container] = []
    init_containers: list[Container] = []
    ephemeral_containers: list[Container] = []
    volumes: list[Volume] = []
    restart_policy: str = "Always"
    termination_grace_period_seconds: int = 30
    active_deadline_seconds: int | None = None
    dns_policy: str = "ClusterFirst"
    dns_config: PodDNSConfig | None = None
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: list[Toleration] = []
    topology_spread_constraints: list[TopologySpreadConstraint] = []
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str = "PreemptLowerPriority"
    overhead: ResourceList = {}
    resources: ResourceRequirements | None = None  # of the pod as a whole
    runtime_class_name: str = ""
    service_account_name: str = ""
    automount_service_account_token: bool | None = None
    enable_service_links: bool = True
    hostname: str = ""
    subdomain: str = ""
    host_network: bool = False
    host_pid: bool = False
    host_ipc: bool = False
    share_process_namespace: bool = False
    host_aliases: list[HostAlias] = []
    security_context: PodSecurityContext | None = None
    image_pull_secrets: list[LocalReference] = []
    scheduling_gates: list[SchedulingGate] = []
    os: PodOS | None = None
    readiness_gates: list[ReadinessGate] = []


class ContainerStateRunning(View):
    """Runs since."""

    started_at: str | None = None


class ContainerStateTerminated(View):
    """Has ended, with what."""

    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: str | None = None
    finished_at: str | None = None
    container_id: str = ""


class ContainerStateWaiting(View):
    """Does not run yet, because."""

    reason: str = ""
    message: str = ""


class ContainerState(View):
    """Exactly one of the three is set."""

    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None
    waiting: ContainerStateWaiting | None = None


class ContainerStatus(View):
    """What became of a container."""

    name: str = ""
    ready: bool = False
    started: bool | None = None
    restart_count: int = 0
    image: str = ""
    image_id: str = ""
    container_id: str = ""
    state: ContainerState = msgspec.field(default_factory=ContainerState)
    last_state: ContainerState = msgspec.field(default_factory=ContainerState)
    resources: ResourceRequirements | None = None  # what it has; a node that says so can change it
    allocated_resources: ResourceList = {}  # what its node has promised it


class PodIP(View):
    """One address of a pod."""

    ip: str = ""


class PodStatus(View):
    """What the node agent says about the pod."""

    phase: str = "Pending"
    conditions: list[Condition] = []
    reason: str = ""
    message: str = ""
    host_ip: str = ""
    pod_ip: str = ""
    pod_ips: list[PodIP] = []
    qos_class: str = ""
    start_time: str | None = None
    nominated_node_name: str = ""
    container_statuses: list[ContainerStatus] = []
    init_container_statuses: list[ContainerStatus] = []
    observed_generation: int = 0

    def condition(self, type_: str) -> Condition | None:
        """The condition of this type, if it is set."""
        return next((c for c in self.conditions if c.type == type_), None)


class Pod(Object):
    """The smallest thing that is scheduled."""

    API_VERSION: ClassVar[str] = "v1"
    KIND: ClassVar[str] = "Pod"
    PLURAL: ClassVar[str] = "pods"

    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)

    @property
    def is_terminal(self) -> bool:
        """Has the pod ended for good?"""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def is_ready(self) -> bool:
        """Is the Ready condition True?"""
        ready = self.status.condition("Ready")
        return ready is not None and ready.status == "True"


class PodTemplateSpec(View):
    """A pod to be."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
