"""The numbers of every priority level, read when somebody asks: counting costs requests nothing."""

from collections.abc import Callable, Iterator

import prometheus_client
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from motley.apiserver.flowcontrol.control import FlowControl
from motley.apiserver.flowcontrol.level import Level

_PREFIX = "apiserver_flowcontrol_"
_GAUGES: tuple[tuple[str, str, Callable[[Level], int]], ...] = (
    ("current_inqueue_requests", "Requests waiting for a seat.", lambda level: level.waiting),
    ("current_executing_requests", "Requests that hold a seat.", lambda level: level.executing),
    ("nominal_limit_seats", "Seats of the level's own.", lambda level: level.seats),
)


class LevelMetrics(Collector):
    """See the module."""

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """One family per number, one sample per level."""
        levels = [level for control in FlowControl.instances for level in control.levels.values()]
        for name, text, read in _GAUGES:
            yield _gauge(name, text, [(level.name, read(level)) for level in levels])
        dispatched = CounterMetricFamily(
            f"{_PREFIX}dispatched_requests", "Requests that got a seat.", labels=["priority_level"]
        )
        rejected = CounterMetricFamily(
            f"{_PREFIX}rejected_requests",
            "Requests answered with 429.",
            labels=["priority_level", "reason"],
        )
        for level in levels:
            dispatched.add_metric([level.name], level.dispatched)
            for reason, count in level.rejected.items():
                rejected.add_metric([level.name, reason], count)
        yield dispatched
        yield rejected


def _gauge(name: str, text: str, values: list[tuple[str, int]]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"{_PREFIX}{name}", text, labels=["priority_level"])
    for level, value in values:
        family.add_metric([level], value)
    return family


prometheus_client.REGISTRY.register(LevelMetrics())
