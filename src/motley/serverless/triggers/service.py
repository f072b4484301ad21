"""Triggers at work: one task for each, which waits for its moments or watches its objects.

The leader runs it. What was done is in the Trigger's status, so the next leader goes on from there;
an Invocation that was made twice has the same name twice, and the second is refused.

Invariant: a change is written down as seen only after its Invocation is stored.
"""

import asyncio
from contextlib import aclosing
from random import Random
from typing import Any, ClassVar

from motley.api import status
from motley.api.views.base import Key, Object
from motley.api.views.serverless import Invocation
from motley.api.views.trigger import Trigger
from motley.client.informer import Change, Informer
from motley.client.rest import Client
from motley.controllers import cron
from motley.lib import backoff, journal
from motley.lib.clock import SYSTEM, Clock, parse_rfc3339, rfc3339
from motley.serverless.triggers import firing

log = journal.get(__name__)

_LONGEST_SLEEP_S = 60.0  # the clock may be set
_NOTE_EVERY_S = 5.0  # how often what was seen is written down
_BURST, _PER_S = 100, 10.0  # calls a trigger may make: a storm of changes must not be one of pods


class Triggers:
    """Every Trigger of the cluster, while this process leads."""

    def __init__(
        self,
        client: Client,
        triggers: Informer[Trigger],
        *,
        clock: Clock = SYSTEM,
        rng: Random | None = None,
    ) -> None:
        self._client = client
        self._informer = triggers
        self._clock = clock
        self._rng = rng or Random()
        self._tasks: dict[Key, tuple[int, asyncio.Task[None]]] = {}

    async def run(self) -> None:
        """Work until cancelled."""
        changed: asyncio.Queue[Key] = asyncio.Queue()

        def note(change: Change[Trigger]) -> None:
            changed.put_nowait(change.key)

        self._informer.add_handler(note)
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    self._adjust(group, await changed.get())
        finally:
            self._informer.remove_handler(note)
            self._tasks.clear()

    def _adjust(self, group: asyncio.TaskGroup, key: Key) -> None:
        trigger = self._informer.get(key)
        generation, task = self._tasks.get(key, (0, None))
        if trigger is not None and trigger.metadata.generation == generation:
            return
        if task is not None:
            task.cancel()
            del self._tasks[key]
        if trigger is not None and not trigger.spec.suspend and trigger.spec.http is None:
            begun = group.create_task(self._serve(trigger), name=f"trigger {key}")
            self._tasks[key] = trigger.metadata.generation, begun

    async def _serve(self, trigger: Trigger) -> None:
        """One Trigger, until it changes."""
        pauses = backoff.Backoff(1.0, 60.0, self._rng)
        while True:
            begun = self._clock.monotonic()
            try:
                if trigger.spec.schedule:
                    await self._follow_clock(trigger)
                elif trigger.spec.event is not None:
                    await self._follow_changes(trigger)
                return
            except (cron.UnknownTimeZone, ValueError) as error:
                await self._condition(trigger, "BadSpec", str(error))
                return  # until somebody changes it
            except status.ApiError as error:
                if isinstance(error, status.Forbidden):
                    await self._condition(trigger, "Forbidden", error.message)
                log.warning("trigger tries again", trigger=str(trigger.key), error=error)
                if self._clock.monotonic() - begun > _LONGEST_SLEEP_S:
                    pauses.reset()  # it has worked for a while
                await self._clock.sleep(pauses.next())
                trigger = self._informer.get(trigger.key) or trigger  # how far it is now

    async def _follow_clock(self, trigger: Trigger) -> None:
        schedule = cron.read(trigger.spec.schedule, trigger.spec.time_zone or None)
        since = trigger.status.last_time or trigger.metadata.creation_timestamp
        last = parse_rfc3339(since) if since else self._clock.now()
        await self._condition(trigger, "", "")
        while True:
            now = self._clock.now()
            deadline_s = trigger.spec.starting_deadline_seconds
            moment = firing.moment(schedule, last, now, deadline_s)
            if moment.due is not None:
                name = await self._call(trigger, str(moment.due), firing.tick(moment.due))
                last = float(moment.due)
                await self._note(trigger, {"lastTime": rfc3339(last), "lastInvocation": name})
            if moment.next is None:
                raise ValueError(f"spec.schedule: {trigger.spec.schedule!r} never comes")
            left_s = moment.next - self._clock.now()
            await self._clock.sleep(min(max(left_s, 0.0), _LONGEST_SLEEP_S))

    async def _follow_changes(self, trigger: Trigger) -> None:
        event = trigger.spec.event
        assert event is not None
        view = await self._view(event.api_version, event.kind)
        where = trigger.metadata.namespace if view.NAMESPACED else ""
        seen = trigger.status.resource_version
        if not seen:  # from now on: what was there before is no change
            listed = await self._client.list(view, namespace=where, limit=1)
            seen = listed.resource_version
        await self._note(trigger, {"resourceVersion": seen})
        await self._condition(trigger, "", "")
        allowed = _Bucket(self._clock)
        noted_at = self._clock.monotonic()
        while True:
            stream = self._client.watch_documents(
                view, namespace=where, resource_version=seen, label_selector=event.label_selector
            )
            try:
                async with aclosing(stream) as changes:
                    async for type_, document in changes:
                        fits = type_ != "BOOKMARK" and type_ in (event.types or (type_,))
                        seen = document["metadata"]["resourceVersion"]
                        said: dict[str, Any] = {"resourceVersion": seen}
                        if fits:
                            await allowed.take()
                            mark = f"{document['metadata'].get('uid')}/{type_}/{seen}"
                            name = await self._call(trigger, mark, firing.change(type_, document))
                            said |= {
                                "lastTime": rfc3339(self._clock.now()),
                                "lastInvocation": name,
                            }
                        if self._clock.monotonic() - noted_at >= _NOTE_EVERY_S or fits:
                            await self._note(trigger, said)
                            noted_at = self._clock.monotonic()
            except status.Gone:
                listed = await self._client.list(view, namespace=where, limit=1)
                await self._condition(
                    trigger,
                    "ChangesMissed",
                    f"changes after revision {seen} are forgotten; going on from now",
                )
                seen = listed.resource_version

    async def _view(self, api_version: str, kind: str) -> type[Object]:
        """Where a kind lives, as the server says."""
        prefix = "/api/" if "/" not in api_version else "/apis/"
        try:
            listed = await self._client.raw("GET", f"{prefix}{api_version}")
        except status.NotFound:
            raise ValueError(f"spec.event.apiVersion: there is no {api_version!r}") from None
        for row in listed["resources"]:
            if row["kind"] == kind and "/" not in row["name"] and "watch" in row["verbs"]:
                places: dict[str, Any] = {
                    "API_VERSION": api_version,
                    "KIND": kind,
                    "PLURAL": row["name"],
                    "NAMESPACED": row["namespaced"],
                }
                return type(kind, (_Watched,), places)
        raise ValueError(f"spec.event.kind: there is no {kind!r} to watch in {api_version!r}")

    async def _call(self, trigger: Trigger, mark: str, arg: Any) -> str:
        body = firing.invocation(trigger, mark, arg)
        name: str = body["metadata"]["name"]
        try:
            await self._client.create(Invocation, body, trigger.metadata.namespace)
        except status.AlreadyExists:
            log.info("trigger has called already", trigger=str(trigger.key), invocation=name)
        return name

    async def _note(self, trigger: Trigger, said: dict[str, Any]) -> None:
        try:
            await self._client.patch(
                Trigger,
                trigger.metadata.name,
                trigger.metadata.namespace,
                {"status": said},
                subresource="status",
            )
        except status.NotFound:
            log.info("trigger is gone", trigger=str(trigger.key))

    async def _condition(self, trigger: Trigger, reason: str, message: str) -> None:
        """Say whether it works; nothing is written when that was said before."""
        known = next((c for c in trigger.status.conditions if c.get("type") == "Ready"), {})
        wanted = {
            "type": "Ready",
            "status": "False" if reason in ("BadSpec", "Forbidden") else "True",
            "reason": reason or "Watching",
            "message": message,
        }
        if any(known.get(field, "") != value for field, value in wanted.items()):
            wanted["lastTransitionTime"] = rfc3339(self._clock.now())
            said = {"conditions": [wanted], "observedGeneration": trigger.metadata.generation}
            await self._note(trigger, said)


class _Watched(Object):
    """Any object: only its place is known."""

    API_VERSION: ClassVar[str] = ""
    KIND: ClassVar[str] = ""
    PLURAL: ClassVar[str] = ""


class _Bucket:
    """So many at once, then so many a second."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._left = float(_BURST)
        self._at = clock.monotonic()

    async def take(self) -> None:
        """Wait until one more is allowed."""
        while True:
            now = self._clock.monotonic()
            self._left = min(_BURST, self._left + (now - self._at) * _PER_S)
            self._at = now
            if self._left >= 1.0:
                self._left -= 1.0
                return
            await self._clock.sleep((1.0 - self._left) / _PER_S)
