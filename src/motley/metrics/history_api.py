"""`history.motley.io/v1`: what nodes, pods and workloads used, for dashboards, plugins and people.

    GET /apis/history.motley.io/v1/nodes[/NAME]
    GET /apis/history.motley.io/v1[/namespaces/NS]/pods[/NAME]
    GET /apis/history.motley.io/v1[/namespaces/NS]/workloads[/NAME][?kind=Deployment]
        ?from=-1h&to=now&step=1m&aggregation=avg|max|min|pNN
    GET /apis/history.motley.io/v1/metrics          the figures of the moment, for a Prometheus

Beside it after every round of the collector: the ring on disk is written, and a remote store is
sent the same, where there is one. Whoever may read pods may read their past.
"""

import asyncio
import contextlib
import math
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from motley.api import scheme, status
from motley.apiserver import answer
from motley.apiserver.answer import Answer
from motley.apiserver.core import Core
from motley.apiserver.request import RequestInfo
from motley.lib import clock as clocks
from motley.lib import journal
from motley.metrics import export, history_rollup
from motley.metrics.collector import Collector
from motley.metrics.history import NODE, POD, WORKLOAD, History, Question, Series, Window
from motley.metrics.history_facts import Facts
from motley.metrics.history_ring import DEFAULT_SERIES, Ring
from motley.metrics.history_times import duration_s, moment
from motley.metrics.remotewrite import RemoteWrite

log = journal.get(__name__)

Document = dict[str, Any]

GROUP, VERSION = "history.motley.io", "v1"
_API_VERSION = f"{GROUP}/{VERSION}"
_RBAC = "rbac.authorization.k8s.io"
_KINDS = {
    "nodes": (NODE, "NodeHistory"),
    "pods": (POD, "PodHistory"),
    "workloads": (WORKLOAD, "WorkloadHistory"),
}
_METRICS = "metrics"
_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_DIGITS = 6


class UsageHistory:
    """The group, as an extension of the API server."""

    group, version = GROUP, VERSION
    resources: tuple[Document, ...] = (
        *(
            {
                "name": plural,
                "singularName": plural[:-1],
                "namespaced": plural != "nodes",
                "kind": kind,
                "verbs": ["get", "list"],
            }
            for plural, (_, kind) in sorted(_KINDS.items())
        ),
        {
            "name": _METRICS,
            "singularName": "",
            "namespaced": False,
            "kind": "Metrics",
            "verbs": ["list"],
        },
    )

    def __init__(
        self,
        core: Core,
        collector: Collector,
        path: Path | None,
        series: int = DEFAULT_SERIES,
        remote: RemoteWrite | None = None,
    ) -> None:
        self._core = core
        self._collector = collector
        self._path, self._series = path, series
        self._remote = remote
        self._facts = Facts(core)
        self.history: History | None = None
        self._points: list[export.Point] = []
        self._at = 0.0
        collector.after.append(self._record)

    async def run(self) -> None:
        """Open the ring, let readers read, and send to the remote store until cancelled."""
        for plural, body in roles():
            kind = scheme.resource(_RBAC, "v1", plural)
            assert kind is not None
            with contextlib.suppress(status.AlreadyExists):
                await self._core.writer.create(kind, "", body)
        try:
            ring = await asyncio.to_thread(_opened, self._path, self._series)
        except OSError as error:
            log.error("usage history is kept in memory only", error=str(error))
            ring = _opened(None, self._series)
        if ring.torn:
            log.warning("usage history had torn records", count=ring.torn)
        self.history = History(ring)
        try:
            if self._remote is not None:
                await self._remote.run()
            await asyncio.get_running_loop().create_future()
        finally:
            self.history.close()
            self.history = None

    async def _record(self) -> None:
        """Write one round down."""
        if self.history is None:
            return
        now = self._core.clock.now()
        usage = self._collector.usage
        facts, speeds = await self._facts.pods(), await self._facts.speeds()
        nodes = {name: use for name in speeds if (use := usage.node(name, now)) is not None}
        samples = history_rollup.samples(nodes, usage.pods(now), facts, speeds)
        self._points, self._at = list(export.points(samples, facts, speeds)), now
        if self.history is not None:
            try:
                self.history.write(now, samples)
            except OSError as error:
                log.error("usage history not written", error=str(error))
        if self._remote is not None:
            self._remote.take(self._points, now)

    async def handle(self, info: RequestInfo, headers: Mapping[str, str]) -> Answer:
        """Answer a request for the group."""
        if not info.is_resource:
            listed = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": _API_VERSION}
            return answer.of({**listed, "resources": list(self.resources)})
        if info.subresource or (info.resource not in _KINDS and info.resource != _METRICS):
            raise answer.unknown_resource()
        if info.verb not in ("get", "list"):
            raise answer.method_not_allowed()
        if info.resource == _METRICS:
            return Answer(export.text(self._points, self._at).encode(), content_type=_TEXT)
        if self.history is None:
            raise status.ServiceUnavailable("the usage history is being opened, ask again")
        return answer.of(self._answer(self.history, info))

    def _answer(self, history: History, info: RequestInfo) -> Document:
        now = self._core.clock.now()
        asked = question(info.query.text, now)
        kind, shown_kind = _KINDS[info.resource]
        found = history.find(kind, info.namespace, info.name, info.query.text("kind"))
        items = [
            {"metadata": _metadata(first), **_shown(list(listed), history, asked, now)}
            for first, listed in groupby(found, lambda s: s._replace(container=""))
        ]
        if not info.name:
            head = {"kind": f"{shown_kind}List", "apiVersion": _API_VERSION, "metadata": {}}
            return {**head, "items": items}
        if not items:
            name = f"{info.namespace}/{info.name}" if info.namespace else info.name
            raise status.not_found(GROUP, info.resource, name)
        if len(items) > 1:
            kinds = ", ".join(item["workloadKind"] for item in items)
            raise status.BadRequest(f"several kinds have this name: say ?kind= one of {kinds}")
        return {"kind": shown_kind, "apiVersion": _API_VERSION, **items[0]}


