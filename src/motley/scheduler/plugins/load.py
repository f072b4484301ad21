"""The load of nodes: what they use of CPU and memory, now and over a while, and what is to come.

LoadAware and Overcommit share it. Behind every figure stands a background task; a decision reads
columns. What pods ask for that the measurements do not show yet is `unseen`.

Besides CPU and memory there may be features: any series of percentages per node that a Prometheus
has, such as the share of the HTTP requests a node can serve. Pods cannot ask for them, so what a
new pod will add is only guessed, from what pods add on average (`guessed`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec
import numpy as np

from motley.client.rest import Client
from motley.lib import durations, journal
from motley.scheduler import contract
from motley.scheduler.columns import CPU_ROW, MEMORY_ROW, PODS_ROW
from motley.scheduler.contract import Columns, Scores
from motley.scheduler.events import ClusterEvent
from motley.scheduler.feed import Feed
from motley.scheduler.plugins import polling
from motley.scheduler.plugins.measured import Measurements, Requested
from motley.scheduler.plugins.polling import SourceArgs
from motley.scheduler.plugins.samples import Aggregation, Samples

log = journal.get(__name__)

RESOURCES = {"cpu": CPU_ROW, "memory": MEMORY_ROW}
# What `motley prometheus-rules` records: shares of the moment, not averages; windows are made here.
DEFAULT_METRICS = {"cpu": "node_cpu_usage", "memory": "node_mem_usage"}
# How much of the past a measurement holds: Prometheus' rate of a minute, one scrape and a half
# of metrics-server.
_PROMETHEUS_WINDOW_S = 60.0
_API_WINDOW_S = 30.0
_LONGEST_WINDOW_S = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class LoadMeasured(ClusterEvent):
    """Nodes were measured anew: what was too much before may not be now."""


class LoadArgs(SourceArgs, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Besides the source: the series a Prometheus is asked for, and when a value is too old."""

    metrics: dict[str, str] = msgspec.field(default_factory=dict)
    node_metric_expiration_seconds: int = 180

    def __post_init__(self) -> None:
        super().__post_init__()
        for resource, metric in self.metrics.items():
            if not resource or not metric:
                raise ValueError("metrics must have names and name series")
            if resource not in RESOURCES and not self.prometheus_api_addr:
                raise ValueError(
                    f"metrics: {resource!r} can only be had from a Prometheus, and no"
                    " prometheusApiAddr is set: metrics.k8s.io has cpu and memory"
                )
        if self.node_metric_expiration_seconds < self.query_metric_interval_seconds:
            raise ValueError(
                "nodeMetricExpirationSeconds must not be below queryMetricIntervalSeconds"
            )


def resources(name: str, amounts: Mapping[str, object]) -> None:
    """Raise ValueError where an argument names another resource than cpu and memory."""
    for resource in amounts:
        if resource not in RESOURCES:
            raise ValueError(f"{name}: {resource!r} is not cpu or memory")


def known(name: str, amounts: Mapping[str, object], metrics: Mapping[str, str]) -> None:
    """Raise ValueError where an argument names what is not measured."""
    for resource in amounts:
        if resource not in RESOURCES and resource not in metrics:
            raise ValueError(f"{name}: {resource!r} is not cpu or memory, nor named in metrics")


def percentages(name: str, amounts: Mapping[str, float], highest: float = 100) -> None:
    """Raise ValueError where an argument has a value that is no percentage."""
    for resource, value in amounts.items():
        if not 0 <= value <= highest:
            raise ValueError(f"{name}: {resource} must be 0 to {highest:g}")


def window(name: str, text: str) -> float:
    """A window in seconds. Raises ValueError."""
    seconds = durations.seconds(text)
    if not 1 <= seconds <= _LONGEST_WINDOW_S:
        raise ValueError(f"{name} must be 1s to 24h")
    return seconds


Window = tuple[Aggregation, float]  # what is made of the measurements of so many seconds


