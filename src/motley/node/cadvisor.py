"""`/metrics/cadvisor`: containers, pods and the machine in cAdvisor's names, for Prometheus.

Every series has a label `node` with the Node's name, so that whoever schedules by measurements
can tell whose they are.
"""

from collections.abc import Iterator, Sequence

from motley.node.summary import NodeSample, PodSample

_KINDS = {
    "container_cpu_usage_seconds_total": "counter",
    "container_memory_usage_bytes": "gauge",
    "container_memory_working_set_bytes": "gauge",
    "container_memory_rss": "gauge",
    "container_spec_memory_limit_bytes": "gauge",
    "container_processes": "gauge",
    "container_fs_usage_bytes": "gauge",
    "container_start_time_seconds": "gauge",
    "container_network_receive_bytes_total": "counter",
    "container_network_transmit_bytes_total": "counter",
    "container_network_receive_errors_total": "counter",
    "container_network_transmit_errors_total": "counter",
    "machine_memory_working_set_bytes": "gauge",
    "machine_memory_available_bytes": "gauge",
    "machine_cpu_usage_seconds_total": "counter",
    "machine_processes": "gauge",
    "machine_fs_available_bytes": "gauge",
}

Line = tuple[str, str, float]  # metric, labels, value


def exposition(node: NodeSample, pods: Sequence[PodSample]) -> str:
    """Prometheus' text."""
    lines: dict[str, list[str]] = {}
    for name, labels, value in [*_machine(node), *(x for p in pods for x in _pod(node.name, p))]:
        lines.setdefault(name, []).append(f"{name}{{{labels}}} {value:.17g}")
    text = []
    for name, found in lines.items():
        text += [f"# TYPE {name} {_KINDS[name]}", *found]
    return "\n".join(text) + "\n"


def _machine(node: NodeSample) -> Iterator[Line]:
    labels = f'node="{node.name}"'
    yield "machine_cpu_usage_seconds_total", labels, node.usage.cpu.core_s
    yield "machine_memory_working_set_bytes", labels, node.usage.memory.working_set
    yield "machine_memory_available_bytes", labels, node.memory_available
    yield "machine_processes", labels, node.processes
    for name, disk in (("nodefs", node.nodefs), ("imagefs", node.imagefs)):
        yield "machine_fs_available_bytes", f'{labels},device="{name}"', disk.available


def _pod(node: str, sample: PodSample) -> Iterator[Line]:
    meta = sample.pod.metadata
    of_pod = f'node="{node}",namespace="{meta.namespace}",pod="{meta.name}"'
    for container in sample.containers:
        labels = f'{of_pod},container="{container.name}"'
        usage = container.usage
        yield "container_cpu_usage_seconds_total", labels, usage.cpu.core_s
        yield "container_memory_usage_bytes", labels, usage.memory.usage
        yield "container_memory_working_set_bytes", labels, usage.memory.working_set
        yield "container_memory_rss", labels, usage.memory.rss
        yield "container_spec_memory_limit_bytes", labels, usage.memory.limit
        yield "container_processes", labels, usage.processes
        yield "container_start_time_seconds", labels, container.started_at
        if container.name in sample.disk.containers:
            used = sample.disk.containers[container.name]
            yield "container_fs_usage_bytes", labels, used.bytes
    for interface in sample.network:
        labels = f'{of_pod},interface="{interface.name}"'
        yield "container_network_receive_bytes_total", labels, interface.received
        yield "container_network_transmit_bytes_total", labels, interface.sent
        yield "container_network_receive_errors_total", labels, interface.receive_errors
        yield "container_network_transmit_errors_total", labels, interface.send_errors
