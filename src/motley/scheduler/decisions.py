"""What the scheduler decided about a pod, and why.

A decision carries everything needed to explain it later without the columns, which have moved
on by then: how many nodes each filter rejected and for which reason, the scores per plugin of
the best nodes, the winner and the runners-up.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from motley.api.views.base import Key


@dataclass(frozen=True, slots=True)
class Ranked:
    """A feasible node with its scores, each already weighted."""

    node: str
    total: float
    scores: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Decision:
    """One cycle's outcome for one pod."""

    pod: Key
    profile: str
    node: str | None
    nodes: int  # how many there were
    feasible: int
    # Filter → reason → nodes it was the first to reject; "" where the pod itself was refused.
    rejections: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    ranking: tuple[Ranked, ...] = ()  # winner first, then runners-up
    refused: str = ""  # a reason that concerns no node in particular
    took_s: float = 0.0

    @property
    def rejected_by(self) -> frozenset[str]:
        """The plugins to be convinced before another try makes sense."""
        return frozenset(self.rejections)

    @property
    def message(self) -> str:
        """The text of a FailedScheduling event, in Kubernetes' words."""
        if self.node is not None:
            return f"Successfully assigned {self.pod} to {self.node}"
        if self.nodes == 0:
            return "no nodes available to schedule pods"
        head = f"0/{self.nodes} nodes are available"
        if self.refused:
            return f"{head}: {self.refused}."
        counts: dict[str, int] = {}
        for reasons in self.rejections.values():
            for reason, count in reasons.items():
                counts[reason] = counts.get(reason, 0) + count
        listed = sorted(f"{count} {reason}" for reason, count in counts.items())
        return f"{head}: {', '.join(listed)}."
