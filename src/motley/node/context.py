"""What the parts of a node agent share: its settings and its tools."""

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from motley.api.views.core import Service
from motley.api.views.pod import Pod
from motley.client.events import Recorder
from motley.client.rest import Client
from motley.lib.clock import Clock
from motley.node.allocation import Allocations
from motley.node.cgroups import Cgroups
from motley.node.checks import Checker
from motley.node.cpus import CpuManager
from motley.node.cri.runtime import Runtime
from motley.node.dnsconfig import Resolver
from motley.node.eviction.pressure import Policy
from motley.node.imagegc import Limits
from motley.node.images import PARALLEL_PULLS, Images
from motley.node.objects import Objects
from motley.node.volumes.podvolumes import PodVolumes


@dataclass(frozen=True, slots=True)
class Settings:
    """How one agent is set up; everything comes from the command line."""

    name: str
    node_ip: str
    root: Path
    architecture: str = ""  # of the containers, where the machine emulates it
    cluster_dns: tuple[str, ...] = ("10.96.0.10",)
    cluster_domain: str = "cluster.local"
    cgroup_root: str = "motley"
    max_pods: int = 110
    pod_max_pids: int = -1  # no limit but the machine's
    max_parallel_image_pulls: int = PARALLEL_PULLS
    allowed_unsafe_sysctls: tuple[str, ...] = ()
    system_reserved: Mapping[str, str] = field(default_factory=dict)
    node_labels: Mapping[str, str] = field(default_factory=dict)
    node_annotations: Mapping[str, str] = field(default_factory=dict)
    register_taints: tuple[Mapping[str, str], ...] = ()
    port: int = 10250
    log_max_bytes: int = 10 << 20  # kubelet's containerLogMaxSize
    log_max_files: int = 5
    log_look_every_s: float = 10.0  # kubelet's containerLogMonitorInterval
    static_pods: Path | None = None
    cpu_manager_policy: str = "none"
    reserved_cpus: str = ""
    eviction: Policy = field(default_factory=Policy)
    image_limits: Limits = field(default_factory=Limits)

    @property
    def log_root(self) -> Path:
        """Where container logs are."""
        return self.root / "logs" / "pods"


@dataclass(frozen=True, slots=True)
class NodeResources:
    """What the machine has and what pods may have of it; cpu in milli."""

    capacity: Mapping[str, int]
    allocatable: Mapping[str, int]
    may_lower_oom_score: bool


@dataclass(slots=True)
class Context:
    """The tools a pod worker needs."""

    settings: Settings
    client: Client
    runtime: Runtime
    images: Images
    volumes: PodVolumes
    cgroups: Cgroups
    cpus: CpuManager
    allocations: Allocations
    objects: Objects
    checker: Checker
    recorder: Recorder
    clock: Clock
    resources: NodeResources
    host_resolver: Resolver
    host_hosts: str
    services: Callable[[], list[Service]]
    is_network_ready: Callable[[], bool]
    as_shown: Callable[[Pod], Pod | None]  # the API's pod to write status to, if there is one
    # Sandboxes made at once. More take as long in all and only let the first wait for the last:
    # of forty at once the median was up after 12 s, eight at a time after 7, the last after 11.
    sandbox_slots: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(max(8, 4 * (os.cpu_count() or 1)))
    )

    def facts(self, pod: Pod, ips: tuple[str, ...]) -> dict[str, str]:
        """Status fields the downward API may ask for."""
        address = self.settings.node_ip if pod.spec.host_network else ",".join(ips[:1])
        return {
            "status.hostIP": self.settings.node_ip,
            "status.hostIPs": self.settings.node_ip,
            "status.podIP": address,
            "status.podIPs": self.settings.node_ip if pod.spec.host_network else ",".join(ips),
        }
