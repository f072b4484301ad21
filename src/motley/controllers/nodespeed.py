"""How fast each node is, learnt from the replicas that run there, and written to the Node.

Every half minute the use of pods is read from `metrics.k8s.io`, whoever serves it. Replicas of one
controller behind a Service that spreads requests evenly do equal work; how much CPU each node
needs for it is a sample. An estimator that the starting command hands over (`metrics.speed`) turns
the last quarter of an hour of samples into speeds with an interval of confidence. They become
annotations, and, where no person has set it or the operator wants it so, the label `hice.kj` that
Hicev2 schedules by.

Invariant: what a person has set sets the scale and is not overwritten unless `--auto-label=always`
says so; a label is changed only by an estimate that is sure, and for a difference that matters.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from motley.api import quantity, speeds, status
from motley.api.views.base import Key
from motley.api.views.core import Node, Service
from motley.api.views.pod import Pod
from motley.client.informer import Change
from motley.client.workqueue import WorkQueue
from motley.controllers.manager import Context
from motley.controllers.reconciler import Requeue
from motley.lib import journal
from motley.lib.clock import parse_rfc3339

log = journal.get(__name__)

LABEL = speeds.LABEL
SPEED, INTERVAL = speeds.ESTIMATED, "motley.io/estimated-speed-interval"
MEASURED = "motley.io/measured-speed"  # by the node's own agent, when it started
LABELLED = "motley.io/labelled-speed"  # the value that was set here: another is a person's
NEVER, UNSET, ALWAYS = "never", "unset", "always"
EVERY_S = 30.0
_KEPT = 30  # rounds
_PATH = "/apis/metrics.k8s.io/v1beta1/pods"
_MOST_NANO = 10**15  # a million cores: no container uses more
_IDLE_NANO = 5_000_000  # below 5m nearly all of what a container uses is not for requests
_FULL_PERCENT = 95  # of its limit: a throttled replica uses its limit, whatever the node
_REST = 9.0  # times as long as reckoning took: a tenth of a core at most
_SETTLED = 2  # rounds; a starting process does other things than serve
_SURE = 0.10  # half of the interval, as a share: no label before
_MATTERS = 0.05
_WEIGHTS = "motley.io/endpoint-weights"  # faster nodes get more: nothing to compare
_HINTS = ("service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode")


class Sample(NamedTuple):
    """Use per replica of a group on a node; as `metrics.speed.Sample`."""

    group: Hashable
    node: str
    usage: float
    replicas: int


class Estimate(NamedTuple):
    """A speed with its interval; as `metrics.speed.Estimate`."""

    speed: float
    low: float
    high: float
    samples: int


Estimator = Callable[[Sequence[Any], Mapping[str, float]], Mapping[str, Any]]


class Use(NamedTuple):
    """What a pod used, and when that was measured."""

    cpu_nano: int
    timestamp: str


class NodeSpeedController:
    """See the module's docstring."""

    name = "nodespeed"
    workers = 1

    def __init__(
        self,
        context: Context,
        estimator: Estimator | None = None,
        auto_label: str = UNSET,
        every_s: float = EVERY_S,
    ) -> None:
        self._client = context.client
        self._clock = context.clock
        self._estimator = estimator
        self._auto_label = auto_label
        self._every_s = every_s
        self.queue: WorkQueue[str] = WorkQueue(context.clock)
        self._estimates: dict[str, Estimate] = {}
        self._rounds: deque[list[Sample]] = deque(maxlen=_KEPT)
        self._round = 0
        self._rests_until = 0.0
        self._last: dict[Key, str] = {}  # when each pod was measured, last round
        self._pods = context.informers.of(Pod)
        self._nodes = context.informers.of(Node)
        self._services = context.informers.of(Service)
        self._nodes.add_handler(self._node_changed)

    async def run(self) -> None:
        """Measure until cancelled."""
        while self._estimator is not None:
            await self._clock.sleep(self._every_s)
            if len(self._nodes.items()) > 1:
                await self._measure(self._estimator)

    def _node_changed(self, change: Change[Node]) -> None:
        node, old = change.new, change.old
        if node is not None and MEASURED in node.metadata.annotations:
            # One more that has measured may complete the scale of all.
            is_first = old is None or MEASURED not in old.metadata.annotations
            every = [n.metadata.name for n in self._nodes.items()] if is_first else []
            for name in {node.metadata.name, *every}:
                self.queue.add(name)

    async def _measure(self, estimator: Estimator) -> None:
        try:
            answer = await self._client.raw("GET", _PATH)
        except status.ApiError as error:
            log.debug("no measurements", error=error.message)
            return
        uses = usage(answer)
        fresh = {key: use for key, use in uses.items() if self._last.get(key) != use.timestamp}
        self._last = {key: use.timestamp for key, use in uses.items()}
        self._round += 1
        services = Even(self._services.items())
        settled = self._clock.now() - _SETTLED * self._every_s
        pods = [
            pod
            for pod in self._pods.items()
            if pod.key in fresh and counts(pod, fresh[pod.key], settled) and services.has(pod)
        ]
        taken = samples(pods, fresh, self._round)
        self._rounds.append(taken)
        if not taken:
            return
        known = scale(self._nodes.items())
        begun = self._clock.monotonic()
        if begun < self._rests_until:
            return
        listed = [sample for one in self._rounds for sample in one]
        # Matrices of thousands of nodes take their time: not on the loop, and not all the time.
        found = await asyncio.to_thread(estimator, listed, known)
        now = self._clock.monotonic()
        self._rests_until = now + _REST * (now - begun)
        self._estimates = {name: Estimate(*estimate) for name, estimate in found.items()}
        for name in self._estimates:
            self.queue.add(name)

    async def reconcile(self, key: str) -> Requeue | None:
        """Write what is estimated of one node, if it says something new."""
        node, estimate = self._nodes.get(Key("", key)), self._estimates.get(key)
        if node is None:
            return None
        if estimate is None:
            body = first_label(node, self._nodes.items(), self._auto_label)
        else:
            body = changes(node, estimate, self._auto_label)
        if body:
            try:
                await self._client.patch(Node, key, "", {"metadata": body})
            except status.NotFound:
                return None
            log.info("node speed", node=key, **body)
        return None


