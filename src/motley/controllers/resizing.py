"""What a pod requests, whether that is to be changed, and how far a change has come.

Pure but for `Ooms`, which remembers, and `evict`, which those who move pods use as well.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from motley.api import quantity, recommendation
from motley.api.autoscalingk8s import HIGHER
from motley.api.views.base import Key
from motley.api.views.pod import Pod
from motley.api.views.verticalautoscaling import EvictionRequirement
from motley.autoscale import vpa
from motley.autoscale.vpa import Bounds, Oom, Recommendation, Settings
from motley.client.rest import Client
from motley.lib.clock import parse_rfc3339

Document = dict[str, Any]

_NAN = float("nan")
_OOM_S = 7 * 86400.0
_OOMS = 1000  # of one autoscaler


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


class Killed(NamedTuple):
    """A container that was ended for lack of memory, and what it has now."""

    pod: str  # uid
    container: str
    at: str
    limit: float
    request: float


def killed(pods: Iterable[Pod]) -> Iterator[Killed]:
    """What the status of pods still tells of it."""
    for pod in pods:
        parts = {part.name: part.resources for part in pod.spec.containers}
        for state in pod.status.container_statuses:
            have = parts.get(state.name)
            if have is None or "memory" not in have.limits:
                continue
            limit = float(quantity.to_int(have.limits["memory"]))
            request = float(quantity.to_int(have.requests.get("memory", "0")))
            for ended in (state.last_state.terminated, state.state.terminated):
                if ended is not None and ended.reason == "OOMKilled" and ended.finished_at:
                    yield Killed(pod.metadata.uid, state.name, ended.finished_at, limit, request)


class Ooms:
    """Remembers how much memory would have been enough, container by container.

    A pod's status tells of a container's last end for as long as the pod lives, beside the limit it
    has *now*. So the limit counts that was there when the end was first seen: else what was raised
    because of it would be raised again at every look. Of an end before this process there is no
    such knowledge; where a recommendation was made already, it was the answer.
    """

    def __init__(self, began: float, settings: Settings) -> None:
        self._began, self._settings = began, settings
        self._seen: dict[Key, dict[tuple[str, str, str], Oom]] = {}

    def forget(self, autoscaler: Key) -> None:
        """The autoscaler is gone."""
        self._seen.pop(autoscaler, None)

    def look(
        self, autoscaler: Key, pods: Iterable[Pod], recommended: Container[str], now: float
    ) -> dict[str, list[Oom]]:
        """By container: what the last days have shown."""
        seen = self._seen.setdefault(autoscaler, {})
        for one in killed(pods):
            known = (one.pod, one.container, one.at)
            if known in seen:
                continue
            at = parse_rfc3339(one.at)
            needed = vpa.enough(one.limit, self._settings)
            if at < self._began and one.container in recommended:
                needed = one.request / (1.0 + self._settings.margin)
            seen[known] = Oom(at, needed)
        oldest = [k for k, oom in seen.items() if oom.at < now - _OOM_S]
        for known in oldest:
            del seen[known]
        found: dict[str, list[Oom]] = {}
        # A container that ends again and again leaves no more than its last ones.
        recent = sorted(seen.items(), key=lambda item: item[1].at)[-_OOMS:]
        self._seen[autoscaler] = dict(recent)
        for (_, container, _), oom in recent:
            found.setdefault(container, []).append(oom)
        return found


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
