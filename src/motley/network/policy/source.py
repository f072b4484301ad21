"""What policies are made of, as informers know it.

Nearly every cluster has pods, many have no policy: pods and namespaces are followed from the first
policy on, so that a node costs the API server nothing before.
"""

import asyncio
from collections.abc import Callable

from motley.api.views.networkpolicy import LabelledNamespace, NetworkPolicy, ReachablePod
from motley.client.informer import Change, Informer
from motley.client.rest import Client
from motley.lib import clock as clocks
from motley.lib import journal
from motley.network.policy.planner import Policies, reachable

log = journal.get(__name__)


class PolicySource:
    """Feeds a planner; `on_change` tells when there is something to take."""

    def __init__(
        self,
        client: Client,
        planner: Policies,
        node_name: str,
        on_change: Callable[[], None],
        *,
        clock: clocks.Clock = clocks.SYSTEM,
    ) -> None:
        self._planner = planner
        self._node_name = node_name
        self._on_change = on_change
        self._policies = Informer(client, NetworkPolicy, clock=clock)
        self._pods = Informer(client, ReachablePod, clock=clock)
        self._namespaces = Informer(client, LabelledNamespace, clock=clock)
        self._wanted = asyncio.Event()
        self._is_complete = asyncio.Event()

    async def run(self) -> None:
        """Follow the API server until cancelled."""
        self._policies.add_handler(lambda _: self._wanted.set())
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._policies.run(), name="networkpolicies")
            await self._policies.synced()
            if not self._wanted.is_set():
                self._is_complete.set()
                await self._wanted.wait()
                log.info("first network policy; following pods")
            tasks.create_task(self._pods.run(), name="pods")
            tasks.create_task(self._namespaces.run(), name="namespaces")
            await self._pods.synced()
            await self._namespaces.synced()
            # Only now: a policy without its pods would deny what it allows.
            self._namespaces.add_handler(self._namespace_changed)
            self._pods.add_handler(self._pod_changed)
            self._policies.add_handler(self._policy_changed)
            self._is_complete.set()

    async def complete(self) -> None:
        """Wait until everything that there is now has been put."""
        await self._is_complete.wait()

    def _policy_changed(self, change: Change[NetworkPolicy]) -> None:
        self._planner.put_policy(change.key, change.new)
        self._on_change()

    def _pod_changed(self, change: Change[ReachablePod]) -> None:
        pod = reachable(change.new, self._node_name) if change.new is not None else None
        self._planner.put_pod(change.key, pod)
        self._on_change()

    def _namespace_changed(self, change: Change[LabelledNamespace]) -> None:
        labels = change.new.metadata.labels if change.new is not None else None
        self._planner.put_namespace(change.key.name, labels)
        self._on_change()
