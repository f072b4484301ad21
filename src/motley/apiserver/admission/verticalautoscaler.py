"""VerticalPodAutoscaler: new pods begin with what is recommended for their workload.

What the autoscaler project does by a webhook. A pod has no node yet, so CPU is given in cores of
speed 1; a scheduler that knows speeds, or the controller once the pod runs, does the rest.
"""

from typing import Any

from motley.api import autoscalingk8s, recommendation, scheme
from motley.apiserver.admission.change import Change, interest
from motley.apiserver.admission.lookup import Lookup, kind_of

Document = dict[str, Any]

ANNOTATION = "vpaUpdates"  # the project's own mark
# Controllers that have controllers of their own.
_BETWEEN = {"ReplicaSet": ("apps", "replicasets"), "Job": ("batch", "jobs")}


class VerticalPodAutoscaler:
    """Sets requests, and limits along with them."""

    name = "VerticalPodAutoscaler"
    interests = (interest("create", "pods"),)

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup

    async def mutate(self, change: Change) -> None:
        """Complete a pod of a workload that an autoscaler looks after."""
        spec = change.spec
        owner = _controller(change.new)
        kind = scheme.resource(autoscalingk8s.GROUP, autoscalingk8s.VERSION, autoscalingk8s.PLURAL)
        if spec is None or owner is None or kind is None:
            return
        autoscalers = await self._lookup.list(kind, change.namespace)
        if not autoscalers:
            return
        top = await self._top(change.namespace, owner)
        for autoscaler in autoscalers:
            if _is_for(autoscaler, top):
                apply(change.new or {}, spec, autoscaler)
                return

    async def _top(self, namespace: str, owner: Document) -> Document:
        where = _BETWEEN.get(owner.get("kind", ""))
        if where is None:
            return owner
        found = await self._lookup.get(kind_of(*where), namespace, owner.get("name", ""))
        return _controller(found) or owner


def _controller(of: Document | None) -> Document | None:
    references = ((of or {}).get("metadata") or {}).get("ownerReferences") or ()
    return next((r for r in references if r.get("controller")), None)


def _is_for(autoscaler: Document, owner: Document) -> bool:
    spec = autoscaler.get("spec") or {}
    mode = (spec.get("updatePolicy") or {}).get("updateMode", "Auto")
    target = spec.get("targetRef") or {}
    is_owner = all(target.get(field) == owner.get(field) for field in ("kind", "name"))
    return mode != "Off" and is_owner


def apply(pod: Document, spec: Document, autoscaler: Document) -> None:
    """Give the containers their resources, and say so in an annotation."""
    listed = spec.get("containers") or []
    changed = recommendation.containers(autoscaler, listed)
    by_name = {c["name"]: c["resources"] for c in changed}
    for container in listed:
        if container.get("name") in by_name:
            container["resources"] = by_name[container["name"]]
    if changed:
        name = autoscaler["metadata"]["name"]
        text = f"Pod resources updated by {name}: {', '.join(sorted(by_name))}"
        pod["metadata"].setdefault("annotations", {})[ANNOTATION] = text
