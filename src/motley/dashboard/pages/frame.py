"""What stands around every page, and the pieces that pages share."""

from collections.abc import Iterable, Sequence

from motley import __version__
from motley.dashboard.asking import RANGES, Asked, Page, link
from motley.dashboard.kube import Api
from motley.dashboard.markup import Child, Html, document, tag, text

_SECTIONS = {
    "overview": ("Overview", "/"),
    "nodes": ("Nodes", "/nodes"),
    "workloads": ("Workloads", "/workloads"),
    "pods": ("Pods", "/pods"),
    "events": ("Events", "/events"),
    "kinds": ("All kinds", "/kinds"),
}


def page(asked: Asked, shown: Page, notes: Sequence[str], *, can_leave: bool) -> Html:
    """A whole page for somebody who is logged in."""
    told = [tag("p", note, class_="note warn") for note in notes]
    main = tag(
        "main",
        tag("h1", shown.title),
        told,
        shown.main,
        data_refresh=shown.refresh_s,
        id="main",
    )
    leave = tag("form", tag("button", "Log out"), method="post", action="/logout")
    return _document(shown.title, _nav(asked, shown.section, leave if can_leave else None), main)


def failed(asked: Asked, code: int, message: str) -> Html:
    """Instead of a page, for somebody who is logged in."""
    title = {403: "Not allowed", 404: "Not found"}.get(code, "The cluster does not answer")
    told = tag("p", message, class_="note bad")
    main = tag("main", tag("h1", title), told, data_refresh=15, id="main")
    return _document(title, _nav(asked, ""), main)


def alone(title: str, message: Child) -> Html:
    """A page for a stranger."""
    return _document(title, tag("main", tag("h1", title), tag("div", message), class_="login"))


def _document(title: str, *body: Child) -> Html:
    head = (
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", f"{title} · Motley"),
        tag("link", rel="icon", href="/static/icon.svg", type="image/svg+xml"),
        tag("link", rel="stylesheet", href="/static/dashboard.css"),
        tag("script", src="/static/dashboard.js", type="module"),
    )
    return document(head, body)


def _nav(asked: Asked, section: str, last: Child = None) -> Html:
    places = []
    for name, (words, where) in _SECTIONS.items():
        keep = asked.namespace and name not in ("overview", "nodes")
        target = Asked(where, {"namespace": asked.namespace}, 0).with_() if keep else where
        places.append(
            tag("a", words, href=target, aria_current="page" if name == section else None)
        )
    brand = tag("a", "Motley", class_="brand", href="/", title=f"Motley {__version__}")
    return tag("header", brand, tag("nav", places), last)


def namespaces(api: Api, asked: Asked) -> Html:
    """Which namespace to show; a field to type in for who may not list them."""
    listed = api.find("/api/v1/namespaces", limit=1000).get("items") or ()
    names = [n["metadata"]["name"] for n in listed]
    if names:
        options = [
            tag("option", n or "all namespaces", value=n, selected=n == asked.namespace)
            for n in ("", *names)
        ]
        choice = tag("select", options, name="namespace", data_submit=True)
    else:
        choice = tag("input", name="namespace", value=asked.namespace, placeholder="namespace")
    kept = [
        tag("input", type="hidden", name=name, value=value)
        for name, value in asked.query.items()
        if name != "namespace"
    ]
    label = tag("label", "Namespace ", choice)
    return tag("form", label, kept, tag("button", "Show"), _search(), class_="filter", method="get")


def filter_form() -> Html:
    """A field that narrows down the tables of the page."""
    return tag("form", _search(), class_="filter")


def _search() -> Html:
    return tag(
        "input", type="search", placeholder="filter", aria_label="filter", data_filter="table"
    )


def ranges(asked: Asked) -> Html:
    """How far back charts go."""
    return tag(
        "p",
        "Last ",
        [
            (tag("strong", name), " ")
            if name == asked.range
            else (tag("a", name, href=asked.with_(range=name)), " ")
            for name in RANGES
        ],
        class_="ranges",
    )


def badge(words: str, mood: str = "") -> Html:
    """A word with a colour: ok, warn, bad or idle."""
    return tag("span", words, class_=f"badge {mood}".strip())


def table(heads: Sequence[Child], rows: Iterable[Sequence[Child]], empty: str) -> Html:
    """A table, or what to say when there is nothing in it."""
    listed = [tag("tr", [tag("td", cell) for cell in row]) for row in rows]
    if not listed:
        return tag("p", empty, class_="empty")
    head = tag("thead", tag("tr", [tag("th", one, scope="col") for one in heads]))
    return tag("div", tag("table", head, tag("tbody", listed)), class_="scroll")


def facts(pairs: Iterable[tuple[str, Child]]) -> Html:
    """What an object is, line by line; lines without a value are left out."""
    shown = [
        (tag("dt", name), tag("dd", value)) for name, value in pairs if value not in (None, "", [])
    ]
    return tag("dl", shown, class_="facts")


def section(title: str, *children: Child) -> Html:
    """A part of a page."""
    return tag("section", tag("h2", title), children)


def anchor(words: str, *parts: str) -> Html:
    """A link to another page."""
    return tag("a", words, href=link(*parts))


def labels(pairs: dict[str, str] | None) -> Html:
    """Labels, or what looks like them."""
    return text([(tag("code", f"{k}={v}" if v else k), " ") for k, v in (pairs or {}).items()])
