"""What a load will be, from what it was: level, damped trend and season, all additive. Pure.

Several models are tried, each with several weights, on the past itself: at every step of its last
third each says what will be a horizon later, and its mean error is what it is chosen by and what
people are shown. The candidates are the last value, the value one season ago, a damped trend, and
Holt-Winters with a season (an hour, a day, or the one that the autocorrelation finds).

Invariant: a forecast is never negative, and says how wrong it was on what is known.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

LEAST_STEPS = 24
_SEASONS_S = (3600.0, 86400.0)
_DAMPING = 0.9
_LEVELS, _TRENDS, _SEASONALS = (0.1, 0.3, 0.6, 0.9), (0.0, 0.05, 0.2), (0.1, 0.3, 0.6)
_TESTED = 1 / 3
_LEAST_CORRELATION = 0.3
_SMALL = 0.05  # of the mean: an error beside almost nothing is compared with this


class Forecast(NamedTuple):
    """The steps to come, and what they are worth."""

    model: str
    season_s: float  # 0: none
    values: tuple[float, ...]
    error: float  # mean absolute error at the horizon, as a share of what was there
    tested: int  # how many times

    @property
    def peak(self) -> float:
        """The highest of what is expected."""
        return max(self.values)

    def __str__(self) -> str:
        season = f" (season {self.season_s / 3600:.3g}h)" if self.season_s else ""
        return f"{self.model}{season}, error {self.error:.0%}"


class _Tried(NamedTuple):
    model: str
    season: int
    error: float
    values: Floats


def forecast(past: Sequence[float | None], step_s: float, horizon_s: float) -> Forecast | None:
    """The next steps up to the horizon; None where too little is known."""
    known = filled(past)
    ahead = max(1, round(horizon_s / step_s))
    tests = max(8, int(len(known) * _TESTED))
    if len(known) < LEAST_STEPS or len(known) < tests + 2 * ahead:
        return None
    tried = [_last(known, ahead, tests), _smoothed(known, ahead, tests, 0)]
    for season in seasons(known, step_s):
        tried.append(_season_ago(known, ahead, tests, season))
        tried.append(_smoothed(known, ahead, tests, season))
    best = min(tried, key=lambda t: t.error)
    values = tuple(max(0.0, float(v)) for v in best.values)
    return Forecast(best.model, best.season * step_s, values, best.error, tests)


def coming(
    past: Sequence[float | None], start: float, step_s: float, until: float, now: float
) -> Forecast | None:
    """The steps from now until then, of a past whose first step began at `start`.

    Its last step is in progress and left out: the little known of it may mislead. What is ahead
    begins where the last whole step that is known ends, and may be over by now.
    """
    whole = past[:-1]
    last = next((i for i in range(len(whole) - 1, -1, -1) if whole[i] is not None), None)
    if last is None:
        return None
    end = start + (last + 1) * step_s
    made = forecast(whole, step_s, math.ceil((until - end) / step_s) * step_s)
    if made is None:
        return None
    over = max(0, int((now - end) // step_s))
    return made._replace(values=made.values[min(over, len(made.values) - 1) :])


def filled(past: Sequence[float | None]) -> Floats:
    """The figures from the first to the last that is known, with straight lines over gaps."""
    values = np.array([np.nan if v is None else v for v in past], dtype=np.float64)
    places = np.flatnonzero(~np.isnan(values))
    if not len(places):
        return values[:0]
    whole = np.arange(places[0], places[-1] + 1)
    return np.interp(whole, places, values[places])


def seasons(known: Floats, step_s: float) -> list[int]:
    """How many steps a season may have: those people live by, and the one that shows. Two whole
    ones must be known besides what is tested."""
    most = int(len(known) * (1 - _TESTED)) // 2 + 1
    found = [round(s / step_s) for s in _SEASONS_S]
    if (shown := _dominant(known, most)) is not None:
        found.append(shown)
    return sorted({s for s in found if 4 <= s <= most})


def _dominant(known: Floats, most: int) -> int | None:
    """The lag at which the past is most like itself, once the trend is taken away."""
    places = np.arange(len(known), dtype=np.float64)
    rest = known - np.polyval(np.polyfit(places, known, 1), places)
    spectrum = np.abs(np.fft.rfft(rest, 2 * len(rest))) ** 2
    alike = np.fft.irfft(spectrum)[: most + 1]
    if most < 4 or alike[0] <= 0:
        return None
    # A biased estimate favours short lags: what is beyond the first dip counts.
    alike = alike / alike[0] * len(rest) / (len(rest) - np.arange(len(alike)))
    below = np.flatnonzero(alike < 0)
    if not len(below) or below[0] + 1 >= len(alike):
        return None
    rest = alike[below[0] :]
    if rest.max() < _LEAST_CORRELATION:
        return None
    # Two seasons are as much alike as one: the first lag about as good as the best is meant, and
    # of the lags around it the best.
    first = int(np.argmax(rest >= 0.9 * rest.max()))
    falls = np.flatnonzero(np.diff(rest[first:]) < 0)
    return int(below[0] + first + (falls[0] if len(falls) else 0))


def _error(said: Floats, was: Floats) -> Floats:
    """The mean error of each row, as a share; rows are weights that were tried."""
    beside = np.maximum(np.abs(was), _SMALL * max(float(np.abs(was).mean()), 1e-12))
    shares: Floats = (np.abs(said - was) / beside).mean(axis=-1)
    return shares


def _last(known: Floats, ahead: int, tests: int) -> _Tried:
    said, was = known[-tests - ahead : -ahead], known[-tests:]
    return _Tried("last value", 0, float(_error(said, was)), np.full(ahead, known[-1]))


def _season_ago(known: Floats, ahead: int, tests: int, season: int) -> _Tried:
    back = -(-ahead // season) * season  # what was not known yet at the origin is not used
    places = np.arange(len(known) - tests, len(known))
    said = known[np.maximum(places - back, 0)]
    coming = len(known) + np.arange(ahead)
    seen = coming - -(-(coming - len(known) + 1) // season) * season
    values = known[np.maximum(seen, 0)]
    return _Tried("season ago", season, float(_error(said, known[-tests:])), values)


def _smoothed(known: Floats, ahead: int, tests: int, season: int) -> _Tried:
    """Additive Holt-Winters with a damped trend; all weights at once, as vectors."""
    seasonals = _SEASONALS if season else (0.0,)
    grid = [(a, b, g) for a in _LEVELS for b in _TRENDS for g in seasonals]
    alpha, beta, gamma = (np.array(column) for column in zip(*grid, strict=True))
    width = max(season, 1)
    level = np.full(len(grid), known[:width].mean())
    trend = np.zeros(len(grid))
    wave = np.tile((known[:width] - known[:width].mean())[:, None], (1, len(grid)))
    sums = np.cumsum(_DAMPING ** np.arange(1, ahead + 1))
    first = len(known) - tests - ahead  # the first origin that is tested
    said = np.zeros((len(grid), tests))
    for t in range(width, len(known)):
        place = t % width
        before, seasonal = level + _DAMPING * trend, wave[place]
        level = alpha * (known[t] - seasonal) + (1 - alpha) * before
        trend = beta * (level - before + _DAMPING * trend) + (1 - beta) * _DAMPING * trend
        if season:
            wave[place] = gamma * (known[t] - level) + (1 - gamma) * seasonal
        if first <= t < len(known) - ahead:
            said[:, t - first] = level + sums[-1] * trend + wave[(t + ahead) % width] * bool(season)
    errors = _error(said, known[-tests:])
    best = int(np.argmin(errors))
    places = (len(known) + np.arange(ahead)) % width
    values = level[best] + sums * trend[best] + wave[places, best] * bool(season)
    name = "Holt-Winters" if season else "damped trend"
    return _Tried(name, season, float(errors[best]), values)
