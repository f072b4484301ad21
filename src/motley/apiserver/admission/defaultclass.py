"""Which of several classes is the default: the newest of those that are marked."""

from collections.abc import Iterable, Sequence
from typing import Any

Document = dict[str, Any]


def default_class(classes: Iterable[Document], annotations: Sequence[str]) -> Document | None:
    """The default; of several the newest, and of equally new ones the first by name."""
    marked = [c for c in classes if _is_marked(c, annotations)]
    marked.sort(key=lambda c: str(c["metadata"]["name"]))
    return max(
        marked, key=lambda c: str(c["metadata"].get("creationTimestamp") or ""), default=None
    )


def _is_marked(found: Document, annotations: Sequence[str]) -> bool:
    have = found["metadata"].get("annotations") or {}
    return any(have.get(name) == "true" for name in annotations)