def _opened(path: Path | None, series: int) -> Ring:
    return Ring(path, series, matters_less=Series.matters_less)


def question(asked: Any, now: float) -> Question:
    """What the parameters of a request ask for. Raises BadRequest."""
    try:
        end = moment(asked("to") or "now", now)
        start = moment(asked("from") or "-1h", now)
        step_s = duration_s(asked("step")) if asked("step") else max((end - start) / 60, 10.0)
        return Question(start, end, step_s, asked("aggregation") or "avg")
    except ValueError as error:
        raise status.BadRequest(str(error)) from None


def _metadata(series: Series) -> Document:
    namespace = {"namespace": series.namespace} if series.namespace else {}
    return {"name": series.name, **namespace}


def _shown(listed: list[Series], history: History, asked: Question, now: float) -> Document:
    windows = [(series, history.read(series, asked, now)) for series in listed]
    first: Window = windows[0][1]
    owner = {"workloadKind": listed[0].owner} if listed[0].owner else {}
    return {
        **owner,
        "from": clocks.rfc3339(first.start),
        "stepSeconds": first.step_s,
        "aggregation": asked.aggregation,
        "series": [
            {
                **({"container": series.container} if series.container else {}),
                **{
                    name: [_number(name, value) for value in values]
                    for name, values in window.figures.items()
                },
            }
            for series, window in windows
        ],
    }


def _number(name: str, value: float) -> float | int | None:
    if math.isnan(value):
        return None
    return round(value) if name.startswith("memory") else round(float(value), _DIGITS)


def roles() -> list[tuple[str, Document]]:
    """Who may read: those who may view, edit or administer; and monitoring, the metrics."""
    labels = {f"{_RBAC}/aggregate-to-{name}": "true" for name in ("view", "edit", "admin")}
    read = {"apiGroups": [GROUP], "resources": sorted(_KINDS), "verbs": ["get", "list"]}
    scrape = {"apiGroups": [GROUP], "resources": [_METRICS], "verbs": ["list"]}
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
