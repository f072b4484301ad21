"""Control groups of QoS classes and pods, on cgroup v1 and v2.

    /<root>/pod<uid>                 Guaranteed
    /<root>/burstable/pod<uid>
    /<root>/besteffort/pod<uid>

The runtime makes the containers' own groups below a pod's. A pod's group is what bounds all its
containers together, and what must be gone when the pod is. The host's mounts are never changed:
what is mounted decides whether v1 or v2 is spoken.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from motley.api.views.pod import Pod
from motley.lib import journal
from motley.node import resources

log = journal.get(__name__)

_CAP_SYS_RESOURCE = 24


@dataclass(frozen=True, slots=True)
class Hierarchies:
    """Where controllers are mounted; on v2 there is one place for all."""

    is_v2: bool
    controllers: Mapping[str, Path]  # v1: controller -> mount point
    every: tuple[Path, ...]  # all mount points, also named ones


def detect(mountinfo: str) -> Hierarchies:
    """Read `/proc/self/mountinfo`: v1 wins where its controllers are mounted (hybrid hosts)."""
    controllers: dict[str, Path] = {}
    every: list[Path] = []
    unified: Path | None = None
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, tail = before.split(), after.split()
        if len(fields) < 5 or len(tail) < 3:
            continue
        point = Path(fields[4].replace("\\040", " "))
        if tail[0] == "cgroup2" and unified is None:
            unified = point
        elif tail[0] == "cgroup":
            every.append(point)
            for option in tail[2].split(","):
                controllers.setdefault(option, point)
    if "cpu" in controllers and "memory" in controllers:
        return Hierarchies(False, controllers, tuple(dict.fromkeys(every)))
    if unified is None:
        raise OSError("no cgroup file system is mounted")
    return Hierarchies(True, {}, (unified,))


def may_lower_oom_score(status: str) -> bool:
    """Does `/proc/self/status` show CAP_SYS_RESOURCE? Without it oom_score_adj stays ≥ 0."""
    for line in status.splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> _CAP_SYS_RESOURCE & 1)
    return False


def pod_path(root: str, qos: str, uid: str) -> str:
    """The cgroup of a pod, as CRI's cgroup_parent names it."""
    classes = {"Burstable": "/burstable", "BestEffort": "/besteffort"}
    return f"/{root.strip('/')}{classes.get(qos, '')}/pod{uid}"


