"""What containers, pods and the node use, read straight from control groups and /proc.

Counters (CPU time, bytes sent) are given as they are; a rate needs two looks, so the sampler keeps
the one before. Nothing here asks the runtime but for what it alone knows.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from motley.node.cgroups import Hierarchies


@dataclass(frozen=True, slots=True)
class Cpu:
    """CPU time in all, and cores in use lately; None: looked at only once."""

    at: float
    core_s: float
    cores: float | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory in bytes; `limit` 0: none."""

    usage: int = 0
    working_set: int = 0
    rss: int = 0
    page_faults: int = 0
    major_page_faults: int = 0
    limit: int = 0


class Interface(NamedTuple):
    """Counters of one network interface."""

    name: str
    received: int
    receive_errors: int
    sent: int
    send_errors: int


@dataclass(frozen=True, slots=True)
class GroupUsage:
    """What the processes of one control group use."""

    cpu: Cpu
    memory: Memory
    processes: int = 0


def numbers(text: str) -> dict[str, int]:
    """`name value` lines."""
    found = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if value.strip().isdigit():
            found[name] = int(value)
    return found


def interfaces(net_dev: str) -> list[Interface]:
    """`/proc/PID/net/dev` without the loopback."""
    found = []
    for line in net_dev.splitlines()[2:]:
        name, _, rest = line.partition(":")
        values = [int(v) for v in rest.split()]
        if name.strip() != "lo" and len(values) >= 11:
            found.append(Interface(name.strip(), values[0], values[2], values[8], values[10]))
    return found


def _int(path: Path) -> int:
    text = path.read_text().strip()
    return int(text) if text.isdigit() else 0


class Groups:
    """Reads control groups, v1 or v2; a group that is gone reads as None."""

    def __init__(self, hierarchies: Hierarchies) -> None:
        self._h = hierarchies

    def read(self, path: str, now: float) -> GroupUsage | None:
        """One group by its path below the hierarchies."""
        try:
            return self._v2(path, now) if self._h.is_v2 else self._v1(path, now)
        except (FileNotFoundError, OSError):
            return None  # its last process has left

    def first_pid(self, path: str) -> int | None:
        """Some process of the group."""
        root = self._h.every[0] if self._h.is_v2 else self._h.controllers["memory"]
        try:
            listed = (root / path.lstrip("/") / "cgroup.procs").read_text().split()
        except (FileNotFoundError, OSError):
            return None
        return int(listed[0]) if listed else None

    def _v1(self, path: str, now: float) -> GroupUsage:
        below = path.lstrip("/")
        cpu = self._h.controllers.get("cpuacct", self._h.controllers["cpu"]) / below
        memory = self._h.controllers["memory"] / below
        stat = numbers((memory / "memory.stat").read_text())
        used = _int(memory / "memory.usage_in_bytes")
        limit = _int(memory / "memory.limit_in_bytes")
        pids = self._h.controllers.get("pids")
        return GroupUsage(
            Cpu(now, _int(cpu / "cpuacct.usage") / 1e9),
            Memory(
                usage=used,
                working_set=max(0, used - stat.get("total_inactive_file", 0)),
                rss=stat.get("total_rss", 0),
                page_faults=stat.get("total_pgfault", 0),
                major_page_faults=stat.get("total_pgmajfault", 0),
                limit=limit if limit < 1 << 60 else 0,
            ),
            _int(pids / below / "pids.current") if pids else 0,
        )

    def _v2(self, path: str, now: float) -> GroupUsage:
        group = self._h.every[0] / path.lstrip("/")
        stat = numbers((group / "memory.stat").read_text())
        used = _int(group / "memory.current")
        return GroupUsage(
            Cpu(now, numbers((group / "cpu.stat").read_text()).get("usage_usec", 0) / 1e6),
            Memory(
                usage=used,
                working_set=max(0, used - stat.get("inactive_file", 0)),
                rss=stat.get("anon", 0),
                page_faults=stat.get("pgfault", 0),
                major_page_faults=stat.get("pgmajfault", 0),
                limit=_int(group / "memory.max"),
            ),
            _int(group / "pids.current"),
        )


@dataclass
class Rates:
    """Turns counters into rates by remembering the look before."""

    _before: dict[str, Cpu] = field(default_factory=dict)

    def rated(self, name: str, cpu: Cpu) -> Cpu:
        """The reading with the cores in use since the one before."""
        before = self._before.get(name)
        cores = before.cores if before else None
        if before is None or cpu.at - before.at >= 1.0:
            if before is not None and cpu.core_s >= before.core_s:
                cores = (cpu.core_s - before.core_s) / (cpu.at - before.at)
            self._before[name] = Cpu(cpu.at, cpu.core_s, cores)
        return Cpu(cpu.at, cpu.core_s, cores)

    def keep_only(self, names: Iterable[str]) -> None:
        """Forget what is gone."""
        kept = set(names)
        self._before = {k: v for k, v in self._before.items() if k in kept}


def meminfo(text: str) -> Mapping[str, int]:
    """`/proc/meminfo` in bytes."""
    found = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            found[name] = int(words[0]) * 1024
    return found
