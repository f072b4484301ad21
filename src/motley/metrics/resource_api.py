"""`metrics.k8s.io/v1beta1`: what pods and nodes use, as `kubectl top` and autoscalers ask for it.

Served by the API server itself where it is told to collect; somebody else's metrics server takes
its place by registering an APIService of the same name.
"""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from motley.api import quantity, scheme, selectors, status
from motley.api.quantity import Quantity
from motley.apiserver import answer, negotiate
from motley.apiserver.answer import Answer
from motley.apiserver.attributes import Attributes
from motley.apiserver.core import Core
from motley.apiserver.request import RequestInfo
from motley.lib import clock as clocks
from motley.metrics.collector import Collector
from motley.metrics.usage import Use

Document = dict[str, Any]

GROUP, VERSION = "metrics.k8s.io", "v1beta1"
_API_VERSION = f"{GROUP}/{VERSION}"
_VERBS = ["get", "list"]
_KINDS = {"pods": "PodMetrics", "nodes": "NodeMetrics"}
_RBAC = "rbac.authorization.k8s.io"
_FIELDS = ("metadata.name", "metadata.namespace")
_COLUMNS = ("Name", "CPU", "Memory", "Window")


class ResourceMetrics:
    """The group, as an extension of the API server."""

    group, version = GROUP, VERSION
    resources: tuple[Document, ...] = tuple(
        {
            "name": plural,
            "singularName": plural[:-1],
            "namespaced": plural == "pods",
            "kind": kind,
            "verbs": _VERBS,
        }
        for plural, kind in sorted(_KINDS.items())
    )

    def __init__(self, core: Core, every_s: float, collector: Collector | None = None) -> None:
        self._core = core
        self.collector = collector or Collector(core, every_s)

    async def run(self) -> None:
        """Let those who may look at pods look at their use, then collect until cancelled."""
        kind = scheme.resource(_RBAC, "v1", "clusterroles")
        assert kind is not None
        with contextlib.suppress(status.AlreadyExists):
            await self._core.writer.create(kind, "", reader_role())
        await self.collector.run()

    async def handle(self, info: RequestInfo, headers: Mapping[str, str]) -> Answer:
        """Answer a request for the group."""
        if not info.is_resource:
            listed = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": _API_VERSION}
            return answer.of({**listed, "resources": list(self.resources)})
        if info.resource not in _KINDS or info.subresource:
            raise answer.unknown_resource()
        if info.verb not in _VERBS:
            raise answer.method_not_allowed()
        found = await self._found(info)
        wanted = negotiate.accept(headers.get("accept", ""))
        if wanted.transform == "Table":
            return answer.of(table(found, wanted.version))
        kind = _KINDS[info.resource]
        if info.name:
            return answer.of({"kind": kind, "apiVersion": _API_VERSION, **found[0]})
        head = {"kind": f"{kind}List", "apiVersion": _API_VERSION, "metadata": {}}
        return answer.of({**head, "items": found})

    async def _found(self, info: RequestInfo) -> list[Document]:
        chosen = _chooser(info)
        kind = scheme.resource("", "v1", info.resource)
        assert kind is not None
        cache = await self._core.caches.of(kind)
        facts = [
            cached.attributes
            for cached in cache.list(kind.prefix(info.namespace)).items
            if chosen(cached.attributes)
        ]
        shown = self._pods(facts) if info.resource == "pods" else self._nodes(facts)
        found = list(shown)
        if info.name and not found:
            name = f"{info.namespace}/{info.name}" if info.namespace else info.name
            raise status.not_found(GROUP, _KINDS[info.resource].lower(), name)
        return found

    def _pods(self, facts: Iterable[Attributes]) -> Iterable[Document]:
        now = self._core.clock.now()
        known = self.collector.usage.pods(now)
        for fact in facts:
            use = known.get((fact.namespace, fact.name))
            if use is None:
                continue
            earliest = min(use.containers.values(), key=lambda u: u.at)
            listed = [{"name": name, "usage": amounts(one)} for name, one in use.containers.items()]
            yield {**_head(fact, earliest, now), "containers": listed}

    def _nodes(self, facts: Iterable[Attributes]) -> Iterable[Document]:
        now = self._core.clock.now()
        for fact in facts:
            use = self.collector.usage.node(fact.name, now)
            if use is not None:
                yield {**_head(fact, use, now), "usage": amounts(use)}


def reader_role() -> Document:
    """The role by which `view`, `edit` and `admin` include this group; metrics-server's name."""
    labels = {f"{_RBAC}/aggregate-to-{name}": "true" for name in ("view", "edit", "admin")}
    rule = {"apiGroups": [GROUP], "resources": sorted(_KINDS), "verbs": ["get", "list", "watch"]}
    metadata = {"name": "system:aggregated-metrics-reader", "labels": labels}
    return {"metadata": metadata, "rules": [rule]}


def _chooser(info: RequestInfo) -> Callable[[Attributes], bool]:
    try:
        labels = selectors.Selector.parse(info.query.text("labelSelector"))
        fields = selectors.parse_fields(info.query.text("fieldSelector"))
    except ValueError as error:
        raise status.BadRequest(str(error)) from None
    if unknown := [f.path for f in fields if f.path not in _FIELDS]:
        raise status.BadRequest(f"field label not supported: {unknown[0]}")

    def chosen(fact: Attributes) -> bool:
        if info.name and fact.name != info.name:
            return False
        facts = dict(zip(_FIELDS, (fact.name, fact.namespace), strict=True))
        return labels.matches(fact.labels) and selectors.matches_fields(fields, facts.__getitem__)

    return chosen


def _head(fact: Attributes, use: Use, now: float) -> Document:
    metadata: Document = {"name": fact.name, "creationTimestamp": clocks.rfc3339(now)}
    if fact.namespace:
        metadata["namespace"] = fact.namespace
    if fact.labels:
        metadata["labels"] = dict(fact.labels)
    window = f"{use.window_s:.3f}".rstrip("0").rstrip(".")
    return {"metadata": metadata, "timestamp": clocks.rfc3339(use.at), "window": f"{window}s"}


def amounts(use: Use) -> dict[str, str]:
    """CPU in billionths of a core and memory in bytes, as metrics servers write them."""
    return {
        "cpu": f"{use.cpu_nano}n" if use.cpu_nano else "0",
        "memory": quantity.format_binary(use.memory_bytes),
    }


def table(found: Iterable[Document], version: str) -> Document:
    """For `kubectl get pods.metrics.k8s.io`."""
    definitions = [
        {"name": name, "type": "string", "format": "", "description": name, "priority": 0}
        for name in _COLUMNS
    ]
    rows = []
    for shown in found:
        parts = [c["usage"] for c in shown.get("containers") or ()] or [shown.get("usage") or {}]
        cells = [shown["metadata"]["name"], *_sums(parts), shown["window"]]
        kept = {
            "kind": "PartialObjectMetadata",
            "apiVersion": f"meta.k8s.io/{version}",
            "metadata": shown["metadata"],
        }
        rows.append({"cells": cells, "object": kept})
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": {},
        "columnDefinitions": definitions,
        "rows": rows,
    }


def _sums(parts: list[dict[str, str]]) -> list[str]:
    cpu = sum(quantity.quantity(part.get("cpu", "0")).nano for part in parts)
    memory = sum(quantity.quantity(part.get("memory", "0")).nano for part in parts)
    return [str(Quantity(cpu, "DecimalSI")), str(Quantity(memory, "BinarySI"))]
