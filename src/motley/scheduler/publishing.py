"""Decisions as objects of the API, for `kubectl get decisions`.

An object per placed pod would double what a scheduler writes, so by default only pods that fit
nowhere get one, and those that say `motley.io/explain: "true"`. It is written in the background,
the latest word per pod only, at a bounded rate, and again only when it says something else or
is a minute old. It belongs to its pod and goes with it.

A server that does not know the kind (any Kubernetes without Motley's definitions) is asked again
every few minutes and otherwise left alone: scheduling never depends on this.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

from motley.api import status
from motley.api.views.decisions import Decision
from motley.api.views.pod import Pod
from motley.client.rest import Client
from motley.lib import journal
from motley.lib.clock import SYSTEM, Clock
from motley.scheduler.contract import PodInfo
from motley.scheduler.records import Record, is_wanted

log = journal.get(__name__)

PER_SECOND = 50.0  # objects written, at most
REPEAT_S = 60.0  # the same thing is said again after this long: times and ages move on
_ASK_AGAIN_S = 300.0
_WAITING = 1000  # pods whose last decision is still to be written; the oldest is dropped
_REMEMBERED = 4000  # pods of which it is known what was written


class Publish(Enum):
    """Which decisions become objects."""

    ALL = "all"
    UNSCHEDULABLE = "unschedulable"
    NONE = "none"


class _Written(NamedTuple):
    said: str
    at: float


class Publisher:
    """Writes them; `run` it in a task group."""

    def __init__(
        self,
        client: Client,
        which: Publish = Publish.UNSCHEDULABLE,
        *,
        per_second: float = PER_SECOND,
        clock: Clock = SYSTEM,
    ) -> None:
        self._client = client
        self._which = which
        self._pause_s = 1.0 / per_second
        self._clock = clock
        self._waiting: OrderedDict[str, Record] = OrderedDict()  # by the pod's uid
        self._written: OrderedDict[str, _Written] = OrderedDict()
        self._work = asyncio.Event()
        self._is_served: bool | None = None  # None: not known yet

    def decided(self, pod: PodInfo, record: Record) -> None:
        """A decision was made; returns at once."""
        if self._which is Publish.NONE or self._is_served is False:
            return
        uid = pod.uid
        if (
            self._which is Publish.UNSCHEDULABLE
            and record.decision.node is not None
            # What was said before must not stay when it is no longer true.
            and uid not in self._written
            and uid not in self._waiting
            and not is_wanted(pod)
        ):
            return
        self._waiting[uid] = record
        if len(self._waiting) > _WAITING:
            self._waiting.popitem(last=False)
        self._work.set()

    async def run(self) -> None:
        """Write until cancelled."""
        if self._which is Publish.NONE:
            return
        while True:
            self._is_served = await self._ask()
            if not self._is_served:
                self._waiting.clear()
                await self._clock.sleep(_ASK_AGAIN_S)
                continue
            await self._write_all()

    async def _ask(self) -> bool:
        try:
            await self._client.list(Decision, limit=1)
        except (status.NotFound, status.Forbidden) as error:
            log.info("decisions are not published", why=str(error))
            return False
        except (status.ApiError, OSError, TimeoutError) as error:
            log.debug("decisions are not published now", why=str(error) or repr(error))
            return False
        return True

    async def _write_all(self) -> None:
        """Until the kind is gone."""
        while True:
            await self._work.wait()
            if not self._waiting:
                self._work.clear()
                continue
            uid, record = self._waiting.popitem(last=False)
            if not self._is_news(uid, record):
                continue
            try:
                await self._write(record)
            except status.Forbidden as error:
                if not is_ending(error):
                    log.warning("decisions may not be published", why=str(error))
                    return
            except (status.ApiError, OSError, TimeoutError) as error:
                # The pod or its namespace may be gone; the next decision says it again.
                log.debug("decision not published", pod=record.decision.pod, error=str(error))
            await self._clock.sleep(self._pause_s)

    def _is_news(self, uid: str, record: Record) -> bool:
        before = self._written.get(uid)
        return (
            before is None
            or before.said != record.decision.message
            or record.at - before.at >= REPEAT_S
        )

    async def _write(self, record: Record) -> None:
        key = record.decision.pod
        body = document(record)
        try:
            await self._client.create(Decision, body)
        except status.AlreadyExists:
            await self._client.patch(
                Decision, key.name, key.namespace, _replacing(body), type="json"
            )
        self._written[record.uid] = _Written(record.decision.message, record.at)
        self._written.move_to_end(record.uid)
        if len(self._written) > _REMEMBERED:
            self._written.popitem(last=False)


def is_ending(error: status.Forbidden) -> bool:
    """Is it the namespace that goes away, rather than a right that lacks?"""
    return "because it is being terminated" in str(error)


def document(record: Record) -> dict[str, Any]:
    """The object, owned by its pod."""
    key = record.decision.pod
    owner = {"apiVersion": Pod.API_VERSION, "kind": Pod.KIND, "name": key.name, "uid": record.uid}
    return {
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "ownerReferences": [owner],
        },
        "spec": record.spec(),
    }


def _replacing(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A patch that leaves nothing of what an earlier decision said."""
    owners = body["metadata"]["ownerReferences"]
    return [
        {"op": "add", "path": "/metadata/ownerReferences", "value": owners},
        {"op": "add", "path": "/spec", "value": body["spec"]},
    ]
