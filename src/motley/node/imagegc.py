"""Images nobody uses are removed before the disk is full, the longest unused first.

Above the high threshold of its file system images go until the low one is reached; under disk
pressure all unused ones go. Never those a container uses, that the runtime has pinned, the pods'
own sandbox image, or that exist here only (`localhost/…`): they could not be pulled again.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from motley.lib import journal
from motley.lib.clock import Clock
from motley.node.cri.errors import RuntimeFailure
from motley.node.cri.runtime import Runtime
from motley.node.cri.values import Image

log = journal.get(__name__)

ONLY_HERE = "localhost/"


@dataclass(frozen=True, slots=True)
class Limits:
    """The kubelet's --image-gc-high-threshold, --image-gc-low-threshold and
    --minimum-image-ttl-duration."""

    high_percent: int = 85
    low_percent: int = 80
    min_age_s: float = 120.0


@dataclass(slots=True)
class Record:
    """An image, and when it was first and last of use."""

    image: Image
    seen_at: float
    used_at: float


def to_remove(
    records: Iterable[Record], in_use: set[str], excess_bytes: float, now: float, min_age_s: float
) -> list[Image]:
    """Unused images, oldest use first, until they make up for the excess."""
    chosen: list[Image] = []
    for record in sorted(records, key=lambda r: (r.used_at, r.seen_at)):
        if excess_bytes <= 0:
            break
        if record.image.id in in_use or now - record.seen_at < min_age_s or is_kept(record.image):
            continue
        chosen.append(record.image)
        excess_bytes -= record.image.size_bytes
    return chosen


def is_kept(image: Image) -> bool:
    """Must it stay, used or not?"""
    return image.is_pinned or any(tag.startswith(ONLY_HERE) for tag in image.tags)


class ImageCollector:
    """Watches one runtime's images; call `round` now and then."""

    def __init__(self, runtime: Runtime, clock: Clock, limits: Limits) -> None:
        self._runtime = runtime
        self._clock = clock
        self._limits = limits
        self._records: dict[str, Record] = {}

    async def round(self) -> None:
        """Look which images are used; remove some where the disk is too full."""
        in_use = await self._look()
        for directory in await self._runtime.image_directories():
            excess = _excess_bytes(Path(directory), self._limits)
            if excess > 0:
                await self._remove(in_use, excess, self._limits.min_age_s)
                return

    async def remove_unused(self) -> int:
        """Remove every image nobody uses; returns the bytes they had."""
        return await self._remove(await self._look(), float("inf"), 0.0)

    async def _look(self) -> set[str]:
        now = self._clock.now()
        images = await self._runtime.list_images()
        containers = await self._runtime.list_containers()
        used = {c.image_ref or c.image for listed in containers.values() for c in listed}
        used |= {c.image for listed in containers.values() for c in listed}
        used.add(await self._runtime.sandbox_image())
        in_use = {image.id for image in images if used & {image.id, *image.tags, *image.digests}}
        present = {image.id: image for image in images}
        self._records = {
            id_: Record(image, *self._times(id_, now, is_used=id_ in in_use))
            for id_, image in present.items()
        }
        return in_use

    def _times(self, id_: str, now: float, *, is_used: bool) -> tuple[float, float]:
        known = self._records.get(id_)
        seen_at = known.seen_at if known else now
        return seen_at, now if is_used or known is None else known.used_at

    async def _remove(self, in_use: set[str], excess: float, min_age_s: float) -> int:
        chosen: Sequence[Image] = to_remove(
            self._records.values(), in_use, excess, self._clock.now(), min_age_s
        )
        freed = 0
        for image in chosen:
            try:
                await self._runtime.remove_image(image.id)
            except RuntimeFailure as error:  # a container may have begun to use it meanwhile
                log.warning("image not removed", image=image.id, error=error)
                continue
            log.info("image removed", image=next(iter(image.tags), image.id))
            freed += image.size_bytes
        return freed


def _excess_bytes(path: Path, limits: Limits) -> float:
    """How much must go to get from above the high threshold to the low one; 0 when below."""
    try:
        disk = os.statvfs(path)
    except FileNotFoundError:
        return 0.0
    capacity = disk.f_blocks * disk.f_frsize
    used = capacity - disk.f_bavail * disk.f_frsize
    if not capacity or used * 100 < capacity * limits.high_percent:
        return 0.0
    return used - capacity * limits.low_percent / 100
