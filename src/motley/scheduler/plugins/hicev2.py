"""Hicev2: CPU is counted by how fast a node is.

A core of a slow machine does less. The pod's label `hice.kb` says how fast the machine was that its
CPU was measured on, a node's label `hice.kj` how fast the node is; there the pod gets
request × kb / kj, and its limit likewise, so that replicas under equal load are equally busy on
machines that are not equal. Memory is the same everywhere.

It takes the place of NodeResourcesFit as a whole. At binding the scaled values are written into the
pod: what the node enforces is what was counted. Before that the pod is given an annotation that
says what it was written with, so that an attempt that fails half-way does not make the next one
scale what is scaled already.

Invariant: on every node the sum of requests, scaled where this plugin placed the pod, is at most
what is allocatable; a placed pod counts as the API has it, in the node's own millicores.
"""

from collections import OrderedDict
from dataclasses import dataclass, replace
from fractions import Fraction

import msgspec
import numpy as np
import numpy.typing as npt

from motley.api import status
from motley.api.views.core import Node
from motley.api.views.pod import Pod
from motley.scheduler import contract, events
from motley.scheduler.columns import CPU_ROW
from motley.scheduler.contract import Api, Columns, Mask, PluginError, PodInfo, Scores, Verdict
from motley.scheduler.events import ClusterEvent
from motley.scheduler.interning import ABSENT
from motley.scheduler.plugins import speed
from motley.scheduler.plugins.node_resources_fit import NodeResourcesFit, NodeResourcesFitArgs
from motley.scheduler.plugins.speed import NODE_SPEED, ONE, POD_SPEED, OnNode, Plan
from motley.scheduler.podinfo import CPU, CPU_AS_WRITTEN

# Spelled as KubeHICE spells it: people search for it.
TOO_SLOW = "node(s)'s performace is too low"
_TEMPLATES = 256
_PODS_TOLD = 4096


