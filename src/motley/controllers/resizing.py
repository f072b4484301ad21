"""What a pod requests, whether that is to be changed, and how far a change has come.

Pure but for `evict`, which those who move pods use as well.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from motley.api import quantity, recommendation
from motley.api.autoscalingk8s import HIGHER
from motley.api.views.pod import Pod
from motley.api.views.verticalautoscaling import EvictionRequirement
from motley.autoscale import vpa
from motley.autoscale.vpa import Bounds, Recommendation
from motley.client.rest import Client
from motley.lib.clock import parse_rfc3339

Document = dict[str, Any]

_NAN = float("nan")


def containers(pod: Pod) -> list[Document]:
    """Names and resources, as documents."""
    found = []
    for container in pod.spec.containers:
        requests, limits = container.resources.requests, container.resources.limits
        resources = {"requests": dict(requests)} | ({"limits": dict(limits)} if limits else {})
        found.append({"name": container.name, "resources": resources})
    return found


def reason(
    pod: Pod, autoscaler: Document, recommended: Mapping[str, Recommendation], speed: float
) -> str:
    """Why a pod is to be changed, by the bounds that the status shows; empty: it is not."""
    lower = recommendation.targets(autoscaler, "lowerBound")
    upper = recommendation.targets(autoscaler, "upperBound")
    for container in containers(pod):
        name = container["name"]
        made = recommended.get(name)
        if made is None or name not in lower:
            continue
        shown = made._replace(lower=_bounds(lower[name]), upper=_bounds(upper[name]))
        have = recommendation.amounts(container["resources"]["requests"])
        controlled = recommendation.policy(autoscaler, name).resources
        now = Bounds(
            have.get("cpu", 0.0) * speed if "cpu" in controlled else _NAN,
            have.get("memory", 0.0) if "memory" in controlled else _NAN,
        )
        if why := vpa.differs(now, shown):
            return f"{why} (container {name})"
    return ""


def is_worth_eviction(
    pod: Pod, autoscaler: Document, requirements: Sequence[EvictionRequirement], speed: float
) -> bool:
    """Whether the recommendation goes the way that is asked for, as Kubernetes' updater sees it:
    all requirements for one container, of each any resource; always where a request is missing."""
    if not requirements:
        return True
    targets = recommendation.targets(autoscaler)
    for container in containers(pod):
        wanted = targets.get(container["name"])
        if wanted is None:
            continue
        have = recommendation.amounts(container["resources"]["requests"])
        if len(have) < len(recommendation.RESOURCES):
            return True
        now = {**have, "cpu": have["cpu"] * speed}
        if all(_goes_that_way(asked, now, wanted) for asked in requirements):
            return True
    return False


def _goes_that_way(
    asked: EvictionRequirement, now: Mapping[str, float], wanted: Mapping[str, float]
) -> bool:
    higher = asked.change_requirement == HIGHER
    return any(
        wanted[name] > now[name] if higher else wanted[name] < now[name]
        for name in asked.resources
        if name in wanted
    )


def _bounds(listed: Mapping[str, float]) -> Bounds:
    return Bounds(listed.get("cpu", _NAN), listed.get("memory", _NAN))


def stuck(pod: Pod, now: float, patience_s: float) -> str:
    """Why a resize will come to nothing on this node; empty: none waits, or it may yet be done."""
    pending = pod.status.condition("PodResizePending")
    if pending is None or pending.status != "True":
        return ""
    if pending.reason == "Infeasible":
        return "does not fit on its node in the size that is recommended"
    since = pending.last_transition_time
    if since and now - parse_rfc3339(since) > patience_s:
        return f"has waited more than {patience_s:.0f} s to be resized on its node"
    return ""


def ooms(pods: Iterable[Pod], container: str) -> list[float]:
    """The limits at which containers of this name were ended for lack of memory."""
    return list(_ooms(pods, container))


def _ooms(pods: Iterable[Pod], container: str) -> Iterator[float]:
    for pod in pods:
        for state in pod.status.container_statuses:
            ended = state.last_state.terminated or state.state.terminated
            if state.name != container or ended is None or ended.reason != "OOMKilled":
                continue
            for part in pod.spec.containers:
                if part.name == container and "memory" in part.resources.limits:
                    yield float(quantity.to_int(part.resources.limits["memory"]))


async def evict(client: Client, pod: Pod) -> None:
    """Ask for a pod's end as anybody would: budgets are respected. Raises TooManyRequests."""
    name, namespace = pod.metadata.name, pod.metadata.namespace
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
        "deleteOptions": {"preconditions": {"uid": pod.metadata.uid}},
    }
    await client.create_subresource(Pod, name, namespace, "eviction", body)
