"""Deployment: moves pods from old templates to the current one by sizing ReplicaSets.

Every pass does at most one kind of step (create the new ReplicaSet, grow it, shrink old ones, clean
history) and reports the status; the events of that step bring the next pass. The decisions are in
`rollout`, `template` and `progress`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from motley.api import status
from motley.api.selectors import Selector
from motley.api.views.base import Key
from motley.api.views.pod import Pod
from motley.client.index import by_controller_uid, by_namespace
from motley.client.informer import Change
from motley.client.workqueue import WorkQueue
from motley.controllers import claim, progress, rollout, template
from motley.controllers.manager import Context
from motley.controllers.reconciler import Requeue
from motley.controllers.workload import Deployment, ReplicaSet, condition, is_controlled_by
from motley.controllers.written import Written
from motley.lib import journal

log = journal.get(__name__)


@dataclass(frozen=True)
class State:
    """A Deployment and its ReplicaSets, as known at one point of a pass."""

    deployment: Deployment
    new: ReplicaSet | None
    old: list[ReplicaSet]

    @property
    def sets(self) -> list[ReplicaSet]:
        """All of them."""
        return [*self.old, *([self.new] if self.new else [])]

    @property
    def highest_old_revision(self) -> int:
        """The last revision before the new one."""
        return max((rollout.revision(rs.metadata.annotations) for rs in self.old), default=0)

    def with_set(self, changed: ReplicaSet) -> "State":
        """The state after the server answered a change of one ReplicaSet."""
        if self.new is not None and self.new.key == changed.key:
            return replace(self, new=changed)
        return replace(self, old=[changed if rs.key == changed.key else rs for rs in self.old])


class DeploymentController:
    """See the module's docstring."""

    name = "deployment"
    workers = 5

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._clock = context.clock
        self._recorder = context.recorder.source("deployment-controller")
        self.queue: WorkQueue[Key] = WorkQueue(context.clock)
        self._deployments = context.informers.of(Deployment)
        self._sets = context.informers.of(ReplicaSet)
        self._pods = context.informers.of(Pod)
        self._deployments.add_index("namespace", by_namespace)
        self._sets.add_index("namespace", by_namespace)
        self._sets.add_index("controller", by_controller_uid)
        self._pods.add_index("controller", by_controller_uid)
        self._written: Written[ReplicaSet] = Written(self._sets, context.clock)
        self._deployments.add_handler(lambda change: self.queue.add(change.key))
        self._sets.add_handler(self._set_changed)
        self._pods.add_handler(self._pod_changed)

    def _set_changed(self, change: Change[ReplicaSet]) -> None:
        for rs in (change.old, change.new):
            if rs is None:
                continue
            owner = rs.metadata.controller()
            if owner is not None and owner.kind == Deployment.KIND:
                self.queue.add(Key(rs.metadata.namespace, owner.name))
            elif owner is None and change.new is not None:
                for deployment in self._deployments.by_index("namespace", rs.metadata.namespace):
                    if Selector.of(deployment.spec.selector).matches(rs.metadata.labels):
                        self.queue.add(deployment.key)

    def _pod_changed(self, change: Change[Pod]) -> None:
        """Recreate waits for the last old pod to be gone; ReplicaSets do not report that."""
        owner = change.object.metadata.controller()
        if change.new is not None or owner is None or owner.kind != ReplicaSet.KIND:
            return
        rs = self._sets.get(Key(change.key.namespace, owner.name))
        parent = rs.metadata.controller() if rs else None
        if parent is not None:
            self.queue.add(Key(change.key.namespace, parent.name))

    async def reconcile(self, key: Key) -> Requeue | None:
        """One step of the rollout, then the status."""
        deployment = self._deployments.get(key)
        if deployment is None:
            return None
        selector = Selector.of(deployment.spec.selector)
        if selector.is_everything:
            message = "This deployment is selecting all pods. A non-empty selector is required."
            self._recorder.event(deployment, "Warning", "SelectingAll", message)
            return None
        state = _split(deployment, await self._owned(deployment, selector))
        if deployment.metadata.deletion_timestamp is None:
            state = await self._step(self._mark_begun(self._mark_paused(state)))
        return await self._report(state)

    async def _owned(self, deployment: Deployment, selector: Selector) -> list[ReplicaSet]:
        uid = deployment.metadata.uid
        mine = self._written.over(self._sets.by_index("controller", uid), uid)
        loose = [
            rs
            for rs in self._sets.by_index("namespace", deployment.metadata.namespace)
            if rs.metadata.controller() is None
        ]
        claims = claim.plan(deployment, selector, [*mine, *loose])
        return await claim.perform(
            self._client,
            deployment,
            claims,
            may_adopt=lambda: claim.is_alive(self._client, deployment),
        )

    def _mark_paused(self, state: State) -> State:
        """The Progressing condition follows `spec.paused`, so that a deadline does not run on."""
        current = condition(state.deployment.status.conditions, "Progressing")
        if current is not None and current.reason == "ProgressDeadlineExceeded":
            return state
        if state.deployment.spec.paused:
            return self._with_progress(state, "Unknown", "DeploymentPaused", "Deployment is paused")
        if current is not None and current.reason == "DeploymentPaused":
            return self._with_progress(
                state, "Unknown", "DeploymentResumed", "Deployment is resumed"
            )
        return state

    def _mark_begun(self, state: State) -> State:
        """A rollback finds its ReplicaSet already there: the progress clock starts anew."""
        if state.new is None or state.deployment.spec.paused:
            return state
        current = condition(state.deployment.status.conditions, "Progressing")
        name = f'"{state.new.metadata.name}"'
        other = current is not None and name not in current.message
        if current is None or (other and current.reason == "NewReplicaSetAvailable"):
            message = f"Found new replica set {name}"
            return self._with_progress(state, "True", "FoundNewReplicaSet", message)
        return state

    def _with_progress(self, state: State, value: str, reason: str, message: str) -> State:
        if state.deployment.spec.progress_deadline_seconds is None:
            return state
        fresh = progress.make("Progressing", value, reason, message, self._clock.now())
        before = state.deployment.status
        after = msgspec.structs.replace(before, conditions=progress.put(before.conditions, fresh))
        return replace(state, deployment=msgspec.structs.replace(state.deployment, status=after))

    async def _step(self, state: State) -> State:
        if state.deployment.spec.paused or rollout.is_scaling(state.deployment, state.sets):
            state = await self._number(state)
            return await self._resize(state, rollout.scale(state.deployment, state.new, state.old))
        if state.deployment.spec.strategy.type == "Recreate":
            downs = [rollout.Resize(rs, 0) for rs in state.old if rs.spec.replicas > 0]
            if downs:
                return await self._resize(state, downs)
            if self._has_running(state.old):
                return state
        return await self._roll(state)

    def _has_running(self, old: Sequence[ReplicaSet]) -> bool:
        return any(
            not pod.is_terminal
            for rs in old
            for pod in self._pods.by_index("controller", rs.metadata.uid)
        )

    async def _roll(self, state: State) -> State:
        if state.new is None:
            return await self._create(state)
        state = await self._number(state)
        deployment, new = state.deployment, state.new
        assert new is not None
        size = rollout.new_size(deployment, new.spec.replicas, rollout.present(state.sets))
        if size != new.spec.replicas:
            return await self._resize(state, [rollout.Resize(new, size)])
        downs = rollout.shrink_old(deployment, new, state.old)
        if downs:
            return await self._resize(state, downs)
        counted = progress.counts(deployment, new, state.sets, self._clock.now())
        if progress.is_complete(deployment, counted):
            return await self._clean(state)
        return state

    async def _create(self, state: State) -> State:
        deployment = state.deployment
        digest = template.hash_of(deployment.spec.template, deployment.status.collision_count or 0)
        number = state.highest_old_revision + 1
        size = rollout.new_size(deployment, 0, rollout.present(state.old))
        body = template.replica_set(deployment, digest, number, size)
        name = body["metadata"]["name"]
        try:
            created = await self._client.create(ReplicaSet, body)
        except status.AlreadyExists:
            return await self._collided(state, name)
        except status.ApiError as error:
            message = f'Failed to create new replica set "{name}": {error.message}'
            self._recorder.event(deployment, "Warning", "ReplicaSetCreateError", message)
            raise
        self._written.put(created, deployment.metadata.uid)
        if size:
            message = f"Scaled up replica set {name} from 0 to {size}"
            self._recorder.event(deployment, "Normal", "ScalingReplicaSet", message)
        await self._publish_revision(deployment, number)
        message = f'Created new replica set "{name}"'
        return self._with_progress(
            replace(state, new=created), "True", "NewReplicaSetCreated", message
        )

    async def _collided(self, state: State, name: str) -> State:
        """The name is taken: by our own earlier try, or by another template with the same hash."""
        deployment = state.deployment
        found = await self._client.get(ReplicaSet, name, deployment.metadata.namespace)
        if is_controlled_by(found, deployment) and template.is_current(found, deployment):
            self._written.put(found, deployment.metadata.uid)
            return replace(state, new=found)
        count = (deployment.status.collision_count or 0) + 1
        log.info("template hash collision", deployment=deployment.key, count=count)
        counted = msgspec.structs.replace(deployment.status, collision_count=count)
        return replace(state, deployment=msgspec.structs.replace(deployment, status=counted))

    async def _number(self, state: State) -> State:
        """Give the new ReplicaSet the highest revision, and the Deployment the same."""
        deployment, new = state.deployment, state.new
        if new is None:
            return state
        number = max(state.highest_old_revision + 1, rollout.revision(new.metadata.annotations))
        wanted = template.annotations(deployment, new, number)
        min_ready_s = deployment.spec.min_ready_seconds
        if wanted != new.metadata.annotations or new.spec.min_ready_seconds != min_ready_s:
            body = {
                "metadata": {"annotations": wanted},
                "spec": {"minReadySeconds": min_ready_s},
            }
            new = await self._patch(deployment, new, body)
        await self._publish_revision(deployment, number)
        return replace(state, new=new)

    async def _publish_revision(self, deployment: Deployment, number: int) -> None:
        if rollout.revision(deployment.metadata.annotations) == number:
            return
        meta = deployment.metadata
        body = {"metadata": {"annotations": {rollout.REVISION: str(number)}}}
        await self._client.patch(Deployment, meta.name, meta.namespace, body)

    async def _resize(self, state: State, changes: Sequence[rollout.Resize]) -> State:
        deployment = state.deployment
        for rs, size in changes:
            body = {
                "metadata": {
                    "resourceVersion": rs.metadata.resource_version,
                    "annotations": template.size_annotations(deployment),
                },
                "spec": {"replicas": size},
            }
            state = state.with_set(await self._patch(deployment, rs, body))
            if size != rs.spec.replicas:
                way = "up" if size > rs.spec.replicas else "down"
                name = rs.metadata.name
                message = f"Scaled {way} replica set {name} from {rs.spec.replicas} to {size}"
                self._recorder.event(deployment, "Normal", "ScalingReplicaSet", message)
        return state

    async def _patch(
        self, deployment: Deployment, rs: ReplicaSet, body: Mapping[str, Any]
    ) -> ReplicaSet:
        meta = rs.metadata
        changed = await self._client.patch(ReplicaSet, meta.name, meta.namespace, body)
        self._written.put(changed, deployment.metadata.uid)
        return changed

    async def _clean(self, state: State) -> State:
        gone = rollout.to_clean(state.deployment, state.old)
        for rs in gone:
            meta = rs.metadata
            try:
                await self._client.delete(
                    ReplicaSet, meta.name, meta.namespace, uid=meta.uid, propagation="Background"
                )
            except (status.NotFound, status.Conflict):
                pass  # already gone, or already another one
            self._written.delete(rs)
        names = {rs.metadata.name for rs in gone}
        return replace(state, old=[rs for rs in state.old if rs.metadata.name not in names])

    async def _report(self, state: State) -> Requeue | None:
        deployment = state.deployment
        now = self._clock.now()
        judged = progress.judge(deployment, state.new, state.sets, now)
        cached = self._deployments.get(deployment.key)
        if cached is None or cached.status != judged:
            meta = deployment.metadata
            body = {"metadata": {"uid": meta.uid}, "status": progress.document(judged)}
            try:
                await self._client.patch(
                    Deployment, meta.name, meta.namespace, body, subresource="status"
                )
            except status.NotFound:
                return None
        left_s = progress.deadline_in_s(deployment, judged.conditions, now)
        return Requeue(max(left_s, 0.0) + 1.0) if left_s is not None else None


def _split(deployment: Deployment, sets: Sequence[ReplicaSet]) -> State:
    """The ReplicaSet of the current template (the oldest, should there be two) and the others."""
    ordered = rollout.by_age(sets)
    alive = (rs for rs in ordered if rs.metadata.deletion_timestamp is None)
    new = next((rs for rs in alive if template.is_current(rs, deployment)), None)
    return State(deployment, new, [rs for rs in ordered if rs is not new])
