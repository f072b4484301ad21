"""Priority: the class a pod names becomes the number the scheduler sorts by.

Users name classes, never numbers: a number that differs from its class's is refused. There is at
most one class for pods that name none, and the two system classes always exist.
"""

from typing import Any

from motley.apiserver.admission.change import Change, interest
from motley.apiserver.admission.lookup import Lookup, kind_of

Document = dict[str, Any]

LOWER = "PreemptLowerPriority"

_MOVABLE = (
    "Used for system critical pods that must run in the cluster, but can be moved to another node "
    "if necessary."
)
_FIXED = "Used for system critical pods that must not be moved from their current node."
# Twice the highest value a user may give, and a thousand above it.
SYSTEM_CLASSES: tuple[Document, ...] = (
    {
        "metadata": {"name": "system-cluster-critical"},
        "value": 2_000_000_000,
        "description": _MOVABLE,
        "preemptionPolicy": LOWER,
    },
    {
        "metadata": {"name": "system-node-critical"},
        "value": 2_000_001_000,
        "description": _FIXED,
        "preemptionPolicy": LOWER,
    },
)
_SYSTEM = {c["metadata"]["name"]: c for c in SYSTEM_CLASSES}


class Priority:
    """Resolves priority classes."""

    name = "Priority"
    interests = (
        interest("create update", "pods"),
        interest("create update delete", "scheduling.k8s.io/priorityclasses"),
    )

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._kind = kind_of("scheduling.k8s.io", "priorityclasses")

    async def mutate(self, change: Change) -> None:
        """Set a pod's priority and preemption policy from its class."""
        spec = change.spec
        if change.kind.plural != "pods" or spec is None:
            return
        if change.old is not None:
            keep(spec, change.old.get("spec") or {})
            return
        resolved = await self._class_of(change, spec)
        if resolved is not None:
            spec["priorityClassName"] = resolved["metadata"]["name"]
        problem = settle_priority(spec, resolved)
        if problem:
            raise change.forbidden(problem)

    async def validate(self, change: Change) -> None:
        """One default class at most; system classes stay."""
        if change.kind.plural != "priorityclasses":
            return
        if change.verb == "delete":
            if change.name in _SYSTEM:
                raise change.forbidden("this is a system priority class and cannot be deleted")
            return
        if not (change.new or {}).get("globalDefault"):
            return
        for other in await self._lookup.list(self._kind):
            if other.get("globalDefault") and other["metadata"]["name"] != change.name:
                name = other["metadata"]["name"]
                raise change.forbidden(
                    f"PriorityClass {name} is already marked as default. Only one default can exist"
                )

    async def _class_of(self, change: Change, spec: Document) -> Document | None:
        name = spec.get("priorityClassName")
        if not name:
            defaults = [c for c in await self._lookup.list(self._kind) if c.get("globalDefault")]
            return min(defaults, key=lambda c: int(c.get("value") or 0), default=None)
        found = await self._lookup.get(self._kind, "", str(name)) or _SYSTEM.get(str(name))
        if found is None:
            raise change.forbidden(f"no PriorityClass with name {name} was found")
        return found


def settle_priority(spec: Document, resolved: Document | None) -> str:
    """Write the class's values into the spec; what is wrong with values that were there."""
    value = int((resolved or {}).get("value") or 0)
    policy = str((resolved or {}).get("preemptionPolicy") or LOWER)
    computed = "priority admission controller computed {} from the given PriorityClass name"
    if spec.get("priority") not in (None, value):
        return (
            f"the integer value of priority ({spec['priority']}) must not be provided in pod "
            f"spec; {computed.format(value)}"
        )
    if spec.get("preemptionPolicy") not in (None, policy):
        return (
            f"the string value of PreemptionPolicy ({spec['preemptionPolicy']}) must not be "
            f"provided in pod spec; {computed.format(policy)}"
        )
    spec["priority"] = value
    spec["preemptionPolicy"] = policy
    return ""


def keep(spec: Document, old: Document) -> None:
    """An update that leaves the numbers out does not mean to clear them."""
    for field in ("priority", "preemptionPolicy", "priorityClassName"):
        if spec.get(field) is None and old.get(field) is not None:
            spec[field] = old[field]
