"""Unknown images looked up by the scheduler itself, beside its work.

Where no controller of Motley's runs, on any other Kubernetes, the scheduler can ask registries on
its own (`resolve: true`). Scheduling only notes which images it misses; this task finds them
out, tells the queue, and asks again later where a registry failed.
Invariant: at most `_AT_ONCE` look-ups at a time, each image at most one; what nobody has wanted for
an hour is forgotten.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from motley.api.views.pod import Pod
from motley.client.rest import Client
from motley.lib import journal
from motley.lib.backoff import Backoff
from motley.lib.clock import SYSTEM, Clock
from motley.registry import pullsecrets
from motley.registry.resolver import Resolution, Resolver, guess
from motley.registry.settings import Registries

log = journal.get(__name__)

_AT_ONCE = 4
_TICK_S = 1.0
RETRY_S, RETRY_MAX_S = 60.0, 600.0
REFRESH_S = 86400.0  # tags move
_FORGET_S = 3600.0
_MOST = 4096


@dataclass
class _Wanted:
    pod: Pod
    asked_at: float
    due: float
    pauses: Backoff
    running: bool = False
    found: Resolution | None = field(default=None)


class ImageLookup:
    """What is wanted, what is found."""

    def __init__(
        self,
        registries: Registries | None = None,
        *,
        clock: Clock = SYSTEM,
        rng: Random | None = None,
    ) -> None:
        self._registries = registries
        self._clock = clock
        self._rng = rng or Random()
        self._wanted: dict[str, _Wanted] = {}
        self._work = asyncio.Event()

    def want(self, image: str, pod: Pod) -> Resolution | None:
        """What is known of an image; None: not yet. Never waits."""
        now = self._clock.monotonic()
        wanted = self._wanted.get(image)
        if wanted is None:
            if len(self._wanted) >= _MOST:
                return None
            pauses = Backoff(base_s=RETRY_S, cap_s=RETRY_MAX_S, rng=self._rng)
            wanted = self._wanted[image] = _Wanted(pod, now, now, pauses)
            self._work.set()
        wanted.pod, wanted.asked_at = pod, now
        return wanted.found

    async def run(self, client: Client, changed: Callable[[], None]) -> None:
        """Look up what is wanted until cancelled; `changed` is called after each answer."""
        slots = asyncio.Semaphore(_AT_ONCE)
        for wanted in self._wanted.values():
            wanted.running = False  # whatever ran before runs no more
        async with Resolver(self._registries) as resolver, asyncio.TaskGroup() as group:
            group.create_task(self._tick())  # a new image is looked up at once, others in time
            while True:
                self._work.clear()
                for image, wanted in self._due():
                    wanted.running = True
                    look = self._look(image, wanted, client, resolver, slots, changed)
                    group.create_task(look)
                await self._work.wait()

    def _due(self) -> list[tuple[str, _Wanted]]:
        now = self._clock.monotonic()
        for image in [i for i, w in self._wanted.items() if w.asked_at < now - _FORGET_S]:
            if not self._wanted[image].running:
                del self._wanted[image]
        return [(i, w) for i, w in self._wanted.items() if not w.running and w.due <= now]

    async def _tick(self) -> None:
        while True:
            await self._clock.sleep(_TICK_S)
            self._work.set()

    async def _look(
        self,
        image: str,
        wanted: _Wanted,
        client: Client,
        resolver: Resolver,
        slots: asyncio.Semaphore,
        changed: Callable[[], None],
    ) -> None:
        async with slots:
            try:
                secrets = await pullsecrets.of_pod(client, wanted.pod)
                answer = await resolver.resolve(image, secrets)
            except Exception as error:  # one image must not end the look-up of all others
                log.error("look-up failed", exc_info=error, image=image)
                answer = guess(image, repr(error))
        now = self._clock.monotonic()
        wanted.running = False
        if answer.is_certain:
            wanted.pauses.reset()
            wanted.due = now + REFRESH_S
        else:
            wanted.due = now + wanted.pauses.next()
            log.info("image not resolved", image=image, source=answer.source, why=answer.problem)
        if answer.is_certain or wanted.found is None:
            wanted.found = answer  # what was known once stays known while the registry fails
            changed()
