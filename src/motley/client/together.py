"""Writes that go to the server together, where it takes them so.

Motley's API server has `POST /apis/motley.io/v1/batches`, which discovery shows; to any other
server each write is a request of its own. Meant for writes that come in crowds and of whose outcome
little is wanted: events, conditions, deletions. While a batch is under way the next gathers.
Events let the others go first, for a moment.

Invariant: every write gets its own outcome, exactly once; what fails is told as the plain client
would tell it.
"""

import asyncio
import copy
from collections import deque
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import msgspec

from motley.api import status
from motley.api.views.base import Object
from motley.api.views.pod import Pod
from motley.client.rest import CONTENT_TYPES, Client, delete_options, resource_path
from motley.lib import clock as clocks
from motley.lib import journal
from motley.lib.backoff import Backoff
from motley.lib.clock import SYSTEM, Clock

log = journal.get(__name__)

T = TypeVar("T", bound=Object)

GROUP_PATH = "/apis/motley.io/v1"
_PATH = f"{GROUP_PATH}/batches"
_MOST = 128  # writes in one request
_WORKERS = 2  # requests under way: one is handled while the next gathers


# What may be written after everything else that waits, if not for much longer than this.
_LEISURELY = frozenset({"Event"})
_PATIENCE_S = 0.2


class Writes(Protocol):
    """What can be written; `Client` does it one by one."""

    async def create(self, cls: type[T], body: Mapping[str, Any], namespace: str = "") -> T:
        """Create an object."""

    async def patch(
        self,
        cls: type[T],
        name: str,
        namespace: str,
        body: Mapping[str, Any] | Sequence[Any],
        *,
        type: Literal["merge", "strategic", "json"] = "merge",
        subresource: str = "",
    ) -> T:
        """Change part of an object."""

    async def delete(
        self, cls: type[Object], name: str, namespace: str = "", *, uid: str | None = None
    ) -> None:
        """Delete an object."""


class _Write(NamedTuple):
    method: str
    path: str
    body: Any
    content_type: str
    done: asyncio.Future[Any]
    more: Mapping[str, Any]


async def offered(client: Client, plural: str) -> bool | None:
    """Does the server serve this resource of Motley's group? None: it could not be asked."""
    try:
        found = await client.raw("GET", GROUP_PATH)
    except (status.NotFound, status.Forbidden):
        return False
    except status.ApiError as error:
        log.debug("discovery failed", path=GROUP_PATH, error=error.message)
        return None
    resources = found.get("resources") if isinstance(found, dict) else None
    return any(
        entry.get("name") == plural and "create" in entry.get("verbs", ())
        for entry in resources or ()
    )


