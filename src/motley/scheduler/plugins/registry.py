"""The plugins that come with Motley, by name."""

from collections.abc import Mapping
from typing import Any

from motley.scheduler.plugins.capacity_scheduling import CapacityScheduling
from motley.scheduler.plugins.coscheduling import Coscheduling
from motley.scheduler.plugins.cpu_real_usage import CpuRealUsage
from motley.scheduler.plugins.default_binder import DefaultBinder
from motley.scheduler.plugins.default_preemption import DefaultPreemption
from motley.scheduler.plugins.hicev1 import Hicev1
from motley.scheduler.plugins.hicev2 import Hicev2
from motley.scheduler.plugins.image_locality import ImageLocality
from motley.scheduler.plugins.inter_pod_affinity import InterPodAffinity
from motley.scheduler.plugins.legacy_scores import (
    NodeResourcesLeastAllocated,
    NodeResourcesMostAllocated,
    RequestedToCapacityRatio,
)
from motley.scheduler.plugins.load_aware import LoadAware
from motley.scheduler.plugins.mem_real_usage import MemRealUsage
from motley.scheduler.plugins.minik8s import Minik8s
from motley.scheduler.plugins.network_aware import NetworkAware
from motley.scheduler.plugins.node_affinity import NodeAffinity
from motley.scheduler.plugins.node_name import NodeName
from motley.scheduler.plugins.node_ports import NodePorts
from motley.scheduler.plugins.node_resources_balanced_allocation import (
    NodeResourcesBalancedAllocation,
)
from motley.scheduler.plugins.node_resources_fit import NodeResourcesFit
from motley.scheduler.plugins.node_unschedulable import NodeUnschedulable
from motley.scheduler.plugins.node_volume_limits import NodeVolumeLimits
from motley.scheduler.plugins.overcommit import Overcommit
from motley.scheduler.plugins.pod_topology_spread import PodTopologySpread
from motley.scheduler.plugins.priority_sort import PrioritySort
from motley.scheduler.plugins.scheduling_gates import SchedulingGates
from motley.scheduler.plugins.taint_toleration import TaintToleration
from motley.scheduler.plugins.volume_binding import VolumeBinding
from motley.scheduler.plugins.volume_restrictions import VolumeRestrictions
from motley.scheduler.plugins.volume_zone import VolumeZone

Registry = Mapping[str, type[Any]]

PLUGINS: Registry = {
    plugin.name: plugin
    for plugin in (
        SchedulingGates,
        PrioritySort,
        Coscheduling,
        CapacityScheduling,
        NodeUnschedulable,
        NodeName,
        TaintToleration,
        NodeAffinity,
        Hicev1,
        Hicev2,
        MemRealUsage,
        CpuRealUsage,
        LoadAware,
        Overcommit,
        NetworkAware,
        Minik8s,
        NodePorts,
        NodeResourcesFit,
        VolumeRestrictions,
        NodeVolumeLimits,
        VolumeBinding,
        VolumeZone,
        PodTopologySpread,
        InterPodAffinity,
        DefaultPreemption,
        NodeResourcesBalancedAllocation,
        ImageLocality,
        DefaultBinder,
        NodeResourcesLeastAllocated,
        NodeResourcesMostAllocated,
        RequestedToCapacityRatio,
    )
}
