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

_PODS = 5000  # of the pods, so many are counted; the API server says how many more there are
_WARNINGS = 8


def show(api: Api, asked: Asked) -> Page:
    """The first page."""
    found = api.find("/api/v1/nodes", limit=1000).get("items") or []
    listing = api.find("/api/v1/pods", limit=_PODS)
    pods = listing.get("items") or []
    warnings = api.find("/api/v1/events", fieldSelector="type=Warning", limit=500)
    using = usage.now(api, "nodes")
    past = usage.past(api, asked, "nodes").get("items") or []
    have = facts.total(facts.amounts((n.get("status") or {}).get("allocatable")) for n in found)
    asked_for = facts.total(facts.requested(p) for p in pods if not facts.is_over(p))
    marks = [("requested", asked_for), ("allocatable", have)]
    main = [
        _cards(found, pods, facts.total(using.values()), asked_for, have, _beyond(listing)),
        frame.section(
            "Use", frame.ranges(asked), usage.together(past, marks) if past else usage.NO_HISTORY
        ),
        frame.section("Nodes", nodes.table(found, pods, using, asked.now)),
        frame.section(
            "Warnings",
            happenings.table(
                warnings.get("items") or (), asked.now, with_object=True, most=_WARNINGS
            ),
        ),
    ]
    return Page("Overview", text(main), "overview")


def _beyond(listing: Document) -> int:
    return int((listing.get("metadata") or {}).get("remainingItemCount") or 0)


def _cards(
    found: list[Document],
    pods: list[Document],
    used: Amounts,
    asked_for: Amounts,
    have: Amounts,
    beyond: int,
) -> Html:
    ready = sum(facts.condition(n, "Ready").get("status") == "True" for n in found)
    phases = Counter((p.get("status") or {}).get("phase", "Unknown") for p in pods)
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
            f"{phases['Running']} running",
            ", ".join(f"{n} {p.lower()}" for p, n in sorted(phases.items()) if p != "Running")
            + (f"; {beyond} more are not counted" if beyond else ""),
        ),
        _level("CPU", used, asked_for, have, "cpu"),
        _level("Memory", used, asked_for, have, "memory"),
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