class Together:
    """See the module; `run` it in a task group. Before that, and elsewhere, it writes one by one.

    Of what it creates and patches it gives back the metadata only.
    """

    def __init__(self, client: Client, *, clock: Clock = SYSTEM) -> None:
        self._client = client
        self._clock = clock
        self._is_offered = False
        # Bounded by their callers, who wait.
        self._waiting: deque[_Write] = deque()
        self._leisurely: deque[_Write] = deque()
        self._leisurely_at = 0.0  # when some of them were sent last
        self._hurried = 0  # requests under way with others
        self._work = asyncio.Event()

    async def run(self) -> None:
        """Send until cancelled; returns at once where the server takes no batches."""
        pauses = Backoff(base_s=1.0, cap_s=60.0)
        while (found := await offered(self._client, "batches")) is None:
            await self._clock.sleep(pauses.next())
        self._is_offered = found
        if found:
            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(_WORKERS):
                        group.create_task(self._worker())
            finally:
                self._is_offered = False

    async def create(self, cls: type[T], body: Mapping[str, Any], namespace: str = "") -> T:
        """Create an object. Raises AlreadyExists."""
        if not self._is_offered:
            return await self._client.create(cls, body, namespace)
        namespace = namespace or body.get("metadata", {}).get("namespace", "")
        document = {"apiVersion": cls.API_VERSION, "kind": cls.KIND, **body}
        waiting = self._leisurely if cls.KIND in _LEISURELY else self._waiting
        answer = await self._write("POST", resource_path(cls, namespace), document, to=waiting)
        return _metadata_only(cls, answer)

    async def patch(
        self,
        cls: type[T],
        name: str,
        namespace: str,
        body: Mapping[str, Any] | Sequence[Any],
        *,
        type: Literal["merge", "strategic", "json"] = "merge",
        subresource: str = "",
    ) -> T:
        """Change part of an object."""
        if not self._is_offered:
            return await self._client.patch(
                cls, name, namespace, body, type=type, subresource=subresource
            )
        path = resource_path(cls, namespace, name, subresource)
        waiting = self._leisurely if cls.KIND in _LEISURELY else self._waiting
        answer = await self._write("PATCH", path, body, CONTENT_TYPES[type], to=waiting)
        return _metadata_only(cls, answer)

    async def delete(
        self, cls: type[Object], name: str, namespace: str = "", *, uid: str | None = None
    ) -> None:
        """Delete an object; `uid` is a precondition (else Conflict)."""
        if not self._is_offered:
            await self._client.delete(cls, name, namespace, uid=uid)
            return
        await self._write("DELETE", resource_path(cls, namespace, name), delete_options(uid=uid))

    async def disrupt(
        self, name: str, namespace: str, condition: Mapping[str, str], *, uid: str | None = None
    ) -> None:
        """Delete a pod, after its status says why. Raises NotFound; Conflict: `uid` is another's.

        Where they are two requests, a pod that is gone meanwhile is told of by the second.
        """
        if self._is_offered:
            path = resource_path(Pod, namespace, name)
            await self._write(
                "DELETE", path, delete_options(uid=uid), more={"condition": condition}
            )
            return
        stamped = {**condition, "lastTransitionTime": clocks.rfc3339(self._clock.now())}
        body: dict[str, Any] = {"status": {"conditions": [stamped]}}
        if uid:
            body["metadata"] = {"uid": uid}
        await self._client.patch(Pod, name, namespace, body, type="strategic", subresource="status")
        await self._client.delete(Pod, name, namespace, uid=uid)

    def _write(
        self,
        method: str,
        path: str,
        body: Any,
        content_type: str = "application/json",
        *,
        to: deque[_Write] | None = None,
        more: Mapping[str, Any] = MappingProxyType({}),
    ) -> asyncio.Future[Any]:
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        waiting = self._waiting if to is None else to
        waiting.append(_Write(method, path, body, content_type, done, more))
        self._work.set()
        return done

    def _turn(self) -> deque[_Write]:
        """Whose turn it is."""
        now = self._clock.monotonic()
        is_quiet = not self._waiting and not self._hurried
        if self._leisurely and (is_quiet or now - self._leisurely_at >= _PATIENCE_S):
            self._leisurely_at = now
            return self._leisurely
        return self._waiting

    async def _worker(self) -> None:
        while True:
            await self._work.wait()
            waiting = self._turn()
            if not waiting:
                self._work.clear()
                continue
            is_hurried = waiting is self._waiting
            taken = [waiting.popleft() for _ in range(min(_MOST, len(waiting)))]
            self._hurried += is_hurried
            try:
                await self._send(taken)
            finally:
                self._hurried -= is_hurried
            self._work.set()  # who has let others go first may go now

    async def _send(self, taken: Sequence[_Write]) -> None:
        try:
            _settle(taken, await self._client.raw("POST", _PATH, body=_batch(taken)))
        except (status.ApiError, OSError, TimeoutError) as error:
            if isinstance(error, status.NotFound | status.Forbidden):
                self._is_offered = False  # no more: an older server has taken its place
            for write in taken:
                _fail(write, error)
        except asyncio.CancelledError:
            for write in taken:
                write.done.cancel()
            raise


def _batch(writes: Sequence[_Write]) -> dict[str, Any]:
    return {
        "kind": "RequestBatch",
        "apiVersion": "motley.io/v1",
        "items": [
            {
                "method": w.method,
                "path": w.path,
                "contentType": w.content_type,
                "body": w.body,
                **w.more,
            }
            for w in writes
        ],
    }


def _settle(writes: Sequence[_Write], answer: Any) -> None:
    entries = answer.get("items") if isinstance(answer, dict) else None
    if not isinstance(entries, list) or len(entries) != len(writes):
        raise status.InternalError("the server did not answer each of the writes")
    for write, entry in zip(writes, entries, strict=True):
        if entry.get("status") is not None:
            _fail(write, status.from_status(entry["status"], entry.get("code") or 500))
        elif not write.done.done():
            write.done.set_result(entry)


def _fail(write: _Write, error: BaseException) -> None:
    if not write.done.done():
        write.done.set_exception(copy.copy(error))  # each raises its own


def _metadata_only(cls: type[T], answer: Any) -> T:
    return msgspec.convert({"metadata": answer.get("metadata") or {}}, cls)
