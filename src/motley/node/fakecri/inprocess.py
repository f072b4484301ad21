"""The fake runtime as an object: what an agent in the same process talks to.

No socket and no gRPC, so time may be virtual and a thousand agents fit into one process. Such an
agent also gets `NoCgroups`: nothing runs, so nothing is to be bounded.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from motley.node.cgroups import Cgroups, Hierarchies
from motley.node.cri import containerd_pb2 as api
from motley.node.cri.errors import RuntimeFailure, RuntimeUnavailable
from motley.node.cri.runtime import CALL_S, Runtime
from motley.node.fakecri.services import Services

_NOWHERE = Path("/nonexistent")


def envelope(topic: str, runtime_id: str) -> Any:
    """An event as containerd's stream carries it."""
    told = api.Envelope(topic=topic, namespace="k8s.io")
    told.event.value = api.TaskExit(container_id=runtime_id, id=runtime_id).SerializeToString()
    return told


class FakeRuntime(Runtime):
    """`Runtime` whose calls are answered by `Services`."""

    def __init__(self, services: Services) -> None:
        self.endpoint = "fake"
        self.services = services
        self._seen = {}
        self._addressed = {}

    async def close(self) -> None:
        """There is nothing to close."""

    async def call(
        self, method: str, request: Any, answer: Any, timeout_s: float = CALL_S, **metadata: str
    ) -> Any:
        """One call; whatever takes too long has not answered."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self.services.call(method.rpartition("/")[2], request)
        except TimeoutError:
            raise RuntimeUnavailable(f"{method}: no answer within {timeout_s:g} s") from None

    async def stream(self, method: str, request: Any, answer: Any) -> AsyncIterator[Any]:
        """The one stream there is."""
        if not method.endswith("/Subscribe"):
            raise RuntimeFailure(f"{method} is not simulated")
        async for topic, runtime_id in self.services.engine.events():
            yield envelope(topic, runtime_id)


class NoCgroups(Cgroups):
    """Control groups of containers that do not exist."""

    def __init__(self) -> None:
        super().__init__("fake", Hierarchies(True, {}, (_NOWHERE,)))

    def ensure_pod(self, path: str, requests: Mapping[str, int], limits: Mapping[str, int]) -> None:
        """Nothing runs there."""

    def set_class_shares(self, burstable_milli: int) -> None:
        """Nothing shares anything."""

    def limit_pods(self, allocatable: Mapping[str, int]) -> None:
        """Nothing uses anything."""

    def working_set_bytes(self) -> int:
        """None."""
        return 0
