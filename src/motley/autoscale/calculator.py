"""How many pods a metric asks for. Pure.

The ratio of what is measured to what is wanted, times the pods that were measured. What is not
known is assumed to argue against the change: pods without a sample count as idle on the way up and
as fully busy on the way down, pods that are not ready count as idle on the way up.

Invariant: what is assumed never turns the direction of a change around, it only makes it smaller.
Amounts are thousandths, as in Kubernetes.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from motley.api import quantity
from motley.api.views.pod import Pod
from motley.lib.clock import parse_rfc3339

MAX_REPLICAS = 2**31 - 1


class MetricError(Exception):
    """A metric from which no number of pods can be computed; the message says why."""


class Sample(NamedTuple):
    """What one pod used, on average over the window that ended at a moment."""

    milli: int
    at: float
    window_s: float


@dataclass(frozen=True)
class Settings:
    """What an operator may choose; the defaults are kube-controller-manager's."""

    sync_s: float = 15.0
    downscale_stabilization_s: float = 300.0
    tolerance: float = 0.1
    cpu_initialization_s: float = 300.0
    initial_readiness_s: float = 30.0


class Tolerances(NamedTuple):
    """How far a ratio may be from one without being acted upon."""

    down: float
    up: float

    def allow(self, ratio: float) -> bool:
        """Is the ratio close enough to one?"""
        return 1.0 - self.down <= ratio <= 1.0 + self.up


class Groups(NamedTuple):
    """Pods by what their samples are worth."""

    ready: int
    unready: frozenset[str]
    missing: frozenset[str]
    ignored: frozenset[str]


class Pods(NamedTuple):
    """The target's pods, and what is needed to judge their samples."""

    items: Sequence[Pod]
    settings: Settings
    now: float

    def ready_count(self) -> int:
        """How many serve. Raises MetricError when there is none at all."""
        _some(self.items)
        return sum(1 for p in self.items if p.status.phase == "Running" and p.is_ready)


class Measured(NamedTuple):
    """A proposal, with the figures it rests on."""

    replicas: int
    average_milli: int
    utilization: int | None = None


def utilization(
    current: int,
    target_percent: int,
    resource: str,
    pods: Pods,
    samples: Mapping[str, Sample],
    tolerances: Tolerances,
    container: str = "",
) -> Measured:
    """Replicas for a share of what the pods request. Raises MetricError."""
    _some(pods.items)
    groups = group(pods, samples, resource)
    known = _worth(samples, groups)
    requests = {p.metadata.name: requested(p, resource, container) for p in pods.items}

    def measure(usage: Mapping[str, int]) -> tuple[float, int, int]:
        matched = {name: milli for name, milli in usage.items() if name in requests}
        asked = sum(requests[name] for name in matched)
        if not asked:
            raise MetricError("no metrics returned matched known pods")
        used = sum(matched.values())
        percent = used * 100 // asked
        return percent / target_percent, percent, used // len(matched)

    ratio, percent, average = measure(known)
    # A pod nobody measured may be busy: at what it requests, or at a target beyond that.
    busy = max(100, target_percent)
    replicas = _replicas(
        current,
        groups,
        known,
        ratio,
        lambda usage: measure(usage)[0],
        lambda name: requests[name] * busy // 100,
        tolerances,
    )
    return Measured(replicas, average, percent)


def average_value(
    current: int,
    target_milli: int,
    resource: str,
    pods: Pods,
    samples: Mapping[str, Sample],
    tolerances: Tolerances,
) -> Measured:
    """Replicas for an amount per pod; `resource` is empty for metrics that are none. Raises
    MetricError."""
    _some(pods.items)
    groups = group(pods, samples, resource)
    known = _worth(samples, groups)

    def measure(usage: Mapping[str, int]) -> tuple[float, int]:
        average = sum(usage.values()) // len(usage)
        return average / target_milli, average

    ratio, average = measure(known)
    replicas = _replicas(
        current,
        groups,
        known,
        ratio,
        lambda usage: measure(usage)[0],
        lambda _: target_milli,
        tolerances,
    )
    return Measured(replicas, average)


def value(
    current: int, target_milli: int, usage_milli: int, pods: Pods, tolerances: Tolerances
) -> Measured:
    """Replicas for one figure of the whole; from zero there are no pods to multiply with."""
    ratio = usage_milli / target_milli
    if current == 0:
        return Measured(_whole(ratio), usage_milli)
    if tolerances.allow(ratio):
        return Measured(current, usage_milli)
    return Measured(_whole(ratio * pods.ready_count()), usage_milli)


