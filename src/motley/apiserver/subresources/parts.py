"""Subresources that are the object itself with a part of it open to change.

They share the verbs of the main resource; `narrow` then makes of what a client sent the stored
object with only that part changed. (`status` is so common that `strategy` has it.)

Invariant: through one of these nothing outside its part changes, whatever the body holds; only who
approves a request may label it, too.
"""

from collections.abc import Callable
from typing import Any

from motley.api import scheme
from motley.apiserver import strategy
from motley.apiserver.subresources import approval, ephemeralcontainers, resize

Document = dict[str, Any]

NAMES = frozenset({"approval", "ephemeralcontainers", "resize"})

_OPEN = frozenset({"approval"})
_NARROW: dict[tuple[str, str], Callable[[Document, Document, str], Document]] = {
    ("certificatesigningrequests", "approval"): approval.narrow,
    ("pods", "ephemeralcontainers"): ephemeralcontainers.narrow,
    ("pods", "resize"): resize.narrow,
}


def narrow(kind: scheme.Kind, subresource: str, new: Document, old: Document, now: str) -> Document:
    """The object to store; `new` has its defaults and its owners of fields, which are kept."""
    result = _NARROW[kind.plural, subresource](new, old, now)
    kept = () if subresource in _OPEN else strategy.OWN_METADATA
    metadata = result["metadata"] = strategy.open_metadata(new, old, kept)
    if strategy.is_counted(kind) and result.get("spec") != old.get("spec"):
        metadata["generation"] = int(metadata.get("generation") or 0) + 1
    return result
