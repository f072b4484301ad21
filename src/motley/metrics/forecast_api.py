"""`external.metrics.k8s.io/v1beta1`: what workloads will use, for any HorizontalPodAutoscaler.

    GET /apis/external.metrics.k8s.io/v1beta1/namespaces/NS/METRIC
        ?labelSelector=workload=web[,kind=Deployment][,ahead=5m][,container=app]

An autoscaler takes the largest proposal over its metrics, so a forecast as one more of them adds
pods in time and takes none away. The labels of the answer say how the figure came to be and how
wrong such figures were.

What fails says so: Kubernetes then lets the other metrics raise the number of pods, but not lower
it. A workload of which too little is known fails nothing; its figure is what it uses now.
"""

import asyncio
import math
from collections.abc import Mapping
from typing import Any

from motley.api import quantity, selectors, status
from motley.apiserver import answer
from motley.apiserver.answer import Answer
from motley.apiserver.request import RequestInfo
from motley.autoscale import predicting
from motley.autoscale.expecting import Expectations, Expected, UnknownWorkload, Wanted
from motley.autoscale.past import NoPast, Pasts
from motley.lib import clock as clocks
from motley.lib.clock import Clock

Document = dict[str, Any]

GROUP, VERSION = "external.metrics.k8s.io", "v1beta1"
METRICS = {
    "motley_forecast_cpu": "cpu",
    "motley_forecast_cpu_normalized": "cpu_normalized",
    "motley_forecast_memory": "memory",
}
_API_VERSION = f"{GROUP}/{VERSION}"
_DEFAULTS = {"kind": "Deployment", "ahead": "5m", "container": ""}
_LABELS = ("workload", *_DEFAULTS)


class ForecastMetrics:
    """The group, as an aggregated server or an extension of the API server serves it."""

    group, version = GROUP, VERSION
    resources: tuple[Document, ...] = tuple(
        {
            "name": name,
            "singularName": "",
            "namespaced": True,
            "kind": "ExternalMetricValueList",
            "verbs": ["get"],  # what discovery of every adapter says, though it is asked as a list
        }
        for name in METRICS
    )

    def __init__(self, pasts: Pasts, clock: Clock) -> None:
        self._expectations = Expectations(pasts, clock)
        self._clock = clock

    async def run(self) -> None:
        """Nothing to do beside the requests: forecasts are made when they are asked for."""
        await asyncio.get_running_loop().create_future()

    async def handle(self, info: RequestInfo, headers: Mapping[str, str]) -> Answer:
        """Answer a request for the group."""
        if not info.is_resource:
            listed = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": _API_VERSION}
            return answer.of({**listed, "resources": list(self.resources)})
        if info.resource not in METRICS or info.name or not info.namespace:
            raise answer.unknown_resource()
        if info.verb != "list":
            raise answer.method_not_allowed()
        labels = chosen(info.query.text("labelSelector"))
        wanted = Wanted(
            info.namespace,
            labels["kind"],
            labels["workload"],
            METRICS[info.resource],
            _horizon_s(labels["ahead"]),
            labels["container"],
        )
        try:
            found = await self._expectations.look(wanted)
        except UnknownWorkload as error:
            raise status.NotFound(str(error)) from None
        except NoPast as error:
            raise status.ServiceUnavailable(str(error)) from None
        item = {
            "metricName": info.resource,
            "metricLabels": {name: v for name, v in labels.items() if v} | told(found, wanted),
            "timestamp": clocks.rfc3339(self._clock.now()),
            "value": amount(wanted.quantity, found.value),
        }
        head = {"kind": "ExternalMetricValueList", "apiVersion": _API_VERSION, "metadata": {}}
        return answer.of({**head, "items": [item]})


def chosen(text: str) -> dict[str, str]:
    """What a label selector asks for; every label is to have one value. Raises BadRequest."""
    try:
        requirements = selectors.Selector.parse(text).requirements
    except selectors.SelectorError as error:
        raise status.BadRequest(str(error)) from None
    found: dict[str, str] = {}
    for one in requirements:
        if one.key not in _LABELS:
            known = ", ".join(_LABELS)
            raise status.BadRequest(f"no label {one.key}: a forecast has the labels {known}")
        if one.operator not in ("=", "in") or len(one.values) != 1 or one.key in found:
            raise status.BadRequest(f"{one}: a forecast is chosen by one value of each label")
        found[one.key] = one.values[0]
    if not found.get("workload"):
        raise status.BadRequest("which workload? Say it by the selector: workload=NAME")
    return _DEFAULTS | found


def _horizon_s(text: str) -> int:
    try:
        return predicting.horizon_s("ahead", text)
    except ValueError as error:
        raise status.BadRequest(str(error)) from None


def amount(name: str, value: float) -> str:
    """Cores in thousandths or whole bytes, rounded up: of too little there would be too little."""
    if name == "memory":
        return str(math.ceil(value))
    return quantity.format_milli(math.ceil(round(value * 1000, 3)))


def told(found: Expected, wanted: Wanted) -> dict[str, str]:
    """How the figure came to be, and how wrong such figures were."""
    labels = {
        "source": "forecast" if found.is_trusted else "measured",
        "measured": amount(wanted.quantity, found.measured),
    }
    if found.forecast is None:
        return labels | {"reason": "too little history"}
    made = found.forecast
    labels |= {
        "expected": amount(wanted.quantity, made.peak),
        "model": made.model,
        "error": f"{made.error:.1%}",
    }
    if made.season_s:
        labels["season"] = f"{made.season_s / 3600:.3g}h"
    return labels if found.is_trusted else labels | {"reason": "too inaccurate"}
