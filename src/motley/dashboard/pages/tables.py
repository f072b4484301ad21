"""Lists as kubectl prints them: the API server's own tables, with links and further columns."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from motley.dashboard import kube
from motley.dashboard.kube import Api
from motley.dashboard.markup import Child, Html, tag
from motley.dashboard.pages import frame

Document = dict[str, Any]

MOST = 500
_MOODS = {
    "ok": ("Running", "Ready", "Active", "Bound", "Complete", "Completed", "Available", "True"),
    "idle": ("Succeeded", "Terminating", "Released", "NotReady,SchedulingDisabled", "Suspended"),
    "warn": ("Pending", "ContainerCreating", "PodInitializing", "Ready,SchedulingDisabled"),
    "bad": ("Failed", "Error", "NotReady", "Unknown", "Lost", "Evicted", "OOMKilled", "Warning"),
}
_MOOD = {word: mood for mood, words in _MOODS.items() for word in words}
_BADGES = ("Status", "Phase", "Type")


class Row(NamedTuple):
    """One object: its cells by column, and who it is."""

    cells: dict[str, Any]
    namespace: str
    name: str
    labels: dict[str, str]


class Listing(NamedTuple):
    """What the server lists; `left` counts what it has beyond, None where it does not say."""

    columns: list[str]
    rows: list[Row]
    left: int | None
    is_cut: bool


def read(api: Api, where: str, **query: str) -> Listing:
    """A list as a table. Notes what may not be seen, and is empty then."""
    found = api.find(where, kube.TABLE, limit=MOST, **query)
    heads = found.get("columnDefinitions") or ()
    rows = []
    for row in found.get("rows") or ():
        metadata = (row.get("object") or {}).get("metadata") or {}
        rows.append(
            Row(
                {heads[i]["name"]: row["cells"][i] for i in range(len(heads))},
                metadata.get("namespace", ""),
                metadata.get("name", ""),
                metadata.get("labels") or {},
            )
        )
    metadata = found.get("metadata") or {}
    return Listing(
        [h["name"] for h in heads if not h.get("priority")],
        rows,
        metadata.get("remainingItemCount"),
        bool(metadata.get("continue")),
    )


def show(
    listing: Listing,
    link: Callable[[Row], Child],
    more: Sequence[tuple[str, Callable[[Row], Child]]] = (),
    *,
    with_namespace: bool,
    columns: Sequence[str] = (),
    empty: str = "There is nothing here.",
) -> Html:
    """The table; `more` are columns of our own, `columns` those of the server's to show."""
    chosen = [c for c in (columns or listing.columns) if c != "Name"]
    heads = ["Namespace"] * with_namespace + ["Name", *chosen, *(name for name, _ in more)]

    def cells(row: Row) -> Iterator[Child]:
        if with_namespace:
            yield row.namespace
        yield link(row)
        for column in chosen:
            yield cell(column, row.cells.get(column))
        for _, made in more:
            yield made(row)

    made = frame.table(heads, map(list, map(cells, listing.rows)), empty)
    return Html(made + rest(listing))


def rest(listing: Listing) -> Html:
    """What is said when the list is longer than what is shown."""
    if not listing.is_cut:
        return Html("")
    more = f"{listing.left} more are" if listing.left else "More are"
    return tag("p", f"{more} not shown: choose a namespace.", class_="note warn")


def cell(column: str, value: object) -> Child:
    """A value of the server's, with a colour where it says how things are."""
    if value is None:
        return ""
    words = str(value)
    if column in _BADGES:
        return frame.badge(words, mood(words))
    return words


def mood(words: str) -> str:
    """ok, warn, bad or idle, by what the server says."""
    if words in _MOOD:
        return _MOOD[words]
    ends = ("BackOff", "Error", "Err", "Failed", "ErrImagePull", "Killed")
    return "bad" if words.endswith(ends) else "warn" if words.startswith("Init:") else ""
