"""The scheduler as a running component: informers in, bindings out.

The only module that knows both the API and the pure core. Informer handlers change columns and
queue; one loop takes pods from the queue, decides, assumes and hands over to the binder. All of it
runs on one event loop, so a decision always sees a consistent snapshot.

Nothing is kept between runs: after a restart everything is read from the API again, and a
pod is bound or it is not.
"""

import asyncio
from collections import deque

from motley.api import status
from motley.api.views.base import Object
from motley.api.views.core import Node
from motley.api.views.pod import Pod
from motley.client.events import Recorder
from motley.client.lease import LeaderElection
from motley.client.rest import Client
from motley.lib import journal
from motley.lib.backoff import Backoff
from motley.lib.clock import SYSTEM, Clock
from motley.scheduler import contract, events, profiles
from motley.scheduler.binder import Binder, PodWriter
from motley.scheduler.columns import Columns
from motley.scheduler.conditions import ConditionWriter
from motley.scheduler.contract import Handle, PluginError, PodInfo, Reject, Wait
from motley.scheduler.cycle import Cycle, Rotation
from motley.scheduler.decisions import Decision
from motley.scheduler.feed import Feed
from motley.scheduler.images import ImageArchitectures, ImageTable
from motley.scheduler.intake import Intake, is_pending
from motley.scheduler.metrics import Meter, NoMeter
from motley.scheduler.plugins.registry import PLUGINS, Registry
from motley.scheduler.podinfo import PodInfos, identity
from motley.scheduler.preempting import Preempting
from motley.scheduler.profiles import Configuration, Profile
from motley.scheduler.queue import Queue, QueuedPod

log = journal.get(__name__)

