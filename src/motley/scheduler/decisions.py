"""What the scheduler decided about a pod, and why.

A decision carries everything needed to explain it later without the columns, which have moved
on by then: how many nodes each filter rejected and for which reason, the scores per plugin of
the best nodes, the winner and the runners-up.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from motley.api.views.base import Key
from motley.scheduler.contract import Nomination, Reject


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
    # What PostFilter found where no node fits; None: no plugin was asked.
    post_filter: Nomination | Reject | None = None
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
        if self.refused:
            return f"0/{self.nodes} nodes are available: {self.refused}.{self._said_last}"
        counts: dict[str, int] = {}
        for reasons in self.rejections.values():
            for reason, count in reasons.items():
                counts[reason] = counts.get(reason, 0) + count
        return fit_error(self.nodes, counts) + self._said_last

    @property
    def nomination(self) -> Nomination | None:
        """Where room is being made for the pod."""
        return self.post_filter if isinstance(self.post_filter, Nomination) else None

    @property
    def _said_last(self) -> str:
        match self.post_filter:
            case Nomination(message=said) | Reject(reason=said) if said:
                return f" {said}"
        return ""


def fit_error(nodes: int, counts: Mapping[str, int]) -> str:
    """How many nodes each reason cost, in Kubernetes' words."""
    listed = sorted(f"{count} {reason}" for reason, count in counts.items())
    return f"0/{nodes} nodes are available: {', '.join(listed)}."
