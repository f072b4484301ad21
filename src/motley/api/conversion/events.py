"""events.k8s.io/v1 and the core group's Event: the same facts under newer names."""

from typing import Any

Document = dict[str, Any]

# New name, old name.
_FIELDS = (
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
)
_TO_CORE = dict(_FIELDS)
_FROM_CORE = {old: new for new, old in _FIELDS}


def to_core(obj: Document) -> Document:
    """As the core group keeps it; the object it is about always shows."""
    found = {_TO_CORE.get(name, name): value for name, value in obj.items()}
    found.setdefault("involvedObject", {})
    return found


def from_core(stored: Document) -> Document:
    """As the newer group shows it."""
    found = {_FROM_CORE.get(name, name): value for name, value in stored.items()}
    if not found.get("reportingController"):
        found.pop("reportingController", None)
    if not found.get("reportingInstance"):
        found.pop("reportingInstance", None)
    found.setdefault("regarding", {})
    return found
