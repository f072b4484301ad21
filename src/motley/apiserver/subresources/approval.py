"""`certificatesigningrequests/approval`: somebody with that right says yes or no.

Only the conditions change, and the server dates them. What may become of them is in
`api.validation.approval`.
"""

from typing import Any

Document = dict[str, Any]


def narrow(new: Document, old: Document, now: str) -> Document:
    """The stored request with the conditions of the new one, dated."""
    before = {c.get("type"): c for c in (old.get("status") or {}).get("conditions") or ()}
    conditions = [
        dated(condition, before.get(condition.get("type")), now)
        for condition in (new.get("status") or {}).get("conditions") or ()
    ]
    state = dict(old.get("status") or {})
    state.pop("conditions", None)
    return {**old, "status": state | ({"conditions": conditions} if conditions else {})}


def dated(condition: Document, before: Document | None, now: str) -> Document:
    """A condition with its times: of a transition only when its status is another one."""
    found = dict(condition)
    if not found.get("lastUpdateTime"):
        found["lastUpdateTime"] = now
    if not found.get("lastTransitionTime"):
        same = before is not None and before.get("status") == found.get("status")
        kept = before.get("lastTransitionTime") if same and before else None
        found["lastTransitionTime"] = kept or now
    return found