def value_per_pod(
    status_replicas: int, target_milli: int, usage_milli: int, tolerances: Tolerances
) -> Measured:
    """Replicas for one figure of the whole, shared evenly by the pods."""
    wanted = _whole(usage_milli / target_milli)
    if not status_replicas:
        return Measured(wanted, usage_milli)
    if tolerances.allow(usage_milli / (target_milli * status_replicas)):
        wanted = status_replicas
    return Measured(wanted, math.ceil(usage_milli / status_replicas))


def group(pods: Pods, samples: Mapping[str, Sample], resource: str) -> Groups:
    """Sort the pods. CPU use of a pod that starts says nothing yet, other metrics do."""
    ready = 0
    unready: set[str] = set()
    missing: set[str] = set()
    ignored: set[str] = set()
    for pod in pods.items:
        name = pod.metadata.name
        sample = samples.get(name)
        if pod.metadata.deletion_timestamp is not None or pod.status.phase == "Failed":
            ignored.add(name)
        elif pod.status.phase == "Pending":
            unready.add(name)
        elif sample is None:
            missing.add(name)
        elif resource == "cpu" and _is_starting(pod, sample, pods.settings, pods.now):
            unready.add(name)
        else:
            ready += 1
    return Groups(ready, frozenset(unready), frozenset(missing), frozenset(ignored))


def _is_starting(pod: Pod, sample: Sample, settings: Settings, now: float) -> bool:
    condition = pod.status.condition("Ready")
    if condition is None or pod.status.start_time is None:
        return True
    started = parse_rfc3339(pod.status.start_time)
    changed = parse_rfc3339(condition.last_transition_time or pod.status.start_time)
    is_unready = condition.status == "False"
    if started + settings.cpu_initialization_s > now:
        return is_unready or sample.at < changed + sample.window_s
    # Later an unready pod counts, unless it never was ready.
    return is_unready and started + settings.initial_readiness_s > changed


def requested(pod: Pod, resource: str, container: str = "") -> int:
    """What a pod requests of a resource. Raises MetricError when one of its containers does not
    say: a share of nothing is no number."""
    name = pod.metadata.name
    whole = pod.spec.resources
    if not container and whole is not None and whole.requests:
        return _of_whole_pod(pod, resource)
    sidecars = [c for c in pod.spec.init_containers if c.restart_policy == "Always"]
    total = 0
    for one in [*pod.spec.containers, *sidecars]:
        if container and one.name != container:
            continue
        amount = one.resources.requests.get(resource)
        if amount is None:
            raise MetricError(
                f"missing request for {resource} in container {one.name} of Pod {name}"
            )
        total += quantity.cpu_milli(amount)
        if container:
            return total
    if container:
        raise MetricError(f"container {container} not found in Pod {name}")
    return total


def _of_whole_pod(pod: Pod, resource: str) -> int:
    whole = pod.spec.resources
    assert whole is not None
    amount = whole.requests.get(resource)
    if amount is not None:
        return quantity.cpu_milli(amount)
    listed = [c.resources.requests.get(resource) for c in pod.spec.containers]
    if not any(a is not None for a in listed):
        raise MetricError(f"missing pod-level request for {resource} in Pod {pod.metadata.name}")
    return sum(quantity.cpu_milli(a) for a in listed if a is not None)


def _some(pods: Collection[Pod]) -> None:
    if not pods:
        raise MetricError("no pods returned by selector while calculating replica count")


def _worth(samples: Mapping[str, Sample], groups: Groups) -> dict[str, int]:
    useless = groups.ignored | groups.unready
    known = {name: s.milli for name, s in samples.items() if name not in useless}
    if not known:
        raise MetricError("did not receive metrics for targeted pods (pods might be unready)")
    return known


def _replicas(
    current: int,
    groups: Groups,
    known: Mapping[str, int],
    ratio: float,
    measure: Callable[[Mapping[str, int]], float],
    busy: Callable[[str], int],
    tolerances: Tolerances,
) -> int:
    unready_count = bool(groups.unready) and ratio > 1.0
    if not unready_count and not groups.missing:
        return current if tolerances.allow(ratio) else _whole(ratio * groups.ready)
    assumed = dict(known)
    for name in groups.missing:
        if ratio < 1.0:
            assumed[name] = busy(name)
        elif ratio > 1.0:
            assumed[name] = 0
    if unready_count:
        assumed |= dict.fromkeys(groups.unready, 0)
    cautious = measure(assumed)
    turned = (ratio < 1.0 < cautious) or (cautious < 1.0 < ratio)
    if tolerances.allow(cautious) or turned:
        return current
    wanted = _whole(cautious * len(assumed))
    if (cautious < 1.0 and wanted > current) or (cautious > 1.0 and wanted < current):
        return current
    return wanted


def _whole(replicas: float) -> int:
    return min(MAX_REPLICAS, math.ceil(replicas))