class Cgroups:
    """Makes, sets and removes the agent's part of the tree. Blocking, but only sysfs."""

    def __init__(
        self, root: str, hierarchies: Hierarchies | None = None, *, max_pids: int = -1
    ) -> None:
        self.root = root.strip("/")
        self._max_pids = max_pids  # processes and threads of one pod; -1: no limit
        self._h = hierarchies or detect(Path("/proc/self/mountinfo").read_text())

    @property
    def hierarchies(self) -> Hierarchies:
        """Where the groups are."""
        return self._h

    @property
    def is_v2(self) -> bool:
        """One unified hierarchy?"""
        return self._h.is_v2

    def ensure_pod(self, path: str, requests: Mapping[str, int], limits: Mapping[str, int]) -> None:
        """Make a pod's group with its shares, and its quota and memory limit where all have one."""
        shares = resources.shares(requests.get("cpu", 0))
        quota = resources.quota_us(limits["cpu"]) if "cpu" in limits else -1
        memory = limits.get("memory", 0)
        self._ensure(path)
        self._limit_pids(path)
        if self.is_v2:
            group = self._h.every[0] / path.lstrip("/")
            period = resources.CPU_PERIOD_US
            _write(group / "cpu.weight", str(resources.weight(shares)))
            _write(group / "cpu.max", f"{quota if quota > 0 else 'max'} {period}")
            _write(group / "memory.max", str(memory) if memory else "max")
            return
        cpu = self._h.controllers["cpu"] / path.lstrip("/")
        _write(cpu / "cpu.shares", str(shares))
        _write(cpu / "cpu.cfs_period_us", str(resources.CPU_PERIOD_US))
        _write(cpu / "cpu.cfs_quota_us", str(quota))
        group = self._h.controllers["memory"] / path.lstrip("/")
        _write(group / "memory.limit_in_bytes", str(memory) if memory else "-1")

    def widen_pod(self, path: str, pod: Pod) -> None:
        """Lift a pod's own bounds while those of its containers change."""
        self.ensure_pod(path, resources.pod_requests(pod), {})

    def set_class_shares(self, burstable_milli: int) -> None:
        """Burstable pods together weigh what they request; BestEffort gets what is left."""
        for name, milli in (("burstable", burstable_milli), ("besteffort", 0)):
            path = f"/{self.root}/{name}"
            self._ensure(path)
            shares = resources.shares(milli)
            if self.is_v2:
                group = self._h.every[0] / path.lstrip("/")
                _write(group / "cpu.weight", str(resources.weight(shares)))
            else:
                group = self._h.controllers["cpu"] / path.lstrip("/")
                _write(group / "cpu.shares", str(shares))

    def limit_pods(self, allocatable: Mapping[str, int]) -> None:
        """Pods together get what is allocatable and no more, so that the system keeps its part."""
        path = f"/{self.root}"
        self._ensure(path)
        memory = allocatable.get("memory", 0)
        if self.is_v2:
            group = self._h.every[0] / self.root
            weight = resources.weight(resources.shares(allocatable.get("cpu", 0)))
            _write(group / "cpu.weight", str(weight))
            _write(group / "memory.max", str(memory) if memory else "max")
            return
        cpu = self._h.controllers["cpu"] / self.root
        _write(cpu / "cpu.shares", str(resources.shares(allocatable.get("cpu", 0))))
        group = self._h.controllers["memory"] / self.root
        _write(group / "memory.limit_in_bytes", str(memory) if memory else "-1")

    def working_set_bytes(self) -> int:
        """Memory of all pods, without the file cache that nobody used lately."""
        if self.is_v2:
            group = self._h.every[0] / self.root
            used, inactive = group / "memory.current", "inactive_file"
        else:
            group = self._h.controllers["memory"] / self.root
            used, inactive = group / "memory.usage_in_bytes", "total_inactive_file"
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        return max(0, int(used.read_text()) - int(stat.get(inactive, 0)))

    def _limit_pids(self, path: str) -> None:
        point = self._h.every[0] if self.is_v2 else self._h.controllers.get("pids")
        if point is not None and self._max_pids > 0:
            _write(point / path.lstrip("/") / "pids.max", str(self._max_pids))

    def pids_of(self, uid: str) -> int:
        """Processes and threads of a pod, where the kernel counts them."""
        point = self._h.every[0] if self.is_v2 else self._h.controllers.get("pids")
        if point is None:
            return 0
        for qos in ("Guaranteed", "Burstable", "BestEffort"):
            count = point / pod_path(self.root, qos, uid).lstrip("/") / "pids.current"
            if count.is_file():
                return int(count.read_text())
        return 0

    def pods(self) -> set[str]:
        """Uids that have a group."""
        found: set[str] = set()
        for point in self._h.every:
            for parent in ("", "burstable", "besteffort"):
                base = point / self.root / parent
                if base.is_dir():
                    found |= {d.name[3:] for d in base.glob("pod*") if d.is_dir()}
        return found

    def remove_pod(self, uid: str) -> None:
        """Remove a pod's groups, whatever class it had."""
        for qos in ("Guaranteed", "Burstable", "BestEffort"):
            self._remove(pod_path(self.root, qos, uid))

    def remove_all(self) -> None:
        """Remove the agent's whole tree; groups with processes stay."""
        self._remove(f"/{self.root}")

    def _ensure(self, path: str) -> None:
        relative = Path(path.lstrip("/"))
        if not self.is_v2:
            for controller in ("cpu", "memory", "pids"):
                if controller in self._h.controllers:
                    (self._h.controllers[controller] / relative).mkdir(parents=True, exist_ok=True)
            return
        # On v2 a controller works below a group only if every group above hands it down.
        group = self._h.every[0]
        for part in relative.parts:
            for controller in ("cpu", "memory", "pids", "cpuset"):
                _write(group / "cgroup.subtree_control", f"+{controller}", is_optional=True)
            group = group / part
            group.mkdir(exist_ok=True)

    def _remove(self, path: str) -> None:
        for point in self._h.every:
            base = point / path.lstrip("/")
            if not base.is_dir():
                continue
            for directory, _, _ in os.walk(base, topdown=False):
                try:
                    os.rmdir(directory)
                except OSError as error:  # a process is still leaving; housekeeping comes again
                    log.debug("cgroup not removed yet", path=directory, error=error.strerror)


def _write(path: Path, value: str, *, is_optional: bool = False) -> None:
    try:
        path.write_text(value)
    except OSError as error:
        if not is_optional:
            log.warning("cgroup value not set", path=path, value=value, error=error.strerror)
