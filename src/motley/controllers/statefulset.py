"""StatefulSet: pods with names that stay, made, updated and removed in order.

What to do is decided in `stateful` (with `identity` and `retention`); the history of templates is
kept by `revisions`. Pods hold their names until they are gone, so own deletions are remembered
(`terminating`) as well as own creations (`written`).
"""

from functools import partial

from motley.api import status
from motley.api.selectors import Selector
from motley.api.views.base import Key
from motley.api.views.pod import Pod
from motley.api.views.storage import PersistentVolumeClaim
from motley.api.views.workloads import ControllerRevision, StatefulSet
from motley.client.index import by_controller_uid, by_namespace
from motley.client.informer import Change
from motley.client.workqueue import WorkQueue
from motley.controllers import batches, claim, history, identity, replicas, retention, stateful
from motley.controllers.manager import Context
from motley.controllers.reconciler import Requeue
from motley.controllers.revisions import Current, Revisions
from motley.controllers.terminating import Terminating
from motley.controllers.workload import controller_reference
from motley.controllers.written import Written
from motley.lib import journal

log = journal.get(__name__)


class StatefulSetController:
    """See the module's docstring."""

    name = "statefulset"
    workers = 5

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._clock = context.clock
        self._recorder = context.recorder.source("statefulset-controller")
        self.queue: WorkQueue[Key] = WorkQueue(context.clock)
        self._sets = context.informers.of(StatefulSet)
        self._pods = context.informers.of(Pod)
        self._claims = context.informers.of(PersistentVolumeClaim)
        self._revisions = Revisions(context, history.HASH_LABEL)
        self._sets.add_index("namespace", by_namespace)
        self._pods.add_index("controller", by_controller_uid)
        self._pods.add_index("orphan", claim.orphan_namespace)
        self._written_sets: Written[StatefulSet] = Written(self._sets, context.clock)
        self._written: Written[Pod] = Written(self._pods, context.clock)
        self._written_claims: Written[PersistentVolumeClaim] = Written(self._claims, context.clock)
        self._terminating = Terminating(self._pods, context.clock)
        self._sets.add_handler(lambda change: self.queue.add(change.key))
        self._pods.add_handler(self._pod_changed)
        self._claims.add_handler(self._claim_changed)

    def _pod_changed(self, change: Change[Pod]) -> None:
        for pod in (change.old, change.new):
            if pod is None:
                continue
            owner = pod.metadata.controller()
            if owner is not None:
                if owner.kind == StatefulSet.KIND:
                    self.queue.add(Key(pod.metadata.namespace, owner.name))
            elif change.new is not None and pod.metadata.labels:
                for sts in self._sets.by_index("namespace", pod.metadata.namespace):
                    if Selector.of(sts.spec.selector).matches(pod.metadata.labels):
                        self.queue.add(sts.key)

    def _claim_changed(self, change: Change[PersistentVolumeClaim]) -> None:
        """A pod may wait for a claim of its name to be gone, or need one that was deleted."""
        if change.new is not None:
            return
        for sts in self._sets.by_index("namespace", change.key.namespace):
            for template in sts.spec.volume_claim_templates:
                prefix = f"{template['metadata']['name']}-{sts.metadata.name}-"
                if change.key.name.startswith(prefix):
                    self.queue.add(sts.key)

    async def reconcile(self, key: Key) -> Requeue | None:
        """The next step of the set, then its status and history."""
        sts = self._written_sets.get(key)
        if sts is None:
            return None
        selector = Selector.of(sts.spec.selector)
        revisions = await self._revisions.owned(sts, selector)
        if sts.metadata.deletion_timestamp and not history.equal(revisions, sts.spec.template):
            return None  # its history goes, or stays behind, without it: write no new one
        found = await self._revisions.current(
            sts, sts.spec.template, revisions, sts.status.collision_count or 0
        )
        named = {r.metadata.name: r for r in revisions}
        current = named.get(sts.status.current_revision, found.revision)
        pods = await self._owned(sts, selector)
        view = self._view(sts, pods, current, found.revision)
        failure: status.ApiError | None = None
        try:
            await self._carry_out(view, stateful.plan(view))
        except status.ApiError as error:
            failure = error
        view = self._view(sts, self._cached(sts), current, found.revision)
        await self._report(view, found)
        await self._clean(view, revisions)
        if failure is not None:
            raise failure
        return self._next_availability(view)

    def _view(
        self,
        sts: StatefulSet,
        pods: list[Pod],
        current: ControllerRevision,
        update: ControllerRevision,
    ) -> stateful.View:
        numbers = {*identity.ordinals(sts), *(identity.ordinal_of(sts, pod) for pod in pods)}
        names = [n for o in numbers if o is not None for n in identity.claim_names(sts, o)]
        found = (self._claim(sts, name) for name in names)
        claims = {c.metadata.name: c for c in found if c is not None}
        return stateful.View(sts, pods, claims, current, update, self._clock.now())

    def _claim(self, sts: StatefulSet, name: str) -> PersistentVolumeClaim | None:
        return self._written_claims.get(Key(sts.metadata.namespace, name), sts.metadata.uid)

    def _cached(self, sts: StatefulSet) -> list[Pod]:
        uid = sts.metadata.uid
        return self._terminating.over(
            self._written.over(self._pods.by_index("controller", uid), uid)
        )

    async def _owned(self, sts: StatefulSet, selector: Selector) -> list[Pod]:
        loose = self._pods.by_index("orphan", sts.metadata.namespace)
        claims = claim.plan(
            sts,
            selector,
            [*self._cached(sts), *loose],
            lambda pod: identity.ordinal_of(sts, pod) is not None,
        )
        return await claim.perform(
            self._client, sts, claims, may_adopt=lambda: claim.is_alive(self._client, sts)
        )

    async def _carry_out(self, view: stateful.View, plan: stateful.Plan) -> None:
        sts = view.sts
        if plan.waits_for_claims:
            names = ", ".join(plan.waits_for_claims)
            message = f"PersistentVolumeClaim {names} is being deleted; its pod waits"
            self._recorder.event(sts, "Warning", "FailedCreate", message)
        for ordinal in plan.ensure_claims:
            if ordinal not in plan.create:
                await self._ensure_claims(sts, ordinal)
        for pod, ordinal in plan.retain:
            await self._retain(view, pod, ordinal)
        creations = [partial(self._create, view, ordinal) for ordinal in plan.create]
        await batches.perform(creations, in_turn=view.is_ordered)
        for pod, ordinal in plan.identify:
            await self._identify(sts, pod, ordinal)
        deletions = [partial(self._delete, sts, pod) for pod in plan.delete]
        await batches.perform(deletions, in_turn=view.is_ordered)

    async def _create(self, view: stateful.View, ordinal: int) -> None:
        sts = view.sts
        name = identity.pod_name(sts, ordinal)
        revision = view.revision_for(ordinal)
        template = history.template_of(revision)
        body = identity.pod_document(sts, template, revision.metadata.name, ordinal)
        try:
            await self._ensure_claims(sts, ordinal)
            pod = await self._client.create(Pod, body)
        except status.ApiError as error:
            if not isinstance(error, status.AlreadyExists):
                message = f"Create Pod {name} in StatefulSet {sts.metadata.name} failed error: "
                self._recorder.event(sts, "Warning", "FailedCreate", message + error.message)
            raise
        self._written.put(pod, sts.metadata.uid)
        message = f"Create Pod {name} in StatefulSet {sts.metadata.name} successful"
        self._recorder.event(sts, "Normal", "SuccessfulCreate", message)

    async def _ensure_claims(self, sts: StatefulSet, ordinal: int) -> None:
        owner = retention.owner_for(sts, None, is_wanted=True)
        for body in identity.claim_documents(sts, ordinal):
            name = body["metadata"]["name"]
            if self._claim(sts, name) is not None:
                continue
            if owner is not None:
                body["metadata"]["ownerReferences"] = [controller_reference(owner)]
            subject = f"Claim {name} Pod {identity.pod_name(sts, ordinal)}"
            message = f"Create {subject} in StatefulSet {sts.metadata.name} "
            try:
                made = await self._client.create(PersistentVolumeClaim, body)
            except status.AlreadyExists:
                continue  # the watch has not shown it yet
            except status.ApiError as error:
                failed = f"{message}failed error: {error.message}"
                self._recorder.event(sts, "Warning", "FailedCreate", failed)
                raise
            self._written_claims.put(made, sts.metadata.uid)
            self._recorder.event(sts, "Normal", "SuccessfulCreate", message + "success")

    async def _retain(self, view: stateful.View, pod: Pod, ordinal: int) -> None:
        sts = view.sts
        is_wanted = ordinal in identity.ordinals(sts)
        for name in identity.claim_names(sts, ordinal):
            held = view.claims.get(name)
            if held is None:
                continue
            references = retention.references(held, sts, pod, is_wanted=is_wanted)
            if references is None:
                continue
            if retention.is_foreign(held, sts, pod):
                message = (
                    f"Claim {name} has a conflicting OwnerReference that acts as"
                    " a managing controller, the retention policy is ignored for this claim"
                )
                self._recorder.event(sts, "Warning", "ConflictingController", message)
            body = {
                "metadata": {
                    "uid": held.metadata.uid,
                    "resourceVersion": held.metadata.resource_version,
                    "ownerReferences": references or None,
                }
            }
            try:
                changed = await self._client.patch(
                    PersistentVolumeClaim, name, sts.metadata.namespace, body
                )
            except status.NotFound:
                continue
            self._written_claims.put(changed, sts.metadata.uid)

    async def _identify(self, sts: StatefulSet, pod: Pod, ordinal: int) -> None:
        meta = pod.metadata
        body = {"metadata": {"uid": meta.uid, "labels": identity.labels(meta.name, ordinal)}}
        changed = await self._client.patch(Pod, meta.name, meta.namespace, body)
        self._written.put(changed, sts.metadata.uid)

    async def _delete(self, sts: StatefulSet, pod: Pod) -> None:
        meta = pod.metadata
        subject = f"Pod {meta.name} in StatefulSet {sts.metadata.name}"
        try:
            await self._client.delete(Pod, meta.name, meta.namespace, uid=meta.uid)
        except (status.NotFound, status.Conflict):
            pass  # gone already, or another pod has its name
        except status.ApiError as error:
            message = f"Delete {subject} failed error: {error.message}"
            self._recorder.event(sts, "Warning", "FailedDelete", message)
            raise
        else:
            self._recorder.event(sts, "Normal", "SuccessfulDelete", f"Delete {subject} successful")
        self._terminating.mark(pod)

    async def _report(self, view: stateful.View, found: Current) -> None:
        sts = view.sts
        judged = stateful.status(view, found.collisions)
        if judged == sts.status:
            return
        meta = sts.metadata
        body = {"metadata": {"uid": meta.uid}, "status": stateful.status_document(judged)}
        try:
            changed = await self._client.patch(
                StatefulSet, meta.name, meta.namespace, body, subresource="status"
            )
        except status.NotFound:
            return  # deleted meanwhile
        self._written_sets.put(changed)

    async def _clean(self, view: stateful.View, revisions: list[ControllerRevision]) -> None:
        if view.sts.metadata.deletion_timestamp is not None:
            return
        live = {identity.revision_of(pod) for pod in view.pods}
        live |= {view.current.metadata.name, view.update.metadata.name}
        old = [r for r in revisions if r.metadata.name not in live]
        await self._revisions.delete(history.to_clean(old, view.sts.spec.revision_history_limit))

    def _next_availability(self, view: stateful.View) -> Requeue | None:
        """Time alone makes a ready pod available: come back when the next one is."""
        min_ready_s = view.sts.spec.min_ready_seconds
        waits = (replicas.available_in_s(pod, min_ready_s, view.now) for pod in view.pods)
        pending = [wait for wait in waits if wait]
        return Requeue(min(pending) + 0.1) if pending else None
