"""The quality class in a new pod's status: decided last, from the finished resources."""

from motley.api import qos
from motley.apiserver.admission.change import Change, interest


class QosClass:
    """An allocator in the chain's sense: it runs once, when nothing changes the pod any more."""

    name = "QosClass"
    interests = (interest("create", "pods"),)

    async def mutate(self, change: Change) -> None:
        """Set `status.qosClass`."""
        if change.new is not None and change.spec is not None:
            change.new.setdefault("status", {})["qosClass"] = qos.qos_class(change.new)
