"""What a workload will use, for whoever asks often: a forecast is made once per step of its past.

The answer is the most that is used from now until then: what was measured last, or the peak that is
expected where that is more. Where too little is known, or the forecast was wrong by more than half
in its back-test, it is what was measured. So who sizes a workload by it alone does no worse than by
reacting, and who adds it to what he goes by never takes a pod away for it.

Invariant: one forecast is made at a time, and so many are remembered, whatever is asked for.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from motley.autoscale import past
from motley.autoscale.past import NoPast, Past, Pasts
from motley.autoscale.predicting import WORST
from motley.lib.clock import Clock

if TYPE_CHECKING:  # NumPy is loaded once there is something to forecast
    from motley.autoscale.forecast import Forecast

_MOST = 2000
_RECENT = ("10m", "30s")  # what was measured last must be this young


class UnknownWorkload(Exception):
    """Nothing was ever measured of it; the message says what was asked for."""


class Wanted(NamedTuple):
    """Of which workload, what, and how far ahead. `quantity` is a field of `Past`."""

    namespace: str
    kind: str
    name: str
    quantity: str
    ahead_s: int
    container: str = ""  # all of them

    def __str__(self) -> str:
        part = f" (container {self.container})" if self.container else ""
        return f"{self.kind} {self.namespace}/{self.name}{part}"


class Expected(NamedTuple):
    """The most from now on, in cores or bytes, and where that comes from."""

    measured: float
    forecast: "Forecast | None"  # none: too little is known

    @property
    def is_trusted(self) -> bool:
        """Is there a forecast, and was it right often enough?"""
        return self.forecast is not None and self.forecast.error <= WORST

    @property
    def value(self) -> float:
        """See the class."""
        if self.forecast is None or not self.is_trusted:
            return self.measured
        return max(self.measured, self.forecast.peak)


class _Made(NamedTuple):
    at: float
    until: float  # when the past is one step longer
    forecast: "Forecast | None"

    def holds(self, now: float) -> bool:
        """Is it still the best that can be said? A clock that was set back has no say."""
        return self.at <= now < self.until


class Expectations:
    """Remembers forecasts for as long as nothing new is known."""

    def __init__(self, pasts: Pasts, clock: Clock, most: int = _MOST) -> None:
        self._pasts, self._clock = pasts, clock
        self._most = most
        self._known: OrderedDict[Wanted, _Made] = OrderedDict()
        self._one = asyncio.Lock()

    async def look(self, wanted: Wanted) -> Expected:
        """What is expected. Raises UnknownWorkload; NoPast where nothing recent is known."""
        of = (wanted.namespace, wanted.kind, wanted.name)
        recent = await self._pasts.workload(*of, *_RECENT, "avg")
        line = past.whole(recent, wanted.quantity, wanted.container)
        if not line:
            raise UnknownWorkload(f"nothing was measured of {wanted}")
        measured = next((v for v in reversed(line) if v is not None), None)
        if measured is None:
            raise NoPast(f"nothing was measured of {wanted} for ten minutes")
        return Expected(measured, await self._forecast(wanted))

    async def _forecast(self, wanted: Wanted) -> "Forecast | None":
        if (made := self._remembered(wanted)) is not None:
            return made.forecast
        async with self._one:
            if (made := self._remembered(wanted)) is not None:  # somebody asked for the same
                return made.forecast
            pasts = await past.longest(self._pasts, wanted.namespace, wanted.kind, wanted.name)
            now = self._clock.now()
            # A week in steps of five minutes takes a tenth of a second: not on the loop.
            made = await asyncio.to_thread(_made, pasts, wanted, now)
            self._known[wanted] = made
            while len(self._known) > self._most:
                self._known.popitem(last=False)
        return made.forecast

    def _remembered(self, wanted: Wanted) -> _Made | None:
        made = self._known.get(wanted)
        if made is None or not made.holds(self._clock.now()):
            return None
        self._known.move_to_end(wanted)
        return made


def _made(pasts: Mapping[str, Past], wanted: Wanted, now: float) -> _Made:
    from motley.autoscale import forecast

    line = past.whole(pasts, wanted.quantity, wanted.container)
    if all(value is None for value in line[:-1]):
        return _Made(now, now, None)
    first = next(iter(pasts.values()))
    until = first.moment(len(line))
    if until <= now:  # asked on the stroke of a step
        until += first.step_s
    made = forecast.coming(line, first.start, first.step_s, until + wanted.ahead_s, now)
    return _Made(now, until, made)
