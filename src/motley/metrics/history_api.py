"""`history.motley.io/v1` in the API server's own process, over what its collector measures.

After every round of the collector the ring on disk is written, and a remote store is sent the same,
where there is one. Whoever may read pods may read their past.
"""

import contextlib
from pathlib import Path
from typing import Any

from motley.api import scheme, status
from motley.apiserver.core import Core
from motley.metrics.collector import Collector
from motley.metrics.history import History
from motley.metrics.history_facts import Facts
from motley.metrics.history_group import GROUP, KINDS, METRICS, HistoryGroup
from motley.metrics.history_keeper import Keeper
from motley.metrics.history_ring import DEFAULT_SERIES
from motley.metrics.remotewrite import RemoteWrite

Document = dict[str, Any]

_RBAC = "rbac.authorization.k8s.io"


class UsageHistory(HistoryGroup):
    """The group, as an extension of the API server."""

    def __init__(
        self,
        core: Core,
        collector: Collector,
        path: Path | None,
        series: int = DEFAULT_SERIES,
        remote: RemoteWrite | None = None,
    ) -> None:
        super().__init__(Keeper(path, series, remote), core.clock)
        self._core = core
        self._collector = collector
        self._facts = Facts(core)
        collector.after.append(self._record)

    @property
    def history(self) -> History | None:
        """What is kept, while it is."""
        return self.keeper.history

    async def run(self) -> None:
        """Let readers read, and keep the past until cancelled."""
        for plural, body in roles():
            kind = scheme.resource(_RBAC, "v1", plural)
            assert kind is not None
            with contextlib.suppress(status.AlreadyExists):
                await self._core.writer.create(kind, "", body)
        await super().run()

    async def _record(self) -> None:
        """Write one round down."""
        if self.history is None:
            return
        now = self._core.clock.now()
        usage = self._collector.usage
        facts, speeds = await self._facts.pods(), await self._facts.speeds()
        nodes = {name: use for name in speeds if (use := usage.node(name, now)) is not None}
        self.keeper.take(now, nodes, usage.pods(now), facts, speeds)


def roles() -> list[tuple[str, Document]]:
    """Who may read: those who may view, edit or administer; and monitoring, the metrics."""
    labels = {f"{_RBAC}/aggregate-to-{name}": "true" for name in ("view", "edit", "admin")}
    read = {"apiGroups": [GROUP], "resources": sorted(KINDS), "verbs": ["get", "list"]}
    scrape = {"apiGroups": [GROUP], "resources": [METRICS], "verbs": ["list"]}
    name = "motley:usage-monitoring"
    reference = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": name}
    subject = {"apiGroup": _RBAC, "kind": "Group", "name": "system:monitoring"}
    reader = {"name": "motley:aggregated-history-reader", "labels": labels}
    return [
        ("clusterroles", {"metadata": reader, "rules": [read]}),
        ("clusterroles", {"metadata": {"name": name}, "rules": [scrape]}),
        (
            "clusterrolebindings",
            {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]},
        ),
    ]
