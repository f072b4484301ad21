"""Pods whose resources are being changed, counted for what their node has promised them.

A resize is a wish until the node's agent grants it. Until then a pod that shrinks still has what it
had, and one that grows is to have it soon, so the larger of both counts. What the agent calls
infeasible never happens there: what was granted counts, or whoever may resize a pod could close a
node for all others by wishing for more than it has.
"""

import msgspec

from motley.api import quantity
from motley.api.views.pod import Container, ContainerStatus, Pod, ResourceList

_NAMES = ("cpu", "memory")  # what can be resized


def as_counted(pod: Pod) -> Pod:
    """The pod with the requests that count on its node; itself where these are its own."""
    status = pod.status
    if not pod.spec.node_name or not status.container_statuses:
        return pod
    listed = (*status.container_statuses, *status.init_container_statuses)
    told = {one.name: one for one in listed if one.allocated_resources or one.resources}
    if not told:
        return pod
    pending = status.condition("PodResizePending")
    is_infeasible = pending is not None and pending.reason == "Infeasible"
    spec = pod.spec
    containers, inits = (
        [_counted(c, told.get(c.name), is_infeasible) for c in part]
        for part in (spec.containers, spec.init_containers)
    )
    same = all(a is b for a, b in zip(containers, spec.containers, strict=True))
    if same and all(a is b for a, b in zip(inits, spec.init_containers, strict=True)):
        return pod
    changed = msgspec.structs.replace(spec, containers=containers, init_containers=inits)
    return msgspec.structs.replace(pod, spec=changed)


def _counted(container: Container, told: ContainerStatus | None, is_infeasible: bool) -> Container:
    if told is None:
        return container
    wanted = container.resources.requests
    counted: ResourceList = {}
    for name in _NAMES:
        has = told.resources.requests.get(name) if told.resources is not None else None
        held = [amount for amount in (told.allocated_resources.get(name), has) if amount]
        asked = wanted.get(name)
        if asked is None or all(amount == asked for amount in held):
            continue  # as nearly always, to the letter
        most = max(held if is_infeasible else [asked, *held], key=quantity.parse)
        if quantity.parse(most) != quantity.parse(asked):
            counted[name] = most
    if not counted:
        return container
    counted = {**wanted, **counted}
    resources = msgspec.structs.replace(container.resources, requests=counted)
    return msgspec.structs.replace(container, resources=resources)
