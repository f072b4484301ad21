"""The use of nodes, pods and workloads over time: which series there are, and how they are asked.

A workload is what a person made: the Deployment, not its ReplicaSet of the day. Its series live on
when its pods are replaced: the sum over its pods, the largest of them, and how many there were, for
each container. CPU is also kept in cores of speed 1, so that a pod may move between unlike nodes
without its history changing its meaning.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from motley.metrics.history_ring import COARSE, FINE, QUANTITIES, Records, Ring

Floats = npt.NDArray[np.float64]

NODE, POD, WORKLOAD = "node", "pod", "workload"
MOST_POINTS = 11_000  # Prometheus' bound for one answer
_LATEST = 253_370_764_800.0  # the year 9999
_PERCENTILE = re.compile(r"p(\d{1,2}(?:\.\d+)?)")


class Series(NamedTuple):
    """One line of figures."""

    kind: str  # node, pod or workload
    namespace: str
    name: str
    owner: str = ""  # of a workload: its kind, such as Deployment
    container: str = ""

    @property
    def key(self) -> str:
        """As the ring knows it; no part can hold a slash."""
        return "/".join(self)

    @staticmethod
    def matters_less(key: str) -> bool:
        """Pods come and go; what they used is in their workload's series as well."""
        return key.startswith(f"{POD}/")

    @classmethod
    def of(cls, key: str) -> "Series":
        """The series of a key."""
        return cls(*key.split("/"))


class Sample(NamedTuple):
    """Cores, cores of speed 1, bytes; the same of the largest pod; the number of pods."""

    cpu: float
    cpu_normalized: float
    memory: float
    cpu_pod_max: float
    memory_pod_max: float
    pods: float


@dataclass(frozen=True)
class Question:
    """A time, cut into steps, and what to say of each. Raises ValueError where it is none."""

    start: float
    end: float
    step_s: float
    aggregation: str = "avg"

    def __post_init__(self) -> None:
        """See the class."""
        if not self.end > self.start:
            raise ValueError("from must be before to")
        if not (self.start >= 0 and self.end < _LATEST):
            raise ValueError("from and to must be between the years 1970 and 9999")
        if not 0 < self.step_s < math.inf:
            raise ValueError("step must be more than zero, and finite")
        if (self.end - self.start) / self.step_s > MOST_POINTS:
            raise ValueError(f"more than {MOST_POINTS} steps: ask for less time or larger steps")
        if self.aggregation not in ("avg", "max", "min") and (
            _percentile(self.aggregation) is None
        ):
            raise ValueError("aggregation must be avg, max, min or a percentile such as p95")


@dataclass(frozen=True)
class Window:
    """The answer: one figure per step and quantity; NaN where nothing is known."""

    start: float
    step_s: int
    figures: dict[str, Floats]


class History:
    """Writes rounds of samples, and answers questions about them."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring

    def close(self) -> None:
        """Let go of the file."""
        self._ring.close()

    def write(self, at: float, samples: Mapping[Series, Sample]) -> None:
        """Take what was used at a moment."""
        self._ring.write(at, {series.key: sample for series, sample in samples.items()})

    def find(self, kind: str, namespace: str = "", name: str = "", owner: str = "") -> list[Series]:
        """The series of a kind, in order; empty arguments choose all."""
        prefix = f"{kind}/"
        for part in (namespace, name, owner):  # most keys are left out before they are split
            if not part:
                break
            prefix += f"{part}/"
        listed = (Series.of(key) for key in self._ring.listed() if key.startswith(prefix))
        return sorted(
            s
            for s in listed
            if namespace in ("", s.namespace) and name in ("", s.name) and owner in ("", s.owner)
        )

    def read(self, series: Series, question: Question, now: float) -> Window:
        """What is known. The last hour is known every ten seconds, what was before every five
        minutes: a step is never shorter than that."""
        is_recent = question.start >= now - FINE.span_s
        level = FINE if is_recent and question.step_s < COARSE.step_s else COARSE
        step_s = max(1, -(-int(question.step_s) // level.step_s)) * level.step_s
        start = int(question.start) // step_s * step_s
        records = self._ring.read(series.key, level, start, question.end)
        steps = math.ceil((question.end - start) / step_s)  # the one in progress counts as well
        return Window(start, step_s, reduced(records, start, step_s, steps, question.aggregation))


def reduced(
    records: Records, start: int, step_s: int, steps: int, aggregation: str
) -> dict[str, Floats]:
    """One figure per step and quantity. A percentile is that of the means there are."""
    figures = np.full((steps, len(QUANTITIES)), np.nan)
    # Records come in their order: those of one step lie side by side.
    places, firsts = np.unique((records.starts - start) // step_s, return_index=True)
    means = records.means.astype(np.float64)
    if not len(places):
        pass
    elif aggregation == "max":
        figures[places] = np.maximum.reduceat(records.highest, firsts)
    elif aggregation == "min":
        figures[places] = np.minimum.reduceat(means, firsts)
    elif aggregation == "avg":
        counts = records.counts[:, None]
        figures[places] = np.add.reduceat(means * counts, firsts) / np.add.reduceat(counts, firsts)
    else:
        share = _percentile(aggregation) or 0.0
        for place, part in zip(places, np.split(means, firsts[1:]), strict=True):
            figures[place] = np.percentile(part, share, axis=0)
    return {name: figures[:, i] for i, name in enumerate(QUANTITIES)}


def _percentile(text: str) -> float | None:
    matched = _PERCENTILE.fullmatch(text)
    return float(matched[1]) if matched else None
