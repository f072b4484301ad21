"""What pods and the node use, as `/metrics/resource` shows it: the kubelet's names and labels.

CPU is a counter, core-seconds since the start; whoever asks twice knows the rate. Memory is the
working set: what is in use less the file cache that could be dropped. The runtime measures
containers; the machine itself is read from /proc.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from motley.api.views.base import Key
from motley.node.cri.values import ContainerUsage
from motley.node.model import RuntimeContainer


class Sample(NamedTuple):
    """One running container of a pod."""

    pod: Key
    container: str
    started_at: float
    usage: ContainerUsage


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


def samples(
    pods: Mapping[str, Key],
    containers: Mapping[str, list[RuntimeContainer]],
    usages: Mapping[str, ContainerUsage],
) -> list[Sample]:
    """The running containers of known pods that were measured; `pods` is by uid."""
    return [
        Sample(pods[uid], one.name, one.started_at or one.created_at, usages[one.id])
        for uid, listed in containers.items()
        if uid in pods
        for one in listed
        if one.is_running and one.id in usages
    ]


def exposition(found: Iterable[Sample], node: Machine) -> str:
    """Prometheus' text, with the moment of each measurement in milliseconds."""
    found = sorted(found, key=lambda s: (s.pod, s.container))
    of_pods: dict[Key, list[Sample]] = {}
    for sample in found:
        of_pods.setdefault(sample.pod, []).append(sample)
    families: list[tuple[str, str, str, list[tuple[str, float, float]]]] = [
        (
            "container_cpu_usage_seconds_total",
            "counter",
            "Cumulative cpu time consumed by the container in core-seconds",
            [(_container(s), s.usage.cpu_s, s.usage.at) for s in found],
        ),
        (
            "container_memory_working_set_bytes",
            "gauge",
            "Current working set of the container in bytes",
            [(_container(s), s.usage.working_set_bytes, s.usage.at) for s in found],
        ),
        (
            "container_start_time_seconds",
            "gauge",
            "Start time of the container since unix epoch in seconds",
            [(_container(s), s.started_at, 0.0) for s in found],
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
            [
                (_pod(pod), sum(s.usage.cpu_s for s in its), max(s.usage.at for s in its))
                for pod, its in of_pods.items()
            ],
        ),
        (
            "pod_memory_working_set_bytes",
            "gauge",
            "Current working set of the pod in bytes",
            [
                (
                    _pod(pod),
                    sum(s.usage.working_set_bytes for s in its),
                    max(s.usage.at for s in its),
                )
                for pod, its in of_pods.items()
            ],
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


def _container(sample: Sample) -> str:
    pod = sample.pod
    return f'{{container="{sample.container}",namespace="{pod.namespace}",pod="{pod.name}"}}'


def _pod(pod: Key) -> str:
    return f'{{namespace="{pod.namespace}",pod="{pod.name}"}}'
