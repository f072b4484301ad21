"""The cluster at a glance: is it well, what has it room for, and what complains."""

from collections import Counter
from typing import Any

from motley.dashboard import charts, facts, figures
from motley.dashboard.asking import Asked, Page
from motley.dashboard.facts import Amounts
from motley.dashboard.kube import Api
from motley.dashboard.markup import Child, Html, tag, text
from motley.dashboard.pages import frame, happenings, nodes, usage

Document = dict[str, Any]

_WARNINGS = 8


def show(api: Api, asked: Asked) -> Page:
    """The first page."""
    found = list(api.items("/api/v1/nodes", nodes.MOST))
    held = nodes.counted(api)
    warnings = api.find("/api/v1/events", fieldSelector="type=Warning", limit=500)
    using = usage.now(api, "nodes")
    past = usage.past(api, asked, "nodes")
    have = facts.total(facts.amounts((n.get("status") or {}).get("allocatable")) for n in found)
    marks = [("requested", held.total), ("allocatable", have)]
    main = [
        _cards(found, held, facts.total(using.values()), have),
        frame.section(
            "Use",
            frame.ranges(asked),
            usage.together(past.items, marks) if past.items else past.missing(),
        ),
        frame.section("Nodes", nodes.table(found, held, using, asked.now)),
        frame.section(
            "Warnings",
            happenings.table(
                warnings.get("items") or (), asked.now, with_object=True, most=_WARNINGS
            ),
        ),
    ]
    return Page("Overview", text(main), "overview")


def _cards(found: list[Document], held: nodes.Held, used: Amounts, have: Amounts) -> Html:
    ready = sum(facts.condition(n, "Ready").get("status") == "True" for n in found)
    machines = Counter(
        ((n.get("status") or {}).get("nodeInfo") or {}).get("architecture", "?") for n in found
    )
    return tag(
        "div",
        _card(
            "Nodes",
            f"{ready} of {len(found)} ready",
            ", ".join(f"{count} {arch}" for arch, count in sorted(machines.items())),
        ),
        _card(
            "Pods",
            f"{held.phases['Running']} running",
            ", ".join(f"{n} {p.lower()}" for p, n in sorted(held.phases.items()) if p != "Running"),
        ),
        _level("CPU", used, held.total, have, "cpu"),
        _level("Memory", used, held.total, have, "memory"),
        class_="cards",
    )


def _level(title: str, used: Amounts, asked_for: Amounts, have: Amounts, name: str) -> Html:
    shown = figures.cores if name == "cpu" else figures.size
    whole = have.get(name, 0.0)
    label = f"{shown(used[name])} used, {shown(asked_for[name])} requested of {shown(whole)}"
    return _card(
        title,
        f"{figures.share(used[name] / whole) if whole else '–'} used",
        (charts.bar(used[name], whole, asked_for[name], label=label), tag("br"), label),
    )


def _card(title: str, main: str, more: Child) -> Html:
    return tag("div", tag("h3", title), tag("strong", main), tag("p", more), class_="card")
