"""`history.motley.io/v1`: what nodes, pods and workloads used, for dashboards, plugins and people.

    GET /apis/history.motley.io/v1/nodes[/NAME]
    GET /apis/history.motley.io/v1[/namespaces/NS]/pods[/NAME]
    GET /apis/history.motley.io/v1[/namespaces/NS]/workloads[/NAME][?kind=Deployment]
        ?from=-1h&to=now&step=1m&aggregation=avg|max|min|pNN
    GET /apis/history.motley.io/v1/metrics          the figures of the moment, for a Prometheus

The same answers from Motley's API server and from a server beside another Kubernetes.
"""

import math
from collections.abc import Mapping
from itertools import groupby
from typing import Any

from motley.api import status
from motley.apiserver import answer
from motley.apiserver.answer import Answer
from motley.apiserver.request import RequestInfo
from motley.lib import clock as clocks
from motley.lib.clock import Clock
from motley.metrics.history import NODE, POD, WORKLOAD, History, Question, Series, Window
from motley.metrics.history_keeper import Keeper
from motley.metrics.history_times import duration_s, moment

Document = dict[str, Any]

GROUP, VERSION = "history.motley.io", "v1"
_API_VERSION = f"{GROUP}/{VERSION}"
KINDS = {
    "nodes": (NODE, "NodeHistory"),
    "pods": (POD, "PodHistory"),
    "workloads": (WORKLOAD, "WorkloadHistory"),
}
METRICS = "metrics"
_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_DIGITS = 6


class HistoryGroup:
    """The group over a keeper; an extension of a server."""

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
            for plural, (_, kind) in sorted(KINDS.items())
        ),
        {
            "name": METRICS,
            "singularName": "",
            "namespaced": False,
            "kind": "Metrics",
            "verbs": ["list"],
        },
    )

    def __init__(self, keeper: Keeper, clock: Clock) -> None:
        self.keeper = keeper
        self._clock = clock

    async def run(self) -> None:
        """Keep the past until cancelled."""
        await self.keeper.run()

    async def handle(self, info: RequestInfo, headers: Mapping[str, str]) -> Answer:
        """Answer a request for the group."""
        if not info.is_resource:
            listed = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": _API_VERSION}
            return answer.of({**listed, "resources": list(self.resources)})
        if info.subresource or (info.resource not in KINDS and info.resource != METRICS):
            raise answer.unknown_resource()
        if info.verb not in ("get", "list"):
            raise answer.method_not_allowed()
        if info.resource == METRICS:
            return self.exported()
        history = self.keeper.history
        if history is None:
            raise status.ServiceUnavailable("the usage history is being opened, ask again")
        return answer.of(self._answer(history, info))

    def exported(self) -> Answer:
        """The figures of the moment, for a Prometheus."""
        return Answer(self.keeper.text().encode(), content_type=_TEXT)

    def _answer(self, history: History, info: RequestInfo) -> Document:
        now = self._clock.now()
        asked = question(info.query.text, now)
        kind, shown_kind = KINDS[info.resource]
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
