"""Which page an address is."""

from collections.abc import Callable
from urllib.parse import unquote

from motley.dashboard.asking import Asked, Page
from motley.dashboard.kube import Api
from motley.dashboard.pages import events, kinds, nodes, overview, pods, workloads

Show = Callable[..., Page]
# A part in capitals stands for any, and is handed to the page.
_PAGES: dict[str, Show] = {
    "": overview.show,
    "nodes": nodes.listed,
    "nodes/NAME": nodes.show,
    "pods": pods.listed,
    "pods/NAMESPACE/NAME": pods.show,
    "workloads": workloads.listed,
    "workloads/NAMESPACE/KIND/NAME": workloads.show,
    "events": events.listed,
    "kinds": kinds.listed,
    "kinds/GROUP/VERSION/PLURAL": kinds.table,
    "kinds/GROUP/VERSION/PLURAL/NAMESPACE/NAME": kinds.show,
}


def show(api: Api, asked: Asked) -> Page | None:
    """The page; None where there is none. Raises ApiError."""
    parts = [unquote(part) for part in asked.path.strip("/").split("/")]
    for pattern, page in _PAGES.items():
        wanted = pattern.split("/")
        if len(wanted) == len(parts) and all(
            w.isupper() or w == p for w, p in zip(wanted, parts, strict=True)
        ):
            given = [p for w, p in zip(wanted, parts, strict=True) if w.isupper()]
            if "" not in given:
                return page(api, asked, *given)
    return None
