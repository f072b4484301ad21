"""The controllers a cluster runs, wired together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_network

from motley.client.lease import LeaderElection
from motley.client.rest import Client
from motley.controllers.clusterrole_aggregation import ClusterRoleAggregationController
from motley.controllers.deployment import DeploymentController
from motley.controllers.disruption import DisruptionController
from motley.controllers.endpointslice import EndpointSliceController
from motley.controllers.garbagecollector import GarbageCollector
from motley.controllers.manager import Context, Controller, Manager
from motley.controllers.namespace import NamespaceController
from motley.controllers.nodeipam import NodeIPAMController, Ranges
from motley.controllers.nodelifecycle import NodeLifecycleController
from motley.controllers.podgc import PodGCController
from motley.controllers.replicaset import ReplicaSetController
from motley.controllers.resourcequota import ResourceQuotaController
from motley.controllers.serviceaccount import ServiceAccountController
from motley.controllers.tainteviction import TaintEvictionController
from motley.controllers.volumeprotection import VolumeProtectionController
from motley.lib.clock import SYSTEM, Clock


@dataclass(frozen=True)
class Options:
    """What an operator may choose; the defaults are kube-controller-manager's."""

    pod_cidr: str = "10.244.0.0/16"
    node_prefix: int = 24
    node_monitor_grace_s: float = 40.0
    orphan_quarantine_s: float = 40.0
    leader_elect: bool = True
    controllers: tuple[str, ...] = ("*",)
    """Which to run: names, `*` for all, `-name` for all but this one."""

    def __post_init__(self) -> None:
        """Raises ValueError when the pod network cannot be cut into nodes' parts, or a controller
        is not known."""
        Ranges(ip_network(self.pod_cidr), self.node_prefix)
        for name in self.controllers:
            if name != "*" and name.removeprefix("-") not in NAMES:
                raise ValueError(f"no controller {name!r}: there are {', '.join(NAMES)}")

    def runs(self, name: str) -> bool:
        """Whether a controller was asked for."""
        if name in self.controllers or f"-{name}" in self.controllers:
            return name in self.controllers
        return "*" in self.controllers


def build(client: Client, options: Options | None = None, *, clock: Clock = SYSTEM) -> Manager:
    """A manager with the controllers that the options ask for."""
    options = options or Options()
    election = None
    if options.leader_elect:
        election = LeaderElection(client, "kube-controller-manager", clock=clock)
    manager = Manager(client, clock=clock, election=election)
    manager.add_all(one for one in _all(options) if options.runs(_name(one)))
    return manager


def _all(options: Options) -> Sequence[Callable[[Context], Controller]]:
    return [
        DeploymentController,
        ReplicaSetController,
        EndpointSliceController,
        NamespaceController,
        GarbageCollector,
        ServiceAccountController,
        ClusterRoleAggregationController,
        DisruptionController,
        ResourceQuotaController,
        VolumeProtectionController,
        partial(NodeLifecycleController, grace_s=options.node_monitor_grace_s),
        TaintEvictionController,
        partial(PodGCController, quarantine_s=options.orphan_quarantine_s),
        partial(NodeIPAMController, pod_cidr=options.pod_cidr, node_prefix=options.node_prefix),
    ]


def _name(factory: Callable[[Context], Controller]) -> str:
    made = factory.func if isinstance(factory, partial) else factory
    return str(getattr(made, "name", ""))


# Every controller there is.
NAMES = tuple(sorted(_name(one) for one in _all(Options())))
