"""Stored custom objects as a version shows them.

Objects are kept in one version; converting to another changes nothing but `apiVersion`. An object
that was written before its schema last changed gets the new defaults when it is read, as in
Kubernetes. Both are rare: an object of the kept version written under the present schema is sent
as the bytes it is.
"""

from typing import Any

from motley.api import codec, scheme, status
from motley.api.structural import pruning
from motley.api.structural.definition import Definition
from motley.apiserver import versions


def value(kind: scheme.Kind, stored: bytes) -> bytes:
    """The bytes to send."""
    definition = kind.definition
    if definition is None:
        return versions.value(kind, stored)
    revision = codec.stamped_revision(stored)
    if kind.stored_as is None and (revision or 0) >= definition.since:
        return stored
    found = document(kind, codec.decode(stored))
    fresh = codec.encode_object(found)
    return fresh if revision is None else codec.stamp(fresh, revision)


def document(kind: scheme.Kind, stored: dict[str, Any]) -> dict[str, Any]:
    """The decoded object in this version; changes what it is given."""
    definition = kind.definition
    if definition is None:
        return stored
    if stored.get("apiVersion") != kind.api_version:
        _check_convertible(kind, definition)
        stored["apiVersion"] = kind.api_version
    pruning.prune(definition.root, stored)
    definition.default(stored)
    return stored


def _check_convertible(kind: scheme.Kind, definition: Definition) -> None:
    if not definition.convertible:
        raise status.InternalError(
            f"conversion webhook for {kind.api_version}, Kind={kind.kind} failed: webhooks that "
            "convert between versions are not called by this server; use the storage version"
        )
