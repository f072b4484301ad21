"""Rules for a status written through its subresource: what would contradict the rest."""

import base64
import binascii

from motley.api.validation import approval
from motley.api.validation.errors import IMMUTABLE, Document, Errors, invalid, not_negative

_COUNTS = {
    "Deployment": (
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
    ),
    "ReplicaSet": ("replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas"),
}
_APART = "unavailableReplicas"


def pod(new: Document, old: Document) -> Errors:
    """A pod keeps its class for life."""
    now, before = new.get("status") or {}, old.get("status") or {}
    if before.get("qosClass") and now.get("qosClass") not in (None, "", before["qosClass"]):
        yield invalid("status.qosClass", now["qosClass"], IMMUTABLE)


def namespace(new: Document, old: Document) -> Errors:
    """A namespace is Terminating exactly while it is being deleted."""
    phase = (new.get("status") or {}).get("phase", "")
    if (new.get("metadata") or {}).get("deletionTimestamp"):
        if phase != "Terminating":
            yield invalid(
                "status.Phase",
                phase,
                "may only be 'Terminating' if `deletionTimestamp` is not empty",
            )
    elif phase not in ("", "Active"):
        yield invalid("status.Phase", phase, "may only be 'Active' if `deletionTimestamp` is empty")


def workload(new: Document, old: Document) -> Errors:
    """Counts of replicas: parts are not larger than the whole."""
    now = new.get("status") or {}
    names = _COUNTS[new["kind"]]
    for name in (*names, "observedGeneration"):
        yield from not_negative(f"status.{name}", now.get(name))
    whole, ready = now.get("replicas") or 0, now.get("readyReplicas") or 0
    for name in names[1:]:
        count = now.get(name) or 0
        if name != _APART and count > whole:
            yield invalid(f"status.{name}", count, "cannot be greater than status.replicas")
    available = now.get("availableReplicas") or 0
    if available > ready:
        yield invalid("status.availableReplicas", available, "cannot be greater than readyReplicas")


def signing_request(new: Document, old: Document) -> Errors:
    """A certificate is one, or more, in PEM; decisions are made elsewhere."""
    yield from approval.status(new, old)
    certificate = (new.get("status") or {}).get("certificate")
    if not certificate:
        return
    try:
        text = base64.b64decode(certificate, validate=True)
    except (binascii.Error, ValueError):
        text = b""
    if b"-----BEGIN CERTIFICATE-----" not in text:
        yield invalid(
            "status.certificate",
            "<certificate data>",
            "must contain at least one CERTIFICATE PEM block",
        )
