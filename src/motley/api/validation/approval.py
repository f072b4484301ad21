"""Rules for approving a certificate request: a decision, once made, stays."""

from motley.api.validation import certificate
from motley.api.validation.errors import Document, Errors, forbidden

_DECISIONS = ("Approved", "Denied", "Failed")


def update(new: Document, old: Document) -> Errors:
    """A certificate request with other conditions."""
    kept = {c.get("type") for c in (new.get("status") or {}).get("conditions") or ()}
    for before in (old.get("status") or {}).get("conditions") or ():
        kind = before.get("type")
        if kind in _DECISIONS and kind not in kept:
            yield forbidden(
                "status.conditions", f'updates may not remove a condition of type "{kind}"'
            )
    yield from certificate.signing_request(new)
