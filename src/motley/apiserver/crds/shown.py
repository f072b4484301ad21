"""Stored custom objects as a version shows them.

Objects are kept in one version; converting to another changes nothing but `apiVersion`, or is done
by a webhook beforehand (`conversion`). An object that was written before its schema last changed
gets the new defaults when it is read, as in Kubernetes. Both are rare: an object of the kept
version written under the present schema is sent as the bytes it is.
"""

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

from motley.api import codec, scheme, status
from motley.api.structural import pruning
from motley.api.structural.definition import Definition
from motley.apiserver import document, versions

REMEMBERED = 4096  # conversions per version

_converted: WeakKeyDictionary[Definition, dict[bytes, bytes]] = WeakKeyDictionary()


def converted(kind: scheme.Kind) -> Mapping[bytes, bytes]:
    """What webhooks made of stored objects, by their bytes without a revision."""
    return _converted.get(kind.definition, {}) if kind.definition is not None else {}


def remember(kind: scheme.Kind, made: Mapping[bytes, bytes]) -> None:
    """Keep conversions, the last ones and at least these."""
    assert kind.definition is not None
    known = _converted.setdefault(kind.definition, {})
    for key in made:
        known.pop(key, None)  # so that it counts among the last ones
    known.update(made)
    for key in list(known)[: max(0, len(known) - max(REMEMBERED, len(made)))]:
        del known[key]


def value(kind: scheme.Kind, stored: bytes) -> bytes:
    """The bytes to send."""
    definition = kind.definition
    if definition is None:
        return versions.value(kind, stored)
    revision = codec.stamped_revision(stored)
    if kind.stored_as is None and (revision or 0) >= definition.since:
        return stored
    fresh = codec.encode_object(read(kind, stored))
    return fresh if revision is None else codec.stamp(fresh, revision)


def is_as_kept(kind: scheme.Kind, stored: bytes) -> bool:
    """Whether `value` would be the very bytes that are kept."""
    if kind.definition is None or kind.stored_as is not None:
        return False
    return (codec.stamped_revision(stored) or 0) >= kind.definition.since


def is_foreign(kind: scheme.Kind, stored: bytes) -> bool:
    """Whether only a webhook can say how the version shows these bytes."""
    if kind.definition is None or kind.definition.convertible:
        return False
    own = f'{{"kind":"{kind.kind}","apiVersion":"{kind.api_version}",'
    return not stored.startswith(own.encode())


def is_unknown(kind: scheme.Kind, stored: bytes) -> bool:
    """Whether a webhook must be asked before the version can show these bytes."""
    return is_foreign(kind, stored) and codec.unstamped(stored) not in converted(kind)


def read(kind: scheme.Kind, stored: bytes) -> dict[str, Any]:
    """The object in this version, decoded."""
    found = document.decode(stored)
    definition = kind.definition
    if definition is None:
        return found
    if found.get("apiVersion") != kind.api_version:
        if definition.convertible:
            found["apiVersion"] = kind.api_version
        else:
            found = _translated(kind, stored, found["metadata"].get("resourceVersion"))
    pruning.prune(definition.root, found)
    definition.default(found)
    return found


def _translated(kind: scheme.Kind, stored: bytes, version: str | None) -> dict[str, Any]:
    made = converted(kind).get(codec.unstamped(stored))
    if made is None:
        raise status.ServiceUnavailable(
            f"conversion webhook for {kind.api_version}, Kind={kind.kind} was not asked in time; "
            "try again",
            retry_after_s=1,
        )
    found = document.decode(made)
    if version is not None:
        found["metadata"]["resourceVersion"] = version
    return found
