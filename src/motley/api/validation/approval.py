"""Rules for approving a certificate request: a decision, once made, stays."""

from motley.api.validation import certificate
from motley.api.validation.errors import Document, Errors, forbidden

_MADE_BY_APPROVAL = ("Approved", "Denied")
_DECISIONS = (*_MADE_BY_APPROVAL, "Failed")
_FIELD = "status.conditions"


def update(new: Document, old: Document) -> Errors:
    """A certificate request with other conditions."""
    yield from _kept(new, old)
    yield from certificate.signing_request(new)


def status(new: Document, old: Document) -> Errors:
    """A signer's answer: who may sign may not therefore approve."""
    yield from _kept(new, old)
    for decision in _MADE_BY_APPROVAL:
        now, before = _of_type(new, decision), _of_type(old, decision)
        if len(now) > len(before):
            yield forbidden(_FIELD, f'updates may not add a condition of type "{decision}"')
        elif len(now) == len(before) and now != before:
            yield forbidden(_FIELD, f'updates may not modify a condition of type "{decision}"')
    issued, given = ((o.get("status") or {}).get("certificate") for o in (old, new))
    if issued and given != issued:
        yield forbidden("status.certificate", "updates may not modify existing certificate content")


def _kept(new: Document, old: Document) -> Errors:
    for decision in _DECISIONS:
        if len(_of_type(new, decision)) < len(_of_type(old, decision)):
            yield forbidden(_FIELD, f'updates may not remove a condition of type "{decision}"')


def _of_type(obj: Document, type_: str) -> list[Document]:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return [c for c in conditions if c.get("type") == type_]
