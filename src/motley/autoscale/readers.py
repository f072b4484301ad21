"""Metrics through the API server: three groups that whoever measures may serve.

`metrics.k8s.io` has the use of pods, `custom.metrics.k8s.io` anything of objects of the cluster,
`external.metrics.k8s.io` anything else. They are asked exactly as Kubernetes asks them, so a
metrics server and every metrics adapter do.
"""

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from motley.api import quantity, selectors, status
from motley.api.views.autoscaling import CustomMetricSource, MetricSpec
from motley.autoscale.calculator import MetricError, Sample
from motley.autoscale.proposals import Reading, custom_source, resource_source, selector_text
from motley.autoscale.scales import Mapper
from motley.client.rest import Client
from motley.lib.clock import parse_rfc3339

Document = dict[str, Any]

_RESOURCE = "/apis/metrics.k8s.io/v1beta1"
_EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1"
_CUSTOM_GROUP = "custom.metrics.k8s.io"
_CUSTOM_KNOWN = ("v1beta2", "v1beta1")
_CUSTOM_WINDOW_S = 60.0  # Kubernetes' assumption where an adapter does not say


class Readers:
    """Reads one metric of one autoscaler at a time."""

    def __init__(self, client: Client, mapper: Mapper) -> None:
        self._client = client
        self._mapper = mapper

    async def read(self, spec: MetricSpec, namespace: str, selector: str) -> Reading:
        """What the metric is now. Raises MetricError when it cannot be had."""
        if spec.type in ("Resource", "ContainerResource"):
            return await self._resource(spec, namespace, selector)
        source = custom_source(spec)
        name = source.metric.name
        if spec.type == "Pods":
            try:
                return pod_values(await self._custom(namespace, "pods/*", source, selector))
            except MetricError as error:
                raise MetricError(f"unable to get metric {name}: {error}") from None
        if spec.type == "Object":
            return await self._object(source, namespace)
        if spec.type == "External":
            return await self._external(source, namespace)
        raise MetricError(f'unknown metric source type "{spec.type}"')

    async def _resource(self, spec: MetricSpec, namespace: str, selector: str) -> Reading:
        source = resource_source(spec)
        path = f"{_RESOURCE}/namespaces/{namespace}/pods"
        try:
            try:
                items = await self._items(path, {"labelSelector": selector})
            except status.ApiError as error:
                raise MetricError(
                    "unable to fetch metrics from resource metrics API:"
                    f" {error.message} (get pods.metrics.k8s.io)"
                ) from None
            if not items:
                raise MetricError("no metrics returned from resource metrics API")
        except MetricError as error:
            raise MetricError(
                f"unable to get metrics for resource {source.name}: {error}"
            ) from None
        return pod_usage(items, source.name, source.container)

    async def _object(self, source: CustomMetricSource, namespace: str) -> int:
        of = source.described_object
        try:
            if of.kind == "Namespace" and of.api_version in ("", "v1"):
                where = "metrics"
            else:
                where = f"{await self._mapper.resource(of)}/{quote(of.name, safe='')}"
            values = await self._custom(namespace, where, source, "")
        except MetricError as error:
            raise MetricError(
                f"unable to get metric {source.metric.name} on {of.kind} {namespace}/{of.name}:"
                f" {error}"
            ) from None
        return _milli(values[0])

    async def _custom(
        self, namespace: str, where: str, source: CustomMetricSource, selector: str
    ) -> list[Document]:
        params = {"labelSelector": selector} if selector else {}
        params |= _metric_selector("metricLabelSelector", source)
        name = quote(source.metric.name, safe="")
        try:
            version = await self._custom_version()
            path = f"/apis/{_CUSTOM_GROUP}/{version}/namespaces/{namespace}/{where}/{name}"
            values = await self._items(path, params)
        except status.ApiError as error:
            raise MetricError(
                f"unable to fetch metrics from custom metrics API: {error.message}"
            ) from None
        if not values:
            raise MetricError("no metrics returned from custom metrics API")
        return values

    async def _custom_version(self) -> str:
        group = await self._client.raw("GET", f"/apis/{_CUSTOM_GROUP}")
        served = [v["version"] for v in group.get("versions") or ()]
        return next((v for v in _CUSTOM_KNOWN if v in served), _CUSTOM_KNOWN[-1])

    async def _external(self, source: CustomMetricSource, namespace: str) -> int:
        name = source.metric.name
        path = f"{_EXTERNAL}/namespaces/{namespace}/{quote(name, safe='')}"
        try:
            try:
                values = await self._items(path, _metric_selector("labelSelector", source))
            except status.ApiError as error:
                raise MetricError(
                    f"unable to fetch metrics from external metrics API: {error.message}"
                ) from None
            if not values:
                raise MetricError("no metrics returned from external metrics API")
        except MetricError as error:
            shown = selector_text(source.metric.selector)
            raise MetricError(
                f"unable to get external metric {namespace}/{name}/{shown}: {error}"
            ) from None
        return sum(_milli(value) for value in values)

    async def _items(self, path: str, params: Mapping[str, str]) -> list[Document]:
        answer = await self._client.raw("GET", path, params=params)
        if not isinstance(answer, dict):
            raise MetricError(f"{path} did not answer with a list")
        return answer.get("items") or []


def _metric_selector(parameter: str, source: CustomMetricSource) -> dict[str, str]:
    given = source.metric.selector
    if given is None:
        return {}
    try:
        text = str(selectors.Selector.of(given))
    except selectors.SelectorError as error:
        raise MetricError(str(error)) from None
    return {parameter: text} if text else {}


def _milli(value: Document) -> int:
    try:
        return quantity.cpu_milli(value.get("value", "0"))
    except ValueError as error:
        raise MetricError(f"value {value.get('value')!r}: {error}") from None


def _moment(item: Document) -> float:
    try:
        return parse_rfc3339(item.get("timestamp") or "")
    except ValueError as error:
        raise MetricError(f"timestamp of a metric: {error}") from None


def pod_usage(items: Iterable[Document], resource: str, container: str) -> dict[str, Sample]:
    """Samples of `PodMetrics`: of the pod as a whole, if every container has one, or of the
    container that is meant."""
    found: dict[str, Sample] = {}
    for item in items:
        parts = item.get("containers") or []
        if container:
            parts = [p for p in parts if p.get("name") == container]
        usages: list[Document] = [p.get("usage") or {} for p in parts]
        if not usages or any(resource not in usage for usage in usages):
            continue
        try:
            milli = sum(quantity.cpu_milli(usage[resource]) for usage in usages)
        except ValueError as error:
            raise MetricError(f"usage of {resource}: {error}") from None
        window_s = duration_s(item.get("window") or "0s")
        found[item["metadata"]["name"]] = Sample(milli, _moment(item), window_s)
    return found


def pod_values(items: Iterable[Document]) -> dict[str, Sample]:
    """Samples of a custom metric of pods."""
    return {
        item["describedObject"]["name"]: Sample(
            _milli(item), _moment(item), float(item.get("windowSeconds") or _CUSTOM_WINDOW_S)
        )
        for item in items
    }


_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


def duration_s(text: str) -> float:
    """Go's `1m30.5s` in seconds. Raises MetricError."""
    total, number, unit = 0.0, "", ""
    for char in f"{text}0":  # the extra digit ends the last unit
        if char.isdigit() or char == ".":
            if unit:
                if unit not in _UNITS or not number:
                    raise MetricError(f"window {text!r} is no duration")
                total, number, unit = total + float(number) * _UNITS[unit], "", ""
            number += char
        else:
            unit += char
    return total
