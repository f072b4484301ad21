"""ClusterRole aggregation: a role that is the sum of others, found by their labels.

That is how a custom resource gets into `view`, `edit` and `admin`: whoever defines it labels a
small ClusterRole, and the aggregated roles grow. The sum is written into the role's own rules, so
nobody who asks what a role allows need know where it came from.
"""

from collections.abc import Iterable
from typing import Any

from motley.api.selectors import Selector
from motley.api.views.base import Key
from motley.api.views.rbac import ClusterRole
from motley.client.informer import Change
from motley.client.workqueue import WorkQueue
from motley.controllers.manager import Context
from motley.controllers.reconciler import Requeue

Rule = dict[str, Any]
MANAGER = "clusterrole-aggregation-controller"


def aggregated(role: ClusterRole, roles: Iterable[ClusterRole]) -> list[Rule]:
    """The rules of every selected role in the order of their names, each rule once."""
    if role.aggregation_rule is None:
        return role.rules or []
    selectors = [Selector.of(s) for s in role.aggregation_rule.cluster_role_selectors]
    found: list[Rule] = []
    for other in sorted(roles, key=lambda r: r.metadata.name):
        labels = other.metadata.labels
        if other.key == role.key or not any(s.matches(labels) for s in selectors):
            continue
        found += [rule for rule in other.rules or () if rule not in found]
    return found


class ClusterRoleAggregationController:
    """See the module's docstring."""

    name = "clusterroleaggregation"
    workers = 1

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self.queue: WorkQueue[Key] = WorkQueue(context.clock)
        self._roles = context.informers.of(ClusterRole)
        self._roles.add_handler(self._role_changed)

    def _role_changed(self, change: Change[ClusterRole]) -> None:
        """Any role may be part of any sum; there are few sums."""
        for role in self._roles.items():
            if role.aggregation_rule is not None:
                self.queue.add(role.key)

    async def reconcile(self, key: Key) -> Requeue | None:
        """Write the sum where it is not what the role has."""
        role = self._roles.get(key)
        if role is None or role.aggregation_rule is None:
            return None
        rules = aggregated(role, self._roles.items())
        if rules != (role.rules or []):
            await self._apply(key.name, rules)
        return None

    async def _apply(self, name: str, rules: list[Rule]) -> None:
        """Server-side apply: the rules are ours, whoever wrote them before; nothing else is."""
        body = {"metadata": {"name": name}, "rules": rules}
        await self._client.apply(ClusterRole, body, field_manager=MANAGER, force=True)
