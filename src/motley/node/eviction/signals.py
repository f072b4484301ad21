"""Reading the signals: what the machine, its file systems and the pods' control group have left."""

import os
from collections.abc import Mapping
from pathlib import Path

from motley.node import machine, stats
from motley.node.cgroups import Cgroups
from motley.node.eviction import thresholds
from motley.node.eviction.pressure import Observation


def observe(
    root: Path, image_root: Path | None, cgroups: Cgroups, allocatable: Mapping[str, int]
) -> dict[str, Observation]:
    """Everything that can be observed now. Blocking, but only for moments.

    `root` is where pods write, `image_root` where images are; what cannot be read is left out,
    and nothing is concluded from it.
    """
    found = {thresholds.MEMORY: memory(Path("/proc/meminfo").read_text())}
    try:
        limit = allocatable.get("memory", 0)
        left = max(0, limit - cgroups.working_set_bytes())
        found[thresholds.ALLOCATABLE_MEMORY] = Observation(left, limit)
    except FileNotFoundError:
        pass  # no pod has been here yet
    found |= _disk(root, thresholds.NODEFS, thresholds.NODEFS_INODES)
    if image_root is not None:
        found |= _disk(image_root, thresholds.IMAGEFS, thresholds.IMAGEFS_INODES)
    most = Path("/proc/sys/kernel/pid_max").read_text()
    found[thresholds.PIDS] = pids(Path("/proc/loadavg").read_text(), most)
    return found


def memory(meminfo: str) -> Observation:
    """Of the machine: all there is, less what is in use and cannot be dropped."""
    capacity = machine.memory(meminfo)
    return Observation(max(0, capacity - stats.working_set_bytes(meminfo)), capacity)


def pids(loadavg: str, pid_max: str) -> Observation:
    """Of the machine: processes and threads that may still be started."""
    most = int(pid_max)
    running = int(loadavg.split()[3].partition("/")[2])
    return Observation(max(0, most - running), most)


def _disk(path: Path, free: str, inodes: str) -> dict[str, Observation]:
    try:
        disk = os.statvfs(path)
    except FileNotFoundError:
        return {}
    found = {free: Observation(disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize)}
    if disk.f_files:  # some file systems make inodes as they go and count none
        found[inodes] = Observation(disk.f_favail, disk.f_files)
    return found
