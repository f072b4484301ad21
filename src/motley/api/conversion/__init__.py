"""The same objects in several versions: pure functions between what is kept and what is shown.

A row of the table with `stored_as` is another form of the row it names. Its objects are kept in
that one form only, and go through here on their way in and out.

Invariant: `to_storage(kind, from_storage(kind, obj)) == obj` for every stored object, save that
autoscaling/v1 puts the metric for CPU last; what a version has no field for travels in an
annotation, as in Kubernetes.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from motley.api import scheme
from motley.api.conversion import autoscaling, events, workloads

__all__ = ["from_storage", "is_converted", "to_storage"]

Document = dict[str, Any]


class _Conversion(NamedTuple):
    """Both ways; neither changes what it is given."""

    to_storage: Callable[[Document], Document]
    from_storage: Callable[[Document], Document]


def _same(obj: Document) -> Document:
    return dict(obj)


# Versions that differ in nothing but their name.
_NAME_ONLY = _Conversion(_same, _same)
_CONVERSIONS: dict[tuple[str, str], _Conversion] = {
    ("autoscaling/v1", "HorizontalPodAutoscaler"): _Conversion(
        autoscaling.to_v2, autoscaling.to_v1
    ),
    ("events.k8s.io/v1", "Event"): _Conversion(events.to_core, events.from_core),
    ("extensions/v1beta1", "Deployment"): _Conversion(workloads.to_apps, workloads.from_apps),
}


def is_converted(kind: scheme.Kind) -> bool:
    """Whether this row is another form of a built-in kind; custom resources convert themselves."""
    return kind.stored_as is not None and kind.definition is None


def _of(kind: scheme.Kind) -> _Conversion:
    return _CONVERSIONS.get((kind.api_version, kind.kind), _NAME_ONLY)


def to_storage(kind: scheme.Kind, obj: Document) -> Document:
    """The object in the form that is kept; the very same one where that is this form."""
    if not is_converted(kind):
        return obj
    kept = kind.storage
    return _of(kind).to_storage(obj) | {"kind": kept.kind, "apiVersion": kept.api_version}


def from_storage(kind: scheme.Kind, stored: Document) -> Document:
    """A stored object in this version."""
    if not is_converted(kind):
        return stored
    return _of(kind).from_storage(stored) | {"kind": kind.kind, "apiVersion": kind.api_version}