# -- pure -----------------------------------------------------------------------------------


def usage(answer: Any) -> dict[Key, Use]:
    """By pod, from a PodMetricsList; what cannot be read is left out."""
    found: dict[Key, Use] = {}
    items = answer.get("items") if isinstance(answer, dict) else None
    for item in items if isinstance(items, list) else ():
        try:
            key = Key(item["metadata"]["namespace"], item["metadata"]["name"])
            nano = sum(quantity.quantity(c["usage"]["cpu"]).nano for c in item["containers"])
            if nano <= _MOST_NANO:
                found[key] = Use(nano, str(item.get("timestamp", "")))
        except (LookupError, TypeError, ValueError):
            continue
    return found


def counts(pod: Pod, use: Use, settled: float) -> bool:
    """Does this pod tell something about its node? It runs for a controller since before `settled`,
    serves, has work to do and is not held back by its limit."""
    if pod.status.phase != "Running" or not pod.spec.node_name or not pod.metadata.controller():
        return False
    if pod.metadata.deletion_timestamp is not None or not pod.is_ready:
        return False
    started = pod.status.start_time
    if not started or parse_rfc3339(started) > settled or use.cpu_nano < _IDLE_NANO:
        return False
    limits = [c.resources.limits.get("cpu") for c in pod.spec.containers]
    if any(limit is None for limit in limits):
        return True
    total = sum(quantity.quantity(limit).nano for limit in limits if limit is not None)
    return 100 * use.cpu_nano < _FULL_PERCENT * total  # exact, however large a limit is written


class Even:
    """The Services that spread their requests evenly."""

    def __init__(self, services: Iterable[Service]) -> None:
        self._selectors: dict[str, list[dict[str, str]]] = {}
        for service in services:
            if is_even(service):
                selectors = self._selectors.setdefault(service.metadata.namespace, [])
                selectors.append(service.spec.selector)

    def has(self, pod: Pod) -> bool:
        """Is the pod behind one?"""
        labels = pod.metadata.labels.items()
        found = self._selectors.get(pod.metadata.namespace, ())
        return any(selector.items() <= labels for selector in found)


def is_even(service: Service) -> bool:
    """Not where clients stick to a pod, or to pods of their own node or zone."""
    spec, annotations = service.spec, service.metadata.annotations
    return bool(
        spec.selector
        and spec.type != "ExternalName"
        and spec.session_affinity != "ClientIP"
        and spec.internal_traffic_policy != "Local"
        and spec.external_traffic_policy != "Local"
        and not spec.traffic_distribution
        and annotations.get(_WEIGHTS) != "speed"
        and not any(annotations.get(hint, "").lower() == "auto" for hint in _HINTS)
    )


