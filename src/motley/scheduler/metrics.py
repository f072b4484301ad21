"""Figures for `/metrics`, under kube-scheduler's names, so that its dashboards and alerts work.

prometheus_client is not among the scheduler's dependencies: without it nothing is counted.

Names, labels and what a figure means are Kubernetes'. How long plugins and extension points take is
measured on a sample of the decisions (`timing`), for the clock costs more than many a plugin.
Children of a metric are looked up once: to find one costs more than to count.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, Protocol

QUEUES = ("active", "backoff", "unschedulable", "gated")


class Meter(Protocol):
    """What the scheduler reports about itself."""

    def attempt(self, profile: str, result: str, took_s: float) -> None:
        """A cycle ended: `scheduled`, `unschedulable` or `error`."""

    def plugins(self, profile: str, took_s: Mapping[tuple[str, str], float]) -> None:
        """What plugins took in one measured cycle, by name and method."""

    def point(self, profile: str, point: str, took_s: float, *, is_ok: bool = True) -> None:
        """An extension point was run."""

    def binding(self, result: str) -> None:
        """A binding ended: `bound` or `failed`."""

    def scheduled(self, attempts: int, since_s: float) -> None:
        """A pod is bound, after so many attempts and seconds since the first."""

    def preemption(self, victims: int) -> None:
        """Room is made for a pod by ending so many others."""

    def queued(self, queue: str, event: str) -> None:
        """A pod came into a queue, and why."""

    def pending(self, counts: Mapping[str, int]) -> None:
        """How many pods are where in the queue."""


class NoMeter:
    """Counts nothing."""

    def attempt(self, profile: str, result: str, took_s: float) -> None:
        """Nothing."""

    def plugins(self, profile: str, took_s: Mapping[tuple[str, str], float]) -> None:
        """Nothing."""

    def point(self, profile: str, point: str, took_s: float, *, is_ok: bool = True) -> None:
        """Nothing."""

    def binding(self, result: str) -> None:
        """Nothing."""

    def scheduled(self, attempts: int, since_s: float) -> None:
        """Nothing."""

    def preemption(self, victims: int) -> None:
        """Nothing."""

    def queued(self, queue: str, event: str) -> None:
        """Nothing."""

    def pending(self, counts: Mapping[str, int]) -> None:
        """Nothing."""


def _doubling(first: float, count: int, factor: float = 2.0) -> tuple[float, ...]:
    """Kubernetes' exponential buckets."""
    return tuple(first * factor**i for i in range(count))


# kube-scheduler's begin at 1 ms, where most of our decisions have long been made.
_ATTEMPTS_S = (0.00005, 0.0001, 0.0002, 0.0005, *_doubling(0.001, 15))
# The method of a plugin → the extension point.
_POINTS = {
    "pre_filter": "PreFilter",
    "filter": "Filter",
    "filter_rows": "Filter",
    "post_filter": "PostFilter",
    "pre_score": "PreScore",
    "score": "Score",
    "score_rows": "Score",
    "normalize": "ScoreExtensionNormalize",
}
_MOST_ATTEMPTS = 15  # kube-scheduler's label says `15+` from there on


