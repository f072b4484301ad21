"""Figures for `/metrics`, under kube-scheduler's names, so that its dashboards and alerts work.

prometheus_client is not among the scheduler's dependencies: without it nothing is counted.
"""

from collections.abc import Mapping
from typing import Protocol


class Meter(Protocol):
    """What the scheduler reports about itself."""

    def attempt(self, profile: str, result: str, took_s: float) -> None:
        """A cycle ended: `scheduled`, `unschedulable` or `error`."""

    def binding(self, result: str) -> None:
        """A binding ended: `bound` or `failed`."""

    def pending(self, counts: Mapping[str, int]) -> None:
        """How many pods are where in the queue."""


class NoMeter:
    """Counts nothing."""

    def attempt(self, profile: str, result: str, took_s: float) -> None:
        """Nothing."""

    def binding(self, result: str) -> None:
        """Nothing."""

    def pending(self, counts: Mapping[str, int]) -> None:
        """Nothing."""


# From 50 µs, an easy pod on a small cluster, to 50 ms.
_BUCKETS = (0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05)


class PrometheusMeter:
    """Counts in prometheus_client's default registry."""

    def __init__(self) -> None:
        from prometheus_client import Counter, Gauge, Histogram

        self._attempts = Counter(
            "scheduler_schedule_attempts", "Attempts to schedule a pod.", ["profile", "result"]
        )
        self._durations = Histogram(
            "scheduler_scheduling_attempt_duration_seconds",
            "Time to decide about a pod.",
            ["profile", "result"],
            buckets=_BUCKETS,
        )
        self._bindings = Counter("scheduler_bindings", "Bindings by outcome.", ["result"])
        self._pending = Gauge("scheduler_pending_pods", "Pods by place in the queue.", ["queue"])

    def attempt(self, profile: str, result: str, took_s: float) -> None:
        """Count a cycle and its time."""
        self._attempts.labels(profile, result).inc()
        self._durations.labels(profile, result).observe(took_s)

    def binding(self, result: str) -> None:
        """Count a binding."""
        self._bindings.labels(result).inc()

    def pending(self, counts: Mapping[str, int]) -> None:
        """Set the gauges."""
        for place, count in counts.items():
            self._pending.labels(place).set(count)


def make() -> Meter:
    """The best meter there is; once per process, because metrics register by name."""
    try:
        return PrometheusMeter()
    except ModuleNotFoundError:
        return NoMeter()
