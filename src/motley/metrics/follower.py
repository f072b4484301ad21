"""The past of workloads where no API server keeps it: `metrics.k8s.io`, followed into a ring.

On somebody else's Kubernetes the metrics server knows only the moment. Whoever runs Motley's
controllers there lets them keep the past themselves, in a file of their own.
"""

import asyncio
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from motley.api import quantity, status
from motley.autoscale.past import Past
from motley.client.rest import Client
from motley.lib import journal
from motley.lib.clock import Clock, parse_rfc3339
from motley.metrics import history_rollup
from motley.metrics.history import WORKLOAD, History, Question, Series
from motley.metrics.history_ring import QUANTITIES, Ring
from motley.metrics.history_rollup import Fact
from motley.metrics.history_times import duration_s
from motley.metrics.usage import PodUse, Use

log = journal.get(__name__)

_METRICS = "/apis/metrics.k8s.io/v1beta1"
Known = Callable[[], tuple[Mapping[tuple[str, str], Fact], Mapping[str, float]]]
"""Every pod's node and workload, and every node's speed."""


class Follower:
    """Keeps and tells the past; `run` it for as long as it is needed."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        path: Path | None,
        series: int,
        every_s: float,
        known: Known,
    ) -> None:
        self._client, self._clock = client, clock
        self._history = History(Ring(path, series, matters_less=Series.matters_less))
        self._every_s = every_s
        self._known = known

    async def run(self) -> None:
        """Follow until cancelled."""
        try:
            while True:
                await self._round()
                await self._clock.sleep(self._every_s)
        finally:
            self._history.close()

    async def _round(self) -> None:
        try:
            nodes = await self._client.raw("GET", f"{_METRICS}/nodes")
            pods = await self._client.raw("GET", f"{_METRICS}/pods")
        except status.ApiError as error:
            log.info("metrics not read", error=error.message)
            return
        facts, speeds = self._known()
        samples = history_rollup.samples(node_uses(nodes), pod_uses(pods), facts, speeds)
        try:
            await asyncio.to_thread(self._history.write, self._clock.now(), samples)
        except OSError as error:
            log.error("usage history not written", error=str(error))

    async def workload(
        self, namespace: str, kind: str, name: str, back: str, step: str, aggregation: str
    ) -> Mapping[str, Past]:
        """See `motley.autoscale.past.Pasts`."""
        now = self._clock.now()
        asked = Question(now - duration_s(back), now, duration_s(step), aggregation)
        found = {}
        for series in self._history.find(WORKLOAD, namespace, name, kind):
            window = self._history.read(series, asked, now)
            lines = [
                [None if math.isnan(v) else float(v) for v in window.figures[q]] for q in QUANTITIES
            ]
            found[series.container] = Past(window.start, window.step_s, *lines)
        return found


def node_uses(answer: Any) -> dict[str, Use]:
    """By node, from a NodeMetricsList; what cannot be read is left out."""
    found = {}
    for item in _items(answer):
        if (use := _use(item, item)) is not None:
            found[item["metadata"]["name"]] = use
    return found


def pod_uses(answer: Any) -> dict[tuple[str, str], PodUse]:
    """By pod, from a PodMetricsList."""
    found: dict[tuple[str, str], PodUse] = {}
    for item in _items(answer):
        key = (item["metadata"].get("namespace", ""), item["metadata"]["name"])
        known = {p.get("name", ""): _use(p, item) for p in item.get("containers") or ()}
        parts = {name: use for name, use in known.items() if use is not None}
        if parts:
            found[key] = PodUse(*key, parts)
    return found


def _items(answer: Any) -> list[Any]:
    return (answer.get("items") or []) if isinstance(answer, dict) else []


def _use(part: Any, item: Any) -> Use | None:
    try:
        cpu_nano = quantity.quantity(part["usage"]["cpu"]).nano
        memory = quantity.to_int(part["usage"]["memory"])
        return Use(parse_rfc3339(item["timestamp"]), 0.0, cpu_nano, memory)
    except (LookupError, TypeError, ValueError):
        return None
