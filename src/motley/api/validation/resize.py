"""Rules for a resize: a pod keeps its class, and asks for cpu and memory as it did before."""

from collections.abc import Iterator
from typing import Any

from motley.api import qos
from motley.api.validation import pod
from motley.api.validation.errors import Document, Errors, forbidden, invalid

_MIRROR = "kubernetes.io/config.mirror"
_RESIZABLE = frozenset({"cpu", "memory"})


def update(new: Document, old: Document) -> Errors:
    """A pod with other resources."""
    wrong = list(pod.pod_spec("spec", new.get("spec") or {}))
    if wrong:
        yield from wrong
        return
    if (old.get("metadata") or {}).get("annotations", {}).get(_MIRROR):
        yield forbidden("", "static pods cannot be resized")
    if ((old.get("spec") or {}).get("os") or {}).get("name") == "windows":
        yield forbidden("", "windows pods cannot be resized")
    before = (old.get("status") or {}).get("qosClass") or qos.qos_class(old)
    if qos.qos_class(new) != before:
        yield invalid("spec", before, "Pod QOS Class may not change as a result of resizing")
    if not is_supported(old):
        yield forbidden("spec", "Pod running on node without support for resize")
    for field, wanted, had in _pairs(new, old):
        yield from _container(f"{field}.resources", wanted, had)


def is_supported(pod_: Document) -> bool:
    """Whether the pod's node can do it: one that can reports what its containers have."""
    for container in (pod_.get("status") or {}).get("containerStatuses") or ():
        if (container.get("state") or {}).get("running") is not None:
            return container.get("resources") is not None
    return True  # nothing runs yet, so nothing is known against it


def _pairs(new: Document, old: Document) -> Iterator[tuple[str, Document, Document]]:
    for part in ("containers", "initContainers"):
        wanted = (new.get("spec") or {}).get(part) or ()
        had = (old.get("spec") or {}).get(part) or ()
        for index, (after, before) in enumerate(zip(wanted, had, strict=True)):
            yield f"spec.{part}[{index}]", after, before


def _container(field: str, new: Document, old: Document) -> Errors:
    wanted, had = new.get("resources") or {}, old.get("resources") or {}
    if wanted == had:
        return
    for part, words in (("requests", "resource requests"), ("limits", "resource limits")):
        after, before = wanted.get(part) or {}, had.get(part) or {}
        if any(name not in after for name in before if name in _RESIZABLE):
            yield forbidden(f"{field}.{part}", f"{words} cannot be removed")
    if _fixed(wanted) != _fixed(had):
        yield forbidden(field, "only cpu and memory resources are mutable")


def _fixed(resources: Document) -> dict[str, Any]:
    """What of the resources a resize may not touch."""
    found: dict[str, Any] = {"claims": resources.get("claims") or []}
    for part in ("requests", "limits"):
        amounts = resources.get(part) or {}
        found[part] = {k: v for k, v in amounts.items() if k not in _RESIZABLE}
    return found
