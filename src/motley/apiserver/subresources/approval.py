"""`certificatesigningrequests/approval`: somebody with that right says yes or no.

Of the status only the conditions change, and the server dates them. What may become of them is in
`api.validation.approval`. Labels and annotations may change along with them.
"""

from collections.abc import Iterable
from typing import Any

Document = dict[str, Any]


def narrow(new: Document, old: Document, now: str) -> Document:
    """The stored request with the conditions of the new one, dated."""
    before = (old.get("status") or {}).get("conditions") or ()
    conditions = all_dated((new.get("status") or {}).get("conditions") or (), before, now)
    state = dict(old.get("status") or {})
    state.pop("conditions", None)
    return {**old, "status": state | ({"conditions": conditions} if conditions else {})}


def all_dated(
    conditions: Iterable[Document], before: Iterable[Document], now: str
) -> list[Document]:
    """Conditions with their times."""
    by_type = {c.get("type"): c for c in before}
    return [dated(c, by_type.get(c.get("type")), now) for c in conditions]


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
