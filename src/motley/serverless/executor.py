"""Carries accepted calls to their end, whatever crashes meanwhile.

The leader drives every Invocation that is not finished: asks what to do by what is written down,
does it, writes it down. A successor begins with the same question. A chain (`chain`) and a workflow
(`workflow.engine`) are only different ways to answer it.
Invariant: what a step gave is written before the next one begins; a written step never runs again.
"""

import asyncio
from collections.abc import Callable

from motley.api import status
from motley.api.views.base import Key
from motley.api.views.serverless import Function, Invocation
from motley.client.informer import Change, Informer
from motley.client.rest import Client
from motley.lib import clock as clocks
from motley.lib import journal
from motley.lib.backoff import Backoff
from motley.lib.clock import Clock
from motley.serverless.callback import Callbacks
from motley.serverless.calls import Calls
from motley.serverless.driving import Drive, Gone
from motley.serverless.stepping import Stepper

log = journal.get(__name__)

_SWEEP_S = 5.0
_DRIVEN = 256  # at a time


class Executor:
    """Every invocation that is not finished."""

    def __init__(
        self,
        client: Client,
        invocations: Informer[Invocation],
        function: Callable[[Key], Function | None],
        calls: Calls,
        callbacks: Callbacks,
        prewarm: Callable[[Key], None],
        clock: Clock,
    ) -> None:
        self.client = client
        self.function = function
        self.calls = calls
        self.clock = clock
        self.stepper = Stepper(calls, function, clock)
        self._invocations = invocations
        self._callbacks = callbacks
        self._prewarm = prewarm
        self._drives: dict[Key, Drive | None] = {}
        self._slots = asyncio.Semaphore(_DRIVEN)
        self._called_back: set[str] = set()
        self._group: asyncio.TaskGroup

    def stamp(self) -> str:
        """Now, as it is written."""
        return clocks.rfc3339_micro(self.clock.now())

    def prewarm(self, key: Key) -> None:
        """Wake a function that is likely to be called soon."""
        self._prewarm(key)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as self._group:
            self._invocations.add_handler(self._changed)
            try:
                while True:
                    await self.clock.sleep(_SWEEP_S)
                    self._sweep()
            finally:
                self._invocations.remove_handler(self._changed)

    def _changed(self, change: Change[Invocation]) -> None:
        invocation = change.new
        drive = self._drives.get(change.key)
        if invocation is None:
            if drive is not None:
                drive.cancel()
            return
        if invocation.is_finished:
            self._call_back(invocation)
        elif change.key not in self._drives:
            self._drives[change.key] = None
            self._group.create_task(self._driven(change.key))
        elif drive is not None and invocation.spec.cancel:
            drive.cancel()

    async def _driven(self, key: Key) -> None:
        backoff = Backoff(base_s=0.2, cap_s=10.0)
        try:
            async with self._slots:
                while True:
                    try:
                        # Read anew: what our own copy says of the steps may be of before a write.
                        invocation = await self.client.get(Invocation, key.name, key.namespace)
                        if invocation.is_finished:
                            return
                        drive = self._drives[key] = Drive(self, invocation)
                        await drive.run()
                        return
                    except status.NotFound:
                        return
                    except ExceptionGroup as failures:
                        if failures.subgroup(Gone) is not None:
                            return
                        log.error("invocation stumbled", exc_info=failures, invocation=key)
                    except Gone:
                        return
                    except status.ApiError as error:
                        log.warning(
                            "invocation is tried again", invocation=key, error=error.message
                        )
                    await self.clock.sleep(backoff.next())
        finally:
            self._drives.pop(key, None)

    def _call_back(self, invocation: Invocation) -> None:
        if not invocation.spec.callback_url or invocation.status.callback is not None:
            return
        if invocation.metadata.uid not in self._called_back:
            self._called_back.add(invocation.metadata.uid)
            self._group.create_task(self._callbacks.deliver(invocation))

    def _sweep(self) -> None:
        """Remove results that were kept long enough, and find what an event did not tell."""
        now = self.clock.now()
        for invocation in self._invocations.items():
            done = invocation.status.completion_time
            if not invocation.is_finished:
                self._changed(Change(None, invocation))
            elif done:
                ttl_s = invocation.spec.ttl_seconds_after_finished
                if now >= clocks.parse_rfc3339(done) + ttl_s:
                    self._group.create_task(self._remove(invocation))

    async def _remove(self, invocation: Invocation) -> None:
        key = invocation.key
        try:
            await self.client.delete(
                Invocation, key.name, key.namespace, uid=invocation.metadata.uid
            )
        except (status.NotFound, status.Conflict):
            log.debug("invocation is gone already", invocation=key)
        except status.ApiError as error:
            log.warning("invocation not removed", invocation=key, error=error.message)
        self._called_back.discard(invocation.metadata.uid)
