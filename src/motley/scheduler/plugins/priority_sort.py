"""PrioritySort: higher priority first, then who waits longest."""

from motley.scheduler import contract
from motley.scheduler.contract import PodInfo


class PrioritySort:
    """Order the queue by priority, then age."""

    name = "PrioritySort"
    Args = contract.NoArgs

    def __init__(self, args: contract.NoArgs, handle: contract.Handle) -> None: ...

    def sort_key(self, pod: PodInfo, queued_at: float) -> tuple[int, float]:
        """Smaller is sooner."""
        return (-pod.priority, queued_at)


_: contract.Made[contract.QueueSortPlugin] = PrioritySort
