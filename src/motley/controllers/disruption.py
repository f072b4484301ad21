"""PodDisruptionBudget: keeps each budget's status, which the eviction API charges.

The numbers are made in `budget`; this module finds the pods, asks their owners how many there
should be, and writes the outcome over exactly the version it has seen: an eviction granted
meanwhile is never overwritten.
"""

from collections.abc import Iterable
from typing import Any

from motley.api import scheme, status
from motley.api.selectors import Selector
from motley.api.views.base import Key, OwnerReference
from motley.api.views.pod import Pod
from motley.api.views.policy import PodDisruptionBudget
from motley.client.index import by_namespace
from motley.client.informer import Change
from motley.client.workqueue import WorkQueue
from motley.controllers import budget as budgets
from motley.controllers.discovery import discover
from motley.controllers.manager import Context
from motley.controllers.reconciler import Requeue
from motley.controllers.workload import ReplicaSet
from motley.lib import journal

log = journal.get(__name__)


class NoScale(Exception):
    """A pod's owner does not say how many pods there should be."""


class DisruptionController:
    """See the module's docstring."""

    name = "disruption"
    workers = 2

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._clock = context.clock
        self._recorder = context.recorder.source("controllermanager")
        self.queue: WorkQueue[Key] = WorkQueue(context.clock)
        self._budgets = context.informers.of(PodDisruptionBudget)
        self._pods = context.informers.of(Pod)
        self._sets = context.informers.of(ReplicaSet)
        self._budgets.add_index("namespace", by_namespace)
        self._pods.add_index("namespace", by_namespace)
        self._budgets.add_handler(lambda change: self.queue.add(change.key))
        self._pods.add_handler(self._pod_changed)
        self._sets.add_handler(self._set_changed)
        self._plurals: dict[tuple[str, str], str] = {}

    def _pod_changed(self, change: Change[Pod]) -> None:
        old, new = change.old, change.new
        if old is not None and new is not None and _facts(old) == _facts(new):
            return
        for budget in self._budgets.by_index("namespace", change.key.namespace):
            if any(pod is not None and _selects(budget, pod) for pod in (old, new)):
                self.queue.add(budget.key)

    def _set_changed(self, change: Change[ReplicaSet]) -> None:
        """A scale has changed (or came with a new generation): shares are of something else."""
        old, new = change.old, change.new
        if old is not None and new is not None and old.spec.replicas == new.spec.replicas:
            return
        for budget in self._budgets.by_index("namespace", change.key.namespace):
            if budgets.needs_scale(budget):
                self.queue.add(budget.key)

    async def reconcile(self, key: Key) -> Requeue | None:
        """Count the pods, then say how many may go."""
        budget = self._budgets.get(key)
        if budget is None:
            return None
        now = self._clock.now()
        pods = [p for p in self._pods.by_index("namespace", key.namespace) if _selects(budget, p)]
        try:
            scale = await self._scale(budget, pods) if budgets.needs_scale(budget) else 0
            counted = budgets.count(budget, len(pods), scale)
        except (NoScale, ValueError) as error:
            await self._fail(budget, str(error), now)
            return None
        going = budgets.disrupted(budget, pods, now)
        for name in going.expired:
            log.info("evicted pod was not deleted", budget=key, pod=name)
        healthy = budgets.healthy(pods, going.pods)
        wanted = budgets.status_document(budget, counted, healthy, going.pods, now)
        await self._write(budget, wanted)
        return None if going.check_in_s is None else Requeue(going.check_in_s)

    async def _fail(self, budget: PodDisruptionBudget, problem: str, now: float) -> None:
        """When in doubt nothing may go."""
        self._recorder.event(
            budget, "Warning", "CalculateExpectedPodCountFailed", f"Failed to calculate: {problem}"
        )
        state = budget.status
        wanted = {
            "observedGeneration": budget.metadata.generation,
            "disruptionsAllowed": 0,
            "currentHealthy": state.current_healthy,
            "desiredHealthy": state.desired_healthy,
            "expectedPods": state.expected_pods,
            "disruptedPods": state.disrupted_pods or None,
            "conditions": budgets.conditions(budget, False, "SyncFailed", problem, now),
        }
        await self._write(budget, wanted)

    async def _write(self, budget: PodDisruptionBudget, wanted: dict[str, Any]) -> None:
        if budgets.is_current(budget, wanted):
            return
        meta = budget.metadata
        body = {"metadata": {"resourceVersion": meta.resource_version}, "status": wanted}
        try:
            await self._client.patch(
                PodDisruptionBudget, meta.name, meta.namespace, body, subresource="status"
            )
        except status.NotFound:
            pass  # deleted meanwhile

    async def _scale(self, budget: PodDisruptionBudget, pods: Iterable[Pod]) -> int:
        """How many pods the owners of these ask for, together; pods without owner do not count."""
        owners: dict[str, tuple[OwnerReference, str]] = {}
        unmanaged: list[str] = []
        for pod in pods:
            owner = pod.metadata.controller()
            if owner is None:
                unmanaged.append(pod.metadata.name)
            else:
                top = self._top(owner, pod.metadata.namespace)
                owners[top.uid] = (top, pod.metadata.name)
        if unmanaged:
            self._recorder.event(
                budget,
                "Warning",
                "UnmanagedPods",
                f"Pods selected by this PodDisruptionBudget (selector: {_shown(budget)}) were "
                "found to be unmanaged. As a result, the status of the PDB cannot be calculated "
                "correctly, which may result in undefined behavior.",
            )
        namespace = budget.metadata.namespace
        return sum([await self._size(o, namespace, name) for o, name in owners.values()])

    def _top(self, owner: OwnerReference, namespace: str) -> OwnerReference:
        """Who decides the size: of a ReplicaSet the Deployment behind it."""
        if owner.kind == ReplicaSet.KIND and owner.api_version == ReplicaSet.API_VERSION:
            found = self._sets.get(Key(namespace, owner.name))
            if found is not None and found.metadata.uid == owner.uid:
                return found.metadata.controller() or owner
        return owner

    async def _size(self, owner: OwnerReference, namespace: str, pod: str) -> int:
        plural = await self._plural(owner.api_version, owner.kind)
        if plural:
            root = "/api" if "/" not in owner.api_version else "/apis"
            path = f"{root}/{owner.api_version}/namespaces/{namespace}/{plural}/{owner.name}/scale"
            try:
                scale = await self._client.raw("GET", path)
                return int((scale.get("spec") or {}).get("replicas") or 0)
            except (status.NotFound, status.MethodNotAllowed):
                pass  # it has gone, or has no scale
        raise NoScale(
            f'found no controllers for pod "{pod}": '
            f"{owner.kind} {owner.name} does not implement the scale subresource"
        )

    async def _plural(self, api_version: str, kind: str) -> str:
        """The resource of a kind, which for custom resources only the server knows."""
        known = scheme.by_kind(api_version, kind)
        if known is not None:
            return known.plural
        if (api_version, kind) not in self._plurals:
            for found in (await discover(self._client)).resources:
                self._plurals[found.api_version, found.kind] = found.plural
        return self._plurals.get((api_version, kind), "")


def _selects(budget: PodDisruptionBudget, pod: Pod) -> bool:
    selector = budget.spec.selector
    return selector is not None and Selector.of(selector).matches(pod.metadata.labels)


def _shown(budget: PodDisruptionBudget) -> str:
    return str(Selector.of(budget.spec.selector)) if budget.spec.selector is not None else ""


def _facts(pod: Pod) -> tuple[Any, ...]:
    """What of a pod a budget depends on."""
    owner = pod.metadata.controller()
    return (
        pod.metadata.uid,
        pod.metadata.labels,
        pod.metadata.deletion_timestamp is None,
        pod.is_ready,
        owner.uid if owner else "",
    )
