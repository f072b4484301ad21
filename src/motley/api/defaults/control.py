"""Defaults of fair queueing of requests and of claims for devices."""

from typing import Any

Document = dict[str, Any]

# Kubernetes' own: which flow schema comes first, shares, and the shape of its queues.
_PRECEDENCE = 1000
_SHARES = 30
_QUEUING = {"handSize": 8, "queues": 64, "queueLengthLimit": 50}


def flow_schema(obj: Document) -> None:
    """A FlowSchema."""
    spec = obj.setdefault("spec", {})
    spec["matchingPrecedence"] = spec.get("matchingPrecedence") or _PRECEDENCE


def priority_level(obj: Document) -> None:
    """A PriorityLevelConfiguration."""
    spec = obj.setdefault("spec", {})
    for part, shares in (("exempt", 0), ("limited", _SHARES)):
        if (found := spec.get(part)) is not None:
            found.setdefault("nominalConcurrencyShares", shares)
            found.setdefault("lendablePercent", 0)
    queuing = ((spec.get("limited") or {}).get("limitResponse") or {}).get("queuing")
    if queuing is not None:
        for name, value in _QUEUING.items():
            queuing[name] = queuing.get(name) or value


def resource_claim(obj: Document) -> None:
    """A ResourceClaim."""
    _claim_spec(obj.setdefault("spec", {}))


def resource_claim_template(obj: Document) -> None:
    """A ResourceClaimTemplate."""
    spec = obj.setdefault("spec", {})
    spec.setdefault("metadata", {})
    _claim_spec(spec.setdefault("spec", {}))


def _claim_spec(spec: Document) -> None:
    for request in spec.setdefault("devices", {}).get("requests") or ():
        if (exactly := request.get("exactly")) is not None:
            _counted(exactly)
        for choice in request.get("firstAvailable") or ():
            _counted(choice)


def _counted(request: Document) -> None:
    request["allocationMode"] = request.get("allocationMode") or "ExactCount"
    if request["allocationMode"] == "ExactCount":
        request["count"] = request.get("count") or 1