class PrometheusMeter:
    """Counts in prometheus_client's default registry, or in the one given."""

    def __init__(self, registry: Any = None) -> None:
        from prometheus_client import REGISTRY, Counter, Gauge, Histogram

        into = registry or REGISTRY
        self._attempts = Counter(
            "scheduler_schedule_attempts",
            "Attempts to schedule a pod.",
            ["result", "profile"],
            registry=into,
        )
        self._durations = Histogram(
            "scheduler_scheduling_attempt_duration_seconds",
            "Time to decide about a pod.",
            ["result", "profile"],
            buckets=_ATTEMPTS_S,
            registry=into,
        )
        self._algorithm = Histogram(
            "scheduler_scheduling_algorithm_duration_seconds",
            "Time to decide about a pod, whatever came of it.",
            buckets=_ATTEMPTS_S,
            registry=into,
        )
        self._points = Histogram(
            "scheduler_framework_extension_point_duration_seconds",
            "Time all plugins of an extension point took, sampled within the cycle.",
            ["extension_point", "status", "profile"],
            buckets=_doubling(0.0001, 12),
            registry=into,
        )
        self._plugins = Histogram(
            "scheduler_plugin_execution_duration_seconds",
            "Time a plugin took at an extension point, sampled.",
            ["plugin", "extension_point", "status"],
            buckets=_doubling(0.00001, 20, 1.5),
            registry=into,
        )
        self._tries = Histogram(
            "scheduler_pod_scheduling_attempts",
            "Attempts until a pod was scheduled.",
            buckets=_doubling(1, 5),
            registry=into,
        )
        self._sli = Histogram(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "From a pod's first attempt to its binding.",
            ["attempts"],
            buckets=_doubling(0.01, 20),
            registry=into,
        )
        self._preemptions = Counter(
            "scheduler_preemption_attempts",
            "Pods that room was made for, or is being made.",
            registry=into,
        )
        self._victims = Histogram(
            "scheduler_preemption_victims",
            "Pods ended to make room for one.",
            buckets=_doubling(1, 7),
            registry=into,
        )
        self._incoming = Counter(
            "scheduler_queue_incoming_pods",
            "Pods that came into a queue.",
            ["queue", "event"],
            registry=into,
        )
        self._bindings = Counter(
            "scheduler_bindings", "Bindings by outcome.", ["result"], registry=into
        )
        self._pending = Gauge(
            "scheduler_pending_pods", "Pods by place in the queue.", ["queue"], registry=into
        )
        self._child = cache(_child)

    def attempt(self, profile: str, result: str, took_s: float) -> None:
        """Count a cycle and its time."""
        self._child(self._attempts, result, profile).inc()
        self._child(self._durations, result, profile).observe(took_s)
        self._algorithm.observe(took_s)

    def plugins(self, profile: str, took_s: Mapping[tuple[str, str], float]) -> None:
        """Note times of plugins, and their sums by extension point."""
        points: dict[str, float] = {}
        for (plugin, method), seconds in took_s.items():
            point = _POINTS.get(method, method)
            points[point] = points.get(point, 0.0) + seconds
            self._child(self._plugins, plugin, point, "Success").observe(seconds)
        for point, seconds in points.items():
            self.point(profile, point, seconds)

    def point(self, profile: str, point: str, took_s: float, *, is_ok: bool = True) -> None:
        """Note the time of an extension point."""
        outcome = "Success" if is_ok else "Error"
        self._child(self._points, point, outcome, profile).observe(took_s)

    def binding(self, result: str) -> None:
        """Count a binding."""
        self._child(self._bindings, result).inc()

    def scheduled(self, attempts: int, since_s: float) -> None:
        """Note how often and how long a pod was tried."""
        self._tries.observe(attempts)
        label = str(attempts) if attempts < _MOST_ATTEMPTS else f"{_MOST_ATTEMPTS}+"
        self._child(self._sli, label).observe(since_s)

    def preemption(self, victims: int) -> None:
        """Count a preemption."""
        self._preemptions.inc()
        self._victims.observe(victims)

    def queued(self, queue: str, event: str) -> None:
        """Count an arrival."""
        self._child(self._incoming, queue, event).inc()

    def pending(self, counts: Mapping[str, int]) -> None:
        """Set the gauges."""
        for place in QUEUES:
            self._child(self._pending, place).set(counts.get(place, 0))


def _child(metric: Any, *labels: str) -> Any:
    return metric.labels(*labels)


def make() -> Meter:
    """The best meter there is; once per process, because metrics register by name."""
    try:
        return PrometheusMeter()
    except ModuleNotFoundError:
        return NoMeter()