class Hicev2Args(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """What NodeResourcesFit would leave out, too."""

    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()


@dataclass(slots=True)
class _Vectors:
    """A template on every node, true for one state of the nodes' labels."""

    labels: int
    by_speed: dict[int, OnNode]  # by number of the label's value: stays true
    cpu: Scores
    too_slow: Mask
    score: Scores


class Hicev2:
    """Keep nodes with room for the scaled pod that are not too slow, prefer fast ones."""

    name = "Hicev2"
    reason = TOO_SLOW  # `explain` names what lacks
    wakes_on = (*NodeResourcesFit.wakes_on, events.NodeLabelsChanged)
    scope = "requests"
    only_where_named = ("bind",)
    Args = Hicev2Args

    def __init__(self, args: Hicev2Args, handle: contract.Handle) -> None:
        self._handle = handle
        self._nodes = handle.nodes
        # Everything but CPU is the same on every node.
        self._rest = NodeResourcesFit(
            NodeResourcesFitArgs(args.ignored_resources, args.ignored_resource_groups), handle
        )
        self._plans: OrderedDict[int, tuple[Plan, _Vectors | None]] = OrderedDict()
        self._speeds: dict[int, Fraction] = {ABSENT: ONE}  # by number of the label's value
        self._wrong: set[int] = set()  # numbers of values that are no speed
        self._warned: dict[str, int] = {}  # by node: the wrong value it was told of
        self._told: OrderedDict[str, None] = OrderedDict()  # pods, by uid
        self._column = np.zeros(0, np.int32)  # the nodes' labels, as they were read
        self._distinct = np.zeros(0, np.int32)
        self._which: npt.NDArray[np.intp] = np.zeros(0, np.intp)
        self._generation = -1
        self._labels = 0  # counts changes of the labels: most changes of nodes are others

    # -- filter and score -------------------------------------------------------------------

    def filter(self, pod: PodInfo, nodes: Columns) -> Mask:
        """True where there is room for the pod as it would be there."""
        plan, vectors = self._on_all(pod, nodes)
        if plan.wrong:
            self._warn_about_pod(pod, plan)
        mask = self._rest.filter(_without_cpu(pod), nodes) & ~vectors.too_slow
        if CPU in pod.requests:
            mask &= self._has_cpu(vectors, nodes)
        return mask

    def explain(self, pod: PodInfo, nodes: Columns, rejected: Mask) -> dict[str, int]:
        """Too slow, or which resource lacks; a node may count under several."""
        _, vectors = self._on_all(pod, nodes)
        counts = {TOO_SLOW: int(np.count_nonzero(rejected & vectors.too_slow))}
        if CPU in pod.requests:
            lacking = rejected & ~self._has_cpu(vectors, nodes)
            counts["Insufficient cpu"] = int(np.count_nonzero(lacking))
        counts |= self._rest.explain(_without_cpu(pod), nodes, rejected)
        return {reason: count for reason, count in counts.items() if count}

    def hopeless(self, pod: PodInfo, nodes: Columns, rejected: Mask) -> Mask:
        """Where the node is too slow, or even empty too small."""
        _, vectors = self._on_all(pod, nodes)
        lost = vectors.too_slow.copy()
        if CPU in pod.requests:
            lost |= nodes.allocatable[CPU_ROW] < vectors.cpu
        return (lost & rejected) | self._rest.hopeless(_without_cpu(pod), nodes, rejected)

    def may_help(self, pod: PodInfo, event: ClusterEvent) -> bool:
        """Room and speed matter on the node where something changed, nowhere else."""
        match event:
            case (
                events.NodeAdded(node)
                | events.NodeAllocatableChanged(node)
                | events.NodeLabelsChanged(node)
            ):
                name = node.metadata.name
            case events.PodDeleted(_, name) | events.PodUpdated(_, name):
                pass
            case _:
                return True
        if self._handle.nominations.on(name):
            return True  # some of what is counted there may not count for this pod
        row = self._nodes.rows.get(name)
        return row is not None and bool(self.filter(pod, self._nodes)[row])

    def score(self, pod: PodInfo, nodes: Columns) -> Scores:
        """100 on nodes as fast as the reference; less the more CPU the pod would need."""
        return self._on_all(pod, nodes)[1].score

    @staticmethod
    def _has_cpu(vectors: _Vectors, nodes: Columns) -> Mask:
        fits: Mask = nodes.requested[CPU_ROW] + vectors.cpu <= nodes.allocatable[CPU_ROW]
        return fits

    def _on_all(self, pod: PodInfo, nodes: Columns) -> tuple[Plan, _Vectors]:
        plan, vectors = self._plans.get(pod.template) or (speed.plan(pod.pod), None)
        self._read_speeds(nodes)
        if vectors is None or vectors.labels != self._labels:
            by_speed = vectors.by_speed if vectors is not None else {}
            numbers = self._distinct.tolist()
            by_speed |= {n: plan.on(self._speeds[n]) for n in numbers if n not in by_speed}
            there = [by_speed[number] for number in numbers]
            vectors = _Vectors(
                self._labels,
                by_speed,
                np.array([t.cpu for t in there], np.float64)[self._which],
                np.array([t.too_slow for t in there], np.bool_)[self._which],
                np.array([t.score for t in there], np.float64)[self._which],
            )
            self._plans[pod.template] = plan, vectors
            if len(self._plans) > _TEMPLATES:
                self._plans.popitem(last=False)
        return plan, vectors

    def _read_speeds(self, nodes: Columns) -> None:
        """Number the distinct speeds; their values are parsed once, not once per node."""
        if self._generation == nodes.generation:
            return
        self._generation = nodes.generation
        column = nodes.label(NODE_SPEED)
        if not self._labels or not np.array_equal(column, self._column):
            self._column = column.copy()
            self._labels += 1
            self._distinct, which = np.unique(column, return_inverse=True)
            self._which = which.reshape(-1)
            for number in self._distinct.tolist():
                self._speed(number)
        if not self._wrong.isdisjoint(self._distinct.tolist()):
            self._warn_about_nodes(column)
        else:
            self._warned.clear()

    def _speed(self, number: int) -> Fraction:
        if number not in self._speeds:
            kj = speed.speed(self._nodes.values.value(number))
            if kj is None:
                self._wrong.add(number)
            self._speeds[number] = kj or ONE
        return self._speeds[number]

    # -- labels that are wrong --------------------------------------------------------------

    def _warn_about_nodes(self, column: npt.NDArray[np.int32]) -> None:
        rows = np.flatnonzero(np.isin(column, list(self._wrong))).tolist()
        wrong = {self._nodes.names[row]: int(column[row]) for row in rows}
        for name, number in wrong.items():
            if self._warned.get(name) != number:
                value = self._nodes.values.value(number)
                self._warn(Node.of({"metadata": {"name": name, "uid": name}}), NODE_SPEED, value)
        self._warned = wrong

    def _warn_about_pod(self, pod: PodInfo, plan: Plan) -> None:
        """Once: a pod that waits is looked at again whenever something happens."""
        if pod.uid in self._told:
            return
        self._told[pod.uid] = None
        if len(self._told) > _PODS_TOLD:
            self._told.popitem(last=False)
        self._warn(pod.pod, POD_SPEED, plan.wrong)

    def _warn(self, about: Node | Pod, label: str, value: str) -> None:
        message = f'label {label}="{value}" is not a positive decimal number; 1.0 is assumed'
        self._handle.notices.warn(about, "InvalidSpeed", message)

    # -- from the decision to the binding ---------------------------------------------------

    def placed_as(self, pod: PodInfo, node: str) -> PodInfo:
        """The pod with the CPU it is given on this node, which is what it will be bound with."""
        factor = self._factor(pod, node)
        pod.state[self.name] = factor
        plan, _ = self._on_all(pod, self._nodes)
        requests = {name: value for name, value in plan.requests(factor).items() if value}
        if requests == pod.requests:
            return pod
        return replace(
            pod,
            requests=requests,
            nonzero_cpu=plan.nonzero_cpu(factor),
            # Not the template's own amounts: whatever the API shows later is counted anew.
            template=-pod.template,
        )

    def _factor(self, pod: PodInfo, node: str) -> Fraction:
        facts = self._nodes.facts.get(node)
        label = facts.labels.get(NODE_SPEED) if facts else None
        kj = speed.speed(label) if label is not None else None
        return self._on_all(pod, self._nodes)[0].factor(kj or ONE)

    async def pre_bind(self, pod: PodInfo, node: str, api: Api) -> None:
        """Write the scaled CPU into the pod, having noted what it was written with."""
        # A label changed since the decision makes no difference: this is what was counted.
        factor: Fraction = pod.state.get(self.name) or self._factor(pod, node)
        plan = speed.plan(pod.pod)
        rewrites = plan.rewrites(pod.pod, factor)
        if not rewrites:
            return
        try:
            written = speed.annotation(plan.asks)
            if pod.pod.metadata.annotations.get(CPU_AS_WRITTEN) != written:
                await api.patch_pod(pod, {"metadata": {"annotations": {CPU_AS_WRITTEN: written}}})
            await api.resize_pod(pod, {"spec": rewrites})
        except status.NotFound as error:
            # Servers without `pods/resize` say so, too: the pod must not be taken for gone.
            raise PluginError(self.name, "PreBind", error) from error

    async def bind(self, pod: PodInfo, node: str, api: Api) -> Verdict | None:
        """Scale and bind, for profiles that use this instead of the default binder."""
        await self.pre_bind(pod, node, api)
        await api.bind(pod, node)
        return None


def _without_cpu(pod: PodInfo) -> PodInfo:
    if CPU not in pod.requests:
        return pod
    others = {name: value for name, value in pod.requests.items() if name != CPU}
    return replace(pod, requests=others)


_f: contract.Made[contract.FilterPlugin] = Hicev2
_c: contract.Made[contract.CountsByNode] = Hicev2
_s: contract.Made[contract.ScorePlugin] = Hicev2
_p: contract.Made[contract.PreBindPlugin] = Hicev2
_b: contract.Made[contract.BindPlugin] = Hicev2
