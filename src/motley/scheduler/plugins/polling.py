"""Asking a source of measurements again and again, in the background.

What plugins by measured use have in common besides measurements: where these come from, how long an
answer may take, how often it is asked for, and that a source that fails is asked less and less.
Where that lasts so long that nothing measured counts any more, an event says so: placing goes on,
and nobody would notice that it goes by less than it is meant to.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack

import aiohttp
import msgspec

from motley.api import status
from motley.client.rest import Client
from motley.lib import journal
from motley.lib.backoff import Backoff
from motley.scheduler import contract
from motley.scheduler.plugins.measured import Prometheus, ResourceMetrics, Source, SourceError

log = journal.get(__name__)

_SLOWEST_S = 300.0
_REMIND_S = 1800.0  # events do not last for ever
MISSING = "MeasurementsMissing"

Take = Callable[[str, Mapping[str, float]], None]  # resource, and its use by node


class SourceArgs(msgspec.Struct, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Where measurements come from (`metrics.k8s.io` if no Prometheus is named), how long an
    answer may take, and how often it is asked for."""

    prometheus_api_addr: str = ""
    query_metric_time_seconds: int = 10
    query_metric_interval_seconds: int = 10

    def __post_init__(self) -> None:
        if self.prometheus_api_addr and not self.prometheus_api_addr.startswith(
            ("http://", "https://")
        ):
            raise ValueError("prometheusApiAddr must be a URL, http:// or https://")
        for name, value in (
            ("queryMetricTimeSeconds", self.query_metric_time_seconds),
            ("queryMetricIntervalSeconds", self.query_metric_interval_seconds),
        ):
            if not 1 <= value <= 3600:
                raise ValueError(f"{name} must be 1 to 3600")


async def poll(
    who: str,
    metrics: Mapping[str, str],
    args: SourceArgs,
    client: Client,
    take: Take,
    handle: contract.Handle,
    *,
    stale_s: float,
) -> None:
    """Until cancelled. `metrics`: by resource, the series that a Prometheus is asked for.
    `stale_s`: how long a measurement counts."""
    async with AsyncExitStack() as stack:
        if args.prometheus_api_addr:
            session = await stack.enter_async_context(aiohttp.ClientSession(trust_env=True))
        group = await stack.enter_async_context(asyncio.TaskGroup())
        for resource, metric in metrics.items():
            source: Source
            if args.prometheus_api_addr:
                source = Prometheus(
                    session, args.prometheus_api_addr, metric, args.query_metric_time_seconds
                )
            else:
                source = ResourceMetrics(client, resource)
            outage = _Outage(f"{who}: no measurements of {resource}", stale_s, handle)
            group.create_task(
                _repeat(who, resource, source, args.query_metric_interval_seconds, take, outage)
            )


class _Outage:
    """Tells of the time without measurements, once it matters and then now and again."""

    def __init__(self, what: str, stale_s: float, handle: contract.Handle) -> None:
        self._what = what
        self._stale_s = stale_s
        self._handle = handle
        self.clock = handle.clock
        self._good_at = self._told_at = self.clock.monotonic()

    def answered(self, values: Mapping[str, float]) -> None:
        """An answer that speaks of no node of this cluster is as good as none."""
        nodes = self._handle.nodes.rows
        if not nodes or any(name in nodes for name in values):
            self._good_at = self._told_at = self.clock.monotonic()
        else:
            self.goes_on(f"the answer has {len(values)} nodes, none of which is in this cluster")

    def goes_on(self, why: str) -> None:
        """There is no measurement this time, either."""
        now = self.clock.monotonic()
        waits_s = self._stale_s if self._told_at == self._good_at else _REMIND_S
        if now - self._told_at > waits_s:
            self._told_at = now
            since = f"for {now - self._good_at:.0f} s, nodes are not told apart by them"
            self._handle.notices.warn(None, MISSING, f"{self._what} {since}: {why}")


async def _repeat(
    who: str, resource: str, source: Source, interval_s: float, take: Take, outage: _Outage
) -> None:
    clock = outage.clock
    pauses = Backoff(base_s=interval_s, cap_s=max(interval_s, _SLOWEST_S))
    while True:
        try:
            values = await source.fetch()
        except (SourceError, status.ApiError, OSError, TimeoutError) as error:
            said = str(error) or repr(error)
            log.warning("no measurements", plugin=who, resource=resource, error=said)
            outage.goes_on(said)
            await clock.sleep(pauses.next())
            continue
        pauses.reset()
        take(resource, values)
        outage.answered(values)
        await clock.sleep(interval_s)
