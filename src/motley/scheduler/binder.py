"""From a decision to a bound pod, without holding up the next decision.

A pod that was given a node is assumed there at once; the API is told concurrently, with a bounded
number of bindings in flight. A binding that fails for whatever reason is reported, and
the scheduler takes the assumption back.

Invariant: for every pod submitted exactly one of `bound` and `failed` is called, unless
the scheduler stops first.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

from motley.api import status
from motley.api.views.base import Key, Object
from motley.api.views.pod import Pod
from motley.client.rest import Client
from motley.lib import journal
from motley.scheduler import batchbinding
from motley.scheduler.batchbinding import BatchBinding
from motley.scheduler.contract import SKIP, PluginError, PodInfo, Wait
from motley.scheduler.profiles import Profile
from motley.scheduler.waiting import PermitRefused, Waiting

log = journal.get(__name__)

T = TypeVar("T", bound=Object)

IN_FLIGHT = 512  # pods between their decision and the end of their binding
CALLS = 48  # to `pods/binding` at once
BIND_TIMEOUT_S = 30.0
_TRIES = 3  # of a binding whose outcome is not known


class Outcome(Protocol):
    """Who is told how a binding ended."""

    def bound(self, pod: PodInfo, node: str) -> None:
        """The API has it."""

    def failed(self, pod: PodInfo, node: str, error: Exception) -> None:
        """It does not, or nobody knows whether it does."""


class PodWriter:
    """The API writes of plugins, through the client."""

    def __init__(self, client: Client, together: BatchBinding | None = None) -> None:
        """`together` sends bindings in batches where the server takes them so."""
        self._client = client
        self._together = together
        self._calls = asyncio.Semaphore(CALLS)
        self._told: set[str] = set()

    def has_told(self, uid: str) -> bool:
        """Was the event of the pod's binding written along with it? Asked once."""
        is_told = uid in self._told
        self._told.discard(uid)
        return is_told

    async def bind(self, pod: PodInfo, node: str) -> None:
        """Create the Binding. Raises ApiError when it is known, or likely, not to be there."""
        unsure: status.ApiError | None = None
        for _ in range(_TRIES):
            try:
                await self._bind(pod, node)
            except (status.Conflict, status.InternalError, status.ServiceUnavailable) as error:
                if not await self._is_bound(pod, node):
                    raise unsure or error from None
            except status.GatewayTimeout as error:
                # Perhaps the server has it, or will in a moment. The same again cannot do harm:
                # whatever comes second is refused.
                unsure = error
                continue
            return
        if unsure is not None and not await self._is_bound(pod, node):
            raise unsure

    async def _bind(self, pod: PodInfo, node: str) -> None:
        if self._together is not None and await self._together.bind(pod, node):
            self._told.add(pod.uid)
            return
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": batchbinding.metadata(pod),
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        key = pod.key
        async with self._calls:
            await self._client.create_subresource(Pod, key.name, key.namespace, "binding", body)

    async def _is_bound(self, pod: PodInfo, node: str) -> bool:
        """Is the pod where a binding of unknown outcome would have put it?"""
        try:
            found = await self._client.get(Pod, pod.key.name, pod.key.namespace)
        except status.ApiError as error:
            log.debug("pod not read", pod=pod.key, error=error.message)
            return False
        return found.metadata.uid == pod.pod.metadata.uid and found.spec.node_name == node

    async def patch_pod(self, pod: PodInfo, body: Mapping[str, Any]) -> None:
        """Change the pod by strategic merge patch."""
        await self._client.patch(Pod, pod.key.name, pod.key.namespace, dict(body), type="strategic")

    async def resize_pod(self, pod: PodInfo, body: Mapping[str, Any]) -> None:
        """Change the resources of the pod's containers."""
        await self._client.patch(
            Pod,
            pod.key.name,
            pod.key.namespace,
            dict(body),
            type="strategic",
            subresource="resize",
        )

    async def patch(self, cls: type[T], key: Key, body: Mapping[str, Any]) -> T:
        """Change any object by merge patch."""
        return await self._client.patch(cls, key.name, key.namespace, dict(body))


class Binder:
    """Binds pods concurrently, inside the task group it is given."""

    def __init__(
        self,
        group: asyncio.TaskGroup,
        writer: PodWriter,
        outcome: Outcome,
        *,
        waiting: Waiting | None = None,
        in_flight: int = IN_FLIGHT,
    ) -> None:
        self._group = group
        self._writer = writer
        self._outcome = outcome
        self._slots = asyncio.Semaphore(in_flight)
        self._waiting = waiting or Waiting()

    async def slot(self) -> None:
        """Wait until one more binding may be submitted; each submission uses one up."""
        await self._slots.acquire()

    def give_back(self) -> None:
        """Return a slot that was not used."""
        self._slots.release()

    def submit(self, profile: Profile, pod: PodInfo, node: str, wait: Wait | None = None) -> None:
        """Bind in the background, after `wait` where a Permit plugin asked for it."""
        if wait is not None:
            self._waiting.hold(pod.uid)
        self._group.create_task(self._run(profile, pod, node, wait))

    async def _run(self, profile: Profile, pod: PodInfo, node: str, wait: Wait | None) -> None:
        try:
            try:
                if wait is not None:
                    await self._wait(pod, wait)
                await self._patiently(profile, pod, node)
                async with asyncio.timeout(BIND_TIMEOUT_S):
                    await self._bind(profile, pod, node)
            finally:
                self._slots.release()
        except Exception as error:
            self._outcome.failed(pod, node, error)
            return
        self._outcome.bound(pod, node)
        for plugin in profile.post_bind:
            try:
                plugin.post_bind(pod, node)
            except Exception as error:
                log.error("plugin failed", exc_info=error, plugin=plugin.name, point="PostBind")

    async def _wait(self, pod: PodInfo, wait: Wait) -> None:
        # A gang larger than the number of slots must be able to wait together.
        self._slots.release()
        try:
            reason = await self._waiting.verdict(pod.uid, wait.timeout_s)
        finally:
            await self._slots.acquire()
        if reason:
            raise PermitRefused(reason)

    async def _patiently(self, profile: Profile, pod: PodInfo, node: str) -> None:
        """Run first what may wait long, outside the slots: others can be bound meanwhile."""
        for plugin in profile.pre_bind:
            # Not isinstance: a check against a Protocol costs more than all else here.
            waits_s = getattr(plugin, "waits_s", None)
            if waits_s is None or not (limit_s := waits_s(pod)):
                continue
            self._slots.release()
            try:
                async with asyncio.timeout(limit_s):
                    await plugin.pre_bind(pod, node, self._writer)
            finally:
                await self._slots.acquire()

    async def _bind(self, profile: Profile, pod: PodInfo, node: str) -> None:
        for plugin in profile.pre_bind:
            if not hasattr(plugin, "waits_s"):
                await plugin.pre_bind(pod, node, self._writer)
        for plugin in profile.bind:
            if await plugin.bind(pod, node, self._writer) is not SKIP:
                return
        raise PluginError("*", "Bind", RuntimeError("no bind plugin took the pod"))
