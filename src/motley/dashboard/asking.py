"""What a browser asks for, and what it gets: the words between the server and its pages."""

from typing import NamedTuple
from urllib.parse import urlencode

from motley.dashboard import kube
from motley.dashboard.markup import Html

RANGES = {"1h": 3600, "6h": 6 * 3600, "1d": 86400, "7d": 7 * 86400}
_POINTS = 120


class Asked(NamedTuple):
    """A request for a page, and when it came."""

    path: str
    query: dict[str, str]
    now: float

    def get(self, name: str) -> str:
        """A parameter; empty without one."""
        return self.query.get(name, "")

    @property
    def namespace(self) -> str:
        """The one to look at; empty: all."""
        return self.get("namespace")

    @property
    def range(self) -> str:
        """How far back charts go."""
        return self.get("range") if self.get("range") in RANGES else "1h"

    @property
    def step_s(self) -> int:
        """Of charts: history has steps of ten seconds for an hour, and of five minutes beyond."""
        rough = RANGES[self.range] // _POINTS
        return rough if self.range == "1h" else max(300, rough)

    def with_(self, **changes: str) -> str:
        """The address of the same page with other parameters; an empty one goes."""
        query = {k: v for k, v in {**self.query, **changes}.items() if v}
        return link(self.path) + (f"?{urlencode(query)}" if query else "")


class Page(NamedTuple):
    """What the frame is put around."""

    title: str
    main: Html
    section: str = ""
    refresh_s: int = 10
    scoped: bool = False
    """Whether it shows one namespace or all, and so asks which."""


def link(*parts: str) -> str:
    """An address of the dashboard's own."""
    if len(parts) == 1 and parts[0].startswith("/"):
        return parts[0]
    return kube.path(*parts)
