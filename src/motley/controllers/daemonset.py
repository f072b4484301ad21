"""DaemonSet: one pod on every node that fits.

What to start and end is decided in `daemons`, which nodes fit in `nodefit`, the pod in
`daemonpod`; the history of templates is kept by `revisions`. A pod keeps its place on the node
until it is gone, so own deletions are remembered (`terminating`) as well as own creations.
"""

from functools import partial

from motley.api import status
from motley.api.selectors import Selector
from motley.api.views.base import Key
from motley.api.views.core import Node
from motley.api.views.pod import Pod
from motley.api.views.workloads import ControllerRevision, DaemonSet
from motley.client.index import by_controller_uid, by_namespace
from motley.client.informer import Change
from motley.client.workqueue import WorkQueue
from motley.controllers import batches, claim, daemonpod, daemons, history, replicas
from motley.controllers.failedpods import FailedPods
from motley.controllers.manager import Context
from motley.controllers.nodefit import Rules
from motley.controllers.reconciler import Requeue
from motley.controllers.revisions import Revisions
from motley.controllers.terminating import Terminating
from motley.controllers.written import Written
from motley.lib import journal

log = journal.get(__name__)

_BURST = 250  # kube-controller-manager's limit on changes of a DaemonSet in one pass


class DaemonSetController:
    """See the module's docstring."""

    name = "daemonset"
    workers = 2

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._clock = context.clock
        self._recorder = context.recorder.source("daemonset-controller")
        self.queue: WorkQueue[Key] = WorkQueue(context.clock)
        self._sets = context.informers.of(DaemonSet)
        self._pods = context.informers.of(Pod)
        self._nodes = context.informers.of(Node)
        self._revisions = Revisions(context, history.REVISION_LABEL)
        self._sets.add_index("namespace", by_namespace)
        self._pods.add_index("controller", by_controller_uid)
        self._pods.add_index("orphan", claim.orphan_namespace)
        self._written_sets: Written[DaemonSet] = Written(self._sets, context.clock)
        self._written: Written[Pod] = Written(self._pods, context.clock)
        self._terminating = Terminating(self._pods, context.clock)
        self._failures = FailedPods()
        self._rules: dict[Key, tuple[str, int, Rules]] = {}
        self._sets.add_handler(self._set_changed)
        self._pods.add_handler(self._pod_changed)
        self._nodes.add_handler(self._node_changed)

    def _set_changed(self, change: Change[DaemonSet]) -> None:
        if change.new is None:
            self._rules.pop(change.key, None)
        self.queue.add(change.key)

    def _pod_changed(self, change: Change[Pod]) -> None:
        for pod in (change.old, change.new):
            if pod is None:
                continue
            owner = pod.metadata.controller()
            if owner is not None:
                if owner.kind == DaemonSet.KIND:
                    self.queue.add(Key(pod.metadata.namespace, owner.name))
            elif change.new is not None and pod.metadata.labels:
                for ds in self._sets.by_index("namespace", pod.metadata.namespace):
                    if Selector.of(ds.spec.selector).matches(pod.metadata.labels):
                        self.queue.add(ds.key)

    def _node_changed(self, change: Change[Node]) -> None:
        for ds in self._sets.items():
            if daemons.wakes(change.old, change.new, self._rules_of(ds).fit):
                self.queue.add(ds.key)

    def _rules_of(self, ds: DaemonSet) -> Rules:
        """The template's rules, made once per generation: every node is asked."""
        uid, generation = ds.metadata.uid, ds.metadata.generation
        known = self._rules.get(ds.key)
        if known is None or known[:2] != (uid, generation):
            rules = Rules.of(daemonpod.tolerant(ds.spec.template))
            known = self._rules[ds.key] = (uid, generation, rules)
        return known[2]

    async def reconcile(self, key: Key) -> Requeue | None:
        """Start and end pods, or take the next step of an update; then status and history."""
        ds = self._written_sets.get(key)
        # What a DaemonSet that is being deleted owns is deleted, or let go, by the collector.
        if ds is None or ds.metadata.deletion_timestamp is not None:
            return None
        selector = Selector.of(ds.spec.selector)
        if selector.is_everything:
            message = "This daemon set is selecting all pods. A non-empty selector is required."
            self._recorder.event(ds, "Warning", "SelectingAll", message)
            return None
        revisions = await self._revisions.owned(ds, selector)
        found = await self._revisions.current(
            ds, ds.spec.template, revisions, ds.status.collision_count or 0
        )
        current = history.equal([*revisions, found.revision], ds.spec.template)
        hashes = frozenset(history.digest_of(r) for r in current)
        digest = history.digest_of(found.revision)
        view = self._view(ds, await self._owned(ds, selector), hashes)
        failure: status.ApiError | None = None
        try:
            await self._carry_out(view, self._plan(view), digest)
        except status.ApiError as error:
            failure = error
        view = self._view(ds, self._cached(ds), hashes)
        await self._report(view, found.collisions or ds.status.collision_count)
        await self._clean(view, [r for r in revisions if history.digest_of(r) not in hashes])
        if failure is not None:
            raise failure
        return self._next_time(view)

    def _view(self, ds: DaemonSet, pods: list[Pod], hashes: frozenset[str]) -> daemons.View:
        rules = self._rules_of(ds)
        fits = {node.metadata.name: rules.fit(node) for node in self._nodes.items()}
        return daemons.View(ds, fits, daemons.by_node(pods), hashes, self._clock.now())

    def _cached(self, ds: DaemonSet) -> list[Pod]:
        uid = ds.metadata.uid
        return self._terminating.over(
            self._written.over(self._pods.by_index("controller", uid), uid)
        )

    async def _owned(self, ds: DaemonSet, selector: Selector) -> list[Pod]:
        loose = self._pods.by_index("orphan", ds.metadata.namespace)
        claims = claim.plan(ds, selector, [*self._cached(ds), *loose])
        return await claim.perform(
            self._client, ds, claims, may_adopt=lambda: claim.is_alive(self._client, ds)
        )

    def _plan(self, view: daemons.View) -> daemons.Plan:
        plan = daemons.manage(view, lambda node: self._wait_s(view, node) <= 0)
        if plan.create or plan.delete or view.ds.spec.update_strategy.type != "RollingUpdate":
            return plan
        return daemons.roll(view)

    def _wait_s(self, view: daemons.View, node: str) -> float:
        return self._failures.wait_s(_failure_key(view.ds, node), view.now)

    async def _carry_out(self, view: daemons.View, plan: daemons.Plan, digest: str) -> None:
        ds = view.ds
        for pod in plan.failed:
            node = daemonpod.node_of(pod)
            self._failures.note(_failure_key(ds, node), view.now)
            message = f"Found failed daemon pod {pod.key} on node {node}, will try to kill it"
            self._recorder.event(ds, "Warning", "FailedDaemonPod", message)
        for pod in plan.succeeded:
            node = daemonpod.node_of(pod)
            message = f"Found succeeded daemon pod {pod.key} on node {node}, will try to delete it"
            self._recorder.event(ds, "Normal", "SucceededDaemonPod", message)
        creations = [partial(self._create, ds, node, digest) for node in plan.create[:_BURST]]
        await batches.perform(creations)
        await batches.perform([partial(self._delete, ds, pod) for pod in plan.delete[:_BURST]])

    async def _create(self, ds: DaemonSet, node: str, digest: str) -> None:
        try:
            pod = await self._client.create(Pod, daemonpod.document(ds, node, digest))
        except status.ApiError as error:
            self._recorder.event(ds, "Warning", "FailedCreate", f"Error creating: {error.message}")
            raise
        self._written.put(pod, ds.metadata.uid)
        self._recorder.event(ds, "Normal", "SuccessfulCreate", f"Created pod: {pod.metadata.name}")

    async def _delete(self, ds: DaemonSet, pod: Pod) -> None:
        meta = pod.metadata
        try:
            await self._client.delete(Pod, meta.name, meta.namespace, uid=meta.uid)
        except (status.NotFound, status.Conflict):
            pass  # gone already, or another pod has its name
        except status.ApiError as error:
            self._recorder.event(ds, "Warning", "FailedDelete", f"Error deleting: {error.message}")
            raise
        else:
            self._recorder.event(ds, "Normal", "SuccessfulDelete", f"Deleted pod: {meta.name}")
        self._terminating.mark(pod)

    async def _report(self, view: daemons.View, collisions: int | None) -> None:
        ds = view.ds
        judged = daemons.status(view, collisions)
        if judged == ds.status:
            return
        meta = ds.metadata
        body = {"metadata": {"uid": meta.uid}, "status": daemons.status_document(judged)}
        try:
            changed = await self._client.patch(
                DaemonSet, meta.name, meta.namespace, body, subresource="status"
            )
        except status.NotFound:
            return  # deleted meanwhile
        self._written_sets.put(changed)

    async def _clean(self, view: daemons.View, old: list[ControllerRevision]) -> None:
        pods = self._pods.by_index("controller", view.ds.metadata.uid)
        used = {pod.metadata.labels.get(history.REVISION_LABEL) for pod in pods}
        live = {r.metadata.name for r in old if history.digest_of(r) in used}
        limit = view.ds.spec.revision_history_limit
        await self._revisions.delete(history.to_clean(old, limit, live))

    def _next_time(self, view: daemons.View) -> Requeue | None:
        """Time alone makes a ready pod available and a failed one replaceable."""
        min_ready_s = view.ds.spec.min_ready_seconds
        waits: list[float | None] = []
        for node in view.pods:
            for pod in view.living(node):
                if pod.status.phase == "Failed":
                    waits.append(self._wait_s(view, node) or 0.1)
                else:
                    waits.append(replicas.available_in_s(pod, min_ready_s, view.now))
        pending = [wait for wait in waits if wait]
        return Requeue(min(pending) + 0.1) if pending else None


def _failure_key(ds: DaemonSet, node: str) -> str:
    return f"{ds.metadata.uid}/{ds.metadata.generation}/{node}"
