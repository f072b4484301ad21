"""How many generic pods wait for a function. Pure.

A warm pod costs memory for as long as it waits, and saves a caller half a second when it is
taken. So there are some where functions were called or made lately, more where pods were taken
quickly one after the other, and none where nothing happens; in all never more than the limit.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

RECENT_S = 600.0
_BURST_S = 30.0


@dataclass
class Demand:
    """What one class of functions in one namespace did lately."""

    active_at: float = float("-inf")  # a function was made or called
    taken_at: list[float] = field(default_factory=list)  # pods that were taken

    def touched(self, now: float) -> None:
        """A function of the class was made or called."""
        self.active_at = max(self.active_at, now)

    def taken(self, now: float) -> None:
        """A pod was taken, or would have been had there been one."""
        self.touched(now)
        self.taken_at = [*[at for at in self.taken_at if at > now - _BURST_S][-100:], now]


def desired(demands: Mapping[str, Demand], now: float, size: int, limit: int) -> dict[str, int]:
    """Warm pods per class: `size` where something happens, up to three times that in a burst."""
    found: dict[str, int] = {}
    left = limit
    for name, demand in sorted(demands.items(), key=lambda item: -item[1].active_at):
        if size <= 0 or now - demand.active_at > RECENT_S:
            found[name] = 0
            continue
        burst = sum(at > now - _BURST_S for at in demand.taken_at)
        found[name] = min(left, max(size, min(burst, 3 * size)))
        left -= found[name]
    return found
