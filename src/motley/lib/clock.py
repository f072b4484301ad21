"""Time as a parameter: the one module that reads the real clock.

Everything else takes a `Clock`, so that tests and the simulator decide what time it is.
"""

import asyncio
import time
from datetime import UTC, datetime
from functools import lru_cache
from typing import Protocol


class Clock(Protocol):
    """What a component may ask about time."""

    def now(self) -> float:
        """Seconds since the epoch, for timestamps that people and other machines read."""

    def monotonic(self) -> float:
        """Seconds that never go back, for measuring and for deadlines."""

    async def sleep(self, seconds: float) -> None:
        """Give way for this long."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()  # noqa: TID251

    def monotonic(self) -> float:
        """Seconds since some fixed point."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Suspend the calling task."""
        await asyncio.sleep(seconds)  # noqa: TID251


SYSTEM: Clock = SystemClock()


def rfc3339(seconds: float) -> str:
    """`metav1.Time`: whole seconds, UTC, as Kubernetes writes creationTimestamp."""
    return _rfc3339(int(seconds))


@lru_cache(maxsize=64)  # a busy server asks for the same second thousands of times
def _rfc3339(second: int) -> str:
    return _written(second, "seconds")


def rfc3339_micro(seconds: float) -> str:
    """`metav1.MicroTime`: six digits, as Kubernetes writes Lease times."""
    return _written(seconds, "microseconds")


def _written(seconds: float, precision: str) -> str:
    # Not strftime: it writes the year 1 as "1".
    moment = datetime.fromtimestamp(seconds, UTC)
    return f"{moment.replace(tzinfo=None).isoformat(timespec=precision)}Z"


def parse_rfc3339(text: str) -> float:
    """Seconds since the epoch of a Kubernetes timestamp, with or without a fraction.

    Raises ValueError when the text is no timestamp, or one without a time zone.
    """
    if "." in text:  # CRI and Go write nanoseconds; datetime holds six digits
        whole, _, rest = text.partition(".")
        digits = len(rest) - len(rest.lstrip("0123456789"))
        if not digits:  # datetime would let this pass
            raise ValueError(f"{text!r} has no digits in its fraction")
        text = f"{whole}.{rest[: min(digits, 6)]:0<6}{rest[digits:]}"
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return moment.timestamp()
