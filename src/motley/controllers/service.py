"""The controllers a cluster runs, wired together."""

from dataclasses import dataclass
from functools import partial
from ipaddress import ip_network

from motley.client.lease import LeaderElection
from motley.client.rest import Client
from motley.controllers.deployment import DeploymentController
from motley.controllers.endpointslice import EndpointSliceController
from motley.controllers.garbagecollector import GarbageCollector
from motley.controllers.manager import Manager
from motley.controllers.namespace import NamespaceController
from motley.controllers.nodeipam import NodeIPAMController, Ranges
from motley.controllers.nodelifecycle import NodeLifecycleController
from motley.controllers.podgc import PodGCController
from motley.controllers.replicaset import ReplicaSetController
from motley.controllers.serviceaccount import ServiceAccountController
from motley.controllers.tainteviction import TaintEvictionController
from motley.lib.clock import SYSTEM, Clock


@dataclass(frozen=True)
class Options:
    """What an operator may choose; the defaults are kube-controller-manager's."""

    pod_cidr: str = "10.244.0.0/16"
    node_prefix: int = 24
    node_monitor_grace_s: float = 40.0
    orphan_quarantine_s: float = 40.0
    leader_elect: bool = True

    def __post_init__(self) -> None:
        """Raises ValueError when the pod network cannot be cut into nodes' parts."""
        Ranges(ip_network(self.pod_cidr), self.node_prefix)


def build(client: Client, options: Options | None = None, *, clock: Clock = SYSTEM) -> Manager:
    """A manager with every controller."""
    options = options or Options()
    election = None
    if options.leader_elect:
        election = LeaderElection(client, "kube-controller-manager", clock=clock)
    manager = Manager(client, clock=clock, election=election)
    manager.add_all(
        [
            DeploymentController,
            ReplicaSetController,
            EndpointSliceController,
            NamespaceController,
            GarbageCollector,
            ServiceAccountController,
            partial(NodeLifecycleController, grace_s=options.node_monitor_grace_s),
            TaintEvictionController,
            partial(PodGCController, quarantine_s=options.orphan_quarantine_s),
            partial(NodeIPAMController, pod_cidr=options.pod_cidr, node_prefix=options.node_prefix),
        ]
    )
    return manager
