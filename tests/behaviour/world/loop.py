"""An event loop whose time is virtual: when nothing can run, it jumps to the next timer.

Computing takes no time here, only waiting does. So ten minutes of a rollout take as long as the
work in them, and a run gives the same result every time.
Invariant: time moves only when every task waits.
"""

import asyncio
import math
import selectors
from collections.abc import Callable, Coroutine
from typing import Any

BEGINNING = 1_767_225_600.0  # 2026-01-01T00:00:00Z: where the wall clock starts
_TURNS_AT_ONE_MOMENT = 500_000  # a loop that waits for nothing would never end
_NOTHING_LEFT_S = 5.0  # real seconds to wait for a thread before giving up


class Stuck(RuntimeError):
    """Nothing will ever happen again, or too much happens at one moment."""


class _Selector(selectors.DefaultSelector):  # type: ignore[misc,valid-type]
    """Asks for ready files without waiting, and moves the clock instead."""

    loop: "VirtualLoop"

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready: list[tuple[selectors.SelectorKey, int]] = super().select(0)
        if ready or self.loop.is_busy():
            self.loop.turn()
            return ready
        if timeout is None:
            ready = super().select(_NOTHING_LEFT_S)
            if not ready:
                raise Stuck("every task waits and there is no timer")
            return ready
        self.loop.advance(timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its `time()` starts at 0. `before_advance` is called at every moment's end, when all is
    settled and the clock is about to move."""

    def __init__(self) -> None:
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)
        # A timer must not fire early, not even by a nanosecond: who then asks whether it is due is
        # told no, and waits again, for ever.
        self._clock_resolution = 0.0
        self._now = 0.0
        self._turns = 0
        self.before_advance: list[Callable[[], None]] = []

    def time(self) -> float:
        return self._now

    def turn(self) -> None:
        self._turns += 1
        if self._turns > _TURNS_AT_ONE_MOMENT:
            raise Stuck(f"{self._turns} turns of the loop at {self._now:.3f} s")

    def is_busy(self) -> bool:
        return bool(self._ready)

    def advance(self, seconds: float) -> None:
        for hook in list(self.before_advance):
            hook()
        if self._ready:  # a hook gave somebody work at this moment
            return
        self._turns = 0
        # Whole microseconds, so that sums of waits are the same however they are added; but never
        # before the timer, and a hair after it: asyncio fires what is strictly past.
        now = math.ceil((self._now + seconds) * 1e6 - 1e-3) / 1e6
        due = self._scheduled[0].when() if self._scheduled else now
        self._now = math.nextafter(max(now, due, self._now), math.inf)


class VirtualClock:
    """`motley.lib.clock.Clock` on the running virtual loop; its wall clock may be put elsewhere."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def now(self) -> float:
        return BEGINNING + self.monotonic() + self.ahead_s

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)  # noqa: TID251


def run(main: Coroutine[Any, Any, Any]) -> Any:
    """Run `main` in virtual time to its end; a lone error is raised without its task groups."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        try:
            return runner.run(main)
        except BaseExceptionGroup as group:
            error: BaseException = group
            while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
                error = error.exceptions[0]
            raise error from None
