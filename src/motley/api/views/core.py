"""Node, Service and the small kinds of the core group, plus EndpointSlice and Lease."""

from typing import TYPE_CHECKING, ClassVar

import msgspec

from motley.api.views.base import Condition, Object, ObjectReference, View
from motley.api.views.pod import LocalReference, ResourceList


class Taint(View):
    """Keeps pods away that do not tolerate it."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class NodeSpec(View):
    """What is wanted of a node."""

    pod_cidr: str = ""
    pod_cidrs: list[str] = []
    provider_id: str = ""
    taints: list[Taint] = []
    unschedulable: bool = False


class NodeAddress(View):
    """An address of a node."""

    type: str = ""
    address: str = ""


class ContainerImage(View):
    """An image present on a node."""

    names: list[str] = []
    size_bytes: int = 0


class NodeSystemInfo(View):
    """What the node says it is."""

    machine_id: str = ""
    system_uuid: str = ""
    boot_id: str = ""
    kernel_version: str = ""
    os_image: str = ""
    container_runtime_version: str = ""
    kubelet_version: str = ""
    kube_proxy_version: str = ""
    operating_system: str = ""
    architecture: str = ""


class DaemonEndpoint(View):
    """A port of a daemon."""

    port: int = msgspec.field(default=0, name="Port")


class NodeDaemonEndpoints(View):
    """Where the node agent listens."""

    kubelet_endpoint: DaemonEndpoint = msgspec.field(default_factory=DaemonEndpoint)


class NodeStatus(View):
    """What the node agent reports."""

    capacity: ResourceList = {}
    allocatable: ResourceList = {}
    conditions: list[Condition] = []
    addresses: list[NodeAddress] = []
    images: list[ContainerImage] = []
    node_info: NodeSystemInfo = msgspec.field(default_factory=NodeSystemInfo)
    daemon_endpoints: NodeDaemonEndpoints = msgspec.field(default_factory=NodeDaemonEndpoints)

    def condition(self, type_: str) -> Condition | None:
        """The condition of this type, if it is set."""
        return next((c for c in self.conditions if c.type == type_), None)


class Node(Object):
    """A machine."""

    API_VERSION: ClassVar[str] = "v1"
    KIND: ClassVar[str] = "Node"
    PLURAL: ClassVar[str] = "nodes"
    NAMESPACED: ClassVar[bool] = False

    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)

    @property
    def is_ready(self) -> bool:
        """Is the Ready condition True?"""
        ready = self.status.condition("Ready")
        return ready is not None and ready.status == "True"

    @property
    def internal_ip(self) -> str:
        """The address other nodes use, or nothing yet."""
        return next((a.address for a in self.status.addresses if a.type == "InternalIP"), "")


class NamespaceSpec(View):
    """What must be cleaned before the namespace may go."""

    finalizers: list[str] = []


class NamespaceStatus(View):
    """Active or Terminating."""

    phase: str = ""
    conditions: list[Condition] = []


class Namespace(Object):
    """A scope for names."""

    API_VERSION: ClassVar[str] = "v1"
    KIND: ClassVar[str] = "Namespace"
    PLURAL: ClassVar[str] = "namespaces"
    NAMESPACED: ClassVar[bool] = False

    spec: NamespaceSpec = msgspec.field(default_factory=NamespaceSpec)
    status: NamespaceStatus = msgspec.field(default_factory=NamespaceStatus)


class ServicePort(View):
    """A port of a Service and where it leads."""

    name: str = ""
    protocol: str = "TCP"
    port: int = 0
    target_port: int | str = 0
    node_port: int = 0
    app_protocol: str = ""


class ClientIPConfig(View):
    """How long a client sticks to its endpoint."""

    timeout_seconds: int = 10800


class SessionAffinityConfig(View):
    """Parameters of session affinity."""

    client_ip: ClientIPConfig | None = msgspec.field(default=None, name="clientIP")


class ServiceSpec(View):
    """What a Service is."""

    type: str = "ClusterIP"
    cluster_ip: str = ""
    cluster_ips: list[str] = []
    external_ips: list[str] = []
    external_name: str = ""
    selector: dict[str, str] = {}
    ports: list[ServicePort] = []
    session_affinity: str = "None"
    session_affinity_config: SessionAffinityConfig | None = None
    publish_not_ready_addresses: bool = False
    internal_traffic_policy: str = "Cluster"
    external_traffic_policy: str = "Cluster"
    traffic_distribution: str = ""
    health_check_node_port: int = 0
    load_balancer_source_ranges: list[str] = []


class LoadBalancerIngress(View):
    """An address that some load balancer took for a Service."""

    ip: str = ""
    ip_mode: str = "VIP"


class LoadBalancerStatus(View):
    """Where a load balancer takes traffic."""

    ingress: list[LoadBalancerIngress] = []


class ServiceStatus(View):
    """What others did for a Service."""

    load_balancer: LoadBalancerStatus = msgspec.field(default_factory=LoadBalancerStatus)


class Service(Object):
    """A name and an address for a set of pods."""

    API_VERSION: ClassVar[str] = "v1"
    KIND: ClassVar[str] = "Service"
    PLURAL: ClassVar[str] = "services"

    spec: ServiceSpec = msgspec.field(default_factory=ServiceSpec)
    status: ServiceStatus = msgspec.field(default_factory=ServiceStatus)


class ConfigMap(Object):
    """Configuration by key."""

    API_VERSION: ClassVar[str] = "v1"
    KIND: ClassVar[str] = "ConfigMap"
    PLURAL: ClassVar[str] = "configmaps"

    data: dict[str, str] = {}
    binary_data: dict[str, str] = {}
    immutable: bool = False


class Secret(Object):
    """Secret bytes by key, base64 on the wire."""

    API_VERSION: ClassVar[str] = "v1"
    KIND: ClassVar[str] = "Secret"
    PLURAL: ClassVar[str] = "secrets"

    type: str = "Opaque"
    data: dict[str, str] = {}
    immutable: bool = False


class ServiceAccount(Object):
    """An identity for pods."""

    API_VERSION: ClassVar[str] = "v1"
    KIND: ClassVar[str] = "ServiceAccount"
    PLURAL: ClassVar[str] = "serviceaccounts"

    image_pull_secrets: list[LocalReference] = []


class Event(Object):
    """Something that happened to an object."""

    API_VERSION: ClassVar[str] = "v1"
    KIND: ClassVar[str] = "Event"
    PLURAL: ClassVar[str] = "events"

    involved_object: ObjectReference = msgspec.field(default_factory=ObjectReference)
    reason: str = ""
    message: str = ""
    type: str = ""
    count: int = 0
    first_timestamp: str | None = None
    last_timestamp: str | None = None


class LeaseSpec(View):
    """Who holds a lease, and since when."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Object):
    """A heartbeat, or leadership."""

    API_VERSION: ClassVar[str] = "coordination.k8s.io/v1"
    KIND: ClassVar[str] = "Lease"
    PLURAL: ClassVar[str] = "leases"

    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)


