"""What a pod keeps on the node's disk: its volumes, its logs, and what it wrote into its layers.

Counted the way `du` does, blocks and not lengths, so that a sparse file costs what it costs.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from motley.api.views.pod import Pod
from motley.node.cri.values import ContainerUsage
from motley.node.model import RuntimeContainer

_BLOCK = 512  # what st_blocks counts in, whatever the file system's own size is


class Used(NamedTuple):
    """Space and inodes."""

    bytes: int = 0
    inodes: int = 0

    def plus(self, other: "Used") -> "Used":
        """Both together."""
        return Used(self.bytes + other.bytes, self.inodes + other.inodes)


@dataclass(frozen=True, slots=True)
class PodDisk:
    """One pod's part of the disk."""

    volumes: Mapping[str, Used] = field(default_factory=dict)  # on disk only, by name
    containers: Mapping[str, Used] = field(default_factory=dict)  # logs and layers, by name

    @property
    def total(self) -> Used:
        """All of it."""
        total = Used()
        for part in (*self.volumes.values(), *self.containers.values()):
            total = total.plus(part)
        return total


def tree(path: Path) -> Used:
    """Everything below a directory, other file systems left out; a file counts once."""
    try:
        device = path.lstat().st_dev
    except FileNotFoundError:
        return Used()
    seen: set[int] = set()
    size = 0
    for directory, subdirectories, files in os.walk(path):
        for name in (".", *files):
            try:
                entry = os.lstat(os.path.join(directory, name))
            except FileNotFoundError:
                continue  # gone while we looked
            if entry.st_ino not in seen and entry.st_dev == device:
                seen.add(entry.st_ino)
                size += entry.st_blocks * _BLOCK
        subdirectories[:] = [
            name for name in subdirectories if _is_on(os.path.join(directory, name), device)
        ]
    return Used(size, len(seen))


def _is_on(path: str, device: int) -> bool:
    try:
        return os.lstat(path).st_dev == device
    except FileNotFoundError:
        return False


def of_pod(
    pod: Pod,
    directory: Path,
    containers: Iterable[RuntimeContainer],
    usages: Mapping[str, ContainerUsage],
) -> PodDisk:
    """Measure a pod whose files are below `directory`. Blocking."""
    volumes = {
        volume.name: tree(directory / "volumes" / "empty-dir" / volume.name)
        for volume in pod.spec.volumes
        if volume.empty_dir is not None and volume.empty_dir.medium != "Memory"
    }
    found: dict[str, Used] = {}
    for container in containers:
        used = found.get(container.name, Used())
        if container.log_path and container.name not in found:
            used = used.plus(tree(Path(container.log_path).parent))
        layer = usages.get(container.id)
        if layer is not None:
            used = used.plus(Used(layer.written_bytes, layer.written_inodes))
        found[container.name] = used
    return PodDisk(volumes, found)
