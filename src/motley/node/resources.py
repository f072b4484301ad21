"""Requests and limits as the kernel takes them, and whether a pod still fits.

Pure arithmetic. Numbers are the kubelet's, so a pod behaves the same on either: 1024 shares per
cpu, quota per 100 ms, oom_score_adj by QoS class.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from motley.api import quantity
from motley.api.views.pod import Container, Pod, Quantity, ResourceList

CPU_PERIOD_US = 100_000
MIN_SHARES = 2
MAX_SHARES = 262_144
MIN_QUOTA_US = 1_000
# The kubelet's values: a Guaranteed container is killed last, a BestEffort one first.
GUARANTEED_OOM = -997
BEST_EFFORT_OOM = 1000


def shares(cpu_milli: int) -> int:
    """cgroup v1 cpu.shares for a request."""
    if cpu_milli <= 0:
        return MIN_SHARES
    return min(MAX_SHARES, max(MIN_SHARES, cpu_milli * 1024 // 1000))


def weight(cpu_shares: int) -> int:
    """cgroup v2 cpu.weight for cpu.shares: 2..262144 onto 1..10000, as runc maps it."""
    return 1 + ((cpu_shares - 2) * 9999) // 262142


def quota_us(cpu_milli: int) -> int:
    """CFS quota per period for a limit; 0 means no limit."""
    return max(MIN_QUOTA_US, cpu_milli * CPU_PERIOD_US // 1000) if cpu_milli > 0 else 0


def _cpu(resources: Mapping[str, Quantity]) -> int:
    return quantity.cpu_milli(resources["cpu"]) if "cpu" in resources else 0


def _memory(resources: Mapping[str, Quantity]) -> int:
    return quantity.to_int(resources["memory"]) if "memory" in resources else 0


def requests_of(container: Container) -> ResourceList:
    """What a container asks for: its limits where it names no request."""
    return {**container.resources.limits, **container.resources.requests}


def qos_class(pod: Pod) -> str:
    """Guaranteed, Burstable or BestEffort, from the spec alone."""
    containers = [*pod.spec.containers, *pod.spec.init_containers]
    named = ("cpu", "memory")
    is_any = False
    is_guaranteed = True
    for container in containers:
        requests, limits = requests_of(container), container.resources.limits
        is_any = is_any or any(_value(requests, r) for r in named)
        for resource in named:
            limit = _value(limits, resource)
            if not limit or limit != _value(requests, resource):
                is_guaranteed = False
    if not is_any:
        return "BestEffort"
    return "Guaranteed" if is_guaranteed else "Burstable"


def _value(resources: Mapping[str, Quantity], name: str) -> int:
    return _cpu(resources) if name == "cpu" else _memory(resources)


def _effective(pod: Pod, of: Callable[[Container], ResourceList]) -> dict[str, int]:
    """Sum over containers and sidecars, or the largest init step if that is more."""
    totals: dict[str, int] = {}
    peak: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    for init in pod.spec.init_containers:
        values = _parsed(of(init))
        if init.restart_policy == "Always":
            _add(sidecars, values)
            step = dict(sidecars)
        else:
            step = dict(sidecars)
            _add(step, values)
        for name, value in step.items():
            peak[name] = max(peak.get(name, 0), value)
    _add(totals, sidecars)
    for container in pod.spec.containers:
        _add(totals, _parsed(of(container)))
    for name, value in peak.items():
        totals[name] = max(totals.get(name, 0), value)
    _add(totals, _parsed(pod.spec.overhead))
    return totals


def _parsed(resources: ResourceList) -> dict[str, int]:
    return {
        name: quantity.cpu_milli(value) if name == "cpu" else quantity.to_int(value)
        for name, value in resources.items()
    }


def _add(total: dict[str, int], values: Mapping[str, int]) -> None:
    for name, value in values.items():
        total[name] = total.get(name, 0) + value


def pod_requests(pod: Pod) -> dict[str, int]:
    """What the pod takes from the node: cpu in milli, everything else in units."""
    return _effective(pod, requests_of)


def pod_limits(pod: Pod) -> dict[str, int]:
    """The most the pod may use, for resources every container limits."""
    limits = _effective(pod, lambda c: c.resources.limits)
    everyone = [*pod.spec.containers, *pod.spec.init_containers]
    return {
        name: value
        for name, value in limits.items()
        if everyone and all(name in c.resources.limits for c in everyone)
    }


def oom_score_adj(
    qos: str, memory_request: int, memory_capacity: int, *, may_lower: bool = True
) -> int:
    """How soon the kernel kills the container when memory runs out.

    Without CAP_SYS_RESOURCE a negative value cannot be written, so it becomes 0.
    """
    if qos == "Guaranteed":
        return GUARANTEED_OOM if may_lower else 0
    if qos == "BestEffort" or memory_capacity <= 0:
        return BEST_EFFORT_OOM
    # Between the two extremes: more requested, later killed.
    score = 1000 - (1000 * memory_request) // memory_capacity
    return min(BEST_EFFORT_OOM - 1, max(1000 + GUARANTEED_OOM, score))


@dataclass(frozen=True, slots=True)
class LinuxLimits:
    """What one container's cgroup gets; 0 leaves a value alone."""

    cpu_shares: int
    cpu_quota_us: int
    memory_bytes: int
    oom_score_adj: int


