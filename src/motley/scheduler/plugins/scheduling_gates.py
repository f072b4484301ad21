"""SchedulingGates: a pod with gates waits until somebody has removed them all."""

from motley.scheduler import contract
from motley.scheduler.contract import PodInfo, Reject


class SchedulingGates:
    """Hold gated pods back from the queue."""

    name = "SchedulingGates"
    Args = contract.NoArgs

    def __init__(self, args: contract.NoArgs, handle: contract.Handle) -> None: ...

    def pre_enqueue(self, pod: PodInfo) -> Reject | None:
        """None once there is no gate left."""
        if not pod.gates:
            return None
        return Reject(f"waiting for scheduling gates: [{' '.join(pod.gates)}]")


_: contract.Made[contract.PreEnqueuePlugin] = SchedulingGates
