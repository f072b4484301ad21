"""NetworkAware: pods go near the pods they talk to.

CallGraph objects say which workloads call which, NetworkTopology objects how far apart nodes are.
The score of a node is the expected latency between the pod there and the pods at the other end of
its calls, which are taken to be called evenly, weighted by call. The filter keeps nodes that are
near enough for calls with `maxLatencyMs`, and whose links have `minBandwidth` to spare for what the
pod would send and receive, beside what the calls of all placed pods take.

A workload without any placed pod pulls nowhere; a pod in no call graph is none of this plugin's
business. How many pods of a workload each node has is counted as pods come and go.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np

from motley.api.views.network import CallGraph, NetworkTopology
from motley.client.informer import Change
from motley.scheduler import contract, events, network
from motley.scheduler.contract import MAX_SCORE, SKIP, Columns, Mask, PodInfo, Scores, Verdict
from motley.scheduler.events import ClusterEvent
from motley.scheduler.feed import Feed
from motley.scheduler.network import Distances, Flow, Network
from motley.scheduler.podsets import Counts, PodGroup, PodSet

TOO_FAR = "node(s) were too far from the pods it calls or is called by"
TOO_NARROW = "node(s) had too little bandwidth to the pods it calls or is called by"
_GROUPS = 1024


@dataclass(frozen=True, slots=True)
class NetworkChanged(ClusterEvent):
    """A topology or a call graph is new, or another."""


class NetworkAwareArgs(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """`topologies`: the names of the NetworkTopology objects to go by; empty: all of them."""

    topologies: tuple[str, ...] = ()


class End(NamedTuple):
    """The other end of calls, as a pod sees it."""

    peers: PodSet
    flow: Flow
    outgoing: bool


class NetworkAware:
    """Keep nodes near enough to the pods it talks to, prefer the nearest."""

    name = "NetworkAware"
    reason = TOO_FAR
    wakes_on = (
        NetworkChanged,
        events.NodeAdded,
        events.NodeLabelsChanged,
        events.PodAdded,
        events.PodUpdated,
        events.PodDeleted,
    )
    removal_helps = False  # nobody is ended for the sake of a shorter way
    Args = NetworkAwareArgs

    def __init__(self, args: NetworkAwareArgs, handle: contract.Handle) -> None:
        self._only = frozenset(args.topologies)
        self._nodes = handle.nodes
        self.network = Network()
        self._distances: Distances | None = None
        self._made_for = (-1, -1)
        self._ends: OrderedDict[PodGroup, tuple[End, ...]] = OrderedDict()
        self._ends_version = -1

    def follow(self, feed: Feed) -> None:
        """Read both kinds, where the server has them."""

        def topology(change: Change[NetworkTopology]) -> None:
            self.network.set_topology(change.key.name, change.new)
            feed.happened(NetworkChanged())

        def graph(change: Change[CallGraph]) -> None:
            self.network.set_graph(change.key, change.new)
            feed.happened(NetworkChanged())

        feed.informer(NetworkTopology, optional=True).add_handler(topology)
        feed.informer(CallGraph, optional=True).add_handler(graph)

    # -- filter -----------------------------------------------------------------------------

    def pre_filter(self, pod: PodInfo, nodes: Columns) -> Verdict | None:
        """Nothing to check for a pod whose calls have no bounds."""
        ends = self._of(pod)
        bounded = any(e.flow.max_latency_ms is not None or e.flow.bandwidth for e in ends)
        return None if bounded else SKIP

    def filter(self, pod: PodInfo, nodes: Columns) -> Mask:
        """True where every bounded call is short enough, and every link wide enough."""
        return self._is_near(pod, nodes) & self._is_wide(pod, nodes)

    def explain(self, pod: PodInfo, nodes: Columns, rejected: Mask) -> dict[str, int]:
        """Too far, or too narrow; a node may be both."""
        counts = {
            TOO_FAR: int(np.count_nonzero(rejected & ~self._is_near(pod, nodes))),
            TOO_NARROW: int(np.count_nonzero(rejected & ~self._is_wide(pod, nodes))),
        }
        return {reason: count for reason, count in counts.items() if count}

    def may_help(self, pod: PodInfo, event: ClusterEvent) -> bool:
        """Whatever happened, some node must be near now."""
        return bool((self.filter(pod, self._nodes) & self._nodes.live).any())

    def _is_near(self, pod: PodInfo, nodes: Columns) -> Mask:
        mask = np.ones(nodes.size, np.bool_)
        between = self._between(nodes)
        for end in self._of(pod):
            if end.flow.max_latency_ms is None:
                continue
            placed = nodes.tallies.of(end.peers, nodes.size)
            if placed.any():
                mean = between.mean_ms(placed, outgoing=end.outgoing)
                mask &= mean <= end.flow.max_latency_ms
        return mask

    def _is_wide(self, pod: PodInfo, nodes: Columns) -> Mask:
        """Every calling pod spreads what it needs evenly over the pods it calls."""
        between = self._between(nodes)
        ends = [end for end in self._of(pod) if end.flow.bandwidth]
        if not ends or not between.budgets:
            return np.ones(nodes.size, np.bool_)
        out, back = np.zeros(len(between.latency_ms)), np.zeros(len(between.latency_ms))
        for end in ends:
            peers = between.counts(nodes.tallies.of(end.peers, nodes.size))
            if end.outgoing:
                out += _shares(peers) * end.flow.bandwidth
            else:
                own = nodes.tallies.of(end.flow.callee, nodes.size).sum() + 1
                back += peers * end.flow.bandwidth / own
        used = self._used(between, nodes)
        fits = np.ones(len(used), np.bool_)
        for budget in between.budgets:
            fits &= budget.fits(used, out, back)
        return fits[between.of_row]

    def _used(self, between: Distances, nodes: Columns) -> network.Matrix:
        """[class, class]: what the calls of placed pods take, by the bandwidth they state."""
        used = np.zeros_like(between.latency_ms)
        for flow in self.network.flows:
            if flow.bandwidth:
                callers = between.counts(nodes.tallies.of(flow.caller, nodes.size))
                callees = between.counts(nodes.tallies.of(flow.callee, nodes.size))
                used += np.outer(callers * flow.bandwidth, _shares(callees))
        return used

    # -- score ------------------------------------------------------------------------------

    def pre_score(self, pod: PodInfo, nodes: Columns, feasible: Mask) -> Verdict | None:
        """Nothing to prefer for a pod that talks to nobody who is placed."""
        pulls = any(nodes.tallies.of(end.peers, nodes.size).any() for end in self._of(pod))
        return None if pulls else SKIP

    def score(self, pod: PodInfo, nodes: Columns) -> Scores:
        """By row: the weighted mean of the expected latencies of the pod's calls."""
        between = self._between(nodes)
        total, weights = np.zeros(nodes.size), 0
        for end in self._of(pod):
            placed = nodes.tallies.of(end.peers, nodes.size)
            if placed.any():
                total += between.mean_ms(placed, outgoing=end.outgoing) * end.flow.weight
                weights += end.flow.weight
        return total / max(weights, 1)

    def normalize(self, pod: PodInfo, scores: Scores, feasible: Mask) -> Scores:
        """The nearest feasible node gets 100, the farthest 0; all equal: all 100."""
        among = scores[feasible]
        lowest, highest = float(among.min()), float(among.max())
        if highest <= lowest:
            return np.full_like(scores, MAX_SCORE)
        turned: Scores = np.floor((highest - scores) * MAX_SCORE / (highest - lowest))
        return np.clip(turned, 0.0, MAX_SCORE)

    # -- what is known ----------------------------------------------------------------------

    def _between(self, nodes: Columns) -> Distances:
        wanted = (self.network.version, nodes.generation)
        if self._distances is None or self._made_for != wanted:
            topologies = self.network.topologies
            chosen = [t for name, t in topologies.items() if not self._only or name in self._only]
            self._distances, self._made_for = network.distances(chosen, nodes), wanted
        return self._distances

    def _of(self, pod: PodInfo) -> tuple[End, ...]:
        """The ends of the pod's calls; a workload that calls itself has two."""
        if self._ends_version != self.network.version:
            self._ends.clear()
            self._ends_version = self.network.version
        ends = self._ends.get(pod.group)
        if ends is None:
            flows = self.network.of(pod.group)
            ends = tuple(
                end
                for flow in flows
                for end in (
                    *((End(flow.callee, flow, True),) if flow.caller.holds(pod.group) else ()),
                    *((End(flow.caller, flow, False),) if flow.callee.holds(pod.group) else ()),
                )
            )
            self._ends[pod.group] = ends
            if len(self._ends) > _GROUPS:
                self._ends.popitem(last=False)
        return ends


def _shares(counts: Counts) -> Counts:
    total = counts.sum()
    return counts / total if total else counts


_f: contract.Made[contract.FilterPlugin] = NetworkAware
_p: contract.Made[contract.PreFilterPlugin] = NetworkAware
_r: contract.Made[contract.PreScorePlugin] = NetworkAware
_s: contract.Made[contract.ScorePlugin] = NetworkAware
_n: contract.Made[contract.NormalizePlugin] = NetworkAware
_o: contract.Made[contract.FollowsObjects] = NetworkAware
