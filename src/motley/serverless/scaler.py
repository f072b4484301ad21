"""How many instances a function needs. Pure: samples and the time in, a number out.

Two windows look at the same samples. The stable one follows the load calmly; the panic one sees a
burst within moments, and while it does, the number only grows. What grew goes back one instance
at a time, with a pause between any two steps, and never below what is asked for: a fall straight to
the minimum would make the next caller wait for a cold start.
"""

import math
from collections import deque
from dataclasses import dataclass

STABLE_S = 30.0
PANIC_S = 1.0  # callers wait while it looks
# The panic window counts when it wants this many times what there is (Knative: 200 %).
_PANIC_RATIO = 2.0
# One step down takes this share of the idle time: ten steps from ten instances to none.
_STEP_SHARE = 0.1
_SHORTEST_STEP_S = 0.5


@dataclass(frozen=True)
class Limits:
    """What the function's author asked for."""

    minimum: int = 0
    maximum: int = 10
    concurrency: int = 4
    rate: int = 0  # calls per second and instance; 0: no matter
    idle_s: float = 60.0


@dataclass(frozen=True)
class Sample:
    """What was seen since the last one: calls under way or waiting (mean), and calls that came."""

    at: float
    took_s: float
    concurrency: float
    arrivals: int


class Scaler:
    """One function's."""

    def __init__(self, limits: Limits, now: float, initial: int = 0) -> None:
        self.limits = limits
        self._samples: deque[Sample] = deque()
        self._current = max(limits.minimum, min(initial, limits.maximum))
        self._stepped = now
        self._busy = now  # when there was last a call

    @property
    def current(self) -> int:
        """The number decided last."""
        return self._current

    def observe(self, sample: Sample) -> None:
        """Take what was seen."""
        self._samples.append(sample)
        oldest = sample.at - max(STABLE_S, PANIC_S)
        while self._samples and self._samples[0].at < oldest:
            self._samples.popleft()
        if sample.concurrency > 0 or sample.arrivals:
            self._busy = sample.at

    def wake(self, now: float) -> int:
        """Somebody waits and nothing is there: one at once, the windows decide on more."""
        self._busy = now
        if self._current < 1:
            self._set(1, now)
        return self._current

    def reset(self, now: float) -> None:
        """Begin anew: what there was is no measure of what there should be."""
        self._samples.clear()
        self._set(self.limits.minimum, now)

    def decide(self, now: float) -> int:
        """The number of instances there should be."""
        limits = self.limits
        # Who wants to be rid of instances soon cannot look back for long.
        stable = self._wanted(now, min(STABLE_S, limits.idle_s))
        panic = self._wanted(now, min(PANIC_S, limits.idle_s))
        wanted = stable
        if panic >= _PANIC_RATIO * max(self._current, 1) or panic > self._current:
            wanted = max(panic, self._current)  # growing, or in panic: nothing is taken away
        if now - self._busy < limits.idle_s:
            wanted = max(wanted, 1 if self._current else 0)
        wanted = max(limits.minimum, min(wanted, limits.maximum))
        if wanted > self._current:
            self._set(wanted, now)
        elif wanted < self._current and now - self._stepped >= self._step_s():
            self._set(self._current - 1, now)
        elif wanted == self._current:
            # A pause counts from the moment there was too much, not from the last change.
            self._stepped = max(self._stepped, now - self._step_s())
        return self._current

    def _wanted(self, now: float, window_s: float) -> int:
        """What the mean of a window asks for; time before the first sample does not count."""
        seen = [s for s in self._samples if s.at > now - window_s]
        span_s = sum(s.took_s for s in seen)
        if span_s <= 0:
            return 0
        calls = sum(s.concurrency * s.took_s for s in seen) / span_s
        wanted = math.ceil(calls / self.limits.concurrency - 0.01)
        if self.limits.rate:
            rate = sum(s.arrivals for s in seen) / max(span_s, 1.0)
            wanted = max(wanted, math.ceil(rate / self.limits.rate - 0.01))
        return wanted

    def _step_s(self) -> float:
        return max(_SHORTEST_STEP_S, self.limits.idle_s * _STEP_SHARE)

    def _set(self, value: int, now: float) -> None:
        self._current = max(self.limits.minimum, min(value, self.limits.maximum))
        self._stepped = now