class EndpointConditions(View):
    """May traffic be sent there?"""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class Hint(View):
    """The name of a zone or node."""

    name: str = ""


class EndpointHints(View):
    """For whom an endpoint is meant; everybody else should use others."""

    for_zones: list[Hint] = []
    for_nodes: list[Hint] = []


class Endpoint(View):
    """One target of a Service."""

    addresses: list[str] = []
    conditions: EndpointConditions = msgspec.field(default_factory=EndpointConditions)
    hostname: str = ""
    node_name: str = ""
    zone: str = ""
    hints: EndpointHints | None = None
    target_ref: ObjectReference | None = None


class EndpointPort(View):
    """A port of the endpoints in a slice."""

    name: str = ""
    protocol: str = "TCP"
    port: int = 0
    app_protocol: str = ""


# Servers write empty lists of a slice as null; readers of the view see lists in any case.
if TYPE_CHECKING:
    _Endpoints = list[Endpoint]
    _EndpointPorts = list[EndpointPort]
else:
    _Endpoints = list[Endpoint] | None
    _EndpointPorts = list[EndpointPort] | None


class EndpointSlice(Object):
    """Some of the targets of a Service, which the label kubernetes.io/service-name names."""

    API_VERSION: ClassVar[str] = "discovery.k8s.io/v1"
    KIND: ClassVar[str] = "EndpointSlice"
    PLURAL: ClassVar[str] = "endpointslices"

    address_type: str = "IPv4"
    endpoints: _Endpoints = []
    ports: _EndpointPorts = []

    def __post_init__(self) -> None:
        self.endpoints = self.endpoints or []
        self.ports = self.ports or []
