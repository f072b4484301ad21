"""Nodes whose labels changed, or that reported while no webhook was there, are raised now.

The webhook sees a node when its kubelet writes. A kubelet whose figures the object already has
writes every five minutes only, and labels are not figures: so one who has just labelled a node
would wait. Here nodes are watched, and what a webhook would have made of them is written.

Invariant: only what `amplification` would change is written, and only over the version it was
computed from; several replicas do the same, and the first one's write is the others' answer.
"""

import asyncio

from motley.api import overcommit, status
from motley.api.views.base import Key
from motley.api.views.core import Node
from motley.client.events import Recorder
from motley.client.informer import Change, Informer
from motley.client.rest import Client
from motley.client.workqueue import WorkQueue
from motley.lib import journal
from motley.lib.clock import SYSTEM, Clock
from motley.node import amplification
from motley.node.amplification import Amplified

log = journal.get(__name__)


class Amplifier:
    """Watches nodes and writes what their labels make of them."""

    def __init__(self, client: Client, recorder: Recorder, clock: Clock = SYSTEM) -> None:
        self._client, self._recorder = client, recorder
        self._nodes = Informer(client, Node, clock=clock)
        self._queue: WorkQueue[str] = WorkQueue(clock, retry_base_s=0.1)
        self._wrong: dict[str, tuple[str, ...]] = {}  # what was said about, by node
        self._nodes.add_handler(self._changed)

    @property
    def has_synced(self) -> bool:
        """Are the nodes known?"""
        return self._nodes.has_synced

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._nodes.run())
            while True:
                name = await self._queue.get()
                try:
                    await self._write(name)
                    self._queue.forget(name)
                except status.ApiError as error:
                    log.info("allocatable not written, retrying", node=name, error=error.message)
                    self._queue.retry(name)
                finally:
                    self._queue.done(name)

    def _changed(self, change: Change[Node]) -> None:
        name = change.object.metadata.name
        if change.new is None:
            self._wrong.pop(name, None)
            return
        wanted = _wanted(change.new)
        if amplification.merge_patch(change.new.metadata.annotations, wanted):
            self._queue.add(name)
        self._tell(change.new, wanted.wrong)

    def _tell(self, node: Node, wrong: tuple[str, ...]) -> None:
        if wrong != self._wrong.get(node.metadata.name, ()):
            self._wrong[node.metadata.name] = wrong
            if wrong:
                message = f"{', '.join(wrong)}: {overcommit.WRONG}"
                self._recorder.event(node, "Warning", "InvalidOvercommit", message)

    async def _write(self, name: str) -> None:
        node = self._nodes.get(Key("", name))
        if node is None:
            return
        patch = amplification.merge_patch(node.metadata.annotations, _wanted(node))
        if not patch:
            return
        patch["metadata"]["resourceVersion"] = node.metadata.resource_version
        try:
            await self._client.patch(Node, name, "", patch, subresource="status")
        except (status.Conflict, status.NotFound):
            return  # another version is on its way here, or none
        log.info("allocatable written", node=name, **patch["status"]["allocatable"])


def _wanted(node: Node) -> Amplified:
    return amplification.amplified(
        node.metadata.labels,
        node.metadata.annotations,
        node.status.capacity,
        node.status.allocatable,
    )
