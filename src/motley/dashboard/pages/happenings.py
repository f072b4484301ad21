"""Events, as a table."""

from collections.abc import Iterable
from typing import Any

from motley.dashboard import facts, figures, kube
from motley.dashboard.kube import Api
from motley.dashboard.markup import Child, Html
from motley.dashboard.pages import frame, objects, tables

Document = dict[str, Any]


def about(api: Api, kind: str, namespace: str, name: str, now: float) -> Html:
    """What happened to one object."""
    where = kube.path("api", "v1", *(("namespaces", namespace) if namespace else ()), "events")
    chosen = f"involvedObject.kind={kind},involvedObject.name={name}"
    listed = api.find(where, fieldSelector=chosen, limit=200).get("items") or ()
    return table(listed, now, with_object=False)


def table(events: Iterable[Document], now: float, *, with_object: bool, most: int = 200) -> Html:
    """The newest first."""
    newest = sorted(events, key=facts.seen, reverse=True)[:most]
    heads = ["Seen", "Type", "Reason", *(["Object"] if with_object else []), "Message"]

    def row(event: Document) -> list[Child]:
        ago = facts.since(facts.seen(event), now)
        times = facts.times(event)
        often = f" × {times}" if times > 1 else ""
        kind = str(event.get("type") or "")
        about = event.get("involvedObject") or {}
        return [
            f"{figures.age(ago)}{often}" if ago is not None else "",
            frame.badge(kind, tables.mood(kind)),
            str(event.get("reason") or ""),
            *([objects.reference(about)] if with_object else []),
            str(event.get("message") or ""),
        ]

    return frame.table(heads, map(row, newest), "No events are remembered.")
