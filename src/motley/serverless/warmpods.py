"""The pools of warm pods, kept as full as `pool` says."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from motley.api import status
from motley.api.views.base import Key
from motley.api.views.pod import Pod
from motley.api.views.serverless import Function
from motley.client.informer import Informer
from motley.lib import journal
from motley.lib.clock import Clock
from motley.serverless import objects, pool
from motley.serverless.metrics import Meters
from motley.serverless.starting import Starter

log = journal.get(__name__)

_AFTER_FAILURE_S = 5.0
_SEEN_WITHIN_S = 10.0


class WarmPods:
    """Every class's pool."""

    def __init__(
        self,
        functions: Informer[Function],
        pods: Informer[Pod],
        starter: Starter,
        meters: Meters,
        clock: Clock,
        *,
        size: int,
        limit: int,
        default_image: str,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        delete: Callable[[Key], None],
    ) -> None:
        self._functions = functions
        self._pods = pods
        self._starter = starter
        self._meters = meters
        self._clock = clock
        self._size = size
        self._limit = limit
        self._image = default_image
        self._spawn = spawn
        self._delete = delete
        self._demands: dict[tuple[str, str], pool.Demand] = {}
        self._making: dict[tuple[str, str], int] = {}

    def demand(self, function: Function) -> pool.Demand:
        """What the class of a function did lately."""
        class_ = objects.pool_class(function, self._image)
        return self._demands.setdefault((function.metadata.namespace, class_), pool.Demand())

    def fill(self) -> None:
        """Make warm pods where they are missing, end those that nobody needs."""
        now = self._clock.monotonic()
        classes: dict[tuple[str, str], Function] = {}
        for function in self._functions.items():
            key = (function.metadata.namespace, objects.pool_class(function, self._image))
            classes.setdefault(key, function)
        for gone in [key for key in self._demands if key not in classes]:
            del self._demands[gone]
        names = {f"{ns}/{class_}": (ns, class_) for ns, class_ in self._demands}
        demands = {name: self._demands[key] for name, key in names.items()}
        wanted = pool.desired(demands, now, self._size, self._limit)
        counts: dict[str, int] = {}
        for name, count in wanted.items():
            namespace, class_ = names[name]
            here = self._starter.warm(namespace, class_)
            making = self._making.get((namespace, class_), 0)
            counts[namespace] = counts.get(namespace, 0) + len(here)
            for _ in range(count - len(here) - making):
                self._making[(namespace, class_)] = self._making.get((namespace, class_), 0) + 1
                self._spawn(self._make_warm(classes[(namespace, class_)], (namespace, class_)))
            for pod in here[: max(0, len(here) - count)]:
                self._delete(pod.key)
        for pod in self._pods.items():
            if objects.POOLED not in pod.metadata.labels or pod.metadata.deletion_timestamp:
                continue
            key = (pod.metadata.namespace, pod.metadata.labels.get(objects.CLASS, ""))
            if pod.is_terminal or key not in classes:
                self._delete(pod.key)
        for namespace, number in counts.items():
            self._meters.pooled(namespace, number)

    async def _make_warm(self, function: Function, key: tuple[str, str]) -> None:
        try:
            pod = await self._starter.make(function, pooled=True)
            async with asyncio.timeout(_SEEN_WITHIN_S):  # until our own copy shows it
                while self._pods.get(pod.key) is None:
                    await self._clock.sleep(0.02)
        except (status.ApiError, TimeoutError) as error:
            log.warning("warm pod not made", namespace=key[0], error=str(error))
            await self._clock.sleep(_AFTER_FAILURE_S)
        finally:
            self._making[key] -= 1
