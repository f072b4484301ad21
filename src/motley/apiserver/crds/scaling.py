"""The Scale of a custom object: its definition says where the counts are."""

from typing import Any

from motley.api import status
from motley.api.structural import jsonpath
from motley.api.structural.definition import ScalePaths

Document = dict[str, Any]


def counts(paths: ScalePaths, stored: Document) -> tuple[int, int, str]:
    """Wanted replicas, present replicas, selector."""
    wanted = _at(paths.spec_replicas, stored)
    if wanted is None:
        raise status.NotFound(f'the spec replicas field "{paths.spec_replicas}" does not exist')
    present = _at(paths.status_replicas, stored)
    selector = _at(paths.label_selector, stored) if paths.label_selector else ""
    return _count(wanted), _count(present), str(selector or "")


def _count(value: Any) -> int:
    """What is no number counts as none: a schema may leave the type open."""
    return int(value) if isinstance(value, int | float) else 0


def with_replicas(paths: ScalePaths, stored: Document, replicas: int) -> Document:
    """The object with another count of wanted replicas; shares what did not change."""
    *parents, last = jsonpath.simple_fields(paths.spec_replicas) or ("spec", "replicas")
    changed = dict(stored)
    inner = changed
    for name in parents:
        inner[name] = dict(inner.get(name) or {})
        inner = inner[name]
    inner[last] = replicas
    return changed


def _at(path: str, stored: Document) -> Any:
    return next(iter(jsonpath.compile_path(path)(stored)), None)
