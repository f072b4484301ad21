"""TaintNodesByCondition: a new node takes no pods before it has said that it is ready.

The node lifecycle controller takes the taint off once the node's conditions allow it.
"""

from motley.apiserver.admission.change import Change, interest

NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


class TaintNodesByCondition:
    """Taints new nodes."""

    name = "TaintNodesByCondition"
    interests = (interest("create", "nodes"),)

    async def mutate(self, change: Change) -> None:
        """Add the taint that the node does not have yet."""
        if change.new is None:
            return
        spec = change.new.setdefault("spec", {})
        taints = spec.get("taints") or []
        if not any(
            t.get("key") == NOT_READY["key"] and t.get("effect") == NOT_READY["effect"]
            for t in taints
        ):
            spec["taints"] = [*taints, dict(NOT_READY)]
