"""Figures of functions for `/metrics`.

prometheus_client is not among the client's dependencies: without it nothing is counted.
"""

from typing import Any, Protocol

from motley.api.views.base import Key

PHASES = ("schedule", "sandbox", "start", "first_byte")
_COLD = (0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 30.0)
_RUN = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)


class Meters(Protocol):
    """What is counted."""

    def cold(self, function: Key, phase: str, seconds: float) -> None:
        """One phase of a cold start took this long."""

    def queued(self, function: Key, seconds: float) -> None:
        """A call waited this long for an instance."""

    def ran(self, function: Key, code: int, seconds: float) -> None:
        """A call was answered with this code after this time."""

    def state(self, function: Key, in_flight: int, waiting: int, instances: int) -> None:
        """How busy a function is now."""

    def forget(self, function: Key) -> None:
        """The function is gone."""

    def pooled(self, namespace: str, count: int) -> None:
        """Warm pods of a namespace."""


class NoMeters:
    """Counts nothing."""

    def cold(self, function: Key, phase: str, seconds: float) -> None:
        """Nothing."""

    def queued(self, function: Key, seconds: float) -> None:
        """Nothing."""

    def ran(self, function: Key, code: int, seconds: float) -> None:
        """Nothing."""

    def state(self, function: Key, in_flight: int, waiting: int, instances: int) -> None:
        """Nothing."""

    def forget(self, function: Key) -> None:
        """Nothing."""

    def pooled(self, namespace: str, count: int) -> None:
        """Nothing."""


class PrometheusMeters:
    """Counts in prometheus_client's default registry."""

    def __init__(self) -> None:
        from prometheus_client import Counter, Gauge, Histogram

        label = ["namespace", "function"]
        self._cold = Histogram(
            "motley_function_cold_start_seconds",
            "Phases of the start of an instance.",
            [*label, "phase"],
            buckets=_COLD,
        )
        self._queue = Histogram(
            "motley_function_queue_seconds",
            "How long calls waited for an instance.",
            label,
            buckets=_RUN,
        )
        self._run = Histogram(
            "motley_function_run_seconds", "How long calls took.", label, buckets=_RUN
        )
        self._calls = Counter(
            "motley_function_calls", "Calls by the code of their answer.", [*label, "code"]
        )
        self._in_flight = Gauge("motley_function_in_flight", "Calls under way.", label)
        self._waiting = Gauge("motley_function_waiting", "Calls that wait for an instance.", label)
        self._instances = Gauge("motley_function_instances", "Instances that take calls.", label)
        self._pool = Gauge("motley_function_pool_pods", "Warm pods that wait.", ["namespace"])
        # Labels are looked up once per function: the lookup costs more than the counting.
        self._children: dict[Any, Any] = {}

    def _child(self, metric: Any, *labels: str) -> Any:
        found = self._children.get((metric, labels))
        if found is None:
            found = self._children[(metric, labels)] = metric.labels(*labels)
        return found

    def cold(self, function: Key, phase: str, seconds: float) -> None:
        """Count a phase."""
        self._child(self._cold, *function, phase).observe(max(0.0, seconds))

    def queued(self, function: Key, seconds: float) -> None:
        """Count a wait."""
        self._child(self._queue, *function).observe(seconds)

    def ran(self, function: Key, code: int, seconds: float) -> None:
        """Count a call."""
        self._child(self._run, *function).observe(seconds)
        self._child(self._calls, *function, str(code)).inc()

    def state(self, function: Key, in_flight: int, waiting: int, instances: int) -> None:
        """Show how busy it is."""
        self._child(self._in_flight, *function).set(in_flight)
        self._child(self._waiting, *function).set(waiting)
        self._child(self._instances, *function).set(instances)

    def forget(self, function: Key) -> None:
        """Show its gauges no more; what was counted stays counted until the process ends."""
        for metric in (self._in_flight, self._waiting, self._instances):
            if self._children.pop((metric, tuple(function)), None) is not None:
                metric.remove(*function)

    def pooled(self, namespace: str, count: int) -> None:
        """Show the pool."""
        self._child(self._pool, namespace).set(count)


def make() -> Meters:
    """The best there is; once per process, because metrics register by name."""
    try:
        return PrometheusMeters()
    except ModuleNotFoundError:
        return NoMeters()
