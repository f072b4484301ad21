"""What `autoscale.rebalance` decides by, from objects of the cluster and measurements.

The controller reads the objects from informers, `motley rebalance` from lists; both come to the
same plan. Pure but for `more`, which both read.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from motley.api import amounts, overcommit, quantity, status
from motley.api.selectors import Selector
from motley.api.views.base import Object
from motley.api.views.core import Node
from motley.api.views.motley import ImageMap
from motley.api.views.pod import Pod
from motley.api.views.policy import PodDisruptionBudget
from motley.api.views.storage import PersistentVolume
from motley.autoscale import rebalance
from motley.autoscale.rebalance import Amount, Plan, Settings
from motley.client.rest import Client
from motley.controllers import nodespeed
from motley.controllers.placement import Placement
from motley.controllers.topowner import Owner
from motley.lib import journal

log = journal.get(__name__)
T = TypeVar("T", bound=Object)

METRICS = "/apis/metrics.k8s.io/v1beta1"
NEVER = "motley.io/rebalance"  # with the value `never`: leave this pod alone
SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
_MIRROR = "kubernetes.io/config.mirror"


@dataclass(frozen=True)
class Seen:
    """One look at the cluster."""

    nodes: Sequence[Node]
    pods: Sequence[Pod]
    budgets: Sequence[PodDisruptionBudget]
    node_use: Mapping[str, Amount]
    pod_use: Mapping[tuple[str, str], Amount]
    volumes: Sequence[PersistentVolume] | None = ()  # None: nobody may tell them
    images: Sequence[ImageMap] = ()


async def more(client: Client) -> tuple[list[PersistentVolume] | None, list[ImageMap]]:
    """The volumes and the images of a cluster, as far as it has them and they may be read."""
    images = await _listed(client, ImageMap)
    return await _listed(client, PersistentVolume), images or []


async def _listed(client: Client, cls: type[T]) -> list[T] | None:
    try:
        return (await client.list(cls)).items
    except (status.NotFound, status.Forbidden) as error:
        log.debug("not everything is known of where pods can go", error=error.message)
        return None


def uses(answer: Any) -> dict[tuple[str, str], Amount]:
    """By namespace and name, from a list of metrics; what cannot be read is left out."""
    found = {}
    items = answer.get("items") if isinstance(answer, dict) else None
    for item in items if isinstance(items, list) else ():
        try:
            parts = item.get("containers") or [item]
            cpu = sum(quantity.quantity(p["usage"]["cpu"]).nano for p in parts) / 1e9
            memory = sum(quantity.quantity(p["usage"]["memory"]).nano for p in parts) / 1e9
            metadata = item["metadata"]
            found[metadata.get("namespace", ""), metadata["name"]] = Amount(cpu, memory)
        except (AttributeError, LookupError, TypeError, ValueError):
            continue
    return found


def plan(
    seen: Seen,
    owner: Callable[[Pod], Owner | None],
    settings: Settings,
    rested: Mapping[str, float],
    now: float,
) -> Plan:
    """What to move; nodes and pods that nothing is known of take no part."""
    nodes = {n.metadata.name: n for n in seen.nodes}
    placed = [p for p in seen.pods if p.spec.node_name in nodes and not p.is_terminal]
    pods = {f"{p.metadata.namespace}/{p.metadata.name}": p for p in placed}
    requested: dict[str, Amount] = {}
    for pod in placed:
        name = pod.spec.node_name
        requested[name] = requested.get(name, rebalance.NOTHING).plus(_requests(pod))
    budgets: dict[str, list[tuple[str, Selector]]] = {}
    for budget in seen.budgets:
        listed = budgets.setdefault(budget.metadata.namespace, [])
        listed.append((_name(budget), Selector.of(budget.spec.selector)))
    placement = Placement(seen.nodes, placed, owner, seen.volumes, seen.images)
    known = [
        rebalance.Node(
            name,
            _amount(overcommit.reported_by(node)),
            seen.node_use[name],
            requested.get(name, rebalance.NOTHING),
            nodespeed.known(node),
            node.is_ready and not node.spec.unschedulable,
            _amount(node.status.allocatable),
        )
        for name, node in nodes.items()
        if name in seen.node_use
    ]
    movable = [
        _pod(pod, use, owner(pod), budgets, placement)
        for pod in placed
        if (use := seen.pod_use.get((pod.metadata.namespace, pod.metadata.name))) is not None
    ]

    def fits(pod: rebalance.Pod, node: rebalance.Node) -> str:
        return placement.why_not(pods[pod.key], nodes[node.name])

    allowed = {_name(b): b.status.disruptions_allowed for b in seen.budgets}
    return rebalance.plan(known, movable, allowed, settings, rested, now, fits)


def _pod(
    pod: Pod,
    use: Amount,
    owner: Owner | None,
    budgets: Mapping[str, Iterable[tuple[str, Selector]]],
    placement: Placement,
) -> rebalance.Pod:
    covering = [
        name
        for name, selector in budgets.get(pod.metadata.namespace, ())
        if selector.matches(pod.metadata.labels)
    ]
    return rebalance.Pod(
        pod.metadata.namespace,
        pod.metadata.name,
        pod.spec.node_name,
        use,
        _requests(pod),
        f"{owner.kind}/{owner.name}" if owner is not None else "",
        pod.spec.priority or 0,
        tuple(covering),
        _objection(pod) or placement.objection(pod),
    )


def _objection(pod: Pod) -> str:
    annotations = pod.metadata.annotations
    if _MIRROR in annotations:
        return "it is a static pod of its node"
    if annotations.get(NEVER) == "never":
        return f"its annotation {NEVER} says never"
    if annotations.get(SAFE) == "false":
        return f"its annotation {SAFE} says false"
    if pod.metadata.deletion_timestamp is not None:
        return "it is being deleted"
    if pod.status.phase != "Running":
        return "it does not run yet"
    local = [v.name for v in pod.spec.volumes if v.empty_dir is not None or v.host_path is not None]
    if local and annotations.get(SAFE) != "true":
        return f"it keeps data on its node (volume {local[0]}); {SAFE}: true allows to move it"
    return ""


def _requests(pod: Pod) -> Amount:
    wanted = amounts.of_pod(msgspec.to_builtins(pod.spec), "requests")
    cpu, memory = (wanted[n].nano / 1e9 if n in wanted else 0.0 for n in rebalance.RESOURCES)
    return Amount(cpu, memory)


def _amount(listed: Mapping[str, Any]) -> Amount:
    cpu, memory = (quantity.quantity(listed.get(n, "0")).nano / 1e9 for n in rebalance.RESOURCES)
    return Amount(cpu, memory)


def _name(budget: PodDisruptionBudget) -> str:
    return f"{budget.metadata.namespace}/{budget.metadata.name}"
