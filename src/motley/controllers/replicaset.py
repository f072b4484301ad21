"""ReplicaSet: keeps as many pods of a template as asked for. (ReplicationController does, too.)

Pods are found through owner references (by index) and through labels (for adoption). Decisions
are made in `replicas` and `claim`; own writes are seen at once through `written`, so that a
lagging watch never makes it create or delete twice.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

from motley.api import status
from motley.api.selectors import Selector
from motley.api.views.base import Key
from motley.api.views.pod import Pod
from motley.client.index import by_controller_uid, by_namespace
from motley.client.informer import Change
from motley.client.workqueue import WorkQueue
from motley.controllers import batches, claim, replicas
from motley.controllers.manager import Context
from motley.controllers.reconciler import Requeue
from motley.controllers.workload import ReplicaSet, Replicated, condition
from motley.controllers.written import Written
from motley.lib import clock as clocks
from motley.lib import journal

log = journal.get(__name__)

_BURST = 500  # kube-controller-manager's limit on changes in one pass


class ReplicaSetController:
    """See the module's docstring."""

    name = "replicaset"
    workers = 5
    kind: ClassVar[type[Replicated]] = ReplicaSet
    source = "replicaset-controller"

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._clock = context.clock
        self._recorder = context.recorder.source(self.source)
        self.queue: WorkQueue[Key] = WorkQueue(context.clock)
        self._sets = context.informers.of(self.kind)
        self._pods = context.informers.of(Pod)
        self._sets.add_index("namespace", by_namespace)
        self._sets.add_index("controller", by_controller_uid)
        self._pods.add_index("controller", by_controller_uid)
        self._pods.add_index("orphan", claim.orphan_namespace)
        self._written: Written[Pod] = Written(self._pods, context.clock)
        self._sets.add_handler(lambda change: self.queue.add(change.key))
        self._pods.add_handler(self._pod_changed)

    def _pod_changed(self, change: Change[Pod]) -> None:
        for pod in (change.old, change.new):
            if pod is None:
                continue
            owner = pod.metadata.controller()
            if owner is None:
                if change.new is not None:
                    self._enqueue_adopters(pod)
            elif owner.kind == self.kind.KIND:
                self.queue.add(Key(pod.metadata.namespace, owner.name))

    def _enqueue_adopters(self, pod: Pod) -> None:
        if not pod.metadata.labels:
            return
        for rs in self._sets.by_index("namespace", pod.metadata.namespace):
            if selector_of(rs).matches(pod.metadata.labels):
                self.queue.add(rs.key)

    async def reconcile(self, key: Key) -> Requeue | None:
        """Create or delete pods until their number is right, then report the status."""
        rs = self._sets.get(key)
        if rs is None:
            return None
        pods = [pod for pod in await self._owned(rs) if replicas.is_active(pod)]
        failure: status.ApiError | None = None
        if rs.metadata.deletion_timestamp is None:
            try:
                pods = await self._scale(rs, pods)
            except status.ApiError as error:
                failure = error
                pods = [pod for pod in self._cached(rs) if replicas.is_active(pod)]
        await self._report(rs, pods, failure)
        if failure is not None:
            raise failure
        return self._next_availability(rs, pods)

    def _cached(self, rs: Replicated) -> list[Pod]:
        uid = rs.metadata.uid
        return self._written.over(self._pods.by_index("controller", uid), uid)

    async def _owned(self, rs: Replicated) -> list[Pod]:
        loose = self._pods.by_index("orphan", rs.metadata.namespace)
        claims = claim.plan(rs, selector_of(rs), [*self._cached(rs), *loose])
        return await claim.perform(
            self._client, rs, claims, may_adopt=lambda: claim.is_alive(self._client, rs)
        )

    async def _scale(self, rs: Replicated, pods: list[Pod]) -> list[Pod]:
        missing = rs.spec.replicas - len(pods)
        if missing > 0:
            return pods + await self._create(rs, min(missing, _BURST))
        if missing < 0:
            count, now = min(-missing, _BURST), self._clock.now()
            chosen = replicas.to_delete(pods, count, self._related(rs), now)
            await self._delete(rs, chosen)
            gone = {pod.metadata.uid for pod in chosen}
            return [pod for pod in pods if pod.metadata.uid not in gone]
        return pods

    def _related(self, rs: Replicated) -> list[Pod]:
        owner = rs.metadata.controller()
        family = self._sets.by_index("controller", owner.uid) if owner else [rs]
        return [pod for member in family for pod in self._cached(member)]

    async def _create(self, rs: Replicated, count: int) -> list[Pod]:
        document = replicas.pod_document(rs)
        return await batches.perform([partial(self._create_one, rs, document)] * count)

    async def _create_one(self, rs: Replicated, document: dict[str, Any]) -> Pod:
        try:
            pod = await self._client.create(Pod, document)
        except status.ApiError as error:
            self._recorder.event(rs, "Warning", "FailedCreate", f"Error creating: {error.message}")
            raise
        self._written.put(pod, rs.metadata.uid)
        self._recorder.event(rs, "Normal", "SuccessfulCreate", f"Created pod: {pod.metadata.name}")
        return pod

    async def _delete(self, rs: Replicated, pods: Sequence[Pod]) -> None:
        results = await asyncio.gather(
            *(self._delete_one(rs, pod) for pod in pods), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _delete_one(self, rs: Replicated, pod: Pod) -> None:
        name = pod.metadata.name
        try:
            await self._client.delete(
                Pod, name, pod.metadata.namespace, uid=pod.metadata.uid, propagation="Background"
            )
        except (status.NotFound, status.Conflict):
            pass  # gone already, or another pod has its name: both are what was wanted
        except status.ApiError as error:
            message = f"Error deleting: {error.message}"
            self._recorder.event(rs, "Warning", "FailedDelete", message)
            raise
        else:
            self._recorder.event(rs, "Normal", "SuccessfulDelete", f"Deleted pod: {name}")
        self._written.delete(pod)

    async def _report(
        self, rs: Replicated, pods: Sequence[Pod], failure: status.ApiError | None
    ) -> None:
        now = self._clock.now()
        document = replicas.status_document(rs, pods, now, self._failure(rs, pods, failure, now))
        if _status_equal(rs, document):
            return
        meta = rs.metadata
        try:
            await self._client.patch(
                self.kind,
                meta.name,
                meta.namespace,
                {"metadata": {"uid": meta.uid}, "status": document},
                subresource="status",
            )
        except status.NotFound:
            pass  # deleted meanwhile

    def _failure(
        self,
        rs: Replicated,
        pods: Sequence[Pod],
        failure: status.ApiError | None,
        now: float,
    ) -> dict[str, str] | None:
        if failure is None:
            return None
        known = condition(rs.status.conditions, "ReplicaFailure")
        if known is not None:
            # As first said: the message names a pod that differs at every try, and a status that
            # changes with every failure would wake us at once instead of after the back-off.
            return {
                "type": known.type,
                "status": known.status,
                "reason": known.reason,
                "message": known.message,
                "lastTransitionTime": known.last_transition_time or clocks.rfc3339(now),
            }
        return {
            "type": "ReplicaFailure",
            "status": "True",
            "reason": "FailedCreate" if len(pods) < rs.spec.replicas else "FailedDelete",
            "message": failure.message,
            "lastTransitionTime": clocks.rfc3339(now),
        }

    def _next_availability(self, rs: Replicated, pods: Sequence[Pod]) -> Requeue | None:
        """Time alone makes a ready pod available: come back when the next one is."""
        now = self._clock.now()
        waits = (replicas.available_in_s(pod, rs.spec.min_ready_seconds, now) for pod in pods)
        pending = [wait for wait in waits if wait]
        return Requeue(min(pending) + 0.1) if pending else None


def selector_of(rs: Replicated) -> Selector:
    """Which pods it means: a ReplicationController's selector is a plain map."""
    selector = rs.spec.selector
    return Selector.of_map(selector) if isinstance(selector, dict) else Selector.of(selector)


def _status_equal(rs: Replicated, document: dict[str, Any]) -> bool:
    now = rs.status
    counts = {
        "replicas": now.replicas,
        "fullyLabeledReplicas": now.fully_labeled_replicas,
        "readyReplicas": now.ready_replicas,
        "availableReplicas": now.available_replicas,
        "observedGeneration": now.observed_generation,
    }
    conditions = [(c.type, c.status, c.reason, c.message) for c in now.conditions]
    wanted = [
        (c["type"], c["status"], c["reason"], c["message"]) for c in document["conditions"] or ()
    ]
    same = all((document[name] or 0) == count for name, count in counts.items())
    return same and conditions == wanted
