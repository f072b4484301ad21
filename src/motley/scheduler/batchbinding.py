"""Bindings sent together, where the server takes them so.

Motley's API server has `POST /apis/motley.io/v1/bindings`, which discovery shows; any other server
is told of each binding by `pods/binding`. What is decided in one turn of the scheduler's loop is
one call. While a call is under way the next gathers, for a few milliseconds at most: one pod alone
never waits, and the more there is to do the more goes into one call.

The event that tells of a binding goes along, and the server writes both.

Invariant: every binding asked for is answered with its own outcome, exactly once.
"""

import asyncio
import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

from motley.api import status
from motley.client import together
from motley.client.rest import Client
from motley.lib import journal
from motley.lib.clock import SYSTEM, Clock
from motley.scheduler.podinfo import PodInfo

log = journal.get(__name__)

PATH = f"{together.GROUP_PATH}/bindings"
REASON = "Scheduled"
MOST = 128  # bindings in one call
LINGER_S = 0.003  # the longest that a binding waits for others
CALLS = 4  # under way at once
_ASK_AGAIN_S = 30.0  # after discovery could not be read


class _Asked(NamedTuple):
    pod: PodInfo
    node: str
    done: asyncio.Future[bool]


class BatchBinding:
    """Gathers bindings and sends them, inside the task group it is given."""

    def __init__(self, client: Client, group: asyncio.TaskGroup, *, clock: Clock = SYSTEM) -> None:
        self._client = client
        self._group = group
        self._clock = clock
        self._is_offered: bool | None = None
        self._asked_at = float("-inf")
        self._waiting: list[_Asked] = []  # bounded by the binder's slots
        self._calls = 0
        self._timer: asyncio.Handle | None = None

    async def discover(self) -> None:
        """Find out whether the server takes batches."""
        self._asked_at = self._clock.monotonic()
        self._is_offered = await together.offered(self._client, "bindings")
        log.info("bindings", together=bool(self._is_offered))

    async def bind(self, pod: PodInfo, node: str) -> bool:
        """Bind; the event is then written, too. False: nothing was done, the server takes no
        batches. Raises ApiError."""
        if not self._is_offered:
            if self._is_offered is None and self._is_time_to_ask():
                await self.discover()
            if not self._is_offered:
                return False
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Asked(pod, node, done))
        self._plan()
        return await done

    def _is_time_to_ask(self) -> bool:
        return self._clock.monotonic() - self._asked_at >= _ASK_AGAIN_S

    def _plan(self) -> None:
        """See to it that what waits is sent."""
        loop = asyncio.get_running_loop()
        if len(self._waiting) >= MOST and self._calls < CALLS:
            self._send_some()
        elif self._timer is None:
            # Nothing under way: only those of the same turn are waited for.
            is_idle = self._calls == 0
            self._timer = (
                loop.call_soon(self._due) if is_idle else loop.call_later(LINGER_S, self._due)
            )

    def _due(self) -> None:
        self._timer = None
        if self._waiting and self._calls < CALLS:
            self._send_some()

    def _send_some(self) -> None:
        some, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
        self._calls += 1
        self._group.create_task(self._send(some))
        if self._waiting:
            self._plan()

    async def _send(self, asked: Sequence[_Asked]) -> None:
        try:
            answer = await self._client.raw("POST", PATH, body=_batch(asked))
            _settle(asked, answer)
        except (status.NotFound, status.Forbidden, status.MethodNotAllowed) as error:
            log.info("bindings", together=False, why=error.message)
            self._is_offered = False
            for one in asked:
                _tell(one, is_bound=False)
        except (status.ApiError, OSError, TimeoutError) as error:
            for one in asked:
                _fail(one, error)
        finally:
            self._calls -= 1
            if self._waiting:
                self._due_now()

    def _due_now(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due()
        if self._waiting:
            self._plan()


def _batch(asked: Sequence[_Asked]) -> dict[str, Any]:
    return {
        "kind": "BindingBatch",
        "apiVersion": "motley.io/v1",
        "items": [
            {
                "metadata": metadata(one.pod),
                "target": {"kind": "Node", "name": one.node},
                "event": {
                    "reason": REASON,
                    "message": message(one.pod, one.node),
                    "component": one.pod.scheduler_name,
                },
            }
            for one in asked
        ],
    }


def metadata(pod: PodInfo) -> dict[str, str]:
    """Which pod is meant; the uid makes sure it is this one and no namesake."""
    named = {"name": pod.key.name, "namespace": pod.key.namespace}
    uid = pod.pod.metadata.uid
    return {**named, "uid": uid} if uid else named


def message(pod: PodInfo, node: str) -> str:
    """The text of the event."""
    return f"Successfully assigned {pod.key} to {node}"


def _settle(asked: Sequence[_Asked], answer: Any) -> None:
    shown = answer.get("items") if isinstance(answer, dict) else None
    if not isinstance(shown, list) or len(shown) != len(asked):
        raise status.InternalError("the server did not answer each of the bindings")
    for one, outcome in zip(asked, shown, strict=True):
        if outcome.get("status") == "Success":
            _tell(one, is_bound=True)
        else:
            _fail(one, status.from_status(outcome, outcome.get("code") or 500))


def _tell(one: _Asked, *, is_bound: bool) -> None:
    if not one.done.done():
        one.done.set_result(is_bound)


def _fail(one: _Asked, error: BaseException) -> None:
    if not one.done.done():
        one.done.set_exception(copy.copy(error))  # each raises its own
