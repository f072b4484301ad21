"""The use of pods that do not exist, told by an annotation. Pure.

Fake nodes run nothing, so nothing can be measured there. A pod on one says itself what it uses:
`fake.motley.io/usage: cpu=250m,memory=64Mi`, shared evenly by its containers.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from motley.api import quantity
from motley.metrics.exposition import ContainerKey
from motley.metrics.usage import Use

Document = dict[str, Any]

NODE_ANNOTATION = "motley.io/fake"
ANNOTATION = "fake.motley.io/usage"


def is_fake(node: Mapping[str, Any]) -> bool:
    """Is this node one that only plays to exist?"""
    annotations = (node.get("metadata") or {}).get("annotations") or {}
    return annotations.get(NODE_ANNOTATION) == "true"


def usage(pod: Document, now: float, window_s: float) -> dict[ContainerKey, Use]:
    """What a running pod says it uses, by container. Raises ValueError for an annotation that is
    not `name=quantity,…`."""
    metadata = pod["metadata"]
    text = (metadata.get("annotations") or {}).get(ANNOTATION)
    names = [c["name"] for c in (pod.get("spec") or {}).get("containers") or ()]
    if text is None or not names or (pod.get("status") or {}).get("phase") != "Running":
        return {}
    amounts = {"cpu": "0", "memory": "0"}
    for part in text.split(","):
        name, equals, amount = part.strip().partition("=")
        if name not in amounts or not equals:
            raise ValueError(f"{ANNOTATION}: {part!r} is not cpu=QUANTITY or memory=QUANTITY")
        amounts[name] = amount
    cpu_nano = quantity.quantity(amounts["cpu"]).nano // len(names)
    memory_bytes = quantity.to_int(amounts["memory"]) // len(names)
    told = Use(now, window_s, cpu_nano, memory_bytes)
    namespace, pod_name = metadata["namespace"], metadata["name"]
    return {ContainerKey(namespace, pod_name, name): told for name in names}


def total(uses: Iterable[Use], now: float, window_s: float) -> Use:
    """What a fake node uses: what its pods say together."""
    listed = list(uses)
    cpu_nano = sum(u.cpu_nano for u in listed)
    return Use(now, window_s, cpu_nano, sum(u.memory_bytes for u in listed))