ASSUMED_MAX_S = 60.0  # a bound pod that the informer does not show by then is counted no more
_TICK_S = 0.25  # how exact back-offs are
_SLICE_S = 0.002  # decisions in a row before handlers and bindings get their turn
_DECISIONS_KEPT = 1000


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
        clock: Clock = SYSTEM,
        seed: int = 0,
    ) -> None:
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
        rotation = Rotation(seed)
        self._cycles = {
            name: Cycle(
                profile, self.nodes, rotation=rotation, nominations=handle.nominations, clock=clock
            )
            for name, profile in self.profiles.items()
        }
        self._client = client
        self._clock = clock
        self._infos = PodInfos()
        self._feed = Feed(client, self.happened, clock=clock)
        for profile in self.profiles.values():
            for plugin in profile.plugins.values():
                if isinstance(plugin, contract.FollowsObjects):
                    plugin.follow(self._feed)
        self._pods = self._feed.informer(Pod)
        # `kubectl describe` then says which scheduler it was.
        self._recorders = {name: Recorder(client, name, clock=clock) for name in self.profiles}
        self._conditions = ConditionWriter(client, clock=clock)
        self._preempting = Preempting(
            client,
            handle,
            self.queue,
            self._recorders,
            self.happened,
            as_placed=self._placed_as,
            clock=clock,
        )
        self._work = asyncio.Event()
        self._assumed_until: dict[str, float] = {}
        self.decisions: deque[Decision] = deque(maxlen=_DECISIONS_KEPT)
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
            for informer in self._feed.informers:
                group.create_task(informer.run())
            for recorder in self._recorders.values():
                group.create_task(recorder.run())
            group.create_task(self._conditions.run())
            group.create_task(self._preempting.run())
            for profile in self.profiles.values():
                for plugin in profile.plugins.values():
                    if isinstance(plugin, contract.WorksInBackground):
                        group.create_task(self._background(plugin, profile.name))
            if election is None:
                await self.schedule()
            else:
                await election.lead(self.schedule)

    async def schedule(self) -> None:
        """Decide and bind until cancelled."""
        await self._feed.synced()
        log.info("scheduling", nodes=self.nodes.count, pending=len(self.queue))
        async with asyncio.TaskGroup() as group:
            binder = Binder(group, PodWriter(self._client), self, waiting=self._waiting)
            group.create_task(self._tick())
            await self._loop(binder)

    async def _background(self, plugin: contract.WorksInBackground, profile: str) -> None:
        """Keep a plugin's own task going: what it raises is its own trouble."""
        await self._feed.synced()
        pauses = Backoff(base_s=1.0)
        while True:
            try:
                await plugin.background(self._client)
                return
            except Exception as error:
                log.error("plugin failed", exc_info=error, profile=profile, point="background")
                await self._clock.sleep(pauses.next())

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
        info = queued.info
        current = self._pods.get(info.key)
        if current is None or identity(current) != info.uid or not is_pending(current):
            self.queue.remove(info.uid)
            return False
        profile = self.profiles[info.scheduler_name]
        try:
            decision = self._cycles[info.scheduler_name].schedule(info)
        except PluginError as error:
            log.error("scheduling failed", exc_info=error, pod=info.key)
            self._meter.attempt(profile.name, "error", 0.0)
            self._fail(queued, "SchedulerError", str(error))
            self.queue.retry(queued)
            return False
        self.decisions.append(decision)
        result = "unschedulable" if decision.node is None else "scheduled"
        self._meter.attempt(profile.name, result, decision.took_s)
        if decision.node is None:
            log.debug("pod unschedulable", pod=info.key, why=decision.message)
            nominated = self._preempting.decided(info, decision)
            self._fail(queued, "Unschedulable", decision.message, nominated)
            self.queue.reject(queued, decision.rejected_by)
            return False
        return self._assume(queued, profile, decision.node, binder)

    def _assume(self, queued: QueuedPod, profile: Profile, node: str, binder: Binder) -> bool:
        info = queued.info
        answer: Reject | Wait | None = None
        try:
            self.nodes.add_pod(_as_placed(profile, info, node), node, assumed=True)
            answer = _reserve_and_permit(profile, info, node)
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
        self.queue.remove(pod.uid)
        self._conditions.forget(pod.uid)
        placed = self.nodes.placed.get(pod.uid)
        if placed is not None and placed.assumed:
            self._assumed_until[pod.uid] = self._clock.monotonic() + ASSUMED_MAX_S
        log.info("pod bound", pod=pod.key, node=node)
        message = f"Successfully assigned {pod.key} to {node}"
        self._recorders[pod.scheduler_name].event(pod.pod, "Normal", "Scheduled", message)

    def failed(self, pod: PodInfo, node: str, error: Exception) -> None:
        """Take the assumption back; try again, unless the pod is gone or bound after all."""
        self._meter.binding("failed")
        log.warning("binding failed", pod=pod.key, node=node, error=f"{error!r}")
        self._forget(self.profiles[pod.scheduler_name], pod, node)
        queued = self.queue.get(pod.uid)
        if queued is None:
            return
        if isinstance(error, status.NotFound):
            self.queue.remove(pod.uid)
            return
        self._preempting.failed(pod, self._pods.get(pod.key))
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
            return _as_placed(self.profiles[pod.scheduler_name], pod, node)
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

    def _warn(self, about: Object, reason: str, message: str) -> None:
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


def _as_placed(profile: Profile, pod: PodInfo, node: str) -> PodInfo:
    for plugin in profile.counts_by_node:
        try:
            pod = plugin.placed_as(pod, node)
        except Exception as e:
            raise PluginError(plugin.name, "Filter", e) from e
    return pod


def _reserve_and_permit(profile: Profile, pod: PodInfo, node: str) -> Reject | Wait | None:
    wait: Wait | None = None
    at = ("", "")
    try:
        for plugin in profile.reserve:
            at = (plugin.name, "Reserve")
            refusal = plugin.reserve(pod, node)
            if refusal is not None:
                return Reject(refusal.reason)
        for plugin in profile.permit:
            at = (plugin.name, "Permit")
            answer = plugin.permit(pod, node)
            if isinstance(answer, Reject):
                return answer
            if isinstance(answer, Wait):
                wait = answer if wait is None or answer.timeout_s < wait.timeout_s else wait
    except Exception as e:
        raise PluginError(*at, e) from e
    return wait
