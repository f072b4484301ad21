"""The controllers a cluster runs, wired together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from typing import Protocol

from motley.autoscale.calculator import Settings as AutoscalingSettings
from motley.autoscale.past import Pasts
from motley.autoscale.rebalance import Settings as RebalanceSettings
from motley.autoscale.vpa import Settings as VerticalSettings
from motley.client.lease import LeaderElection
from motley.client.rest import Client
from motley.controllers.attributesprotection import VolumeAttributesClassProtectionController
from motley.controllers.bootstrapsigner import BootstrapSignerController
from motley.controllers.clusterrole_aggregation import ClusterRoleAggregationController
from motley.controllers.cronjob import CronJobController
from motley.controllers.csrapproving import CSRApprovingController
from motley.controllers.csrsigning import CSRCleaningController, CSRSigningController
from motley.controllers.daemonset import DaemonSetController
from motley.controllers.deployment import DeploymentController
from motley.controllers.disruption import DisruptionController
from motley.controllers.elasticquota import ElasticQuotaController
from motley.controllers.endpointslice import EndpointSliceController
from motley.controllers.endpointslicemirroring import EndpointSliceMirroringController
from motley.controllers.endpointsv1 import EndpointsController
from motley.controllers.ephemeralvolume import EphemeralVolumeController
from motley.controllers.garbagecollector import GarbageCollector
from motley.controllers.imageresolver import ImageResolverController
from motley.controllers.job import JobController
from motley.controllers.localpath import LocalPathProvisioner
from motley.controllers.manager import Context, Controller, Manager, Service
from motley.controllers.metrics import Meters
from motley.controllers.namespace import NamespaceController
from motley.controllers.nodeipam import NodeIPAMController, Ranges
from motley.controllers.nodelifecycle import NodeLifecycleController
from motley.controllers.nodespeed import EVERY_S, UNSET, Estimator, NodeSpeedController
from motley.controllers.persistentvolume import PersistentVolumeBinder
from motley.controllers.podautoscaler import HorizontalPodAutoscalerController
from motley.controllers.podcertificatecleaner import PodCertificateCleaner
from motley.controllers.podgc import PodGCController
from motley.controllers.podgroup import PodGroupController
from motley.controllers.rebalancer import Rebalancer
from motley.controllers.replicaset import ReplicaSetController
from motley.controllers.replicationcontroller import ReplicationManager
from motley.controllers.resourcequota import ResourceQuotaController
from motley.controllers.serviceaccount import ServiceAccountController
from motley.controllers.servicecidr import ServiceCIDRController
from motley.controllers.servingapproval import ServingApprovalController
from motley.controllers.statefulset import StatefulSetController
from motley.controllers.tainteviction import TaintEvictionController
from motley.controllers.tokencleaner import TokenCleanerController
from motley.controllers.trustbundle import TrustBundlePublisher
from motley.controllers.ttlafterfinished import TTLAfterFinishedController
from motley.controllers.verticalautoscaler import VerticalPodAutoscalerController
from motley.controllers.volumeprotection import VolumeProtectionController
from motley.controllers.zones import Rates
from motley.lib.clock import SYSTEM, Clock
from motley.registry.settings import Registries

LEASE, LEASE_NAMESPACE = "kube-controller-manager", "kube-system"


class KeptPasts(Pasts, Service, Protocol):
    """The past of workloads, kept by somebody who must run for it."""


@dataclass(frozen=True)
class Options:
    """What an operator may choose; the defaults are kube-controller-manager's."""

    pod_cidr: str = "10.244.0.0/16"
    node_prefix: int = 24
    node_monitor_grace_s: float = 40.0
    eviction_rates: Rates = field(default_factory=Rates)
    delete_lost_nodes_after_s: float = 0.0  # never
    orphan_quarantine_s: float = 40.0
    autoscaling: AutoscalingSettings = field(default_factory=AutoscalingSettings)
    vertical: VerticalSettings = field(default_factory=VerticalSettings)
    rebalance: RebalanceSettings | None = None  # none: pods are not moved
    pasts: Callable[[Context], "KeptPasts"] | None = None  # none: asked of history.motley.io
    registries: Registries | None = None
    speed_estimator: Estimator | None = None  # none: speeds are not estimated
    speed_every_s: float = EVERY_S
    auto_label: str = UNSET
    signing_cert: Path | None = None
    signing_key: Path | None = None
    leader_elect: bool = True
    lease_name: str = LEASE
    lease_namespace: str = LEASE_NAMESPACE
    controllers: tuple[str, ...] = ("*",)
    """Which to run: names, `*` for all, `-name` for all but this one."""

    def __post_init__(self) -> None:
        """Raises ValueError when the pod network cannot be cut into nodes' parts, or a controller
        is not known."""
        Ranges(ip_network(self.pod_cidr), self.node_prefix)
        if bool(self.signing_cert) != bool(self.signing_key):
            raise ValueError("a signing certificate needs its key, and a key its certificate")
        for name in self.controllers:
            if name != "*" and name.removeprefix("-") not in NAMES:
                raise ValueError(f"no controller {name!r}: there are {', '.join(NAMES)}")

    def runs(self, name: str) -> bool:
        """Whether a controller was asked for."""
        if name in self.controllers or f"-{name}" in self.controllers:
            return name in self.controllers
        return "*" in self.controllers


