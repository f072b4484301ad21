"""Asks every node agent for its figures, again and again.

Runs in the API server's process, which alone may speak to agents and knows where they are. An
agent that does not answer costs its own figures only: what it said last grows old and vanishes.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

from motley.api import scheme, status
from motley.apiserver import agents, document
from motley.apiserver.caches import Cache
from motley.apiserver.core import Core
from motley.lib import journal
from motley.metrics import exposition, scripted
from motley.metrics.exposition import ContainerKey
from motley.metrics.usage import Usage, Use

log = journal.get(__name__)

Document = dict[str, Any]

_AT_ONCE = 64
_TIMEOUT_S = 10.0  # metrics-server's patience with a kubelet
_TIMEOUT = aiohttp.ClientTimeout(total=_TIMEOUT_S)
_MARK = scripted.ANNOTATION.encode()


class Collector:
    """Keeps a `Usage` current; `run` it until it is no longer needed."""

    def __init__(self, core: Core, every_s: float) -> None:
        self._core = core
        self._every_s = every_s
        self.usage = Usage(keep_s=2 * every_s + _TIMEOUT_S)
        self.after: list[Callable[[], Awaitable[None]]] = []  # who looks at every round

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            begun = self._core.clock.monotonic()
            await self.round()
            for look in self.after:
                await look()
            spent_s = self._core.clock.monotonic() - begun
            await self._core.clock.sleep(max(0.0, self._every_s - spent_s))

    async def round(self) -> None:
        """Ask every agent once."""
        nodes = [document.decode(c.record.value) for c in (await self._cache("nodes")).list().items]
        fakes = {node["metadata"]["name"] for node in nodes if scripted.is_fake(node)}
        self.usage.keep_only(node["metadata"]["name"] for node in nodes)
        slots = asyncio.Semaphore(_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for node in nodes:
                if node["metadata"]["name"] not in fakes:
                    group.create_task(self._ask(node, slots))
        if fakes:
            self._believe(fakes, await self._cache("pods"))

    async def _cache(self, plural: str) -> Cache:
        kind = scheme.resource("", "v1", plural)
        assert kind is not None
        return await self._core.caches.of(kind)

    async def _ask(self, node: Document, slots: asyncio.Semaphore) -> None:
        name = node["metadata"]["name"]
        async with slots:
            try:
                host, port = agents.endpoint(node)
                shown = f"[{host}]" if ":" in host else host
                url = f"https://{shown}:{port}/metrics/resource"
                async with self._core.agents.session().get(url, timeout=_TIMEOUT) as answer:
                    if answer.status != 200:
                        raise ValueError(f"status {answer.status}")
                    text = (await answer.read()).decode()
                self.usage.take(name, exposition.parse(text, self._core.clock.now()))
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
                log.info("node does not tell its use", node=name, error=str(error) or repr(error))
            except status.ApiError as error:
                log.debug("node cannot be asked yet", node=name, error=error.message)

    def _believe(self, fakes: set[str], pods: Cache) -> None:
        """Take what pods of fake nodes say of themselves."""
        now = self._core.clock.now()
        told: dict[str, dict[ContainerKey, Use]] = {name: {} for name in fakes}
        for cached in pods.list().items:
            if _MARK not in cached.record.value:
                continue
            pod = document.decode(cached.record.value)
            node = (pod.get("spec") or {}).get("nodeName", "")
            if node not in fakes:
                continue
            try:
                told[node] |= scripted.usage(pod, now, self._every_s)
            except ValueError as error:
                log.info("pod's use not understood", pod=pod["metadata"]["name"], error=str(error))
        self.usage.scripted = told
        self.usage.scripted_nodes = {
            name: scripted.total(uses.values(), now, self._every_s) for name, uses in told.items()
        }