def samples(pods: Iterable[Pod], uses: Mapping[Key, Use], number: int) -> list[Sample]:
    """Use per replica, by controller and node."""
    found: dict[tuple[Hashable, str], list[int]] = {}
    for pod in pods:
        owner = pod.metadata.controller()
        assert owner is not None  # `counts` has seen to it
        group = (pod.metadata.namespace, owner.kind, owner.name, number)
        found.setdefault((group, pod.spec.node_name), []).append(uses[pod.key].cpu_nano)
    listed = [
        Sample(group, node, sum(nanos) / len(nanos), len(nanos))
        for (group, node), nanos in found.items()
    ]
    nodes: dict[Hashable, int] = {}
    for sample in listed:
        nodes[sample.group] = nodes.get(sample.group, 0) + 1
    return [sample for sample in listed if nodes[sample.group] > 1]


def speed(text: str | None) -> float | None:
    """A label's speed; None where it is none."""
    found = speeds.parse(text or "")
    return float(found) if found is not None else None


def known(node: Node) -> float:
    """What a person says of a node, else what was estimated, else 1."""
    said = speed(node.metadata.labels.get(LABEL))
    return said or speed(node.metadata.annotations.get(SPEED)) or 1.0


def text(value: float) -> str:
    """Three digits that matter, as labels write speeds."""
    digits = 2 - math.floor(math.log10(value)) if value > 0 else 0
    return f"{value:.{min(max(digits, 0), 9)}f}"


def set_by_hand(node: Node) -> float | None:
    """The speed a person has given the node."""
    label = node.metadata.labels.get(LABEL)
    is_ours = label == node.metadata.annotations.get(LABELLED)
    return None if is_ours else speed(label)


def scale(nodes: Iterable[Node]) -> dict[str, float]:
    """The speeds that set the scale: what people say, or else what agents measured at start."""
    listed = list(nodes)
    by_hand = {n.metadata.name: s for n in listed if (s := set_by_hand(n))}
    measured = {n.metadata.name: speed(n.metadata.annotations.get(MEASURED)) for n in listed}
    return by_hand or {name: s for name, s in measured.items() if s}


def changes(node: Node, estimate: Estimate, auto_label: str) -> dict[str, dict[str, str]]:
    """What of the Node's metadata is to be written; empty: it says so already."""
    if not math.isfinite(estimate.high):
        return {}
    annotations, labels = node.metadata.annotations, node.metadata.labels
    wanted = {
        SPEED: text(estimate.speed),
        INTERVAL: f"{text(estimate.low)}-{text(estimate.high)}",
    }
    body: dict[str, dict[str, str]] = {}
    published = speed(annotations.get(SPEED))
    if published is None or _differs(published, estimate, 0.01) or INTERVAL not in annotations:
        body["annotations"] = wanted
    may = auto_label == ALWAYS or (auto_label == UNSET and not _is_set_by_hand(node))
    half = (estimate.high - estimate.low) / 2 / estimate.speed
    now = speed(labels.get(LABEL))
    if may and half <= _SURE and (now is None or _differs(now, estimate, _MATTERS)):
        body["labels"] = {LABEL: wanted[SPEED]}
        body["annotations"] = {**wanted, LABELLED: wanted[SPEED]}
    return body


def first_label(node: Node, nodes: Iterable[Node], auto_label: str) -> dict[str, dict[str, str]]:
    """Before there is a load to learn from, a node is as fast as its agent has measured; where all
    agents have, for a node without a label counts as speed 1, and people set no scale."""
    found = [(speed(n.metadata.annotations.get(MEASURED)), set_by_hand(n)) for n in nodes]
    has_scale = all(measured and not by_hand for measured, by_hand in found)
    measured = speed(node.metadata.annotations.get(MEASURED))
    if measured is None or LABEL in node.metadata.labels or auto_label == NEVER or not has_scale:
        return {}
    value = text(measured)
    return {"labels": {LABEL: value}, "annotations": {LABELLED: value}}


def _is_set_by_hand(node: Node) -> bool:
    label = node.metadata.labels.get(LABEL)
    return label is not None and label != node.metadata.annotations.get(LABELLED)


def _differs(have: float, estimate: Estimate, share: float) -> bool:
    return abs(have / estimate.speed - 1) > share
