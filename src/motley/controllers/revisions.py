"""ControllerRevisions in the API: found, adopted, made, renumbered and cleaned.

The shell around `history`, shared by StatefulSet and DaemonSet.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from motley.api import status
from motley.api.selectors import Selector
from motley.api.views.base import Object
from motley.api.views.workloads import ControllerRevision
from motley.client.index import by_controller_uid
from motley.controllers import claim, history
from motley.controllers.manager import Context
from motley.controllers.workload import is_controlled_by
from motley.controllers.written import Written
from motley.lib import journal

log = journal.get(__name__)


class Current(NamedTuple):
    """The revision of the wanted template, and how often its name was taken by another's."""

    revision: ControllerRevision
    collisions: int


class Revisions:
    """The revisions of one kind of owner; `label` is where their hash is written."""

    def __init__(self, context: Context, label: str) -> None:
        self._client = context.client
        self._label = label
        self.informer = context.informers.of(ControllerRevision)
        self.informer.add_index("controller", by_controller_uid)
        self.informer.add_index("orphan", claim.orphan_namespace)
        self._written: Written[ControllerRevision] = Written(self.informer, context.clock)

    async def owned(self, owner: Object, selector: Selector) -> list[ControllerRevision]:
        """The owner's revisions, oldest first; loose ones that match are adopted."""
        uid = owner.metadata.uid
        mine = self._written.over(self.informer.by_index("controller", uid), uid)
        loose = self.informer.by_index("orphan", owner.metadata.namespace)
        claims = claim.plan(owner, selector, [*mine, *loose])
        found = await claim.perform(
            self._client, owner, claims, may_adopt=lambda: claim.is_alive(self._client, owner)
        )
        return history.ordered(found)

    async def current(
        self,
        owner: Object,
        template: dict[str, Any],
        revisions: list[ControllerRevision],
        collisions: int,
    ) -> Current:
        """The revision of this template: as it is, renumbered to be the newest, or a new one."""
        equal = history.equal(revisions, template)
        if not equal:
            number = history.next_number(revisions)
            return await self._create(owner, template, number, collisions)
        newest = equal[-1]
        if newest.revision < revisions[-1].revision:
            newest = await self._renumber(owner, newest, history.next_number(revisions))
        return Current(newest, collisions)

    async def _create(
        self, owner: Object, template: dict[str, Any], number: int, collisions: int
    ) -> Current:
        while True:
            body = history.document(owner, template, number, collisions, self._label)
            try:
                made = await self._client.create(ControllerRevision, body)
            except status.AlreadyExists:
                name = body["metadata"]["name"]
                made = await self._client.get(ControllerRevision, name, owner.metadata.namespace)
                ours = is_controlled_by(made, owner) and made.data == body["data"]
                if not ours:
                    collisions += 1
                    log.info("revision name taken", owner=owner.key, collisions=collisions)
                    continue
            self._written.put(made, owner.metadata.uid)
            return Current(made, collisions)

    async def _renumber(
        self, owner: Object, revision: ControllerRevision, number: int
    ) -> ControllerRevision:
        meta = revision.metadata
        body = {"metadata": {"resourceVersion": meta.resource_version}, "revision": number}
        changed = await self._client.patch(ControllerRevision, meta.name, meta.namespace, body)
        self._written.put(changed, owner.metadata.uid)
        return changed

    async def delete(self, revisions: Iterable[ControllerRevision]) -> None:
        """Remove revisions from the history."""
        for revision in revisions:
            meta = revision.metadata
            try:
                await self._client.delete(
                    ControllerRevision, meta.name, meta.namespace, uid=meta.uid
                )
            except (status.NotFound, status.Conflict):
                pass  # already gone, or already another one
            self._written.delete(revision)
