"""What the scheduler needs to know about a pod, computed once.

A pod waits in the queue, is tried perhaps many times and then sits on a node; parsing its
quantities and tolerations each time would cost more than deciding. Pods of one template
(a ReplicaSet's, a Job's) differ in name only, so they share one computation.

Invariant: two pods with the same `template` number are indistinguishable to every plugin but
for their identity, their age and the volumes they name.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import msgspec

from motley.api import intree, quantity
from motley.api.views.base import Key
from motley.api.views.pod import Container, Pod, ResourceList, Toleration
from motley.api.views.volume import Volume
from motley.lib import clock
from motley.scheduler import resized
from motley.scheduler.podsets import PodGroup, PodTerms

CPU, MEMORY, EPHEMERAL, PODS = "cpu", "memory", "ephemeral-storage", "pods"

# What an unstated request counts as when nodes are scored (kube-scheduler's values): pods
# without requests would otherwise all look free and pile up on one node.
DEFAULT_CPU_MILLI = 100
DEFAULT_MEMORY_BYTES = 200 * 1024 * 1024

ARCHITECTURES_ANNOTATION = "motley.io/architectures"
# The CPU a pod was written with, kept from before Hicev2 scales it for a node.
CPU_AS_WRITTEN = "motley.io/cpu-as-written"
# The images a pod was written with, kept from before Hicev1 made them a platform's.
IMAGES_AS_WRITTEN = "motley.io/images-as-written"
ANY_ADDRESS = "0.0.0.0"
_MOST = 2**52  # 4 Pi: whole numbers up to twice this are exact in floating point

Requests = Mapping[str, int]  # cpu in thousandths, everything else in whole units


class HostPort(NamedTuple):
    """A port of the node that a pod wants for itself."""

    address: str
    protocol: str
    port: int


@dataclass(slots=True, eq=False)
class PodInfo:
    """A pod as the plugins see it."""

    pod: Pod
    key: Key
    uid: str
    created: float
    template: int
    scheduler_name: str
    priority: int
    requests: Requests
    # What counts on a node when nodes are scored, and what is added for the pod itself:
    # kube-scheduler's scorer does not look at requests of the pod as a whole.
    nonzero_cpu: int
    nonzero_memory: int
    scored_cpu: int
    scored_memory: int
    tolerations: tuple[Toleration, ...]
    host_ports: tuple[HostPort, ...]
    images: tuple[str, ...]  # one entry per container, init containers included, normalised
    architectures: tuple[str, ...]  # from the annotation; empty: not stated
    gates: tuple[str, ...]
    group: PodGroup
    terms: PodTerms
    volumes: tuple[Volume, ...]  # those that may tie it to nodes: claims, and disks to attach
    # What PreFilter and PreScore leave for the later points of the same cycle, by plugin name.
    state: dict[str, Any] = field(default_factory=dict)


def amount(resource: str, q: str | int | float) -> int:
    """A quantity in the unit the scheduler counts the resource in.

    At most what columns count exactly: 1e30 bytes on a node would swallow what others have there,
    and not give it back.
    """
    exact = quantity.cpu_milli(q) if resource == CPU else quantity.to_int(q)
    return max(-_MOST, min(exact, _MOST))


def identity(pod: Pod) -> str:
    """What tells this pod from an earlier one of the same name."""
    return pod.metadata.uid or str(pod.key)


def normalized_image(name: str) -> str:
    """An image name with its tag, as nodes report it."""
    return name if name.rfind(":") > name.rfind("/") else name + ":latest"


def pod_requests(
    pod: Pod, defaults: Requests | None = None, *, as_a_whole: bool = True
) -> dict[str, int]:
    """What the pod needs of a node at its hungriest moment.

    Containers run together, so they add up; init containers run one after another before
    them, so each counts alone, on top of the sidecars (restartable init containers) started
    before it. Overhead comes on top. `defaults` stand in for requests a container leaves out.
    Requests of the pod as a whole replace what they name, unless `as_a_whole` is False.
    """
    running: dict[str, int] = {}
    for container in pod.spec.containers:
        _add(running, _container_requests(container, defaults))
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in pod.spec.init_containers:
        wanted = _container_requests(container, defaults)
        if container.restart_policy == "Always":
            _add(running, wanted)
            _add(sidecars, wanted)
            _maximum(peak, sidecars)
        else:
            moment = dict(sidecars)
            _add(moment, wanted)
            _maximum(peak, moment)
    _maximum(running, peak)
    if pod.spec.resources is not None and as_a_whole:
        running.update(_requests(pod.spec.resources.requests, pod.spec.resources.limits))
    _add(running, {name: amount(name, q) for name, q in pod.spec.overhead.items()})
    return running


def _container_requests(container: Container, defaults: Requests | None) -> dict[str, int]:
    wanted = _requests(container.resources.requests, container.resources.limits)
    if defaults:
        for name, value in defaults.items():
            wanted.setdefault(name, value)
    return wanted


def _requests(requests: ResourceList, limits: ResourceList) -> dict[str, int]:
    # A limit without a request is also the request; the API server fills it in, recorded
    # objects may not have been through one.
    merged = {**limits, **requests} if limits else requests
    return {name: amount(name, q) for name, q in merged.items()}


def _add(total: dict[str, int], more: Requests) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def _maximum(total: dict[str, int], other: Requests) -> None:
    for name, value in other.items():
        if value > total.get(name, 0):
            total[name] = value


_NONZERO = {CPU: DEFAULT_CPU_MILLI, MEMORY: DEFAULT_MEMORY_BYTES}


def _defaults(pod: Pod, requests: Requests) -> Requests:
    """For what the pod does not ask as a whole: then a container may do without."""
    if pod.spec.resources is None or not (pod.spec.resources.requests or pod.spec.resources.limits):
        return _NONZERO
    return {name: value for name, value in _NONZERO.items() if name not in requests}


def _compute(pod: Pod, template: int) -> PodInfo:
    spec = pod.spec
    requests = pod_requests(pod)
    nonzero = pod_requests(pod, _defaults(pod, requests))
    scored = pod_requests(pod, _NONZERO, as_a_whole=False)
    annotation = pod.metadata.annotations.get(ARCHITECTURES_ANNOTATION, "")
    containers = [*spec.containers, *spec.init_containers]
    sidecars = [c for c in spec.init_containers if c.restart_policy == "Always"]
    return PodInfo(
        pod=pod,
        key=pod.key,
        uid="",
        created=0.0,
        template=template,
        scheduler_name=spec.scheduler_name,
        priority=spec.priority or 0,
        requests={name: value for name, value in requests.items() if value},
        nonzero_cpu=nonzero.get(CPU, 0),
        nonzero_memory=nonzero.get(MEMORY, 0),
        scored_cpu=scored.get(CPU, 0),
        scored_memory=scored.get(MEMORY, 0),
        tolerations=tuple(spec.tolerations),
        host_ports=_host_ports([*spec.containers, *sidecars], spec.host_network),
        images=tuple(normalized_image(container.image) for container in containers),
        architectures=tuple(a.strip() for a in annotation.split(",") if a.strip()),
        gates=tuple(gate.name for gate in spec.scheduling_gates),
        group=PodGroup.of(pod),
        terms=PodTerms.of(pod),
        volumes=(),
    )


def _attachable(pod: Pod) -> tuple[Volume, ...]:
    return tuple(
        v
        for v in pod.spec.volumes
        if v.projected is None
        and (
            v.persistent_volume_claim is not None
            or v.ephemeral is not None
            or v.iscsi is not None
            or v.rbd is not None
            or intree.plugin_of(v)
        )
    )


def _host_ports(containers: list[Container], is_on_host: bool) -> tuple[HostPort, ...]:
    # In the node's own network a container's port is the node's; the API server fills it in.
    return tuple(
        HostPort(port.host_ip or ANY_ADDRESS, port.protocol or "TCP", number)
        for container in containers
        for port in container.ports
        if (number := port.host_port or (port.container_port if is_on_host else 0)) > 0
    )


class PodInfos:
    """Makes PodInfos; remembers the computation for the templates seen lately."""

    def __init__(self, capacity: int = 2048) -> None:
        self._capacity = capacity
        self._templates: OrderedDict[bytes, PodInfo] = OrderedDict()
        self._last = 0
        self._encode = msgspec.msgpack.Encoder().encode

    def of(self, pod: Pod) -> PodInfo:
        """The info of a pod."""
        counted = resized.as_counted(pod)
        signature = self._signature(counted)
        shared = self._templates.get(signature)
        if shared is None:
            self._last += 1
            shared = self._templates[signature] = _compute(counted, self._last)
            if len(self._templates) > self._capacity:
                self._templates.popitem(last=False)
        else:
            self._templates.move_to_end(signature)
        stamp = pod.metadata.creation_timestamp
        return replace(
            shared,
            pod=pod,
            key=pod.key,
            uid=identity(pod),
            created=clock.parse_rfc3339(stamp) if stamp else 0.0,
            volumes=_attachable(pod) if pod.spec.volumes else (),
            state={},
        )

    def _signature(self, pod: Pod) -> bytes:
        # Only what plugins look at again and again: volumes carry names of their own, and what
        # is kept of a template has nothing to do with them.
        spec, meta = pod.spec, pod.metadata
        owner = meta.controller() if meta.owner_references else None
        return self._encode(
            (
                meta.namespace,
                meta.labels,
                meta.deletion_timestamp is not None,
                (owner.api_version, owner.kind, owner.name) if owner else None,
                meta.annotations.get(ARCHITECTURES_ANNOTATION),
                meta.annotations.get(CPU_AS_WRITTEN),
                meta.annotations.get(IMAGES_AS_WRITTEN),
                [(c.image, c.resources, c.ports) for c in spec.containers],
                [(c.image, c.resources, c.ports, c.restart_policy) for c in spec.init_containers],
                [c.image for c in spec.ephemeral_containers],
                spec.scheduler_name,
                spec.priority,
                spec.node_selector,
                spec.affinity,
                spec.tolerations,
                spec.topology_spread_constraints,
                spec.overhead,
                spec.resources,
                spec.scheduling_gates,
                spec.host_network,
                spec.preemption_policy,
                spec.os,
            )
        )
