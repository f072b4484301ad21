"""Pod, as the scheduler, the controllers, the node agent and the network read it."""

from typing import ClassVar

import msgspec

from motley.api.views.base import Condition, LabelSelector, Object, ObjectMeta, View

Quantity = str | int | float
ResourceList = dict[str, Quantity]


class ResourceRequirements(View):
    """What a container asks for and may use at most."""

    requests: ResourceList = {}
    limits: ResourceList = {}


class ContainerPort(View):
    """A port a container listens on."""

    name: str = ""
    container_port: int = 0
    host_port: int = 0
    host_ip: str = ""
    protocol: str = "TCP"


class KeySelector(View):
    """A key of a ConfigMap or Secret."""

    name: str = ""
    key: str = ""
    optional: bool = False


class FieldSelector(View):
    """A field of the pod itself (downward API)."""

    api_version: str = "v1"
    field_path: str = ""


class ResourceFieldSelector(View):
    """A container's request or limit (downward API)."""

    container_name: str = ""
    resource: str = ""
    divisor: Quantity = "0"


class EnvVarSource(View):
    """Where an environment variable's value comes from."""

    config_map_key_ref: KeySelector | None = None
    secret_key_ref: KeySelector | None = None
    field_ref: FieldSelector | None = None
    resource_field_ref: ResourceFieldSelector | None = None


class EnvVar(View):
    """One environment variable."""

    name: str = ""
    value: str = ""
    value_from: EnvVarSource | None = None


class LocalReference(View):
    """An object in the same namespace."""

    name: str = ""
    optional: bool = False


class EnvFromSource(View):
    """All keys of a ConfigMap or Secret as environment variables."""

    prefix: str = ""
    config_map_ref: LocalReference | None = None
    secret_ref: LocalReference | None = None


class VolumeMount(View):
    """Where a volume appears in a container."""

    name: str = ""
    mount_path: str = ""
    sub_path: str = ""
    sub_path_expr: str = ""
    read_only: bool = False
    mount_propagation: str = ""


class HTTPHeader(View):
    """A header of an HTTP probe."""

    name: str = ""
    value: str = ""


class HTTPGetAction(View):
    """An HTTP request that must be answered 200 to 399."""

    path: str = "/"
    port: int | str = 0
    host: str = ""
    scheme: str = "HTTP"
    http_headers: list[HTTPHeader] = []


class ExecAction(View):
    """A command that must exit 0."""

    command: list[str] = []


class TCPSocketAction(View):
    """A port that must accept a connection."""

    port: int | str = 0
    host: str = ""


class GRPCAction(View):
    """A gRPC health service that must answer SERVING."""

    port: int = 0
    service: str = ""


class SleepAction(View):
    """A pause before stopping."""

    seconds: int = 0


class Probe(View):
    """A periodic check of a container."""

    http_get: HTTPGetAction | None = None
    exec: ExecAction | None = None
    tcp_socket: TCPSocketAction | None = None
    grpc: GRPCAction | None = None
    initial_delay_seconds: int = 0
    timeout_seconds: int = 1
    period_seconds: int = 10
    success_threshold: int = 1
    failure_threshold: int = 3
    termination_grace_period_seconds: int | None = None


class LifecycleHandler(View):
    """What to do at the start or before the end of a container."""

    http_get: HTTPGetAction | None = None
    exec: ExecAction | None = None
    sleep: SleepAction | None = None


class Lifecycle(View):
    """A container's hooks."""

    post_start: LifecycleHandler | None = None
    pre_stop: LifecycleHandler | None = None


class Capabilities(View):
    """Linux capabilities to add to or take from the default set."""

    add: list[str] = []
    drop: list[str] = []


class SeccompProfile(View):
    """Which system calls are allowed."""

    type: str = ""
    localhost_profile: str = ""


class SecurityContext(View):
    """A container's privileges."""

    privileged: bool = False
    run_as_user: int | None = None
    run_as_group: int | None = None
    run_as_non_root: bool | None = None
    read_only_root_filesystem: bool = False
    allow_privilege_escalation: bool | None = None
    capabilities: Capabilities | None = None
    seccomp_profile: SeccompProfile | None = None


class Container(View):
    """One container of a pod."""

    name: str = ""
    image: str = ""
    image_pull_policy: str = ""
    command: list[str] = []
    args: list[str] = []
    working_dir: str = ""
    env: list[EnvVar] = []
    env_from: list[EnvFromSource] = []
    ports: list[ContainerPort] = []
    resources: ResourceRequirements = msgspec.field(default_factory=ResourceRequirements)
    volume_mounts: list[VolumeMount] = []
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    startup_probe: Probe | None = None
    lifecycle: Lifecycle | None = None
    security_context: SecurityContext | None = None
    restart_policy: str = ""
    termination_message_path: str = "/dev/termination-log"
    termination_message_policy: str = "File"
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False


class KeyToPath(View):
    """One key of a ConfigMap or Secret as a file."""

    key: str = ""
    path: str = ""
    mode: int | None = None


class ConfigMapVolumeSource(View):
    """A ConfigMap as files."""

    name: str = ""
    items: list[KeyToPath] = []
    default_mode: int = 0o644
    optional: bool = False


class SecretVolumeSource(View):
    """A Secret as files."""

    secret_name: str = ""
    items: list[KeyToPath] = []
    default_mode: int = 0o644
    optional: bool = False


class EmptyDirVolumeSource(View):
    """A directory that lives as long as the pod."""

    medium: str = ""
    size_limit: Quantity | None = None


class HostPathVolumeSource(View):
    """A path of the node."""

    path: str = ""
    type: str = ""


class Volume(View):
    """Files a pod's containers may share or be given."""

    name: str = ""
    empty_dir: EmptyDirVolumeSource | None = None
    config_map: ConfigMapVolumeSource | None = None
    secret: SecretVolumeSource | None = None
    host_path: HostPathVolumeSource | None = None


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


class PodSpec(View):
    """What the user wants."""

    node_name: str = ""
    scheduler_name: str = "default-scheduler"
    containers: list[Container] = []
    init_containers: list[Container] = []
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
