"""Figures of every controller for `/metrics`, under the names client-go gives its work queues, so
that dashboards and alerts made for kube-controller-manager work.

prometheus_client is not among the client's dependencies: without it nothing is counted.
"""

from typing import Any, Protocol

from motley.client.workqueue import Meter, WorkQueue


class Meters(Protocol):
    """Makes what counts for one controller."""

    def attach(self, name: str, queue: WorkQueue[Any]) -> None:
        """Count what happens in this controller's queue."""

    def failed(self, name: str) -> None:
        """Count one failed reconciliation."""


class NoMeters:
    """Counts nothing."""

    def attach(self, name: str, queue: WorkQueue[Any]) -> None:
        """Nothing."""

    def failed(self, name: str) -> None:
        """Nothing."""


# client-go's: ten of them, from 10 ns on, a factor of ten each.
_BUCKETS = tuple(10.0**power for power in range(-8, 2))


class PrometheusMeters:
    """Counts in prometheus_client's default registry."""

    def __init__(self) -> None:
        from prometheus_client import Counter, Gauge, Histogram

        label = ["name"]
        self.depth = Gauge("workqueue_depth", "Current depth of workqueue", label)
        self.adds = Counter(
            "workqueue_adds_total", "Total number of adds handled by workqueue", label
        )
        self.waits = Histogram(
            "workqueue_queue_duration_seconds",
            "How long in seconds an item stays in workqueue before being requested.",
            label,
            buckets=_BUCKETS,
        )
        self.works = Histogram(
            "workqueue_work_duration_seconds",
            "How long in seconds processing an item from workqueue takes.",
            label,
            buckets=_BUCKETS,
        )
        self.retries = Counter(
            "workqueue_retries_total", "Total number of retries handled by workqueue", label
        )
        self.unfinished = Gauge(
            "workqueue_unfinished_work_seconds",
            "Seconds of work in progress that work_duration has not counted yet.",
            label,
        )
        self.longest = Gauge(
            "workqueue_longest_running_processor_seconds",
            "How many seconds the longest running processor has been running.",
            label,
        )
        self.errors = Counter(
            "controller_runtime_reconcile_errors_total",
            "Total number of reconciliation errors per controller",
            ["controller"],
        )

    def attach(self, name: str, queue: WorkQueue[Any]) -> None:
        """Register the controller's series, at zero, and count from now on."""
        queue.meter = _QueueMeter(self, name)
        self.unfinished.labels(name).set_function(lambda: sum(queue.unfinished_s()))
        self.longest.labels(name).set_function(lambda: max(queue.unfinished_s(), default=0.0))
        self.errors.labels(name)

    def failed(self, name: str) -> None:
        """Count one failed reconciliation."""
        self.errors.labels(name).inc()


class _QueueMeter:
    """One queue's series, looked up once."""

    def __init__(self, all_: PrometheusMeters, name: str) -> None:
        self._depth = all_.depth.labels(name)
        self._adds = all_.adds.labels(name)
        self._waits = all_.waits.labels(name)
        self._works = all_.works.labels(name)
        self._retries = all_.retries.labels(name)

    def added(self, depth: int) -> None:
        """Count an add."""
        self._adds.inc()
        self._depth.set(depth)

    def taken(self, depth: int, waited_s: float) -> None:
        """Count the time a key waited."""
        self._depth.set(depth)
        self._waits.observe(waited_s)

    def done(self, worked_s: float) -> None:
        """Count the time a reconciliation took."""
        self._works.observe(worked_s)

    def retried(self) -> None:
        """Count a retry."""
        self._retries.inc()


_: type[Meter] = _QueueMeter


def make() -> Meters:
    """The best there is; once per process, because metrics register by name."""
    try:
        return PrometheusMeters()
    except ModuleNotFoundError:
        return NoMeters()
