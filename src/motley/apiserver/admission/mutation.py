"""What webhooks and policies made of an object becomes the object.

They speak JSON and know nothing of schemas, so what they leave behind is read like a client's
body: what nobody knows is dropped, the rest gets its one form and its defaults.

Invariant: nobody changes by this what names the object, nor who owns its fields.
"""

from typing import Any

from motley.api import defaults, status
from motley.apiserver import body, newerfields
from motley.apiserver.admission.change import Change

Document = dict[str, Any]

_KEPT = (
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "generateName",
    "generation",
    "managedFields",
    "resourceVersion",
)
# Here the object is not of the kind in the path.
_OTHERS = frozenset({"token"})


def become(change: Change, wanted: Document) -> None:
    """Make the object what somebody wants it to be, in place: whoever holds it sees the change.

    It gets its form and its defaults. A custom object keeps for now what its schema does not know:
    the next webhook may look for it. Raises BadRequest for a wrong type, and changes nothing then.
    """
    assert change.new is not None
    before = dict(change.new)
    given = wanted.get("metadata")
    metadata = {f: v for f, v in before["metadata"].items() if f in _KEPT}
    if isinstance(given, dict):
        metadata |= {f: v for f, v in given.items() if f not in _KEPT}
    _fill(change.new, {**wanted, "metadata": metadata})
    try:
        if change.kind.definition is None and change.subresource not in _OTHERS:
            unknown = body.conform(change.kind, change.new)
            newerfields.put_back(change.new, before, unknown)
        defaults.apply(change.kind, change.new)
    except status.ApiError:
        _fill(change.new, before)
        raise


def _fill(target: Document, content: Document) -> None:
    target.clear()
    target.update(content)


def prune(change: Change) -> None:
    """Drop from a custom object what its schema does not know, when all have had their say."""
    if change.new is not None and change.kind.definition is not None:
        body.conform(change.kind, change.new)