def container_limits(
    pod: Pod, container: Container, memory_capacity: int, *, may_lower: bool
) -> LinuxLimits:
    """The cgroup values of one container."""
    requests, limits = requests_of(container), container.resources.limits
    qos = pod.status.qos_class or qos_class(pod)
    return LinuxLimits(
        cpu_shares=shares(_cpu(requests)),
        cpu_quota_us=quota_us(_cpu(limits)),
        memory_bytes=_memory(limits),
        oom_score_adj=oom_score_adj(qos, _memory(requests), memory_capacity, may_lower=may_lower),
    )


class Rejection(NamedTuple):
    """Why the node cannot take a pod."""

    reason: str
    message: str


def admit(
    pod: Pod,
    present: Iterable[Pod],
    allocatable: Mapping[str, int],
    overcommit: Mapping[str, Fraction] | None = None,
) -> Rejection | None:
    """Does the pod fit beside those already here? `allocatable` has cpu in milli.

    The scheduler has decided already, but it may have decided on old news: a node that takes more
    than it has breaks its promises to everyone on it. `overcommit`: of these resources requests may
    add up to so many times what there is, those of Guaranteed pods excepted.
    """
    used: dict[str, int] = {}
    reserved: dict[str, int] = {}
    count = 0
    for other in present:
        if other.metadata.uid != pod.metadata.uid:
            count += 1
            _add(used, pod_requests(other))
            if overcommit and _is_guaranteed(other):
                _add(reserved, pod_requests(other))
    if "pods" in allocatable and count + 1 > allocatable["pods"]:
        return _rejection("pods", 1, count, allocatable["pods"])
    for name, wanted in pod_requests(pod).items():
        if name not in allocatable and is_extended(name):
            continue  # nothing that is counted here: whoever announced it no longer does
        has = allocatable.get(name, 0)
        most = int(has * overcommit[name]) if overcommit and name in overcommit else has
        if wanted and used.get(name, 0) + wanted > most:
            return _rejection(name, wanted, used.get(name, 0), most)
        if most > has and reserved.get(name, 0) + wanted > has and _is_guaranteed(pod):
            return _rejection(name, wanted, reserved.get(name, 0), has)
    return None


def is_extended(name: str) -> bool:
    """Whether a resource is one that somebody else announced on the Node, such as example.com/x."""
    return "/" in name


def _is_guaranteed(pod: Pod) -> bool:
    return (pod.status.qos_class or qos_class(pod)) == "Guaranteed"


def _rejection(name: str, wanted: int, used: int, capacity: int) -> Rejection:
    return Rejection(
        f"OutOf{name}",
        f"Pod was rejected: Node didn't have enough resource: {name}, "
        f"requested: {wanted}, used: {used}, capacity: {capacity}",
    )
