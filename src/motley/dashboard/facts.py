"""What documents of the API say, in numbers and words. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from motley.api import quantity
from motley.lib.clock import parse_rfc3339

Document = dict[str, Any]
Amounts = dict[str, float]

RESOURCES = ("cpu", "memory")
SPEED = "hice.kj"
ESTIMATED = "motley.io/estimated-speed"


def amount(text: object) -> float:
    """A quantity in cores, bytes or pieces; 0 for what is none."""
    try:
        return quantity.quantity(str(text)).nano / 1e9
    except ValueError:
        return 0.0


def amounts(listed: Mapping[str, object] | None) -> Amounts:
    """CPU and memory of a list of resources; what is not in it is not in the answer."""
    return {name: amount(listed[name]) for name in RESOURCES if listed and name in listed}


def total(of: Iterable[Amounts]) -> Amounts:
    """The sum."""
    found = dict.fromkeys(RESOURCES, 0.0)
    for one in of:
        for name, value in one.items():
            found[name] += value
    return found


def requested(pod: Document) -> Amounts:
    """What a pod holds of its node, as the scheduler counts it."""
    spec = pod.get("spec") or {}
    running = [_resources(c, "requests") for c in spec.get("containers") or ()]
    most = dict.fromkeys(RESOURCES, 0.0)
    for container in spec.get("initContainers") or ():
        own = _resources(container, "requests")
        if container.get("restartPolicy") == "Always":
            running.append(own)
            own = {}
        beside = total([own, *running[len(spec.get("containers") or ()) :]])
        most = {name: max(most[name], beside[name]) for name in RESOURCES}
    whole = total(running)
    over = amounts(spec.get("overhead"))
    return {name: max(whole[name], most[name]) + over.get(name, 0.0) for name in RESOURCES}


def limits(pod: Document) -> Amounts:
    """What the containers of a pod may take together; nothing where one of them has no limit."""
    listed = [_resources(c, "limits") for c in (pod.get("spec") or {}).get("containers") or ()]
    return {n: sum(one[n] for one in listed) for n in RESOURCES if all(n in one for one in listed)}


def _resources(container: Document, kind: str) -> Amounts:
    return amounts((container.get("resources") or {}).get(kind))


def is_over(pod: Document) -> bool:
    """Whether a pod has ended for good and holds nothing any more."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def speed(node: Document) -> str:
    """A node's speed as labelled, or as estimated; empty where nothing is known."""
    metadata = node.get("metadata") or {}
    labelled = (metadata.get("labels") or {}).get(SPEED)
    estimated = (metadata.get("annotations") or {}).get(ESTIMATED)
    return labelled or (f"≈ {estimated}" if estimated else "")


def condition(document: Document, kind: str) -> Document:
    """A condition of an object; empty without it."""
    listed = (document.get("status") or {}).get("conditions") or ()
    return next((c for c in listed if c.get("type") == kind), {})


def since(moment: object, now: float) -> float | None:
    """Seconds since a time that an object gives; None where it gives none."""
    if not isinstance(moment, str) or not moment:
        return None
    try:
        return max(0.0, now - parse_rfc3339(moment))
    except ValueError:
        return None


def seen(event: Document) -> str:
    """When an event was last seen, in the API's own words."""
    series = event.get("series") or {}
    metadata = event.get("metadata") or {}
    found = (
        series.get("lastObservedTime")
        or event.get("lastTimestamp")
        or event.get("eventTime")
        or metadata.get("creationTimestamp")
    )
    return str(found or "")


def times(event: Document) -> int:
    """How often it was seen."""
    return int((event.get("series") or {}).get("count") or event.get("count") or 1)


def used(metrics: Document) -> Amounts:
    """Of a NodeMetrics, or of all containers of a PodMetrics."""
    if "containers" in metrics:
        return total(amounts(c.get("usage")) for c in metrics["containers"])
    return amounts(metrics.get("usage"))


def by_name(listing: Document) -> dict[tuple[str, str], Document]:
    """The items of a list by namespace and name."""
    found = {}
    for item in listing.get("items") or ():
        metadata = item.get("metadata") or {}
        found[metadata.get("namespace", ""), metadata.get("name", "")] = item
    return found


def summed(item: Document, figure: str) -> list[float | None]:
    """A figure of a usage history, all containers together; None where nothing was measured."""
    lines: Sequence[Sequence[float | None]] = [s.get(figure) or () for s in item.get("series", ())]
    return [
        None if all(v is None for v in step) else sum(v for v in step if v is not None)
        for step in zip(*lines, strict=True)
    ]
