"""The quality-of-service class of a pod: how hard the node defends it when resources run out.

Guaranteed: every container has limits for CPU and memory, and requests equal to them.
BestEffort: no container asks for anything. Burstable: all others.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from motley.api import quantity

_COMPUTE = ("cpu", "memory")


def qos_class(pod: Mapping[str, Any]) -> str:
    """The class of a pod; quantities that cannot be read count as absent."""
    spec = pod.get("spec") or {}
    asks = False
    guaranteed = True
    for resources in _resources(spec):
        requests = _amounts(resources.get("requests"))
        limits = _amounts(resources.get("limits"))
        asks = asks or bool(requests or limits)
        guaranteed = guaranteed and (
            set(limits) == set(_COMPUTE)
            and all(requests.get(name, limits[name]) == limits[name] for name in _COMPUTE)
        )
    if not asks:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _resources(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    pod_level = spec.get("resources")
    if pod_level:  # resources of the whole pod stand for those of its containers
        yield pod_level
        return
    for field in ("containers", "initContainers"):
        for container in spec.get(field) or ():
            yield container.get("resources") or {}


def _amounts(resources: Mapping[str, Any] | None) -> dict[str, int]:
    found = {}
    for name in _COMPUTE:
        try:
            amount = quantity.quantity((resources or {}).get(name, "0")).nano
        except ValueError:
            continue
        if amount:
            found[name] = amount
    return found
