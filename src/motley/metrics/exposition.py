"""Reading `/metrics/resource` of a node agent: Prometheus' text, the kubelet's names. Pure."""

import re
from dataclasses import dataclass, field
from typing import NamedTuple

_LINE = re.compile(r"(\w+)(?:\{(.*)\})?\s+(\S+)(?:\s+(-?\d+))?$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


class Point(NamedTuple):
    """What something had used at a moment: CPU seconds in all, bytes of memory now."""

    at: float
    cpu_s: float
    memory_bytes: int
    started_at: float = 0.0


class ContainerKey(NamedTuple):
    """A container of a pod."""

    namespace: str
    pod: str
    container: str


@dataclass(frozen=True)
class Scrape:
    """What one agent said at once."""

    node: Point | None = None
    containers: dict[ContainerKey, Point] = field(default_factory=dict)


class _Parts(NamedTuple):
    cpu: dict[ContainerKey, tuple[float, float]]
    memory: dict[ContainerKey, float]
    started: dict[ContainerKey, float]


def parse(text: str, now: float) -> Scrape:
    """Read an answer; what has only half of its figures is left out. Raises ValueError for text
    that is no exposition."""
    parts = _Parts({}, {}, {})
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        matched = _LINE.match(line)
        if matched is None:
            raise ValueError(f"not a line of metrics: {line[:80]!r}")
        name, labels, number, stamp = matched.groups()
        value = float(number)
        key = _key(labels or "")
        if name in ("container_cpu_usage_seconds_total", "node_cpu_usage_seconds_total"):
            parts.cpu[key] = (int(stamp) / 1000 if stamp else now, value)
        elif name in ("container_memory_working_set_bytes", "node_memory_working_set_bytes"):
            parts.memory[key] = value
        elif name == "container_start_time_seconds":
            parts.started[key] = value
    points = {
        key: Point(at, cpu_s, int(parts.memory[key]), parts.started.get(key, 0.0))
        for key, (at, cpu_s) in parts.cpu.items()
        if key in parts.memory
    }
    node = points.pop(_NODE, None)
    return Scrape(node, points)


_NODE = ContainerKey("", "", "")


def _key(labels: str) -> ContainerKey:
    if not labels:
        return _NODE
    found = {
        name: re.sub(r"\\.", lambda m: _ESCAPES.get(m[0], m[0]), value)
        for name, value in _LABEL.findall(labels)
    }
    return ContainerKey(
        found.get("namespace", ""), found.get("pod", ""), found.get("container", "")
    )
