"""All that is known of images, in one place, and what happens while one is not known.

An image that nobody knows is looked up, here or by the cluster's controllers, and the pods that
need it wait: not longer than they are told to, and not again for the same image. Whoever learns
something tells the queue, so a waiting pod is tried the moment its image is known.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence

from motley.api.views.pod import Pod
from motley.client.rest import Client
from motley.lib.clock import SYSTEM, Clock
from motley.registry.resolver import Resolution
from motley.registry.settings import Registries
from motley.scheduler import events
from motley.scheduler.feed import Feed
from motley.scheduler.imagelookup import ImageLookup
from motley.scheduler.imagemaps import ImageMaps
from motley.scheduler.images import ImageArchitectures, Variants

__all__ = ["KnownImages", "Unknown", "Variants"]

_MOST = 4096


class Unknown(Exception):
    """An image is being looked up; the text is what the pod's event says."""


class KnownImages:
    """The tables, objects and look-ups of one profile."""

    def __init__(
        self,
        tables: Sequence[ImageArchitectures],
        *,
        registries: Registries | None = None,
        wait_s: float = 0.0,
        clock: Clock = SYSTEM,
    ) -> None:
        self._tables = tables
        self._maps = ImageMaps()
        self._lookup = ImageLookup(registries, clock=clock) if registries is not None else None
        self._wait_s = wait_s
        self._clock = clock
        self._since: OrderedDict[str, float] = OrderedDict()  # image → first missed
        self._waiting: set[str] = set()
        self._begun = asyncio.Event()
        self._changed: Callable[[], None] = lambda: None

    @property
    def has_resolver(self) -> bool:
        """Does somebody look unknown images up?"""
        return self._lookup is not None or self._maps.has_resolver

    def follow(self, feed: Feed) -> None:
        """Read ImageMap objects, and tell the queue what was learnt."""
        self._changed = lambda: feed.happened(events.ImageMapChanged())
        self._maps.follow(feed)

    async def run(self, client: Client) -> None:
        """Until cancelled: look up, and wake pods that have waited long enough."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._end_waits())
            if self._lookup is not None:
                group.create_task(self._lookup.run(client, self._changed))

    def variants(self, image: str) -> Variants | None:
        """What somebody knows, or has guessed after asking; None: nobody has."""
        known = self._maps.known(image)
        if known is not None and known.is_by_hand:
            return known.variants
        for table in self._tables:
            variants = table.variants(image)
            if variants is not None:
                return variants
        return known.variants if known is not None else None

    def look_up(self, image: str, pod: Pod) -> Variants | None:
        """What asking has found; None: the wait is over. Raises Unknown while it is not."""
        if not self.has_resolver:
            return None
        found = self._lookup.want(image, pod) if self._lookup is not None else None
        if found is not None:
            return _variants(image, found)
        now = self._clock.monotonic()
        since = self._since.setdefault(image, now)
        if len(self._since) > _MOST:
            self._since.popitem(last=False)
        if now < since + self._wait_s:
            self._waiting.add(image)
            self._begun.set()
            raise Unknown(f'looking up which architectures image "{image}" is built for')
        return None

    async def _end_waits(self) -> None:
        while True:
            await self._begun.wait()
            self._begun.clear()
            while self._waiting:
                now = self._clock.monotonic()
                over = {image for image in self._waiting if self._ends(image) <= now}
                self._waiting -= over
                if over:
                    self._changed()
                else:
                    await self._clock.sleep(min(map(self._ends, self._waiting)) - now)

    def _ends(self, image: str) -> float:
        return self._since.get(image, 0.0) + self._wait_s


def _variants(image: str, found: Resolution) -> Variants:
    return {platform: image for platform in found.platforms}
