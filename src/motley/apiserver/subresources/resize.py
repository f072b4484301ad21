"""`pods/resize`: other resources for the containers of a pod, and nothing else.

Whatever else the body says is not refused but ignored, as Kubernetes does: a client may send back
the whole pod it read. What a resize may ask for is in `api.validation.resize`.
"""

from typing import Any

Document = dict[str, Any]

_RESIZABLE = ("resources", "resizePolicy")


def narrow(new: Document, old: Document, now: str) -> Document:
    """The stored pod with the resources of the new one."""
    spec, wanted = dict(old.get("spec") or {}), new.get("spec") or {}
    for part in ("containers", "initContainers"):
        if spec.get(part):
            spec[part] = _resized(spec[part], wanted.get(part) or ())
    return {**old, "spec": spec}


def _resized(containers: list[Document], wanted: Any) -> list[Document]:
    by_name = {c.get("name"): c for c in wanted}
    found = []
    for container in containers:
        asked = by_name.get(container.get("name"))
        if asked is not None:
            container = {k: v for k, v in container.items() if k not in _RESIZABLE}
            container |= {k: asked[k] for k in _RESIZABLE if k in asked}
        found.append(container)
    return found
