"""What the macros (`all`, `map`, …) make of the elements they go over."""

from collections.abc import Callable
from typing import Any

from motley.api.cel.errors import CelError, CostError
from motley.api.cel.functions.lists import sort_by


def truth(value: Any) -> bool:
    """A condition's value, which must be a truth value."""
    if not isinstance(value, bool):
        raise CelError("no such overload")
    return value


class Collector:
    """What a macro makes of its elements."""

    def __init__(self, how: str) -> None:
        self._how = how
        self._items: list[Any] = []
        self._keys: list[Any] = []
        self._entries: dict[Any, Any] = {}
        self._count = 0
        self._problem: CelError | None = None
        self._decided = False

    def take(self, element: tuple[Any, ...], compute: Callable[[], Any]) -> bool:
        """One element; True when the rest does not matter."""
        how = self._how
        if how in ("all", "exists"):
            try:
                self._decided = truth(compute()) is (how == "exists")
            except CelError as problem:
                if isinstance(problem, CostError):
                    raise
                self._problem = self._problem or problem
            return self._decided
        value = compute()
        if how == "exists_one":
            self._count += truth(value)
        elif how == "filter":
            if truth(value):
                self._items.append(element[0])
        elif how == "transformMap":
            self._entries[element[0]] = value
        elif how == "transformMapEntry":
            self._insert(value)
        elif how == "sortBy":
            self._items.append(element[0])
            self._keys.append(value)
        else:
            self._items.append(value)
        return False

    def _insert(self, entries: Any) -> None:
        if not isinstance(entries, dict):
            raise CelError("no such overload")
        for key, value in entries.items():
            if key in self._entries:
                raise CelError(f"insert failed: key '{key}' already exists")
            self._entries[key] = value

    def result(self) -> Any:
        """The macro's value."""
        if self._how in ("all", "exists"):
            if not self._decided and self._problem is not None:
                raise self._problem
            return self._decided is (self._how == "exists")
        if self._how == "exists_one":
            return self._count == 1
        if self._how == "sortBy":
            return sort_by(self._keys, self._items)
        return self._entries if self._how.startswith("transformMap") else self._items
