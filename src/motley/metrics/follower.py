"""The past of workloads where no API server keeps it: `metrics.k8s.io`, followed into a ring.

On somebody else's Kubernetes the metrics server knows only the moment. There the past is kept by
`motley history-server` for everybody, or by Motley's controllers for themselves alone.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from motley.api import quantity, status
from motley.client.rest import Client
from motley.lib import journal
from motley.lib.clock import Clock, parse_rfc3339
from motley.metrics.history_keeper import Keeper
from motley.metrics.history_rollup import Facts
from motley.metrics.kept_pasts import KeptPasts
from motley.metrics.usage import PodUse, Use

log = journal.get(__name__)

_METRICS = "/apis/metrics.k8s.io/v1beta1"
Known = Callable[[], tuple[Facts, Mapping[str, float]] | None]
"""Every pod's node and workload, and every node's speed; None while that is not known yet."""


class Follower(KeptPasts):
    """Reads what is used, and tells the past; `run` it for as long as it is needed."""

    def __init__(
        self, client: Client, clock: Clock, keeper: Keeper, every_s: float, known: Known
    ) -> None:
        super().__init__(keeper, clock)
        self._client = client
        self._every_s = every_s
        self._known = known

    async def run(self) -> None:
        """Keep and follow until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keeper.run(), name="usage history")
            await self.follow()

    async def follow(self) -> None:
        """Follow until cancelled; somebody else runs the keeper."""
        while True:
            await self._round()
            await self._clock.sleep(self._every_s)

    async def _round(self) -> None:
        try:
            nodes = await self._client.raw("GET", f"{_METRICS}/nodes")
            pods = await self._client.raw("GET", f"{_METRICS}/pods")
        except status.ApiError as error:
            log.info("metrics not read", error=error.message)
            return
        known = self._known()
        if known is not None:  # else nobody could say whose the figures are
            self._keeper.take(self._clock.now(), node_uses(nodes), pod_uses(pods), *known)


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
        listed = item.get("containers")
        containers = [p for p in listed if isinstance(p, dict)] if isinstance(listed, list) else []
        known = {str(p.get("name", "")): _use(p, item) for p in containers}
        parts = {name: use for name, use in known.items() if use is not None}
        if parts:
            found[key] = PodUse(*key, parts)
    return found


def _items(answer: Any) -> list[dict[str, Any]]:
    """Those that are objects with a name; the answer may be anybody's."""
    items = answer.get("items") if isinstance(answer, dict) else None
    return [
        item
        for item in (items if isinstance(items, list) else ())
        if isinstance(item, dict)
        and isinstance(item.get("metadata"), dict)
        and isinstance(item["metadata"].get("name"), str)
    ]


def _use(part: Any, item: Any) -> Use | None:
    try:
        cpu_nano = quantity.quantity(part["usage"]["cpu"]).nano
        memory = quantity.to_int(part["usage"]["memory"])
        return Use(parse_rfc3339(item["timestamp"]), 0.0, cpu_nano, memory)
    except (LookupError, TypeError, ValueError):
        return None
