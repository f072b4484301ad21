"""What this room brings to an API server: one collector, and the groups that show its figures."""

from collections.abc import Sequence
from pathlib import Path

from motley.apiserver.core import Core
from motley.apiserver.extension import Extension, Factory
from motley.metrics.collector import Collector
from motley.metrics.forecast_extension import LocalForecasts
from motley.metrics.history_api import UsageHistory
from motley.metrics.remotewrite import RemoteWrite, Target
from motley.metrics.resource_api import ResourceMetrics


def extensions(
    every_s: float, history: Path | None, series: int, remote: Target | None = None
) -> Sequence[Factory]:
    """`metrics.k8s.io`, `history.motley.io` over the same measurements, and forecasts from them.
    Without a path the history is in memory; without series there is none, but the group still
    exports."""
    collectors: list[Collector] = []
    pasts: list[UsageHistory] = []

    def resource(core: Core) -> Extension:
        collectors.append(Collector(core, every_s))
        return ResourceMetrics(core, every_s, collectors[-1])

    def past(core: Core) -> Extension:
        sender = RemoteWrite(remote, every_s, core.clock, core.rng) if remote else None
        pasts.append(UsageHistory(core, collectors[-1], history, max(series, 1), sender))
        return pasts[-1]

    def ahead(core: Core) -> Extension:
        return LocalForecasts(core, pasts[-1].keeper)

    if not series:
        return [resource, past] if remote else [resource]
    return [resource, past, ahead]
