"""Why a pod is where it is, or nowhere: the scheduler's own account, where it wrote one."""

from typing import Any

from motley.dashboard import facts, figures, kube
from motley.dashboard.kube import Api
from motley.dashboard.markup import Child, Html, tag
from motley.dashboard.pages import frame

Document = dict[str, Any]


def about(api: Api, namespace: str, name: str, now: float) -> Html | None:
    """The decision about a pod; None where none is remembered."""
    where = kube.path("apis", "motley.io", "v1", "namespaces", namespace, "decisions", name)
    spec = api.find(where).get("spec")
    return frame.section("Why here", shown(spec, now)) if spec else None


def shown(spec: Document, now: float) -> Html:
    """What was said against nodes, and how the others scored."""
    chosen = spec.get("node")
    ago = facts.since(spec.get("decidedAt"), now)
    when = f", {figures.age(ago)} ago" if ago is not None else ""
    verdict = f"{chosen} was chosen" if chosen else str(spec.get("message") or "No node fits")
    passed = f"{spec.get('feasible', 0)} of {spec.get('nodes', 0)} nodes passed every filter."
    said = f"{verdict} by {spec.get('profile', 'the scheduler')}{when}. {passed}"
    return tag("div", tag("p", said), _filters(spec), _scores(spec))


def _filters(spec: Document) -> Child:
    rows: list[list[Child]] = [
        [str(f.get("plugin", "")), str(f["rejected"]), str(f.get("reason") or "")]
        for f in spec.get("filters") or ()
        if f.get("rejected")
    ]
    return frame.table(["Filter", "Rejected", "Reason"], rows, "") if rows else None


def _scores(spec: Document) -> Child:
    ranking = spec.get("scores") or []
    names = list(dict.fromkeys(name for one in ranking for name in one.get("plugins") or {}))
    if not names:
        return None
    weights = spec.get("weights") or {}
    heads: list[Child] = ["Score", "Weight", *(str(one.get("node")) for one in ranking)]
    rows: list[list[Child]] = [
        [name, f"{weights.get(name, 1):g}", *(_number(one, name) for one in ranking)]
        for name in names
    ]
    totals = (tag("strong", f"{one.get('total', 0):g}") for one in ranking)
    return frame.table(heads, [*rows, [tag("strong", "total"), "", *totals]], "")


def _number(ranked: Document, name: str) -> str:
    value = (ranked.get("plugins") or {}).get(name)
    return "–" if value is None else f"{value:g}"
