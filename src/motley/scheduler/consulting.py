"""Pods that extenders have a say about: asked beside the loop, decided in it.

Asking takes as long as somebody else's web server does, so such a pod leaves the loop, and others
are decided meanwhile. Once the answers are there the pod goes through the ordinary cycle with the
cluster as it is by then.

Invariant: a pod is assumed only on a node that every filter accepts *at that moment* and that
its extenders were asked about.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from motley.api import status
from motley.lib import journal
from motley.scheduler.binder import Binder
from motley.scheduler.contract import Nomination, PluginError
from motley.scheduler.cycle import Cycle
from motley.scheduler.decisions import Decision
from motley.scheduler.opinions import NAME, Extenders
from motley.scheduler.profiles import Profile
from motley.scheduler.queue import QueuedPod

log = journal.get(__name__)

_ROUNDS = 3  # questions about one pod before it goes back to the queue
_AT_ONCE = 16  # pods that extenders are asked about at the same time


class Deciding(Protocol):
    """The scheduler, as far as a pod is concerned whose extenders have answered."""

    def is_wanted(self, queued: QueuedPod) -> bool:
        """Is the pod still pending? If not, it is forgotten."""

    def decided(self, queued: QueuedPod, decision: Decision, binder: Binder) -> bool:
        """Carry a decision out; True: a binding was submitted, which takes up the slot."""

    def broken(self, queued: QueuedPod, error: PluginError) -> None:
        """The pod's cycle failed."""


class Consulting:
    """Asks extenders about a few pods at a time; `run` it in a task group."""

    def __init__(
        self,
        profiles: Mapping[str, Profile],
        cycle: Callable[[str], Cycle],
        scheduler: Deciding,
    ) -> None:
        self._profiles = profiles
        self._cycle = cycle
        self._scheduler = scheduler
        # Not bounded: it refers to pods that the scheduler's queue holds anyway.
        self._pods: asyncio.Queue[QueuedPod] = asyncio.Queue()

    def takes(self, queued: QueuedPod) -> bool:
        """True: extenders are asked about this pod first, and it is decided when they answer."""
        extenders = self._extenders(queued)
        if extenders is None or not extenders.concern(queued.info):
            return False
        self._pods.put_nowait(queued)
        return True

    async def run(self, binder: Binder) -> None:
        """Work until cancelled."""
        if all(profile.plugins.get(NAME) is None for profile in self._profiles.values()):
            return
        async with asyncio.TaskGroup() as group:
            for _ in range(_AT_ONCE):
                group.create_task(self._worker(binder))

    def _extenders(self, queued: QueuedPod) -> Extenders | None:
        plugin = self._profiles[queued.info.scheduler_name].plugins.get(NAME)
        return plugin if isinstance(plugin, Extenders) else None

    async def _worker(self, binder: Binder) -> None:
        while True:
            queued = await self._pods.get()
            extenders = self._extenders(queued)
            assert extenders is not None
            try:
                await self._consult(queued, extenders, binder)
            except PluginError as error:
                self._scheduler.broken(queued, error)
            except status.ApiError as error:
                # Its own object could not be read: whether it is gone is for the informer to say.
                if self._scheduler.is_wanted(queued):
                    self._scheduler.broken(queued, PluginError(NAME, "Filter", error))
            finally:
                extenders.drop(queued.info)

    async def _consult(self, queued: QueuedPod, extenders: Extenders, binder: Binder) -> None:
        cycle = self._cycle(queued.info.scheduler_name)
        for _ in range(_ROUNDS):
            if not self._scheduler.is_wanted(queued):
                return
            pod = queued.info
            names = cycle.feasible(pod)
            opinion = await extenders.ask(pod, names) if names else None
            await binder.slot()
            bound = False
            try:
                if not self._scheduler.is_wanted(queued):
                    return
                if queued.info is not pod and queued.info.template != pod.template:
                    continue  # it is another pod by now
                cycle = self._cycle(pod.scheduler_name)
                if opinion is not None:
                    extenders.hold(pod, opinion)
                decision = cycle.schedule(pod)
                if opinion is None and decision.node is not None:
                    continue  # there is a node after all: ask about it
                if opinion is not None and decision.node not in (None, *opinion.asked):
                    opinion.only_asked = True
                    decision = cycle.schedule(pod)
                    if decision.node is None:
                        continue  # the nodes asked about are full, others are not: ask about those
                if decision.nomination is None:
                    bound = self._scheduler.decided(queued, decision, binder)
                    return
            finally:
                extenders.drop(pod)
                if not bound:
                    binder.give_back()
            await self._preempt(queued, extenders, cycle, decision, decision.nomination, binder)
            return
        self._scheduler.broken(
            queued,
            PluginError(NAME, "Filter", RuntimeError("the cluster changes too fast for extenders")),
        )

    async def _preempt(
        self,
        queued: QueuedPod,
        extenders: Extenders,
        cycle: Cycle,
        decision: Decision,
        nomination: Nomination,
        binder: Binder,
    ) -> None:
        answer = await extenders.preempt(queued.info, cycle.nodes, nomination)
        if self._scheduler.is_wanted(queued):
            self._scheduler.decided(queued, replace(decision, post_filter=answer), binder)
