"""Exponential back-off with full jitter.

Many clients that fail together must not come back together: the wait is drawn from the upper
half of the exponential step, so it grows and still spreads.
"""

from dataclasses import dataclass, field
from random import Random


@dataclass
class Backoff:
    """Waits of one retry loop; `reset()` after a success."""

    base_s: float = 0.1
    cap_s: float = 30.0
    rng: Random = field(default_factory=lambda: Random())  # late, so that a test may seed it
    attempt: int = 0

    def next(self) -> float:
        """Seconds to wait before the next attempt."""
        step: float = min(self.cap_s, self.base_s * 2 ** min(self.attempt, 32))
        self.attempt += 1
        return step * (0.5 + 0.5 * self.rng.random())

    def reset(self) -> None:
        """Start again from the base after a success."""
        self.attempt = 0
