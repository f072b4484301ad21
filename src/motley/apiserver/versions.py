"""Objects of built-in kinds in the version a client speaks, whatever version they are kept in.

Most kinds have one version, and none of this concerns them: `kind.stored_as` says which do not.
"""

from collections.abc import Callable
from typing import Any

from motley.api import codec, conversion, defaults, scheme

Document = dict[str, Any]


def value(kind: scheme.Kind, stored: bytes) -> bytes:
    """Stored bytes in the version of the row."""
    if not conversion.is_converted(kind):
        return stored
    revision = codec.stamped_revision(stored)
    fresh = codec.encode_object(conversion.from_storage(kind, codec.decode(stored)))
    return fresh if revision is None else codec.stamp(fresh, revision)


def tabled(kind: scheme.Kind) -> scheme.Kind:
    """The row whose columns show the kind: a table is the same for every version."""
    return kind.storage if conversion.is_converted(kind) else kind


def kept(
    kind: scheme.Kind, new: Document, own: Callable[[scheme.Kind, Document], None]
) -> tuple[scheme.Kind, Document]:
    """A new object with its defaults, in the form that is kept, and the row of that form.

    `own` says who owns the fields, in the version the client spoke.
    """
    if not conversion.is_converted(kind):
        defaults.apply(kind, new)
        own(kind, new)
        return kind, new
    stored = conversion.to_storage(kind, new)
    defaults.apply(kind.storage, stored)
    shown = conversion.from_storage(kind, stored)
    own(kind, shown)
    if "managedFields" in shown["metadata"]:
        stored["metadata"]["managedFields"] = shown["metadata"]["managedFields"]
    return kind.storage, stored


def modifying(
    kind: scheme.Kind, modify: Callable[[Document], Document]
) -> Callable[[Document], Document]:
    """A change made to the version of the row, as a change of what is stored."""
    if not conversion.is_converted(kind):
        return modify
    return lambda stored: conversion.to_storage(kind, modify(conversion.from_storage(kind, stored)))
