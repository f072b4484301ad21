"""`external.metrics.k8s.io` in the API server's own process: forecasts from the past it keeps.

An autoscaler that goes by `motley_forecast_cpu` so works in a Motley cluster as beside any other.
Another provider of external metrics takes its place by registering its APIService.
"""

import contextlib
from typing import Any

from motley.api import scheme, status
from motley.apiserver.core import Core
from motley.metrics.forecast_api import GROUP, METRICS, ForecastMetrics
from motley.metrics.history_keeper import Keeper
from motley.metrics.kept_pasts import KeptPasts

Document = dict[str, Any]

_RBAC = "rbac.authorization.k8s.io"


class LocalForecasts(ForecastMetrics):
    """The group, as an extension of the API server."""

    def __init__(self, core: Core, keeper: Keeper) -> None:
        super().__init__(KeptPasts(keeper, core.clock), core.clock)
        self._core = core

    async def run(self) -> None:
        """Let those who may look at workloads look at what is expected of them."""
        kind = scheme.resource(_RBAC, "v1", "clusterroles")
        assert kind is not None
        with contextlib.suppress(status.AlreadyExists):
            await self._core.writer.create(kind, "", reader_role())
        await super().run()


def reader_role() -> Document:
    """The role by which `view`, `edit` and `admin` include this group."""
    labels = {f"{_RBAC}/aggregate-to-{name}": "true" for name in ("view", "edit", "admin")}
    rule = {"apiGroups": [GROUP], "resources": list(METRICS), "verbs": ["get", "list"]}
    return {"metadata": {"name": "motley:forecast-reader", "labels": labels}, "rules": [rule]}
