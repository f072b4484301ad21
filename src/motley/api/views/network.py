"""How far apart nodes are, and which workloads talk to each other."""

from typing import ClassVar

import msgspec

from motley.api.views.base import LabelSelector, Object, View

Bits = str | int


class Distance(View):
    """What separates two places."""

    latency_ms: float = msgspec.field(default=0.0, name="latencyMs")
    bandwidth: Bits | None = None


class Link(Distance):
    """Two places that are named."""

    from_: str = msgspec.field(default="", name="from")
    to: str = ""


class NetworkTopologySpec(View):
    """Links between the values of a label of nodes."""

    topology_key: str = msgspec.field(default="kubernetes.io/hostname", name="topologyKey")
    links: list[Link] = []
    within: Distance = msgspec.field(default_factory=Distance)
    otherwise: Distance | None = None


class NetworkTopology(Object):
    """Latency and bandwidth between nodes, or groups of them."""

    API_VERSION: ClassVar[str] = "motley.io/v1"
    KIND: ClassVar[str] = "NetworkTopology"
    PLURAL: ClassVar[str] = "networktopologies"
    NAMESPACED: ClassVar[bool] = False

    spec: NetworkTopologySpec = msgspec.field(default_factory=NetworkTopologySpec)


class Workload(View):
    """Pods that do the same work."""

    name: str = ""
    selector: LabelSelector = msgspec.field(default_factory=LabelSelector)


class Call(View):
    """One workload calls another."""

    from_: str = msgspec.field(default="", name="from")
    to: str = ""
    weight: int = 1
    max_latency_ms: float | None = msgspec.field(default=None, name="maxLatencyMs")
    min_bandwidth: Bits | None = msgspec.field(default=None, name="minBandwidth")


class CallGraphSpec(View):
    """Workloads, and who calls whom."""

    workloads: list[Workload] = []
    calls: list[Call] = []


class CallGraph(Object):
    """Which workloads of a namespace talk to each other."""

    API_VERSION: ClassVar[str] = "motley.io/v1"
    KIND: ClassVar[str] = "CallGraph"
    PLURAL: ClassVar[str] = "callgraphs"

    spec: CallGraphSpec = msgspec.field(default_factory=CallGraphSpec)
