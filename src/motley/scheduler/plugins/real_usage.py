"""Prefer nodes by what they really use: what MemRealUsage and CpuRealUsage share.

The raw score is the node's use in whole percent; it is turned round and stretched so that the
busiest feasible node gets 0 and the idlest 100. Three things keep that from doing harm:

- Nodes less than ten points apart are not stretched to the whole range: 14 % against 13 % is noise.
- A node that nothing recent is known about counts as average, and where nothing is known about
  any of them none is preferred. Scheduling goes on without measurements.
- Pods placed since the measurement are added by what they ask for, so that a burst does not go
  to the one node that was idlest a moment ago.
"""

import math
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from motley.client.rest import Client
from motley.lib import journal
from motley.scheduler import contract
from motley.scheduler.contract import MAX_SCORE, Columns, Mask, PodInfo, Scores
from motley.scheduler.plugins import polling
from motley.scheduler.plugins.measured import Measurements, Requested
from motley.scheduler.plugins.polling import SourceArgs
from motley.scheduler.plugins.scorelog import PerNode

log = journal.get(__name__)

NOISE = 10.0  # percent points that are stretched to the whole range at least
_STALE_INTERVALS = 3
_RULE_WINDOW_S = 300.0  # the pre-aggregated series are averages over five minutes
_API_WINDOW_S = 30.0  # metrics.k8s.io: about one scrape and a half of metrics-server


class RealUsageArgs(SourceArgs, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Where measurements come from; nothing else can be chosen."""


class RealUsage:
    """A scorer by the measured use of one resource."""

    name: ClassVar[str]
    resource: ClassVar[str]
    row: ClassVar[int]  # of the resource in the columns
    metric: ClassVar[str]  # Prometheus' pre-aggregated series, in percent
    Args = RealUsageArgs

    def __init__(self, args: RealUsageArgs, handle: contract.Handle) -> None:
        self._args = args
        self._handle = handle
        self._clock = handle.clock
        self._nodes = handle.nodes
        interval_s, timeout_s = args.query_metric_interval_seconds, args.query_metric_time_seconds
        self._stale_s = float(_STALE_INTERVALS * interval_s + timeout_s)
        self._measured = Measurements(
            stale_s=self._stale_s,
            is_percent=bool(args.prometheus_api_addr),
        )
        self._requested = Requested(
            window_s=_RULE_WINDOW_S if args.prometheus_api_addr else _API_WINDOW_S
        )

    # -- scoring ----------------------------------------------------------------------------

    def score(self, pod: PodInfo, nodes: Columns) -> Scores:
        """By row: use in percent, with the pods that no measurement shows yet; NaN: unknown."""
        now = self._clock.monotonic()
        percent = np.floor(self._measured.percent(nodes, self.row, now))
        known = np.isfinite(percent) & nodes.live
        if not known.any():
            pod.state.pop(self.name, None)
            return np.zeros(nodes.size)
        percent = np.where(known, percent, math.nan)
        with np.errstate(divide="ignore", invalid="ignore"):
            unseen = self._requested.unseen(nodes, self.row) * 100 / nodes.reported[self.row]
        # NaN of an unknown node is dealt with where the feasible ones are known.
        pod.state[self.name] = np.nan_to_num(unseen, posinf=0.0)
        return percent

    def normalize(self, pod: PodInfo, scores: Scores, feasible: Mask) -> Scores:
        """Turn use round: the busiest feasible node gets 0, the idlest 100."""
        unseen = pod.state.get(self.name)
        if unseen is None:
            return scores
        known = scores[feasible & np.isfinite(scores)]
        average = float(known.mean()) if len(known) else 0.0
        used = np.where(np.isfinite(scores), scores, average) + unseen
        among = used[feasible]
        lowest, highest = float(among.min()), float(among.max())
        if highest == lowest:
            return np.zeros(len(scores))
        span = max(highest - lowest, NOISE)
        turned: Scores = MAX_SCORE - np.floor((used - lowest) * MAX_SCORE / span)
        result = np.clip(turned, 0.0, MAX_SCORE)
        log.debug("nodes scored by use", plugin=self.name, pod=pod.key, busiest=highest,
                  idlest=lowest, unmeasured=len(among) - len(known),
                  scores=PerNode(self._nodes, feasible, scores, result))  # fmt: skip
        return result

    def ages(self, pod: PodInfo) -> Mapping[str, float]:
        """How old the last measurement is."""
        age_s = self._measured.age_s(self._clock.monotonic())
        return {} if age_s is None else {self.resource: age_s}

    # -- measuring --------------------------------------------------------------------------

    async def background(self, client: Client) -> None:
        """Ask the source again and again, until cancelled."""
        metrics = {self.resource: self.metric}

        def take(_: str, values: Mapping[str, float]) -> None:
            self.take(values)

        await polling.poll(
            self.name, metrics, self._args, client, take, self._handle, stale_s=self._stale_s
        )

    def take(self, values: Mapping[str, float]) -> None:
        """Believe these measurements from now on."""
        now = self._clock.monotonic()
        self._measured.take(values, now)
        self._requested.snapshot(self._nodes, self.row, now, self._clock.now())
        log.debug("measurements taken", plugin=self.name, nodes=len(values), used=values)
