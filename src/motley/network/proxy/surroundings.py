"""What the proxy knows of nodes: its own zone, and, where a Service wants it, everybody's speed.

A node's heartbeat is a change of the node, and every proxy would hear every other node's: all
nodes are followed only from the first Service on that is weighted by speed.
"""

import asyncio
from collections.abc import Callable, Iterable
from fractions import Fraction

from motley.api.views.base import Key
from motley.api.views.networkpolicy import LabelledNode
from motley.client.informer import Change, Informer
from motley.client.rest import Client
from motley.lib import clock as clocks
from motley.network.proxy.endpoints import ZONE, Surroundings, speed


class NodeSource:
    """Keeps `around` current and tells of changes that matter."""

    def __init__(
        self,
        client: Client,
        node_name: str,
        *,
        services: Callable[[], Iterable[Key]],
        weighted: Callable[[], Iterable[Key]],
        on_change: Callable[[Surroundings, Iterable[Key]], None],
        clock: clocks.Clock = clocks.SYSTEM,
    ) -> None:
        self._node_name = node_name
        self._services = services
        self._weighted = weighted
        self._on_change = on_change
        ours = f"metadata.name={node_name}"
        self._own = Informer(client, LabelledNode, field_selector=ours, clock=clock)
        self._all = Informer(client, LabelledNode, clock=clock)
        self._zone = ""
        self._speeds: dict[str, Fraction] = {}
        self._wanted = asyncio.Event()
        self._is_complete = asyncio.Event()
        self._own.add_handler(self._own_changed)
        self._all.add_handler(self._speed_changed)

    def want_speeds(self) -> None:
        """There is a Service that is weighted by speed."""
        self._wanted.set()

    async def run(self) -> None:
        """Follow the API server until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._own.run(), name="own node")
            await self._own.synced()
            self._is_complete.set()
            await self._wanted.wait()
            tasks.create_task(self._all.run(), name="nodes")

    async def complete(self) -> None:
        """Wait until this node's zone is known, and speeds when they are wanted."""
        await self._is_complete.wait()
        if self._wanted.is_set():
            await self._all.synced()

    def _own_changed(self, change: Change[LabelledNode]) -> None:
        if change.key.name != self._node_name:
            return  # a server that does not know field selectors
        zone = change.new.metadata.labels.get(ZONE, "") if change.new is not None else ""
        if zone != self._zone:
            self._zone = zone
            self._on_change(self._now(), self._services())

    def _speed_changed(self, change: Change[LabelledNode]) -> None:
        name, node = change.key.name, change.new
        found = speed(node.metadata.labels, node.metadata.annotations) if node else None
        if self._speeds.get(name) == found:
            return
        if found is None:
            del self._speeds[name]
        else:
            self._speeds[name] = found
        self._on_change(self._now(), self._weighted())

    def _now(self) -> Surroundings:
        return Surroundings(self._zone, dict(self._speeds))
