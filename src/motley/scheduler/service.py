"""The scheduler as a running component: informers in, bindings out.

The only module that knows both the API and the pure core. Informer handlers change columns and
queue; one loop takes pods from the queue, decides, assumes and hands over to the binder. All of it
runs on one event loop, so a decision always sees a consistent snapshot.

Nothing is kept between runs: after a restart everything is read from the API again, and a
pod is bound or it is not.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Literal

from motley.api import status
from motley.api.views.base import Object
from motley.api.views.core import Lease, Node
from motley.api.views.pod import Pod
from motley.client.events import Recorder
from motley.client.lease import LeaderElection
from motley.client.rest import Client
from motley.client.together import Together
from motley.lib import journal
from motley.lib.clock import SYSTEM, Clock
from motley.scheduler import assuming, batchbinding, events, profiles
from motley.scheduler.batchbinding import BatchBinding
from motley.scheduler.binder import Binder, PodWriter
from motley.scheduler.columns import Columns
from motley.scheduler.conditions import ConditionWriter
from motley.scheduler.consulting import Consulting
from motley.scheduler.contract import Handle, PluginError, PodInfo, Reject, Wait
from motley.scheduler.cycle import Cycle, Rotation
from motley.scheduler.decisions import Decision
from motley.scheduler.feed import Feed
from motley.scheduler.hosting import Hosting
from motley.scheduler.images import ImageArchitectures, ImageTable
from motley.scheduler.intake import Intake, is_pending
from motley.scheduler.metrics import Meter, NoMeter
from motley.scheduler.plugins.registry import PLUGINS, Registry
from motley.scheduler.podinfo import PodInfos, identity
from motley.scheduler.preempting import Preempting
from motley.scheduler.profiles import Configuration, Profile
from motley.scheduler.publishing import Publish, Publisher
from motley.scheduler.queue import Queue, QueuedPod
from motley.scheduler.records import Records, is_wanted
from motley.scheduler.reloading import Replanning
from motley.scheduler.timing import Sampling, Stopwatch, timed
from motley.scheduler.waiting import PermitRefused

log = journal.get(__name__)

ASSUMED_MAX_S = 60.0  # a bound pod that the informer does not show by then is counted no more
_EVENTS_WAITING = 20_000  # to be written, per profile: a burst's worth, some 10 MB
_TICK_S = 0.25  # how exact back-offs are
_SLICE_S = 0.002  # decisions in a row before handlers and bindings get their turn


class Scheduler:
    """All profiles of one configuration over one cluster."""

    def __init__(
        self,
        client: Client,
        configuration: Configuration,
        *,
        images: ImageArchitectures | None = None,
        registry: Registry = PLUGINS,
        meter: Meter | None = None,
        publish: Publish = Publish.NONE,
        clock: Clock = SYSTEM,
        seed: int = 0,
    ) -> None:
        self.on_known: Callable[[], None] = _nothing
        """Told when the cluster has been read."""
        self._meter = meter or NoMeter()
        self.nodes = Columns()
        handle = Handle(self.nodes, clock, images or ImageTable())
        handle.notices.listener = self._warn
        self._waiting = handle.waiting
        self._volumes = handle.volumes
        self.profiles = profiles.build(configuration, handle, registry)
        self.queue = Queue(
            self.profiles,
            clock=clock,
            initial_backoff_s=configuration.pod_initial_backoff_seconds,
            max_backoff_s=configuration.pod_max_backoff_seconds,
        )
        self.queue.entered = self._meter.queued
        self._make_cycle = partial(
            Cycle,
            nodes=self.nodes,
            rotation=Rotation(seed),
            nominations=handle.nominations,
            clock=clock,
        )
        self._cycles = {n: self._make_cycle(profile) for n, profile in self.profiles.items()}
        self._client = client
        self._writer = PodWriter(client)
        self._clock = clock
        named = configuration.leader_election
        meta = {"name": named.resource_name, "namespace": named.resource_namespace}
        self._lease = Lease.of({"metadata": meta})
        self._infos = PodInfos()
        self._feed = Feed(client, self.happened, clock=clock)
        self._hosting = Hosting(client, self._feed, clock=clock)
        for profile in self.profiles.values():
            for plugin in profile.plugins.values():
                self._hosting.adopt(plugin)
        self._pods = self._feed.informer(Pod)
        # `kubectl describe` then says which scheduler it was.
        self._writes = Together(client, clock=clock)
        self._recorders = {
            name: Recorder(self._writes, name, clock=clock, writers=32, waiting=_EVENTS_WAITING)
            for name in self.profiles
        }
        self._conditions = ConditionWriter(self._writes, clock=clock)
        self._preempting = Preempting(
            self._writes,
            handle,
            self.queue,
            self._recorders,
            self.happened,
            as_placed=self._placed_as,
        )
        self._work = asyncio.Event()
        self._assumed_until: dict[str, float] = {}
        self.records = Records(self.profiles, clock=clock)
        self._publisher = Publisher(client, publish, clock=clock)
        self._sampling = Sampling()
        self._consulting = Consulting(self.profiles, self._cycles.__getitem__, self)
        self._replanning = Replanning(configuration, handle, self._hosting)
        intake = Intake(self.nodes, self.queue, self._infos, self._preempting, self)
        self._pods.add_handler(intake.pod_changed)
        self._feed.informer(Node).add_handler(intake.node_changed)

    @property
    def ready(self) -> bool:
        """Is the cluster known?"""
        return self._feed.has_synced

    async def run(self, election: LeaderElection | None = None) -> None:
        """Follow the cluster and schedule, with an election only while leading.

        Until cancelled; raises LostLeadership.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self._hosting.run())
            group.create_task(self._writes.run())
            for recorder in self._recorders.values():
                group.create_task(recorder.run())
            group.create_task(self._conditions.run())
            group.create_task(self._preempting.run())
            group.create_task(self._publisher.run())
            if election is None:
                await self.schedule()
            else:
                await election.lead(self.schedule)

    async def schedule(self) -> None:
        """Decide and bind until cancelled."""
        await self._feed.synced()
        self.on_known()
        log.info("scheduling", nodes=self.nodes.count, pending=len(self.queue))
        async with asyncio.TaskGroup() as group:
            together = BatchBinding(self._client, group, clock=self._clock)
            await together.discover()
            self._writer = PodWriter(self._client, together)
            binder = Binder(group, self._writer, self, waiting=self._waiting)
            group.create_task(self._tick())
            group.create_task(self._consulting.run(binder))
            await self._loop(binder)

    async def reload(self, registry: Registry) -> None:
        """Work with other plugins from now on; nothing that waits is lost. Raises ConfigError."""
        self.profiles.update(await self._replanning.rebuilt(self.profiles, registry))
        self._cycles.update({n: self._make_cycle(p) for n, p in self.profiles.items()})
        self.queue.replan()
        self.records.replan(self.profiles)
        self._work.set()

    def announce(self, kind: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        """An event about this scheduler itself; it is shown with its Lease."""
        next(iter(self._recorders.values())).event(self._lease, kind, reason, message)

    # -- the loop ---------------------------------------------------------------------------

    async def _loop(self, binder: Binder) -> None:
        turn_ends = 0.0
        while True:
            await binder.slot()
            queued = self.queue.pop()
            if queued is None:
                binder.give_back()
                self._work.clear()
                await self._work.wait()
                continue
            if not self._attempt(queued, binder):
                binder.give_back()
            now = self._clock.monotonic()
            if now >= turn_ends:
                await self._clock.sleep(0)
                turn_ends = self._clock.monotonic() + _SLICE_S

    def _attempt(self, queued: QueuedPod, binder: Binder) -> bool:
        """Try one pod; True: its binding was submitted."""
        if not self.is_wanted(queued) or self._consulting.takes(queued):
            return False
        try:
            decision, took_s = self._decide(queued.info)
        except PluginError as error:
            self.broken(queued, error)
            return False
        return self.decided(queued, decision, binder, took_s)

    def is_wanted(self, queued: QueuedPod) -> bool:
        """Is the pod still pending? If not, it is forgotten."""
        info = queued.info
        current = self._pods.get(info.key)
        if current is None or identity(current) != info.uid or not is_pending(current):
            self.queue.remove(info.uid)
            return False
        return True

    def broken(self, queued: QueuedPod, error: PluginError) -> None:
        """A plugin failed: so does this attempt, and the pod is tried again later."""
        log.error("scheduling failed", exc_info=error, pod=queued.info.key)
        self._meter.attempt(queued.info.scheduler_name, "error", 0.0)
        self._fail(queued, "SchedulerError", str(error))
        self.queue.retry(queued)

    def decided(
        self,
        queued: QueuedPod,
        decision: Decision,
        binder: Binder,
        took_s: Mapping[str, float] = MappingProxyType({}),
    ) -> bool:
        """Carry a decision out; True: a binding was submitted, which takes up the slot."""
        info = queued.info
        profile = self.profiles[info.scheduler_name]
        self._publisher.decided(info, self.records.take(info, decision, queued.attempts, took_s))
        result = "unschedulable" if decision.node is None else "scheduled"
        self._meter.attempt(profile.name, result, decision.took_s)
        if decision.node is None:
            log.debug("pod unschedulable", pod=info.key, why=decision.message)
            nominated = self._preempting.decided(info, decision)
            if decision.nomination is not None:
                self._meter.preemption(len(decision.nomination.victims))
            self._fail(queued, "Unschedulable", decision.message, nominated)
            self.queue.reject(queued, decision.rejected_by)
            return False
        return self._assume(queued, profile, decision.node, binder)

    def _decide(self, info: PodInfo) -> tuple[Decision, Mapping[str, float]]:
        """A decision and, where it was measured, how long each plugin took."""
        if not self._sampling.is_due() and not is_wanted(info):
            return self._cycles[info.scheduler_name].schedule(info), MappingProxyType({})
        stopwatch = Stopwatch(self._clock)
        measured = self._make_cycle(timed(self.profiles[info.scheduler_name], stopwatch))
        decision = measured.schedule(info)
        self._meter.plugins(info.scheduler_name, stopwatch.by_method)
        return decision, stopwatch.took_s

    def _assume(self, queued: QueuedPod, profile: Profile, node: str, binder: Binder) -> bool:
        info = queued.info
        answer: Reject | Wait | None = None
        try:
            self.nodes.add_pod(assuming.placed_as(profile, info, node), node, assumed=True)
            answer = assuming.reserve_and_permit(profile, info, node)
        except PluginError as error:
            log.error("scheduling failed", exc_info=error, pod=info.key)
            answer = Reject(str(error))
        if isinstance(answer, Reject):
            self._forget(profile, info, node)
            self._fail(queued, "Unschedulable", answer.reason)
            self.queue.retry(queued)
            return False
        self._preempting.assumed(info)
        binder.submit(profile, info, node, answer)
        return True

    async def _tick(self) -> None:
        while True:
            await self._clock.sleep(_TICK_S)
            self.queue.flush()
            self._expire()
            self._meter.pending(self.queue.counts())
            self._work.set()

    def _expire(self) -> None:
        now = self._clock.monotonic()
        for uid in [uid for uid, until in self._assumed_until.items() if until <= now]:
            del self._assumed_until[uid]
            placed = self.nodes.placed.get(uid)
            if placed is None or not placed.assumed:
                continue
            log.warning("assumed pod expired", pod=placed.info.key, node=placed.node)
            self._forget(self.profiles[placed.info.scheduler_name], placed.info, placed.node)
            current = self._pods.get(placed.info.key)
            if current is not None and identity(current) == uid and is_pending(current):
                self.queue.add(self._infos.of(current))

    # -- how bindings end -------------------------------------------------------------------

    def bound(self, pod: PodInfo, node: str) -> None:
        """The API has the binding; the informer will confirm it."""
        self._meter.binding("bound")
        if (queued := self.queue.get(pod.uid)) is not None:
            since_s = self._clock.monotonic() - queued.first_at
            self._meter.scheduled(queued.attempts, since_s)
        self.queue.remove(pod.uid)
        self._conditions.forget(pod.uid)
        placed = self.nodes.placed.get(pod.uid)
        if placed is not None and placed.assumed:
            self._assumed_until[pod.uid] = self._clock.monotonic() + ASSUMED_MAX_S
        log.info("pod bound", pod=pod.key, node=node)
        if not self._writer.has_told(pod.uid):
            message = batchbinding.message(pod, node)
            self._recorders[pod.scheduler_name].event(pod.pod, "Normal", "Scheduled", message)

    def failed(self, pod: PodInfo, node: str, error: Exception) -> None:
        """Take the assumption back; try again, unless the pod is gone or bound after all."""
        if isinstance(error, PermitRefused):
            log.debug("pod not permitted", pod=pod.key, node=node, why=str(error))
        else:
            self._meter.binding("failed")
            log.warning("binding failed", pod=pod.key, node=node, error=f"{error!r}")
        self._forget(self.profiles[pod.scheduler_name], pod, node)
        queued = self.queue.get(pod.uid)
        if queued is None:
            return
        if isinstance(error, status.NotFound):
            self.queue.remove(pod.uid)
            return
        current = self._pods.get(pod.key)
        if current is not None and identity(current) == pod.uid and is_pending(current):
            # Changes were not looked at while the pod was assumed; some are the attempt's own.
            self.queue.add(self._infos.of(current))
        self._preempting.failed(pod, current)
        if isinstance(error, PermitRefused):
            self._fail(queued, "Unschedulable", str(error))
        else:
            self._fail(queued, "SchedulerError", f"binding rejected: {error}")
        self.queue.retry(queued)

    def _forget(self, profile: Profile, pod: PodInfo, node: str) -> None:
        for plugin in reversed(profile.reserve):
            plugin.unreserve(pod, node)
        placed = self.nodes.placed.get(pod.uid)
        if placed is not None and placed.assumed:
            self.nodes.remove_pod(pod.uid)
            self.happened(events.PodDeleted(pod, node))

    def _placed_as(self, pod: PodInfo, node: str) -> PodInfo:
        try:
            return assuming.placed_as(self.profiles[pod.scheduler_name], pod, node)
        except PluginError as error:
            log.error("plugin failed", exc_info=error, pod=pod.key)
            return pod

    def _fail(
        self, queued: QueuedPod, reason: str, message: str, nominated: str | None = None
    ) -> None:
        pod = self._pods.get(queued.info.key) or queued.info.pod
        recorder = self._recorders[queued.info.scheduler_name]
        recorder.event(pod, "Warning", "FailedScheduling", message)
        self._conditions.unschedulable(pod, reason, message, nominated)

    def _warn(self, about: Object | None, reason: str, message: str) -> None:
        if about is None:
            return self.announce("Warning", reason, message)
        name = about.spec.scheduler_name if isinstance(about, Pod) else next(iter(self._recorders))
        self._recorders[name].event(about, "Warning", reason, message)

    # -- what happens in the cluster --------------------------------------------------------

    def happened(self, event: events.ClusterEvent) -> None:
        """Something that may make an unschedulable pod schedulable."""
        if self.queue.event(event):
            self._work.set()

    def arrived(self) -> None:
        """There is a pod to try."""
        self._work.set()

    def settled(self, uid: str) -> None:
        """The pod is placed or gone: nothing is assumed or written of it any more."""
        self._conditions.forget(uid)
        self._assumed_until.pop(uid, None)
        self._waiting.reject(uid, "the pod was deleted, or bound by another")


def _nothing() -> None:
    """Nobody wants to know."""
