"""VerticalPodAutoscaler: keeps what pods request in step with what they use.

Every minute a workload's past is read, `autoscale.vpa` recommends, and the status says so. Unless
the update mode is Off or Initial, pods outside the bounds are changed: resized in place, or evicted
so that their successors begin with the recommendation (admission sees to that). A node of another
speed gets as many cores as the same work takes there.

Invariant: at most one pod of a workload is evicted per look, through the Eviction API, and never
one whose predecessor was evicted to no effect; a pod within its bounds is left alone.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from motley.api import recommendation, status
from motley.api.views.base import Key
from motley.api.views.core import Node
from motley.api.views.pod import Pod
from motley.api.views.verticalautoscaling import VerticalPodAutoscaler
from motley.autoscale import vpa
from motley.autoscale.hpa import Conditions
from motley.autoscale.past import ApiPasts, NoPast, Pasts
from motley.autoscale.vpa import Bounds, Recommendation, Settings
from motley.client.index import by_namespace
from motley.client.informer import Change
from motley.client.workqueue import WorkQueue
from motley.controllers import nodespeed, resizing
from motley.controllers.manager import Context
from motley.controllers.reconciler import Requeue
from motley.controllers.resizing import Ooms
from motley.controllers.topowner import TopOwners
from motley.lib import journal
from motley.lib.clock import parse_rfc3339

log = journal.get(__name__)

Document = dict[str, Any]

NAME = "motley"  # as spec.recommenders may call this controller
PROVIDED, LOW, UNMATCHED = "RecommendationProvided", "LowConfidence", "NoPodsMatched"
_IN_PLACE = ("InPlaceOrRecreate", "Auto")
_EVICTING = (*_IN_PLACE, "Recreate")
_LEAST_PODS = 2  # Kubernetes' updater, too, does not evict the only pod of a workload
_LOW_DAYS = 1.0


class _Evicted(NamedTuple):
    """Since when pods are evicted for a recommendation, which, and what the last of them had."""

    since: float
    targets: Mapping[str, Mapping[str, float]]
    containers: list[Document]

    def is_outdated(self, document: Document) -> bool:
        """Is something else recommended by now, so that those who came since may go as well?"""
        lower = recommendation.targets(document, "lowerBound")
        upper = recommendation.targets(document, "upperBound")
        return any(
            not lower[name][resource] <= amount <= upper[name][resource]
            for name, wanted in self.targets.items()
            for resource, amount in wanted.items()
            if resource in lower.get(name, {}) and resource in upper.get(name, {})
        )


class VerticalPodAutoscalerController:
    """See the module's docstring."""

    name = "verticalpodautoscaling"
    workers = 2

    def __init__(
        self, context: Context, settings: Settings | None = None, pasts: Pasts | None = None
    ) -> None:
        self._client = context.client
        self._clock = context.clock
        self._settings = settings or Settings()
        self._pasts = pasts or ApiPasts(context.client)
        self._recorder = context.recorder.source("vertical-pod-autoscaler")
        self.queue: WorkQueue[Key] = WorkQueue(context.clock)
        self._evicted: dict[Key, _Evicted] = {}
        self._ooms = Ooms(context.clock.now(), self._settings)
        self._autoscalers = context.informers.of(VerticalPodAutoscaler)
        self._nodes = context.informers.of(Node)
        self._owners = TopOwners(context.informers)
        self._pods = context.informers.of(Pod)
        self._pods.add_index("namespace", by_namespace)
        self._autoscalers.add_handler(self._changed)

    def _changed(self, change: Change[VerticalPodAutoscaler]) -> None:
        old, new = change.old, change.new
        if new is None or (old is not None and old.metadata.uid != new.metadata.uid):
            self._evicted.pop(change.key, None)
            self._ooms.forget(change.key)
        if new is not None and (
            old is None or old.metadata.uid != new.metadata.uid or old.spec != new.spec
        ):
            self.queue.add(change.key)  # what only our own status changed waits for its turn

    async def reconcile(self, key: Key) -> Requeue | None:
        """Look at one autoscaler, then come back: use does not announce itself."""
        found = self._autoscalers.get(key)
        if found is None:
            return None
        named = [r.name for r in found.spec.recommenders]
        if not named or NAME in named:
            await self._look(found)
        return Requeue(self._settings.every_s)

    async def _look(self, found: VerticalPodAutoscaler) -> None:
        now = self._clock.now()
        conditions = Conditions(found.status.get("conditions") or (), now)
        pods = self._target(found)
        none = not pods
        text = "no pods match the target" if none else "pods match the target"
        conditions.set(UNMATCHED, none, "NoPods" if none else "PodsFound", text)
        try:
            recommended = await self._recommend(found, pods, now)
        except NoPast as error:
            conditions.set(PROVIDED, False, "NoHistory", str(error))
            await self._write(found, {**found.status, "conditions": conditions.documents()})
            return
        if not recommended:
            conditions.set(PROVIDED, False, "NoSamples", "nothing is known of its containers yet")
            await self._write(found, {**found.status, "conditions": conditions.documents()})
            return
        days = min(r.confidence for r in recommended.values())
        conditions.set(PROVIDED, True, "FromHistory", "percentiles of use with a margin")
        low = days < _LOW_DAYS
        text = f"rests on {'less than' if low else 'at least'} one day of samples"
        conditions.set(LOW, low, "LittleHistory" if low else "EnoughHistory", text)
        document = documented(found, recommended)
        state = {**document["status"], "conditions": conditions.documents()}
        await self._write(found, state)
        if found.spec.update_policy.update_mode in _EVICTING and self._is_first(found):
            await self._update(found, document, pods, recommended)

    def _is_first(self, found: VerticalPodAutoscaler) -> bool:
        """Of several for one target the eldest acts, as admission has it; else they would undo
        each other's work."""
        first = min(
            (
                one
                for one in self._autoscalers.items()
                if one.metadata.namespace == found.metadata.namespace
                and one.spec.target_ref.kind == found.spec.target_ref.kind
                and one.spec.target_ref.name == found.spec.target_ref.name
                and (one.spec.update_policy.update_mode != "Off" or one.key == found.key)
            ),
            key=lambda one: (one.metadata.creation_timestamp or "", one.metadata.name),
            default=found,
        )
        return first.key == found.key

    def _target(self, found: VerticalPodAutoscaler) -> list[Pod]:
        """The living pods of the target."""
        wanted = (found.spec.target_ref.kind, found.spec.target_ref.name)
        return [
            pod
            for pod in self._pods.by_index("namespace", found.metadata.namespace)
            if not pod.is_terminal
            and pod.metadata.deletion_timestamp is None
            and self._owners.of(pod) == wanted
        ]

    async def _recommend(
        self, found: VerticalPodAutoscaler, pods: Sequence[Pod], now: float
    ) -> dict[str, Recommendation]:
        of = (found.metadata.namespace, found.spec.target_ref.kind, found.spec.target_ref.name)
        means = await self._pasts.workload(*of, "7d", "5m", "avg")
        peaks = await self._pasts.workload(*of, "7d", "5m", "max")
        there = {c.name for pod in pods for c in pod.spec.containers}
        before = recommendation.targets({"status": found.status})
        ooms = self._ooms.look(found.key, pods, before, now)
        recommended = {}
        for name, mean in means.items():
            if name not in peaks or (there and name not in there):
                continue
            made = vpa.recommend(mean, peaks[name], now, self._settings, ooms.get(name, ()))
            if made is not None:
                recommended[name] = made
        return recommended

    async def _update(
        self,
        found: VerticalPodAutoscaler,
        document: Document,
        pods: Sequence[Pod],
        recommended: dict[str, Recommendation],
    ) -> None:
        to_evict: list[tuple[Pod, str]] = []
        is_in_place = found.spec.update_policy.update_mode in _IN_PLACE
        for pod in sorted(pods, key=lambda p: p.metadata.name):
            if pod.status.phase != "Running":
                continue
            speed = self._speed(pod)
            stuck = resizing.stuck(pod, self._clock.now(), self._settings.deferred_s)
            why = resizing.reason(pod, document, recommended, speed)
            # A size that came to nothing may be out of date: what is wanted now may fit.
            if why and is_in_place and await self._resize(found, document, pod, speed, why):
                continue
            if stuck or why:
                to_evict.append((pod, stuck or why))
        asked = found.spec.update_policy.eviction_requirements
        to_evict = [
            (pod, why)
            for pod, why in to_evict
            if resizing.is_worth_eviction(pod, document, asked, self._speed(pod))
        ]
        running = sum(1 for pod in pods if pod.is_ready)
        least = found.spec.update_policy.min_replicas or _LEAST_PODS
        for pod, why in self._not_in_vain(found, document, to_evict)[:1]:
            if running < least:
                text = f"not evicted, though it {why}: {running} of at least {least} pods run"
                self._recorder.event(pod, "Normal", "TooFewReplicas", text)
            else:
                await self._evict(found, document, pod, why)

    def _not_in_vain(
        self,
        found: VerticalPodAutoscaler,
        document: Document,
        to_evict: Sequence[tuple[Pod, str]],
    ) -> list[tuple[Pod, str]]:
        """Those whose eviction may help. No successor is evicted; and where one has no more than
        the pod before it had, nobody is."""
        last = self._evicted.get(found.key)
        if last is None or not to_evict or last.is_outdated(document):
            self._evicted.pop(found.key, None)
            return list(to_evict)
        kept = []
        for pod, why in to_evict:
            if parse_rfc3339(pod.metadata.creation_timestamp or "") < last.since:
                kept.append((pod, why))
                continue
            text = f"it {why}, as its predecessor did: pods are not given what is recommended here"
            self._recorder.event(pod, "Warning", "EvictedInVain", text)
            if resizing.containers(pod) == last.containers:
                return []
        return kept

    def _speed(self, pod: Pod) -> float:
        node = self._nodes.get(Key("", pod.spec.node_name))
        return nodespeed.known(node) if node is not None else 1.0

    async def _resize(
        self, found: VerticalPodAutoscaler, document: Document, pod: Pod, speed: float, why: str
    ) -> bool:
        """Give a running pod other resources; False where that cannot be done in place."""
        containers = recommendation.containers(document, resizing.containers(pod), speed)
        if not containers:
            return True
        body = {"spec": {"containers": containers}}
        name, namespace = pod.metadata.name, pod.metadata.namespace
        try:
            await self._client.patch(
                Pod, name, namespace, body, type="strategic", subresource="resize"
            )
        except status.Conflict:
            return True  # it is looked at again
        except (status.Invalid, status.Forbidden, status.NotFound, status.BadRequest) as error:
            text = f"it {why}, and cannot be resized in place: {error.message}"
            self._recorder.event(pod, "Normal", "NotResized", text)
            return False
        shown = "; ".join(f"{c['name']}: {_shown(c['resources']['requests'])}" for c in containers)
        text = f"Resized by VerticalPodAutoscaler {found.metadata.name}, for it {why}: {shown}"
        self._recorder.event(pod, "Normal", "ResizedByVPA", text)
        log.info("pod resized", pod=pod.key, autoscaler=found.key, why=why)
        return True

    async def _evict(
        self, found: VerticalPodAutoscaler, document: Document, pod: Pod, why: str
    ) -> None:
        try:
            await resizing.evict(self._client, pod)
        except status.TooManyRequests as error:
            text = f"it {why}, but may not be evicted now: {error.message}"
            self._recorder.event(pod, "Normal", "EvictionRefused", text)
            return
        except status.NotFound:
            return
        before = self._evicted.get(found.key)
        now = math.floor(self._clock.now())
        begun = before or _Evicted(now, recommendation.targets(document), [])
        self._evicted[found.key] = begun._replace(containers=resizing.containers(pod))
        text = f"Evicted by VerticalPodAutoscaler {found.metadata.name}, for it {why}"
        self._recorder.event(pod, "Normal", "EvictedByVPA", text)
        log.info("pod evicted", pod=pod.key, autoscaler=found.key, why=why)

    async def _write(self, found: VerticalPodAutoscaler, wanted: Document) -> None:
        if found.status == wanted:
            return
        try:
            await self._client.patch(
                VerticalPodAutoscaler,
                found.metadata.name,
                found.metadata.namespace,
                {"metadata": {"uid": found.metadata.uid}, "status": wanted},
                subresource="status",
            )
        except (status.NotFound, status.Conflict) as error:
            log.debug("status not written", autoscaler=found.key, error=error.message)


def _shown(requests: Document) -> str:
    return ", ".join(f"{name} {amount}" for name, amount in sorted(requests.items()))


def documented(found: VerticalPodAutoscaler, recommended: dict[str, Recommendation]) -> Document:
    """The autoscaler with its new recommendation, as its status is to have it."""
    spec = {"spec": {"resourcePolicy": found.spec.resource_policy}}
    listed = []
    for name, made in sorted(recommended.items()):
        bounds = recommendation.policy(spec, name)
        if bounds.mode == "Off":
            continue

        def shown(of: Bounds, bounds: recommendation.Policy = bounds) -> dict[str, str]:
            return recommendation.written(recommendation.capped(of._asdict(), bounds))

        listed.append(
            {
                "containerName": name,
                "target": shown(made.target),
                "lowerBound": shown(made.lower),
                "upperBound": shown(made.upper),
                "uncappedTarget": recommendation.written(made.target._asdict()),
            }
        )
    return {**spec, "status": {"recommendation": {"containerRecommendations": listed}}}
