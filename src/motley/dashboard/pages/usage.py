"""What things used: charts of the past, and figures of the moment.

The past comes from `history.motley.io`, the moment from `metrics.k8s.io`. A cluster that keeps no
history shows figures only.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from motley.dashboard import charts, facts, kube
from motley.dashboard.asking import Asked
from motley.dashboard.charts import Line, Mark, Span
from motley.dashboard.facts import Amounts
from motley.dashboard.kube import Api, ApiError
from motley.dashboard.markup import Html, tag
from motley.lib.clock import parse_rfc3339

Document = dict[str, Any]
Marks = Sequence[tuple[str, Amounts]]

HISTORY = ("apis", "history.motley.io", "v1")
METRICS = ("apis", "metrics.k8s.io", "v1beta1")
_MANY = 300  # rows with a small chart each
_ABSENT = "This cluster keeps no usage history (history.motley.io), so there is nothing to draw."
_UNMEASURED = "Nothing was measured in this time."


def now(api: Api, plural: str, namespace: str = "") -> dict[tuple[str, str], Amounts]:
    """By namespace and name: what is used at the moment. Empty where nobody measures."""
    where = ("namespaces", namespace) if namespace else ()
    found = facts.by_name(api.find(kube.path(*METRICS, *where, plural)))
    return {key: facts.used(item) for key, item in found.items()}


class Past(NamedTuple):
    """The history of one thing, or a list of many; where there is none, why, in words."""

    document: Document
    why: str = _UNMEASURED

    @property
    def items(self) -> list[Document]:
        """Those of a list."""
        return self.document.get("items") or []

    def missing(self) -> Html:
        """What stands in the charts' place."""
        return tag("p", self.why, class_="empty")


def past(
    api: Api, asked: Asked, plural: str, namespace: str = "", name: str = "", kind: str = ""
) -> Past:
    """What is known of a thing, or of many. Raises ApiError when nobody is logged in, or nobody
    answers."""
    where = ("namespaces", namespace) if namespace else ()
    path = kube.path(*HISTORY, *where, plural, name)
    try:
        found = api.get(path, from_=f"-{asked.range}", step=f"{asked.step_s}s", kind=kind)
    except ApiError as error:
        if error.code in (0, 401):
            raise
        return Past({}, _reason(error))
    return Past(found)


def _reason(error: ApiError) -> str:
    """That nobody keeps a history is one thing; that it cannot be read now, or not by this user,
    another."""
    if error.code == 404:
        # A server of the group says which thing it has not; one without the group does not.
        return _UNMEASURED if HISTORY[1] in error.message else _ABSENT
    if error.code == 403:
        return f"You may not see the usage history: {error.message}"
    return f"The usage history cannot be read now: {error.message}"


def small(
    api: Api, asked: Asked, plural: str, namespace: str, rows: int
) -> dict[tuple[str, str], Html]:
    """By namespace and name: the last hour's CPU, drawn small; nothing where that were too many."""
    if rows > _MANY:
        return {}
    hour = Asked(asked.path, {}, asked.now)
    found = past(api, hour, plural, namespace)
    if found.why not in (_ABSENT, _UNMEASURED, *api.notes):
        api.notes.append(found.why)
    listed = facts.by_name(found.document)
    return {
        key: charts.sparkline(facts.summed(item, "cpu"), f"CPU of {key[1]}, last hour")
        for key, item in listed.items()
    }


def both(item: Document, marks: Marks = (), *, by_container: bool = False) -> Html:
    """CPU and memory of one thing; a line for each of several containers, if wanted."""
    return pair(
        _span(item), _lines(item, "cpu", by_container), _lines(item, "memory", by_container), marks
    )


def together(items: Sequence[Document], marks: Marks = ()) -> Html:
    """CPU and memory of many things of one span, as their sum."""
    span = _span(items[0])

    def line(figure: str) -> list[Line]:
        added = facts.summed({"series": [{"all": facts.summed(i, figure)} for i in items]}, "all")
        return [Line("used", added)]

    return pair(span, line("cpu"), line("memory"), marks)


def pair(span: Span, cpu: Sequence[Line], memory: Sequence[Line], marks: Marks) -> Html:
    """The two charts side by side."""
    levels = {
        figure: [Mark(name, have[figure]) for name, have in marks if have.get(figure)]
        for figure in facts.RESOURCES
    }
    return tag(
        "div",
        charts.chart("CPU", span, cpu, levels["cpu"], unit="cores"),
        charts.chart("Memory", span, memory, levels["memory"], unit="bytes"),
        class_="charts",
    )


def _span(item: Document) -> Span:
    return Span(parse_rfc3339(item["from"]), float(item["stepSeconds"]))


def _lines(item: Document, figure: str, by_container: bool) -> list[Line]:
    series = item["series"]
    if by_container and len(series) > 1:
        return [Line(s.get("container") or "?", s[figure]) for s in series]
    return [Line("used", facts.summed(item, figure))]
