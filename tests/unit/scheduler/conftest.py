"""A small cluster in memory, and a clock that only moves when told."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from motley.api.views.core import Node
from motley.api.views.pod import Pod
from motley.lib.clock import SYSTEM
from motley.scheduler import images, profiles
from motley.scheduler.columns import Columns
from motley.scheduler.contract import Handle
from motley.scheduler.cycle import Cycle
from motley.scheduler.podinfo import PodInfo, PodInfos


def make_node(
    name: str,
    *,
    cpu: str = "4",
    memory: str = "8Gi",
    pods: str = "110",
    labels: Mapping[str, str] | None = None,
    taints: list[dict[str, str]] | None = None,
    images: Mapping[str, int] | None = None,
    unschedulable: bool = False,
    ready: bool = True,
    **extended: str,
) -> Node:
    allocatable = {"cpu": cpu, "memory": memory, "pods": pods}
    allocatable |= {key.replace("__", "/").replace("_", "."): v for key, v in extended.items()}
    return Node.of(
        {
            "metadata": {
                "name": name,
                "labels": {"kubernetes.io/hostname": name, **(labels or {})},
            },
            "spec": {"taints": taints or [], "unschedulable": unschedulable},
            "status": {
                "allocatable": allocatable,
                "conditions": [{"type": "Ready", "status": str(ready)}],
                "images": [{"names": [n], "sizeBytes": s} for n, s in (images or {}).items()],
            },
        }
    )


def make_pod(
    name: str = "p",
    *,
    requests: Mapping[str, str] | None = None,
    image: str = "app:1",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    host_port: int = 0,
    host_ip: str = "",
    node: str = "",
    uid: str | None = None,
    **spec: Any,
) -> Pod:
    container: dict[str, Any] = {"name": "c", "image": image}
    if requests:
        container["resources"] = {"requests": requests}
    if host_port:
        port = {"containerPort": 80, "hostPort": host_port, "hostIP": host_ip}
        container["ports"] = [port]
    return Pod.of(
        {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": name if uid is None else uid,
                "labels": labels or {},
                "annotations": annotations or {},
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {"containers": [container], **({"nodeName": node} if node else {}), **spec},
        }
    )


class Cluster:
    """Columns, a cycle of the default profile, and shortcuts for tables."""

    def __init__(self, *nodes: Node, table: images.ImageTable | None = None) -> None:
        self.nodes = Columns()
        for node in nodes:
            self.nodes.set_node(node)
        self.infos = PodInfos()
        self.handle = Handle(self.nodes, SYSTEM, table or images.ImageTable())
        self.profile = profiles.default(self.handle)["default-scheduler"]
        self.cycle = Cycle(self.profile, self.nodes, nominations=self.handle.nominations)

    def info(self, pod: Pod) -> PodInfo:
        return self.infos.of(pod)

    def place(self, pod: Pod, node: str) -> PodInfo:
        info = self.infos.of(pod)
        self.nodes.add_pod(info, node)
        return info

    def allowed(self, plugin: Any, pod: Pod) -> list[str]:
        """The nodes one filter keeps."""
        info = self.info(pod)
        if hasattr(plugin, "pre_filter"):
            plugin.pre_filter(info, self.nodes)
        mask = plugin.filter(info, self.nodes) & self.nodes.live
        return sorted(self.nodes.names[row] for row in np.flatnonzero(mask))

    def scores(self, plugin: Any, pod: Pod) -> dict[str, float]:
        """The normalised scores of one plugin, all nodes being feasible."""
        info = self.info(pod)
        scores = plugin.score(info, self.nodes)
        if hasattr(plugin, "normalize"):
            scores = plugin.normalize(info, scores, self.nodes.live)
        return {name: float(scores[row]) for name, row in self.nodes.rows.items()}

    def feasible(self, pod: Pod) -> list[str]:
        mask = self.cycle.evaluate(self.info(pod)).feasible
        return sorted(self.nodes.names[row] for row in np.flatnonzero(mask))


class ManualClock:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self.time = 1_000_000.0

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds


@pytest.fixture
def node() -> Callable[..., Node]:
    return make_node


@pytest.fixture
def pod() -> Callable[..., Pod]:
    return make_pod


@pytest.fixture
def cluster() -> type[Cluster]:
    return Cluster


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()
