"""CPU in units of a node's speed: what Hicev2 computes before it looks at any node.

Labels spell speeds as decimals and CPU is given in whole millicores, so everything here is exact:
fractions, rounded up once at the end. A request and a limit that are equal stay equal and ones that
differ stay different, which keeps the pod's QoS class.

Invariant: what `scaled` says of a pod is what `rewrites` puts into it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import msgspec

from motley.api import quantity, speeds
from motley.api.views.pod import Container, Pod, PodSpec
from motley.scheduler.podinfo import CPU, CPU_AS_WRITTEN, DEFAULT_CPU_MILLI, Requests, pod_requests

NODE_SPEED, POD_SPEED = speeds.LABEL, "hice.kb"
ONE = Fraction(1)

_CORE = 1000

speed = speeds.parse


class Ask(msgspec.Struct, frozen=True):
    """The CPU a container was written with, in millicores; None: not stated."""

    requests: int | None = None
    limits: int | None = None

    @property
    def needed(self) -> int:
        """What counts as the request: a limit alone is one, too."""
        return self.requests if self.requests is not None else self.limits or 0

    def times(self, factor: Fraction) -> "Ask":
        """The same on a node that is `factor` times slower."""
        requests, limits = _scale(self.requests, factor), _scale(self.limits, factor)
        differ = None not in (self.requests, self.limits) and self.requests != self.limits
        if differ and limits is not None and requests == limits:
            limits += 1
        return Ask(requests, limits)


def _scale(milli: int | None, factor: Fraction) -> int | None:
    return None if milli is None else -(-milli * factor.numerator // factor.denominator)


def _whole_cores(milli: int) -> int:
    return -(-milli // _CORE) * _CORE


class OnNode(NamedTuple):
    """A pod on nodes of one speed."""

    cpu: int  # millicores requested there
    too_slow: bool
    score: int


@dataclass(frozen=True)
class Plan:
    """What the containers of a pod ask for, and on which machine that was measured."""

    pod: Pod
    asks: Mapping[str, Ask]  # by container name; only those whose CPU can be scaled
    kb: Fraction
    is_stated: bool
    wrong: str  # a label value that is no speed

    def factor(self, kj: Fraction) -> Fraction:
        """How much more CPU a node of speed `kj` has to give."""
        return self.kb / kj

    def on(self, kj: Fraction) -> OnNode:
        """CPU, fitness and score where the speed is `kj`."""
        factor = self.factor(kj)
        pairs = [(ask, ask.times(factor)) for ask in self.asks.values()]
        too_slow = any(there.needed > _whole_cores(ask.needed) for ask, there in pairs)
        limits_fit = all(
            (there.limits or 0) <= _whole_cores(ask.limits or 0) for ask, there in pairs
        )
        if not self.is_stated or factor <= 1 or not any(ask.needed for ask in self.asks.values()):
            score = 100
        else:
            score = int((51 if limits_fit else 1) + 49 / factor)
        requests = self.requests(factor)
        return OnNode(requests.get(CPU, 0), too_slow, 0 if too_slow else score)

    def requests(self, factor: Fraction, defaults: Requests | None = None) -> dict[str, int]:
        """What the whole pod requests, its CPU being multiplied."""
        return pod_requests(self._scaled(factor), defaults)

    def nonzero_cpu(self, factor: Fraction) -> int:
        """The same of CPU as scorers count it."""
        return self.requests(factor, {CPU: DEFAULT_CPU_MILLI}).get(CPU, 0)

    def rewrites(self, pod: Pod, factor: Fraction) -> dict[str, Any]:
        """The part of a pod's spec that is to be changed; empty: it is as it should be."""
        body = {
            "containers": self._rewritten(pod.spec.containers, factor),
            "initContainers": self._rewritten(pod.spec.init_containers, factor),
        }
        return {part: containers for part, containers in body.items() if containers}

    def _rewritten(self, containers: list[Container], factor: Fraction) -> list[dict[str, Any]]:
        rewritten = []
        for container in containers:
            wanted = self.asks.get(container.name, Ask()).times(factor)
            if wanted not in (Ask(), _ask(container)):
                resources = {
                    part: {CPU: quantity.format_milli(value)}
                    for part, value in (("requests", wanted.requests), ("limits", wanted.limits))
                    if value is not None
                }
                rewritten.append({"name": container.name, "resources": resources})
        return rewritten

    def _scaled(self, factor: Fraction) -> Pod:
        spec = self.pod.spec
        return msgspec.structs.replace(
            self.pod,
            spec=msgspec.structs.replace(
                spec,
                containers=[self._container(c, factor) for c in spec.containers],
                init_containers=[self._container(c, factor) for c in spec.init_containers],
            ),
        )

    def _container(self, container: Container, factor: Fraction) -> Container:
        ask = self.asks.get(container.name)
        if ask is None:
            return container
        there, resources = ask.times(factor), container.resources
        return msgspec.structs.replace(
            container,
            resources=msgspec.structs.replace(
                resources,
                requests=_with_cpu(resources.requests, there.requests),
                limits=_with_cpu(resources.limits, there.limits),
            ),
        )


