"""VerticalPodAutoscaler: new pods begin with what is recommended for their workload.

What the autoscaler project does by a webhook. A pod has no node yet, so CPU is given in cores of
speed 1; a scheduler that knows speeds, or the controller once the pod runs, does the rest.
"""

from collections.abc import Sequence
from typing import Any

from motley.api import autoscalingk8s, recommendation, scheme
from motley.apiserver.admission.change import Change, interest
from motley.apiserver.admission.limitranger import pod_problems
from motley.apiserver.admission.lookup import Lookup, kind_of
from motley.apiserver.caches import is_custom

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
        self._limits = kind_of("", "limitranges")

    async def mutate(self, change: Change) -> None:
        """Complete a pod of a workload that an autoscaler looks after."""
        spec = change.spec
        owner = _controller(change.new)
        kind = scheme.resource(autoscalingk8s.GROUP, autoscalingk8s.VERSION, autoscalingk8s.PLURAL)
        # A kind of that name that somebody else has defined comes with their own webhook.
        if spec is None or owner is None or kind is None or is_custom(kind):
            return
        autoscalers = await self._lookup.list(kind, change.namespace)
        if not autoscalers:
            return
        top = await self._top(change.namespace, owner)
        # Of several for one target the eldest counts, as for the controller.
        for autoscaler in sorted(autoscalers, key=_age):
            if _is_for(autoscaler, top):
                limits = await self._lookup.list(self._limits, change.namespace)
                apply(change.new or {}, spec, autoscaler, limits)
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


def _age(autoscaler: Document) -> tuple[str, str]:
    metadata = autoscaler.get("metadata") or {}
    return metadata.get("creationTimestamp") or "", metadata.get("name", "")


def apply(
    pod: Document, spec: Document, autoscaler: Document, limits: Sequence[Document] = ()
) -> None:
    """Give the containers their resources, and say so in an annotation. A pod that the namespace's
    LimitRanges would refuse with them stays as it was written: better a small one than none."""
    listed = spec.get("containers") or []
    allowed = [one for limit in limits for one in recommendation.ranges(limit)]
    changed = recommendation.containers(autoscaler, listed, allowed=allowed)
    by_name = {c["name"]: c["resources"] for c in changed}
    given = [
        {**c, "resources": by_name[c["name"]]} if c.get("name") in by_name else c for c in listed
    ]
    if any(pod_problems({**spec, "containers": given}, limit) for limit in limits):
        return
    spec["containers"] = given
    if changed:
        name = autoscaler["metadata"]["name"]
        text = f"Pod resources updated by {name}: {', '.join(sorted(by_name))}"
        pod["metadata"].setdefault("annotations", {})[ANNOTATION] = text
