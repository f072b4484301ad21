"""Which function a request means by its host and path. Pure.

A trigger with the request's host counts more than one without, a longer path more than a shorter
one; `/shop` means `/shop` and `/shop/…`, not `/shopping`.
"""

from collections.abc import Iterable
from typing import NamedTuple

from motley.api.views.trigger import Trigger


class Target(NamedTuple):
    """A function, and what of the path is left for it."""

    namespace: str
    function: str
    rest: str


class Routes:
    """The paths of all Triggers."""

    def __init__(self, triggers: Iterable[Trigger]) -> None:
        found = [
            (one.spec.http.host.lower(), one.spec.http.path.rstrip("/"), one)
            for one in triggers
            if one.spec.http is not None and not one.spec.suspend
        ]
        # Of two alike the older one stays what it is.
        found.sort(key=lambda item: (item[2].metadata.creation_timestamp or "", item[2].key))
        self._by_length = sorted(found, key=lambda item: (not item[0], -len(item[1])))

    def find(self, host: str, path: str) -> Target | None:
        """The function for a request, if there is one."""
        name = _host(host)
        for wanted, prefix, one in self._by_length:
            fits = path == prefix or path.startswith(f"{prefix}/")
            if fits and wanted in ("", name):
                rest = path[len(prefix) :] or "/"
                return Target(one.metadata.namespace, one.spec.function, rest)
        return None


def _host(header: str) -> str:
    """A Host header's name, without its port."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].lower().rstrip(".")
