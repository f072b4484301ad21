"""ElasticQuota: keeps `status.used`, what the namespace's pods that have a node request.

The scheduler counts for itself, pods whose binding is under way included; this status is for
people and tools. Pods that have ended count no more.
"""

from collections.abc import Iterable, Mapping

import msgspec

from motley.api import amounts, status
from motley.api.amounts import Amounts
from motley.api.quantity import Quantity
from motley.api.views.base import Key
from motley.api.views.pod import Pod
from motley.api.views.scheduling import ElasticQuota
from motley.client.index import by_namespace
from motley.client.informer import Change
from motley.client.workqueue import WorkQueue
from motley.controllers.manager import Context

_ONE = Quantity(10**9, "DecimalSI")
_NOTHING = Quantity(0, "DecimalSI")


def requests(pod: Pod) -> Amounts:
    """What a pod counts for; nothing before it has a node and after it has ended."""
    if not pod.spec.node_name or pod.is_terminal:
        return {}
    spec = msgspec.to_builtins(pod.spec)
    return {**amounts.of_pod(spec, "requests"), "pods": _ONE}


def used(quota: ElasticQuota, counted: Iterable[Mapping[str, Quantity]]) -> dict[str, str]:
    """The sum, over the resources that the quota is about."""
    total: Amounts = dict.fromkeys((*quota.spec.min, *quota.spec.max), _NOTHING)
    for one in counted:
        total = amounts.add(total, {name: q for name, q in one.items() if name in total})
    return {name: str(q) for name, q in sorted(total.items())}


class ElasticQuotaController:
    """See the module's docstring."""

    name = "elasticquota"
    workers = 1

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self.queue: WorkQueue[Key] = WorkQueue(context.clock)
        self._counted: dict[Key, Amounts] = {}  # of pods in namespaces that have a quota
        self._quotas = context.informers.of(ElasticQuota)
        self._quotas.add_index("namespace", by_namespace)
        self._quotas.add_handler(lambda change: self.queue.add(change.key))
        self._pods = context.informers.of(Pod)
        self._pods.add_index("namespace", by_namespace)
        self._pods.add_handler(self._pod_changed)

    def _pod_changed(self, change: Change[Pod]) -> None:
        self._counted.pop(change.key, None)
        for quota in self._quotas.by_index("namespace", change.key.namespace):
            self.queue.add(quota.key)

    def _requests(self, pod: Pod) -> Amounts:
        found = self._counted.get(pod.key)
        if found is None:
            found = self._counted[pod.key] = requests(pod)
        return found

    async def reconcile(self, key: Key) -> None:
        """Count anew, and write what has changed."""
        quota = self._quotas.get(key)
        if quota is None or quota.metadata.deletion_timestamp:
            return
        pods = self._pods.by_index("namespace", key.namespace)
        wanted = used(quota, [self._requests(pod) for pod in pods])
        if wanted == quota.status.used:
            return
        gone = dict.fromkeys(quota.status.used.keys() - wanted.keys())
        body = {"status": {"used": {**gone, **wanted}}}
        try:
            await self._client.patch(
                ElasticQuota, key.name, key.namespace, body, subresource="status"
            )
        except status.NotFound:
            return  # deleted meanwhile
