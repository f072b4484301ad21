"""NetworkPolicy, and the few facts of pods and namespaces that it is judged by.

Every node's proxy follows all pods of the cluster for this; whole pods would cost it a hundred
times the memory.
"""

from typing import ClassVar

import msgspec

from motley.api.views.base import LabelSelector, Object, View


class IPBlock(View):
    """Addresses inside `cidr` but in none of `except_`."""

    cidr: str = ""
    except_: list[str] = msgspec.field(default_factory=list, name="except")


class NetworkPolicyPeer(View):
    """Who may be at the other end: a block of addresses, or pods."""

    pod_selector: LabelSelector | None = None
    namespace_selector: LabelSelector | None = None
    ip_block: IPBlock | None = msgspec.field(default=None, name="ipBlock")


class NetworkPolicyPort(View):
    """A port of the receiving end: by number, by name, or `port` to `end_port`."""

    protocol: str = "TCP"
    port: int | str | None = None
    end_port: int | None = None


class NetworkPolicyIngressRule(View):
    """Who may come, to which ports; an empty list is everybody, every port."""

    from_: list[NetworkPolicyPeer] = msgspec.field(default_factory=list, name="from")
    ports: list[NetworkPolicyPort] = []


class NetworkPolicyEgressRule(View):
    """Where to, at which ports; an empty list is everywhere, every port."""

    to: list[NetworkPolicyPeer] = []
    ports: list[NetworkPolicyPort] = []


class NetworkPolicySpec(View):
    """Which pods are isolated, in which directions, and what is allowed nevertheless."""

    pod_selector: LabelSelector = msgspec.field(default_factory=LabelSelector)
    policy_types: list[str] = []
    ingress: list[NetworkPolicyIngressRule] = []
    egress: list[NetworkPolicyEgressRule] = []


class NetworkPolicy(Object):
    """What traffic some pods of a namespace may have."""

    API_VERSION: ClassVar[str] = "networking.k8s.io/v1"
    KIND: ClassVar[str] = "NetworkPolicy"
    PLURAL: ClassVar[str] = "networkpolicies"

    spec: NetworkPolicySpec = msgspec.field(default_factory=NetworkPolicySpec)


class NamedPort(View):
    """A port of a container, as policies and Services name it."""

    name: str = ""
    container_port: int = 0
    protocol: str = "TCP"


class PortedContainer(View):
    """A container by its ports alone."""

    ports: list[NamedPort] = []


class ReachableSpec(View):
    """Where a pod is and what it listens on."""

    node_name: str = ""
    host_network: bool = False
    containers: list[PortedContainer] = []
    init_containers: list[PortedContainer] = []


class ReachableStatus(View):
    """A pod's address."""

    phase: str = ""
    pod_ip: str = ""


class ReachablePod(Object):
    """A pod as the network sees it."""

    API_VERSION: ClassVar[str] = "v1"
    KIND: ClassVar[str] = "Pod"
    PLURAL: ClassVar[str] = "pods"

    spec: ReachableSpec = msgspec.field(default_factory=ReachableSpec)
    status: ReachableStatus = msgspec.field(default_factory=ReachableStatus)


class LabelledNamespace(Object):
    """A namespace by its labels alone."""

    API_VERSION: ClassVar[str] = "v1"
    KIND: ClassVar[str] = "Namespace"
    PLURAL: ClassVar[str] = "namespaces"
    NAMESPACED: ClassVar[bool] = False


class LabelledNode(Object):
    """A node by its labels and annotations alone."""

    API_VERSION: ClassVar[str] = "v1"
    KIND: ClassVar[str] = "Node"
    PLURAL: ClassVar[str] = "nodes"
    NAMESPACED: ClassVar[bool] = False
