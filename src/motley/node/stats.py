"""What pods and the node use, as `/metrics/resource` shows it: the kubelet's names and labels.

CPU is a counter, core-seconds since the start; whoever asks twice knows the rate. Memory is the
working set: what is in use less the file cache that could be dropped. Containers are read from
their control groups, the machine itself from /proc.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from motley.api.views.base import Key
from motley.node.summary import ContainerSample, PodSample


class Machine(NamedTuple):
    """The node as a whole."""

    at: float
    cpu_s: float
    working_set_bytes: int


def machine(now: float) -> Machine:
    """This machine, now."""
    ticks = os.sysconf("SC_CLK_TCK")
    return Machine(
        now,
        busy_ticks(Path("/proc/stat").read_text()) / ticks,
        working_set_bytes(Path("/proc/meminfo").read_text()),
    )


def busy_ticks(stat: str) -> int:
    """Clock ticks all processors were not idle; guests are already in user time."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, stat.split()[1:9])
    return user + nice + system + irq + softirq + steal


def working_set_bytes(meminfo: str) -> int:
    """Memory in use, without the file cache that nobody used lately."""
    values = {
        name: int(rest.split()[0]) * 1024
        for name, _, rest in (line.partition(":") for line in meminfo.splitlines())
        if rest
    }
    used = values.get("MemTotal", 0) - values.get("MemFree", 0)
    return max(0, used - values.get("Inactive(file)", 0))


def exposition(pods: Iterable[PodSample], node: Machine) -> str:
    """Prometheus' text, with the moment of each measurement in milliseconds."""
    pods = sorted(pods, key=lambda s: s.pod.key)
    found = [(s.pod.key, c) for s in pods for c in sorted(s.containers, key=lambda c: c.name)]
    families: list[tuple[str, str, str, list[tuple[str, float, float]]]] = [
        (
            "container_cpu_usage_seconds_total",
            "counter",
            "Cumulative cpu time consumed by the container in core-seconds",
            [(_container(k, c), c.usage.cpu.core_s, c.usage.cpu.at) for k, c in found],
        ),
        (
            "container_memory_working_set_bytes",
            "gauge",
            "Current working set of the container in bytes",
            [(_container(k, c), c.usage.memory.working_set, c.usage.cpu.at) for k, c in found],
        ),
        (
            "container_start_time_seconds",
            "gauge",
            "Start time of the container since unix epoch in seconds",
            [(_container(k, c), c.started_at, 0.0) for k, c in found],
        ),
        (
            "node_cpu_usage_seconds_total",
            "counter",
            "Cumulative cpu time consumed by the node in core-seconds",
            [("", node.cpu_s, node.at)],
        ),
        (
            "node_memory_working_set_bytes",
            "gauge",
            "Current working set of the node in bytes",
            [("", node.working_set_bytes, node.at)],
        ),
        (
            "pod_cpu_usage_seconds_total",
            "counter",
            "Cumulative cpu time consumed by the pod in core-seconds",
            [(_pod(s.pod.key), s.usage.cpu.core_s, s.usage.cpu.at) for s in pods],
        ),
        (
            "pod_memory_working_set_bytes",
            "gauge",
            "Current working set of the pod in bytes",
            [(_pod(s.pod.key), s.usage.memory.working_set, s.usage.cpu.at) for s in pods],
        ),
        (
            "resource_scrape_error",
            "gauge",
            "1 if there was an error while getting container metrics, 0 otherwise",
            [("", 0, 0.0)],
        ),
    ]
    lines: list[str] = []
    for name, kind, about, values in families:
        lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
        for labels, value, at in values:
            moment = f" {round(at * 1000)}" if at else ""
            lines.append(f"{name}{labels} {value!r}{moment}")
    return "\n".join(lines) + "\n"


def _container(pod: Key, sample: ContainerSample) -> str:
    return f'{{container="{sample.name}",namespace="{pod.namespace}",pod="{pod.name}"}}'


def _pod(pod: Key) -> str:
    return f'{{namespace="{pod.namespace}",pod="{pod.name}"}}'
