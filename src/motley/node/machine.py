"""Facts about the machine: what it has and what it is. Read from /proc, /sys and /etc."""

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from motley.api import quantity
from motley.node.context import NodeResources

# Kubernetes' (Go's) names for what the kernel calls itself.
ARCHITECTURES = {
    "x86_64": "amd64",
    "aarch64": "arm64",
    "armv7l": "arm",
    "i686": "386",
    "ppc64le": "ppc64le",
    "riscv64": "riscv64",
    "s390x": "s390x",
    "mips64": "mips64le",
}


@dataclass(frozen=True, slots=True)
class Machine:
    """What a node says about itself."""

    architecture: str
    kernel: str
    os_image: str
    machine_id: str
    boot_id: str
    system_uuid: str
    hostname: str
    cpus: int
    memory_bytes: int
    disk_bytes: int


def read(root: Path, architecture: str = "") -> Machine:
    """This machine; `root` is on the file system that pods write to.

    `architecture`: what it emulates for them.
    """
    disk = os.statvfs(_existing(root))
    return Machine(
        architecture=architecture or ARCHITECTURES.get(platform.machine(), platform.machine()),
        kernel=platform.release(),
        os_image=os_name(_text("/etc/os-release")),
        machine_id=_text("/etc/machine-id"),
        boot_id=_text("/proc/sys/kernel/random/boot_id"),
        system_uuid=_text("/sys/class/dmi/id/product_uuid"),
        hostname=platform.node(),
        cpus=os.cpu_count() or 1,
        memory_bytes=memory(_text("/proc/meminfo")),
        disk_bytes=disk.f_blocks * disk.f_frsize,
    )


def _existing(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path


def _text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def os_name(os_release: str) -> str:
    """PRETTY_NAME of /etc/os-release."""
    for line in os_release.splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.partition("=")[2].strip('"')
    return "Linux"


def booted_at(stat: str) -> float:
    """When the kernel started, from /proc/stat."""
    for line in stat.splitlines():
        if line.startswith("btime "):
            return float(line.split()[1])
    return 0.0


def memory(meminfo: str) -> int:
    """MemTotal in bytes."""
    for line in meminfo.splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return 0


def resources(
    machine: Machine, reserved: Mapping[str, str], max_pods: int, *, may_lower_oom_score: bool
) -> NodeResources:
    """Capacity, and what is left of it for pods."""
    capacity = {
        "cpu": machine.cpus * 1000,
        "memory": machine.memory_bytes,
        "ephemeral-storage": machine.disk_bytes,
        "pods": max_pods,
    }
    kept = {
        name: quantity.cpu_milli(value) if name == "cpu" else quantity.to_int(value)
        for name, value in reserved.items()
    }
    allocatable = {name: max(0, value - kept.get(name, 0)) for name, value in capacity.items()}
    return NodeResources(capacity, allocatable, may_lower_oom_score)


def quantities(values: Mapping[str, int]) -> dict[str, str]:
    """Resources as Kubernetes writes them: cpu in cores, sizes in Ki."""
    out = {}
    for name, value in values.items():
        if name == "cpu":
            out[name] = str(value // 1000) if value % 1000 == 0 else f"{value}m"
        elif name in ("memory", "ephemeral-storage"):
            out[name] = f"{value // 1024}Ki"
        else:
            out[name] = str(value)
    return out
