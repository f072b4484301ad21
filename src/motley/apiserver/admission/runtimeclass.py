"""RuntimeClass: what running under another runtime costs, and where such pods can go."""

from typing import Any

from motley.api import amounts
from motley.apiserver.admission.change import Change, interest
from motley.apiserver.admission.lookup import Lookup, kind_of

Document = dict[str, Any]


class RuntimeClass:
    """Adds the class's overhead, node selector and tolerations to its pods."""

    name = "RuntimeClass"
    interests = (interest("create", "pods"),)

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._kind = kind_of("node.k8s.io", "runtimeclasses")

    async def mutate(self, change: Change) -> None:
        """Complete a pod that names a class; 403 when there is no such class."""
        spec = change.spec
        if spec is None or not spec.get("runtimeClassName"):
            return
        name = str(spec["runtimeClassName"])
        found = await self._lookup.get(self._kind, "", name)
        if found is None:
            raise change.forbidden(f'pod rejected: RuntimeClass "{name}" not found')
        problem = set_overhead(spec, found) or set_scheduling(spec, found)
        if problem:
            raise change.forbidden(problem)

    async def validate(self, change: Change) -> None:
        """Overhead comes from a class, never from the pod's author."""
        spec = change.spec
        if spec is not None and spec.get("overhead") and not spec.get("runtimeClassName"):
            raise change.forbidden(
                "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
            )


def set_overhead(spec: Document, runtime_class: Document) -> str:
    """Give the pod the class's overhead; what is wrong with one it had."""
    fixed = (runtime_class.get("overhead") or {}).get("podFixed") or {}
    have = spec.get("overhead")
    if have and _nanos(have) != _nanos(fixed):
        return "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
    if fixed:
        spec["overhead"] = dict(fixed)
    return ""


def _nanos(listed: Document) -> dict[str, int]:
    return {name: amount.nano for name, amount in amounts.read(listed).items()}


def set_scheduling(spec: Document, runtime_class: Document) -> str:
    """Send the pod where the runtime is; a selector that disagrees is refused."""
    scheduling = runtime_class.get("scheduling") or {}
    selector = dict(spec.get("nodeSelector") or {})
    for label, value in sorted((scheduling.get("nodeSelector") or {}).items()):
        if selector.get(label, value) != value:
            return (
                f"conflict: runtimeClass.scheduling.nodeSelector[{label}] = {value}; "
                f"pod.spec.nodeSelector[{label}] = {selector[label]}"
            )
        selector[label] = value
    if selector:
        spec["nodeSelector"] = selector
    wanted = [dict(t) for t in scheduling.get("tolerations") or ()]
    if wanted:
        have = list(spec.get("tolerations") or ())
        spec["tolerations"] = [*have, *(t for t in wanted if t not in have)]
    return ""
