"""Moves pods off hot nodes, where an operator has switched that on.

Every two minutes the use of nodes and pods is read from `metrics.k8s.io`, whoever serves it, and
`autoscale.rebalance` plans. A pod is moved by evicting it: its controller makes another, and the
scheduler finds the place. A profile that goes by measured use (LoadAware) keeps it from coming
back.

Invariant: only nodes that were hot in the look before as well lose pods, and only through the
Eviction API; what a budget refuses stays, and nothing is tried again before the next look.
"""

import asyncio
from typing import Any

from motley.api import status
from motley.api.views.base import Key
from motley.api.views.core import Node
from motley.api.views.pod import Pod
from motley.api.views.policy import PodDisruptionBudget
from motley.autoscale.rebalance import Move, Plan, Settings
from motley.client.workqueue import WorkQueue
from motley.controllers import rebalancing, resizing
from motley.controllers.manager import Context
from motley.controllers.rebalancing import METRICS, Seen
from motley.controllers.reconciler import Requeue
from motley.controllers.topowner import TopOwners
from motley.lib import journal

log = journal.get(__name__)


class Rebalancer:
    """See the module's docstring. Without settings it does nothing."""

    name = "rebalancer"
    workers = 1

    def __init__(self, context: Context, settings: Settings | None = None) -> None:
        self._client = context.client
        self._clock = context.clock
        self._settings = settings
        self._recorder = context.recorder.source("rebalancer")
        self.queue: WorkQueue[Key] = WorkQueue(context.clock)
        self._rested: dict[str, float] = {}
        self._hot: set[str] = set()
        self._nodes = context.informers.of(Node)
        self._pods = context.informers.of(Pod)
        self._budgets = context.informers.of(PodDisruptionBudget)
        self._owners = TopOwners(context.informers)

    async def run(self) -> None:
        """Look until cancelled."""
        while self._settings is not None:
            await self._clock.sleep(self._settings.every_s)
            await self._look(self._settings)

    async def reconcile(self, key: Key) -> Requeue | None:
        """Nothing is queued: load does not announce itself."""
        return None

    async def _look(self, settings: Settings) -> None:
        try:
            nodes: Any = await self._client.raw("GET", f"{METRICS}/nodes")
            pods: Any = await self._client.raw("GET", f"{METRICS}/pods")
            volumes, images = await rebalancing.more(self._client)
        except status.ApiError as error:
            log.info("nothing is known of the use of nodes", error=error.message)
            return
        seen = Seen(
            self._nodes.items(),
            self._pods.items(),
            self._budgets.items(),
            {name: use for (_, name), use in rebalancing.uses(nodes).items()},
            rebalancing.uses(pods),
            volumes,
            images,
        )
        now = self._clock.monotonic()
        self._rested = {k: at for k, at in self._rested.items() if now - at < settings.rest_s}
        # Ten thousand pods take seconds where no node has room: not on the loop.
        found = await asyncio.to_thread(
            rebalancing.plan, seen, self._owners.of, settings, self._rested, now
        )
        before, self._hot = self._hot, set(found.hot)
        for node, why in found.hot.items():
            log.info("node is hot", node=node, why=why, since_before=node in before)
        for move in found.moves:
            if move.pod.node in before:
                await self._move(move)
        self._tell(found)

    async def _move(self, move: Move) -> None:
        pod = self._pods.get(Key(move.pod.namespace, move.pod.name))
        if pod is None or pod.spec.node_name != move.pod.node:
            return  # gone; or its successor has its name, and is elsewhere already
        try:
            await resizing.evict(self._client, pod)
        except status.TooManyRequests as error:
            self._recorder.event(pod, "Normal", "RebalancingRefused", error.message)
            return
        except (status.NotFound, status.Conflict):
            return
        except status.ApiError as error:  # of this pod: the others, and the next look, go on
            log.warning("pod not moved", pod=move.pod.key, error=error.message)
            return
        now = self._clock.monotonic()
        self._rested[move.pod.node] = self._rested[move.pod.group] = now
        self._recorder.event(pod, "Normal", "Rebalanced", f"Evicted: it {move.reason}")
        log.info("pod moved off a hot node", pod=move.pod.key, node=move.pod.node, why=move.reason)

    def _tell(self, found: Plan) -> None:
        """A node that is hot and cannot be helped is worth a word."""
        helped = {move.pod.node for move in found.moves}
        refused: dict[str, set[str]] = {}
        for refusal in found.refusals:
            refused.setdefault(refusal.pod.node, set()).add(refusal.reason)
        for name, why in found.hot.items():
            node = self._nodes.get(Key("", name))
            if name in helped or node is None:
                continue
            reasons = refused.get(name, ())
            text = f"{why}; no pod is moved: {'; '.join(sorted(reasons)) or 'it runs none'}"
            self._recorder.event(node, "Warning", "HotNode", text[:1000])