def _with_cpu(amounts: Mapping[str, Any], milli: int | None) -> dict[str, Any]:
    others = {name: q for name, q in amounts.items() if name != CPU}
    return others if milli is None else {**others, CPU: quantity.format_milli(milli)}


def plan(pod: Pod) -> Plan:
    """What a pod was written with, also when an earlier attempt has scaled it already."""
    label = pod.metadata.labels.get(POD_SPEED)
    kb = speed(label) if label is not None else None
    return Plan(
        pod=pod,
        asks=_asks(pod),
        kb=kb or ONE,
        is_stated=kb is not None,
        wrong=label if label is not None and kb is None else "",
    )


def annotation(asks: Mapping[str, Ask]) -> str:
    """How a pod remembers what it was written with."""
    return msgspec.json.encode(asks).decode()


def _asks(pod: Pod) -> dict[str, Ask]:
    if _is_limited_as_a_whole(pod.spec) or _is_for_windows(pod.spec):
        return {}
    # Other init containers have no resize in Kubernetes, and serve nobody.
    sidecars = [c for c in pod.spec.init_containers if c.restart_policy == "Always"]
    present = {c.name: _ask(c) for c in (*pod.spec.containers, *sidecars)}
    remembered = _remembered(pod)
    asks = {name: _believed(remembered.get(name), ask) for name, ask in present.items()}
    return {name: ask for name, ask in asks.items() if ask != Ask()}


def _believed(remembered: Ask | None, present: Ask) -> Ask:
    """Scaling changes amounts, not what is stated: another shape is not from here."""
    if remembered is None:
        return present
    pairs = (
        (remembered.requests, present.requests),
        (remembered.limits, present.limits),
    )
    return remembered if all((a is None) == (b is None) for a, b in pairs) else present


def _is_limited_as_a_whole(spec: PodSpec) -> bool:
    """CPU of the pod as a whole cannot be changed, and bounds that of its containers."""
    whole = spec.resources
    return whole is not None and (CPU in whole.requests or CPU in whole.limits)


def _is_for_windows(spec: PodSpec) -> bool:
    """Such pods have no resize in Kubernetes."""
    return spec.os is not None and spec.os.name == "windows"


def _ask(container: Container) -> Ask:
    resources = container.resources
    return Ask(
        *(
            quantity.cpu_milli(amounts[CPU]) if CPU in amounts else None
            for amounts in (resources.requests, resources.limits)
        )
    )


def _remembered(pod: Pod) -> dict[str, Ask]:
    text = pod.metadata.annotations.get(CPU_AS_WRITTEN)
    if not text:
        return {}
    try:
        found = msgspec.json.decode(text, type=dict[str, Ask])
    except msgspec.MsgspecError:
        return {}  # not written by this scheduler: the pod is what its spec says
    return {name: ask for name, ask in found.items() if _is_sound(ask)}


def _is_sound(ask: Ask) -> bool:
    return all(value is None or value >= 0 for value in (ask.requests, ask.limits))
