"""The usual ways to bring raw scores to 0…100."""

import numpy as np

from motley.scheduler.contract import MAX_SCORE, Mask, Scores


def by_maximum(scores: Scores, feasible: Mask, *, reverse: bool = False) -> Scores:
    """The highest feasible score becomes 100, the rest in proportion, rounded down.

    `reverse`: the highest becomes 0. All zero: everybody gets the best there is (0, or 100
    in reverse).
    """
    highest = float((scores * feasible).max(initial=0.0))
    if highest == 0:
        return np.full_like(scores, MAX_SCORE if reverse else 0.0)
    scaled: Scores = np.floor(scores * MAX_SCORE / highest)
    return MAX_SCORE - scaled if reverse else scaled
