"""Secondary indexes of a cache: from a computed value to the objects that have it.

Invariant: after `put(old, new)` every bucket holds exactly the keys whose current object yields
the bucket's value; empty buckets do not exist, so an index never outgrows its objects.
"""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from motley.api.selectors import Selector
from motley.api.views.base import Key, Object
from motley.api.views.pod import Pod

T = TypeVar("T", bound=Object)

IndexFunction = Callable[[T], Iterable[str]]


class Index(Generic[T]):
    """One index; `function` yields the values an object is found under."""

    def __init__(self, function: IndexFunction[T]) -> None:
        self._function = function
        self._buckets: dict[str, dict[Key, None]] = {}

    def put(self, old: T | None, new: T | None) -> None:
        """Move an object from its old values to its new ones."""
        before = set(self._function(old)) if old is not None else set()
        after = set(self._function(new)) if new is not None else set()
        for value in before - after:
            assert old is not None
            bucket = self._buckets[value]
            del bucket[old.key]
            if not bucket:
                del self._buckets[value]
        for value in after - before:
            assert new is not None
            self._buckets.setdefault(value, {})[new.key] = None

    def keys(self, value: str) -> list[Key]:
        """Keys of the objects with this value, oldest entry first."""
        return list(self._buckets.get(value, ()))


def by_namespace(obj: Object) -> Iterable[str]:
    """Find objects by namespace."""
    return (obj.metadata.namespace,)


def by_controller_uid(obj: Object) -> Iterable[str]:
    """Find objects by the uid of the owner that manages them; unmanaged ones under ''."""
    owner = obj.metadata.controller()
    return (owner.uid if owner else "",)


def by_node_name(pod: Pod) -> Iterable[str]:
    """Find pods by the node they are bound to."""
    return (pod.spec.node_name,) if pod.spec.node_name else ()


def by_selector(selector: Selector) -> IndexFunction[Object]:
    """Find the objects whose labels match, under 'match': a selection that is asked for often."""

    def matching(obj: Object) -> Iterable[str]:
        return ("match",) if selector.matches(obj.metadata.labels) else ()

    return matching
