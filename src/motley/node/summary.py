"""`/stats/summary`: the kubelet's Summary API, for whoever collects from nodes.

Pure: measurements in, JSON out. Names and units are Kubernetes'.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from motley.api.views.pod import Pod
from motley.lib.clock import rfc3339
from motley.node.diskusage import PodDisk, Used
from motley.node.usage import Cpu, GroupUsage, Interface, Memory

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Disk:
    """A file system."""

    capacity: int
    available: int
    inodes: int
    inodes_free: int


@dataclass(frozen=True, slots=True)
class ContainerSample:
    """One running container."""

    name: str
    started_at: float
    usage: GroupUsage


@dataclass(frozen=True, slots=True)
class PodSample:
    """One pod with running containers."""

    pod: Pod
    usage: GroupUsage
    containers: Sequence[ContainerSample]
    network: Sequence[Interface] = ()
    disk: PodDisk = field(default_factory=PodDisk)


@dataclass(frozen=True, slots=True)
class NodeSample:
    """The machine."""

    name: str
    booted_at: float
    usage: GroupUsage
    memory_available: int
    network: Sequence[Interface]
    nodefs: Disk
    imagefs: Disk
    processes: int
    most_processes: int
    systems: Mapping[str, GroupUsage] = field(default_factory=dict)


def document(node: NodeSample, pods: Sequence[PodSample], now: float) -> Document:
    """The whole answer."""
    return {
        "node": {
            "nodeName": node.name,
            "startTime": rfc3339(node.booted_at),
            "systemContainers": [
                {"name": name, **_used(used, now)} for name, used in sorted(node.systems.items())
            ],
            "cpu": _cpu(node.usage.cpu),
            "memory": {
                **_memory(node.usage.memory, now),
                "availableBytes": node.memory_available,
            },
            "network": _network(node.network, now),
            "fs": _disk(node.nodefs, now),
            "runtime": {"imageFs": _disk(node.imagefs, now)},
            "rlimit": {
                "time": rfc3339(now),
                "maxpid": node.most_processes,
                "curproc": node.processes,
            },
        },
        "pods": [_pod(sample, node.nodefs, now) for sample in pods],
    }


def _pod(sample: PodSample, nodefs: Disk, now: float) -> Document:
    meta = sample.pod.metadata
    found: Document = {
        "podRef": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid},
        "startTime": sample.pod.status.start_time,
        "containers": [
            {
                "name": container.name,
                "startTime": rfc3339(container.started_at),
                **_used(container.usage, now),
                "rootfs": _part(sample.disk.containers.get(container.name, Used()), nodefs, now),
            }
            for container in sample.containers
        ],
        **_used(sample.usage, now),
        "volume": [
            {"name": name, **_part(used, nodefs, now)}
            for name, used in sorted(sample.disk.volumes.items())
        ],
        "ephemeral-storage": _part(sample.disk.total, nodefs, now),
        "process_stats": {"process_count": sample.usage.processes},
    }
    if sample.network:
        found["network"] = _network(sample.network, now)
    return found


def _used(usage: GroupUsage, now: float) -> Document:
    return {"cpu": _cpu(usage.cpu), "memory": _memory(usage.memory, now)}


def _cpu(cpu: Cpu) -> Document:
    found: Document = {"time": rfc3339(cpu.at), "usageCoreNanoSeconds": round(cpu.core_s * 1e9)}
    if cpu.cores is not None:
        found["usageNanoCores"] = round(cpu.cores * 1e9)
    return found


def _memory(memory: Memory, now: float) -> Document:
    found: Document = {
        "time": rfc3339(now),
        "usageBytes": memory.usage,
        "workingSetBytes": memory.working_set,
        "rssBytes": memory.rss,
        "pageFaults": memory.page_faults,
        "majorPageFaults": memory.major_page_faults,
    }
    if memory.limit:
        found["availableBytes"] = max(0, memory.limit - memory.working_set)
    return found


def _network(interfaces: Sequence[Interface], now: float) -> Document:
    shown = [
        {
            "name": i.name,
            "rxBytes": i.received,
            "rxErrors": i.receive_errors,
            "txBytes": i.sent,
            "txErrors": i.send_errors,
        }
        for i in interfaces
    ]
    default = next((s for s in shown if s["name"] == "eth0"), shown[0] if shown else {})
    return {"time": rfc3339(now), **default, "interfaces": shown}


def _disk(disk: Disk, now: float) -> Document:
    return {
        "time": rfc3339(now),
        "availableBytes": disk.available,
        "capacityBytes": disk.capacity,
        "usedBytes": disk.capacity - disk.available,
        "inodesFree": disk.inodes_free,
        "inodes": disk.inodes,
        "inodesUsed": disk.inodes - disk.inodes_free,
    }


def _part(used: Used, disk: Disk, now: float) -> Document:
    return {**_disk(disk, now), "usedBytes": used.bytes, "inodesUsed": used.inodes}
