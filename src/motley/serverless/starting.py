"""Bringing one instance to life: a warm pod if there is one, a new one if not, then its code.

Each phase is timed: scheduled, sandbox up, listening with its code; the first byte is the caller's.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from motley.api import status
from motley.api.views.base import Key
from motley.api.views.core import ConfigMap
from motley.api.views.pod import Pod
from motley.api.views.serverless import Function
from motley.client.informer import Change, Informer
from motley.client.rest import Client
from motley.lib import journal
from motley.lib.clock import Clock
from motley.serverless import objects
from motley.serverless.discovery import Discovery, is_live, starting_reason
from motley.serverless.instances import Group, Table
from motley.serverless.metrics import Meters
from motley.serverless.specialist import Refused, Specialist

log = journal.get(__name__)

_START_TIMEOUT_S = 120.0
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # Kubernetes' own for generated names


@dataclass
class Starting:
    """An instance on its way."""

    function: Key
    revision: str
    pod: Key | None = None


class Starter:
    """Makes pods and gives them their code."""

    def __init__(
        self,
        client: Client,
        table: Table,
        pods: Informer[Pod],
        discovery: Discovery,
        specialist: Specialist,
        key: bytes,
        default_image: str,
        meters: Meters,
        clock: Clock,
        rng: Random,
    ) -> None:
        self._client = client
        self._table = table
        self._pods = pods
        self._discovery = discovery
        self._specialist = specialist
        self._key = key
        self._image = default_image
        self._meters = meters
        self._clock = clock
        self._rng = rng
        self._files = objects.runtime_files()
        self._namespaces: set[str] = set()  # those that have the runtime's ConfigMap
        self._claimed: set[Key] = set()
        self._waits: dict[Key, asyncio.Event] = {}

    def attach(self) -> None:
        """Hear of pods."""
        self._pods.add_handler(self._pod_changed)

    def detach(self) -> None:
        """Hear no more."""
        self._pods.remove_handler(self._pod_changed)

    def _pod_changed(self, change: Change[Pod]) -> None:
        event = self._waits.get(change.key)
        if event is not None:
            event.set()
        if change.new is None:
            self._claimed.discard(change.key)

    async def start(self, function: Function, starting: Starting) -> None:
        """One instance, from nothing to taking calls. Raises Broken, Refused, ApiError."""
        began = self._clock.monotonic()
        pod = await self._adopt(function)
        was_warm = pod is not None
        if pod is None:
            pod = await self.make(function)
        starting.pod = pod.key
        try:
            await self.finish(function, pod, began, was_warm=was_warm)
        except BaseException:
            await self.remove(pod.key)
            raise

    async def finish(
        self, function: Function, pod: Pod, began: float, *, was_warm: bool = False
    ) -> None:
        """Wait for a pod, give it its code, let it take calls."""
        key = function.key
        group = self._table.group(key)
        if not was_warm:
            pod = await self._running(function, pod, began, lambda why: _say(group, why))
        address = pod.status.pod_ip
        at = self._clock.monotonic()
        token = objects.instance_token(self._key, pod.key)
        await self._specialist.specialise(function, pod.key, address, token, _START_TIMEOUT_S)
        self._meters.cold(key, "start", self._clock.monotonic() - at)
        instance = self._discovery.instance(function, pod)
        instance.revision = objects.revision(function)
        group.put(instance)
        log.info(
            "instance takes calls",
            pod=pod.key,
            function=key,
            warm=was_warm,
            took_ms=round((self._clock.monotonic() - began) * 1000),
        )
        serving = {objects.SERVING: objects.label(function.metadata.name)}
        await self._client.patch(
            Pod, pod.metadata.name, pod.metadata.namespace, {"metadata": {"labels": serving}}
        )

    async def make(self, function: Function, *, pooled: bool = False) -> Pod:
        """A new generic pod."""
        namespace = function.metadata.namespace
        config_map = await self.prepare(namespace)
        base = "function-pool" if pooled else function.metadata.name[:50].rstrip("-.")
        name = f"{base}-{''.join(self._rng.choices(_ALPHABET, k=7))}"
        token = objects.instance_token(self._key, Key(namespace, name))
        body = objects.pod(
            function, name, token, config_map, default_image=self._image, pooled=pooled
        )
        return await self._client.create(Pod, body)

    async def remove(self, pod: Key, grace_s: int | None = None) -> None:
        """End a pod; its calls are finished first."""
        try:
            await self._client.delete(Pod, pod.name, pod.namespace, grace_period_s=grace_s)
        except status.NotFound:
            log.debug("pod is gone already", pod=pod)

    def warm(self, namespace: str, class_: str) -> list[Pod]:
        """Generic pods of a class that wait, the oldest first."""
        found = [
            pod
            for pod in self._pods.items()
            if objects.POOLED in pod.metadata.labels
            and pod.metadata.namespace == namespace
            and pod.metadata.labels.get(objects.CLASS) == class_
            and is_live(pod)
            and pod.key not in self._claimed
        ]
        return sorted(found, key=lambda pod: pod.metadata.creation_timestamp or "")

    async def _adopt(self, function: Function) -> Pod | None:
        """Take a warm pod, if one is there and nobody is quicker."""
        class_ = objects.pool_class(function, self._image)
        for pod in self.warm(function.metadata.namespace, class_):
            if not _runs(pod):
                continue
            self._claimed.add(pod.key)
            patch = objects.adoption(function, pod.metadata.resource_version)
            try:
                return await self._client.patch(
                    Pod, pod.metadata.name, pod.metadata.namespace, patch
                )
            except (status.Conflict, status.NotFound):
                self._claimed.discard(pod.key)
        return None

    async def prepare(self, namespace: str) -> str:
        """See to it that the runtime is in a namespace; the name of its ConfigMap."""
        body = objects.runtime_config_map(self._files, namespace)
        name = str(body["metadata"]["name"])
        if namespace not in self._namespaces:
            try:
                await self._client.create(ConfigMap, body)
            except status.AlreadyExists:
                log.debug("the runtime is there already", namespace=namespace)
            self._namespaces.add(namespace)
        return name

    async def _running(
        self, function: Function, pod: Pod, began: float, say: Callable[[str], None]
    ) -> Pod:
        """Wait until a pod has an address. Raises Refused when it never will."""
        event = self._waits[pod.key] = asyncio.Event()
        was_scheduled = False
        scheduled_at = began
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                while True:
                    seen = self._pods.get(pod.key) or pod
                    if not is_live(seen):
                        raise Refused(f"pod {pod.key} ended: {seen.status.message or 'deleted'}")
                    if seen.spec.node_name and not was_scheduled:
                        was_scheduled, scheduled_at = True, self._clock.monotonic()
                        self._meters.cold(function.key, "schedule", scheduled_at - began)
                    if seen.status.pod_ip:
                        took_s = self._clock.monotonic() - scheduled_at
                        self._meters.cold(function.key, "sandbox", took_s)
                        return seen
                    say(starting_reason(seen))
                    await event.wait()
                    event.clear()
        except TimeoutError:
            why = starting_reason(self._pods.get(pod.key) or pod)
            raise Refused(f"pod {pod.key} did not run in time: {why}") from None
        finally:
            self._waits.pop(pod.key, None)


def _runs(pod: Pod) -> bool:
    return bool(pod.status.pod_ip) and pod.status.phase == "Running"


def _say(group: Group, why: str) -> None:
    if why:
        group.reason = why
