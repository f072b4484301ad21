"""Carrying out a preemption: nominations kept, victims told to end.

The decision is made in the cycle; here it is done, in the background: each victim gets a condition
DisruptionTarget, is deleted with its own grace period, and an event says for whom. Meanwhile
the pod's place is kept by its nomination. A victim that cannot be deleted wakes the pod, which then
decides anew.

Invariant: a pod is in `nominations.preempting` exactly while its victims are being told.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from motley.api import status
from motley.api.views.pod import Pod
from motley.client.events import Recorder
from motley.client.together import Writes
from motley.lib import journal
from motley.scheduler import events
from motley.scheduler.contract import Handle, Ineligible, Nomination, PodInfo
from motley.scheduler.decisions import Decision
from motley.scheduler.plugins.default_preemption import REASON
from motley.scheduler.queue import Queue

log = journal.get(__name__)

_WORKERS = 128  # pods that room is being made for at once


@dataclass(slots=True)
class _Order:
    """What is to be done for one pod."""

    preemptor: PodInfo
    node: str
    victims: tuple[PodInfo, ...]
    displaced: tuple[PodInfo, ...]  # less important pods that were nominated to the node


class Disrupting(Writes, Protocol):
    """Writes, and the ends of pods that are told why."""

    async def disrupt(
        self, name: str, namespace: str, condition: Mapping[str, str], *, uid: str | None = None
    ) -> None:
        """Delete a pod, after its status says why."""


class Preempting:
    """The nominations of all profiles and the ends of their victims; `run` it in a task group."""

    def __init__(
        self,
        client: Disrupting,
        handle: Handle,
        queue: Queue,
        recorders: Mapping[str, Recorder],
        happened: Callable[[events.ClusterEvent], None],
        *,
        as_placed: Callable[[PodInfo, str], PodInfo],
    ) -> None:
        self._client = client
        self._nominations = handle.nominations
        self._waiting = handle.waiting
        self._queue = queue
        self._recorders = recorders
        self._happened = happened
        self._as_placed = as_placed
        self._orders: dict[str, _Order] = {}  # by the pod's uid: at most one per pending pod
        self._left: dict[str, set[str]] = {}  # pod → its victims that are still there
        self._for: dict[str, str] = {}  # victim → the pod it makes room for
        queue.is_held = self._nominations.preempting.__contains__
        self._work = asyncio.Event()

    # -- nominations ------------------------------------------------------------------------

    def decided(self, pod: PodInfo, decision: Decision) -> str | None:
        """A pod fits nowhere; returns the nominated node for its status, None: as it is."""
        answer = decision.post_filter
        if isinstance(answer, Nomination):
            self._nominate(pod, answer)
            return answer.node
        if answer is None or isinstance(answer, Ineligible):
            return None
        self.gone(pod.uid)
        return ""

    def follow(self, old: Pod | None, new: Pod, info: PodInfo) -> None:
        """A pending pod came or changed: what its status says of its nomination counts."""
        before = old.status.nominated_node_name if old is not None else ""
        node = new.status.nominated_node_name
        held = self._nominations.node_of(info.uid)
        if node in (before, held):
            return
        if node:
            self._nominations.set(info, node, self._as_placed(info, node))
        else:
            self.gone(info.uid)

    def assumed(self, pod: PodInfo) -> None:
        """The pod itself is counted now."""
        self._left.pop(pod.uid, None)
        self._nominations.drop(pod.uid)

    def failed(self, pod: PodInfo, current: Pod | None) -> None:
        """Its binding failed: the place is still kept for it."""
        if current is not None:
            self.follow(None, current, pod)

    def gone(self, uid: str) -> None:
        """The pod waits no longer, or not there: others may have the place."""
        self._left.pop(uid, None)
        if (preemptor := self._for.pop(uid, None)) is not None:
            self._left.get(preemptor, set()).discard(uid)
            self._make_haste(preemptor)
        nominee = self._nominations.drop(uid)
        if nominee is not None:
            self._happened(events.PodDeleted(nominee.info, nominee.node))

    def _nominate(self, pod: PodInfo, nomination: Nomination) -> None:
        node = nomination.node
        displaced = tuple(p for p in self._nominations.on(node) if p.priority < pod.priority)
        for other in displaced:
            self._nominations.drop(other.uid)
            self._queue.activate(other.uid)
        self._nominations.set(pod, node, self._as_placed(pod, node))
        victims = tuple(v for v in nomination.victims if not v.pod.metadata.deletion_timestamp)
        log.info("preempting", pod=pod.key, node=node, victims=len(victims))
        self._left[pod.uid] = {victim.uid for victim in nomination.victims}
        self._for.update((victim.uid, pod.uid) for victim in nomination.victims)
        if victims or displaced:
            self._nominations.preempting.add(pod.uid)
            self._orders[pod.uid] = _Order(pod, node, victims, displaced)
            self._work.set()

    def _make_haste(self, uid: str) -> None:
        """When all its victims are gone, there is room for the pod: it is tried at once."""
        if self._left.get(uid) == set() and uid not in self._nominations.preempting:
            del self._left[uid]
            self._happened(events.PodsActivated(frozenset({uid})))

    # -- victims ----------------------------------------------------------------------------

    async def run(self) -> None:
        """Carry out until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(_WORKERS):
                group.create_task(self._worker())

    async def _worker(self) -> None:
        while True:
            await self._work.wait()
            if not self._orders:
                self._work.clear()
                continue
            uid = next(iter(self._orders))
            order = self._orders.pop(uid)
            try:
                await self._carry_out(order)
            except* (status.ApiError, OSError, TimeoutError) as errors:
                log.warning("preemption failed", pod=order.preemptor.key, error=f"{errors!r}")
                self._left.pop(uid, None)
                self._queue.activate(uid)
            finally:
                self._nominations.preempting.discard(uid)
            self._queue.release(uid)
            self._make_haste(uid)

    async def _carry_out(self, order: _Order) -> None:
        for other in order.displaced:
            await self._patch_status(other, {"nominatedNodeName": None})
        async with asyncio.TaskGroup() as group:
            for victim in order.victims:
                group.create_task(self._end(order, victim))

    async def _end(self, order: _Order, victim: PodInfo) -> None:
        preemptor = order.preemptor
        said = f"Preempted by pod {preemptor.pod.metadata.uid} on node {order.node}"
        if self._waiting.holds(victim.uid):
            # It was not bound yet: it goes back to the queue and nobody need end it.
            self._waiting.reject(victim.uid, "preempted")
            said += " (in kube-scheduler memory)."
        else:
            name = preemptor.scheduler_name
            condition = {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": REASON,
                "message": f"{name}: preempting to accommodate a higher priority pod",
            }
            meta = victim.pod.metadata
            try:
                await self._client.disrupt(
                    meta.name, meta.namespace, condition, uid=meta.uid or None
                )
            except (status.NotFound, status.Conflict):
                return  # gone already, or another of its name
        self._recorders[preemptor.scheduler_name].event(victim.pod, "Normal", "Preempted", said)

    async def _patch_status(self, pod: PodInfo, fields: dict[str, Any]) -> None:
        body = {"metadata": {"uid": pod.pod.metadata.uid}, "status": fields}
        try:
            await self._client.patch(
                Pod,
                pod.key.name,
                pod.key.namespace,
                body,
                type="strategic",
                subresource="status",
            )
        except (status.NotFound, status.Conflict):
            log.debug("pod is gone", pod=pod.key)