def build(
    client: Client,
    options: Options | None = None,
    *,
    clock: Clock = SYSTEM,
    meters: Meters | None = None,
) -> Manager:
    """A manager with the controllers that the options ask for."""
    options = options or Options()
    election = None
    if options.leader_elect:
        election = LeaderElection(
            client, options.lease_name, namespace=options.lease_namespace, clock=clock
        )
    manager = Manager(client, clock=clock, election=election, meters=meters)
    pasts = options.pasts(manager.context) if options.pasts is not None else None
    if pasts is not None:
        manager.serve(pasts)
    manager.add_all(one for one in _all(options, pasts) if options.runs(_name(one)))
    return manager


def _all(options: Options, pasts: Pasts | None = None) -> Sequence[Callable[[Context], Controller]]:
    return [
        DeploymentController,
        ReplicaSetController,
        ReplicationManager,
        StatefulSetController,
        DaemonSetController,
        JobController,
        CronJobController,
        TTLAfterFinishedController,
        partial(HorizontalPodAutoscalerController, settings=options.autoscaling, pasts=pasts),
        partial(VerticalPodAutoscalerController, settings=options.vertical, pasts=pasts),
        partial(Rebalancer, settings=options.rebalance),
        EndpointSliceController,
        EndpointSliceMirroringController,
        EndpointsController,
        NamespaceController,
        GarbageCollector,
        ServiceAccountController,
        TokenCleanerController,
        BootstrapSignerController,
        ServiceCIDRController,
        ClusterRoleAggregationController,
        CSRApprovingController,
        partial(CSRSigningController, certificate=options.signing_cert, key=options.signing_key),
        ServingApprovalController,
        CSRCleaningController,
        PodCertificateCleaner,
        TrustBundlePublisher,
        DisruptionController,
        ResourceQuotaController,
        PodGroupController,
        ElasticQuotaController,
        PersistentVolumeBinder,
        LocalPathProvisioner,
        EphemeralVolumeController,
        VolumeProtectionController,
        VolumeAttributesClassProtectionController,
        partial(
            NodeLifecycleController,
            grace_s=options.node_monitor_grace_s,
            rates=options.eviction_rates,
            delete_after_s=options.delete_lost_nodes_after_s,
        ),
        TaintEvictionController,
        partial(PodGCController, quarantine_s=options.orphan_quarantine_s),
        partial(NodeIPAMController, pod_cidr=options.pod_cidr, node_prefix=options.node_prefix),
        partial(ImageResolverController, registries=options.registries),
        partial(
            NodeSpeedController,
            estimator=options.speed_estimator,
            auto_label=options.auto_label,
            every_s=options.speed_every_s,
        ),
    ]


def _name(factory: Callable[[Context], Controller]) -> str:
    made = factory.func if isinstance(factory, partial) else factory
    return str(getattr(made, "name", ""))


# Every controller there is.
NAMES = tuple(sorted(_name(one) for one in _all(Options())))
