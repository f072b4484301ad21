"""`pods/ephemeralcontainers`: containers added to a pod that runs, to look at it.

They can be added, never changed or taken away (`api.validation.ephemeral` says so); the rest of
the pod stays as it is, whatever the body holds.
"""

from typing import Any

Document = dict[str, Any]


def narrow(new: Document, old: Document, now: str) -> Document:
    """The stored pod with the ephemeral containers of the new one."""
    spec = dict(old.get("spec") or {})
    spec.pop("ephemeralContainers", None)
    if wanted := (new.get("spec") or {}).get("ephemeralContainers"):
        spec["ephemeralContainers"] = wanted
    return {**old, "spec": spec}
