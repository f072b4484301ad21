"""Broken lines over utilisation: how scores by shape are written, and computed."""

import itertools
from collections.abc import Callable

import msgspec
import numpy as np

from motley.scheduler.contract import MAX_SCORE, Scores


class ShapePoint(msgspec.Struct, forbid_unknown_fields=True):
    """At this utilisation (percent) a node gets this score (0 to 10)."""

    utilization: int
    score: int

    def __post_init__(self) -> None:
        if not 0 <= self.utilization <= 100:
            raise ValueError(f"utilization {self.utilization} is not between 0 and 100")
        if not 0 <= self.score <= 10:
            raise ValueError(f"score {self.score} is not between 0 and 10")


Shape = tuple[ShapePoint, ...]


def check(shape: Shape) -> None:
    """Raises ValueError for a shape that is no line."""
    points = [point.utilization for point in shape]
    if not points or any(a >= b for a, b in itertools.pairwise(points)):
        raise ValueError("shape must have at least one point, sorted by utilization")


def broken_line(shape: Shape) -> Callable[[Scores], Scores]:
    """From utilisation in percent to a score, 0 to 100, in whole numbers."""
    at = np.array([point.utilization for point in shape], np.float64)
    scores = np.array([point.score * MAX_SCORE / 10 for point in shape], np.float64)

    def score(percent: Scores) -> Scores:
        if len(at) == 1:
            return np.full_like(percent, scores[0])
        high = np.clip(np.searchsorted(at, percent), 1, len(at) - 1)
        low = high - 1
        slope = (scores[high] - scores[low]) * (percent - at[low]) / (at[high] - at[low])
        line = scores[low] + np.trunc(slope)
        line = np.where(percent <= at[0], scores[0], line)
        return np.where(percent > at[-1], scores[-1], line)

    return score
