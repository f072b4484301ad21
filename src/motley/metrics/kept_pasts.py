"""The past of workloads out of a keeper at hand, as those who decide by it read it."""

import math
from collections.abc import Mapping

from motley.autoscale.past import NoPast, Past
from motley.lib.clock import Clock
from motley.metrics.history import WORKLOAD, Question
from motley.metrics.history_keeper import Keeper
from motley.metrics.history_ring import QUANTITIES
from motley.metrics.history_times import duration_s


class KeptPasts:
    """See `motley.autoscale.past.Pasts`."""

    def __init__(self, keeper: Keeper, clock: Clock) -> None:
        self._keeper, self._clock = keeper, clock

    async def workload(
        self, namespace: str, kind: str, name: str, back: str, step: str, aggregation: str
    ) -> Mapping[str, Past]:
        """See `motley.autoscale.past.Pasts`."""
        history, now = self._keeper.history, self._clock.now()
        if history is None:
            raise NoPast("the usage history is being opened")
        asked = Question(now - duration_s(back), now, duration_s(step), aggregation)
        found = {}
        for series in history.find(WORKLOAD, namespace, name, kind):
            window = history.read(series, asked, now)
            lines = [
                [None if math.isnan(v) else float(v) for v in window.figures[q]] for q in QUANTITIES
            ]
            found[series.container] = Past(window.start, window.step_s, *lines)
        return found
