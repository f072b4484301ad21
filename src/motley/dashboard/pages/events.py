"""What happened lately."""

from motley.dashboard import kube
from motley.dashboard.asking import Asked, Page
from motley.dashboard.kube import Api
from motley.dashboard.markup import tag, text
from motley.dashboard.pages import frame, happenings


def listed(api: Api, asked: Asked) -> Page:
    """Events of a namespace, or of all; warnings alone, by wish."""
    space = asked.namespace
    where = kube.path("api", "v1", *(("namespaces", space) if space else ()), "events")
    alone = asked.get("type") == "Warning"
    found = api.find(where, fieldSelector="type=Warning" if alone else "", limit=1000)
    other = (
        tag("a", "all", href=asked.with_(type=""))
        if alone
        else tag("a", "warnings only", href=asked.with_(type="Warning"))
    )
    main = [
        frame.namespaces(api, asked),
        tag("p", other, class_="ranges"),
        happenings.table(found.get("items") or (), asked.now, with_object=True, most=500),
    ]
    return Page("Events", text(main), "events", scoped=True)
