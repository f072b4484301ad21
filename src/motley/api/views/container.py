"""What runs in a pod: containers, their environment, probes and resources."""

import msgspec

from motley.api.views.base import View

Quantity = str | int | float
ResourceList = dict[str, Quantity]


class ResourceRequirements(View):
    """What a container asks for and may use at most."""

    requests: ResourceList = {}
    limits: ResourceList = {}


class ContainerResizePolicy(View):
    """Whether a container must be made anew when a resource of it changes."""

    resource_name: str = ""
    restart_policy: str = "NotRequired"


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
    resize_policy: list[ContainerResizePolicy] = []
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
    target_container_name: str = ""  # of an ephemeral container: whose processes it sees