class _Tracked:
    def __init__(self, args: LoadArgs, windows: set[Window]) -> None:
        from_prometheus = bool(args.prometheus_api_addr)
        self.measured = Measurements(
            stale_s=args.node_metric_expiration_seconds, is_percent=from_prometheus
        )
        self.requested = Requested(_PROMETHEUS_WINDOW_S if from_prometheus else _API_WINDOW_S)
        self.samples = {w: Samples(w[1], w[0]) for w in windows}


class Load:
    """CPU, memory and features of all nodes, kept current by `background`."""

    def __init__(
        self, who: str, args: LoadArgs, handle: contract.Handle, *windows: Window | None
    ) -> None:
        wanted = {w for w in windows if w is not None}
        self._who = who
        self._args = args
        self._handle = handle
        self._clock = handle.clock
        self._nodes = handle.nodes
        self._metrics = {**DEFAULT_METRICS, **args.metrics}
        self._tracked = {resource: _Tracked(args, wanted) for resource in self._metrics}
        self._happened: Callable[[ClusterEvent], None] | None = None

    def percent(self, resource: str, nodes: Columns, window: Window | None = None) -> Scores:
        """By row: percent in use, as measured last or over the window; NaN: nothing recent."""
        tracked = self._tracked[resource]
        now = self._clock.monotonic()
        latest = tracked.measured.percent(nodes, _row(resource), now)
        if window is None:
            return latest
        return np.where(np.isnan(latest), np.nan, tracked.samples[window].aggregate(nodes))

    def unseen(self, resource: str, nodes: Columns) -> Scores:
        """By row: what pods ask for that the measurements do not show yet; pods, of a feature."""
        return self._tracked[resource].requested.unseen(nodes, _row(resource))

    def guessed(self, feature: str, nodes: Columns) -> Scores:
        """By row: percent of a feature that pods may add which the measurements do not show yet.

        They are taken to be like the others: each adds what a pod of the cluster has on average.
        """
        unseen, used = self.unseen(feature, nodes), self.percent(feature, nodes)
        measured = np.isfinite(used) & nodes.live
        pods = float((nodes.requested[PODS_ROW] - unseen)[measured].sum())
        added: Scores = unseen * (float(used[measured].sum()) / max(pods, 1.0))
        return added

    def follow(self, feed: Feed) -> None:
        """Whom to tell of new measurements."""
        self._happened = feed.happened

    async def background(self, client: Client) -> None:
        """Measure until cancelled."""
        await polling.poll(
            self._who,
            self._metrics,
            self._args,
            client,
            self.take,
            self._handle,
            stale_s=self._args.node_metric_expiration_seconds,
        )

    def take(self, resource: str, values: Mapping[str, float]) -> None:
        """Believe these measurements from now on."""
        tracked, nodes, row = self._tracked[resource], self._nodes, _row(resource)
        now = self._clock.monotonic()
        tracked.measured.take(values, now)
        tracked.requested.snapshot(nodes, row, now, self._clock.now())
        for samples in tracked.samples.values():
            fresh = tracked.measured.percent(nodes, row, now)
            samples.take(nodes, _only(values, nodes, fresh), now)
        log.debug("measurements taken", plugin=self._who, resource=resource, nodes=len(values))
        if self._happened is not None:
            self._happened(LoadMeasured())

    def ages(self) -> Mapping[str, float]:
        """How old the last measurement of each resource is."""
        now = self._clock.monotonic()
        found = {name: t.measured.age_s(now) for name, t in self._tracked.items()}
        return {name: age_s for name, age_s in found.items() if age_s is not None}


def _row(resource: str) -> int:
    """What pods are counted by: what they ask for, or their number where they cannot ask."""
    return RESOURCES.get(resource, PODS_ROW)


def _only(values: Mapping[str, float], nodes: Columns, percent: Scores) -> Scores:
    """Without nodes whose value is one of an earlier answer."""
    renewed = np.full(nodes.size, np.nan)
    rows = nodes.rows_named(values)
    renewed[rows] = percent[rows]
    return renewed
