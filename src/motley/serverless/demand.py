"""Calls that wait at other routers: each says so on the Function, the leader adds them up.

Several routers serve the same functions, and one of them makes instances. The others note how many
calls they have there, in an annotation of their own, at most once a second and only while they have
some. The leader trusts a note for a few seconds after it last saw it change, by its own clock.
"""

import asyncio
import contextlib

from motley.api import status
from motley.api.views.base import Key
from motley.api.views.serverless import Function
from motley.client.rest import Client
from motley.lib import journal
from motley.lib.clock import Clock
from motley.serverless import objects
from motley.serverless.instances import Group, Table

log = journal.get(__name__)

_TRUSTED_S = 5.0
_EVERY_S = 1.0


class Remote:
    """The leader's reading of the notes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[tuple[Key, str], tuple[str, float]] = {}

    def concurrency(self, function: Function) -> float:
        """Calls at other routers."""
        now = self._clock.monotonic()
        total = 0.0
        for name, value in function.metadata.annotations.items():
            if not name.startswith(objects.DEMAND):
                continue
            before = self._seen.get((function.key, name))
            if before is None or before[0] != value:
                before = self._seen[(function.key, name)] = (value, now)
            count = value.partition("@")[0]
            if now - before[1] <= _TRUSTED_S and count.isdigit():
                total += int(count)
        return total


class Reporter:
    """A router that does not lead, and tells the one that does."""

    def __init__(self, client: Client, table: Table, identity: str, clock: Clock) -> None:
        self._client = client
        self._table = table
        self._name = f"{objects.DEMAND}{identity[:60]}"
        self._clock = clock
        self._wake = asyncio.Event()
        self._noted: set[Key] = set()

    async def run(self) -> None:
        """Note what waits and runs here, until cancelled."""
        self._table.on_wait = self._waits
        while True:
            for group in list(self._table.groups.values()):
                count = group.in_flight + group.waiting
                if count or group.key in self._noted:
                    await self._note(group, count)
            self._wake.clear()
            if not self._noted:
                await self._wake.wait()
            else:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_EVERY_S):
                        await asyncio.Event().wait()

    def _waits(self, group: Group) -> None:
        self._wake.set()

    async def _note(self, group: Group, count: int) -> None:
        value = f"{count}@{self._clock.now():.0f}" if count else None
        patch = {"metadata": {"annotations": {self._name: value}}}
        try:
            await self._client.patch(Function, group.key.name, group.key.namespace, patch)
        except status.ApiError as error:
            log.warning("demand not noted", function=group.key, error=error.message)
            return
        if count:
            self._noted.add(group.key)
        else:
            self._noted.discard(group.key)
