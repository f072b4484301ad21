"""extensions/v1beta1 Deployment: today's Deployment with the defaults of its time."""

from typing import Any

Document = dict[str, Any]

_ROLLBACK = "deprecated.deployment.rollback.to"
_NEVER = 2**31 - 1  # how the old version wrote "no limit"


def to_apps(obj: Document) -> Document:
    """As apps/v1 keeps it: a selector from the template's labels where none is given."""
    spec = dict(obj.get("spec") or {})
    metadata = dict(obj.get("metadata") or {})
    rollback = spec.pop("rollbackTo", None)
    if rollback is not None:
        revision = str(rollback.get("revision", 0))
        metadata["annotations"] = {**(metadata.get("annotations") or {}), _ROLLBACK: revision}
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    if not spec.get("selector") and labels:
        spec["selector"] = {"matchLabels": dict(labels)}
    spec.setdefault("revisionHistoryLimit", _NEVER)
    spec.setdefault("progressDeadlineSeconds", _NEVER)
    strategy = dict(spec.get("strategy") or {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        one_at_a_time = {"maxUnavailable": 1, "maxSurge": 1}
        strategy["rollingUpdate"] = one_at_a_time | (strategy.get("rollingUpdate") or {})
    spec["strategy"] = strategy
    return {**obj, "metadata": metadata, "spec": spec}


def from_apps(stored: Document) -> Document:
    """As extensions/v1beta1 shows it."""
    metadata = dict(stored.get("metadata") or {})
    annotations = dict(metadata.get("annotations") or {})
    revision = annotations.pop(_ROLLBACK, None)
    if revision is None:
        return dict(stored)
    metadata["annotations"] = annotations
    if not annotations:
        del metadata["annotations"]
    number = int(revision) if revision.lstrip("-").isdecimal() else 0
    spec = {**(stored.get("spec") or {}), "rollbackTo": {"revision": number}}
    return {**stored, "metadata": metadata, "spec": spec}
