"""An explanation, and how it reads: a page for a person, a document for a program."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import msgspec

from motley.api.views.pod import Pod
from motley.cli import printers
from motley.lib import clock
from motley.scheduler.explaining import Comparison, WhyNot

Spec = Mapping[str, Any]  # of a Decision


class Source(Enum):
    """Where a decision is from."""

    RECORD = "record"  # as it was made
    NOW = "now"  # worked out for this explanation


@dataclass
class Explanation:
    """All that was found out about one pod."""

    pod: Pod
    decision: Spec | None = None
    source: Source = Source.RECORD
    earlier: list[Spec] = field(default_factory=list)
    suggestions: list[str] = field(default_factory=list)
    why_not: WhyNot | None = None
    notes: list[str] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """For programs; what does not apply is left out."""
        found = {
            "kind": "Explanation",
            "pod": {"namespace": self.pod.metadata.namespace, "name": self.pod.metadata.name},
            "node": self.pod.spec.node_name,
            "source": self.source.value if self.decision and not self.why_not else None,
            "decision": None if self.why_not else self.decision,
            "earlier": [] if self.why_not else self.earlier,
            "suggestions": self.suggestions,
            "whyNot": msgspec.to_builtins(self.why_not),
            "notes": self.notes,
        }
        return {name: value for name, value in found.items() if value not in (None, [], "")}


def text(made: Explanation, now: float, *, wide: bool = False) -> str:
    """The page."""
    lines = [f"Note: {note}" for note in made.notes]
    if made.why_not is not None:
        lines += _why_not(made, made.why_not)
    elif made.decision is not None:
        lines += _decision(made, made.decision, now, wide=wide)
    if made.suggestions:
        lines += ["", "What would help:", *(f"  - {one}" for one in made.suggestions)]
    return "\n".join(lines)


# -- a decision -----------------------------------------------------------------------------


def _decision(made: Explanation, spec: Spec, now: float, *, wide: bool) -> Iterator[str]:
    yield _verdict(made, spec)
    yield _circumstances(made, spec, now)
    filters = spec.get("filters") or []
    nodes, feasible = spec.get("nodes", 0), spec.get("feasible", 0)
    yield ""
    if filters:
        rows = [(f["plugin"], f.get("rejected", 0) or "-", f.get("reason", "")) for f in filters]
        yield printers.table(("FILTER", "REJECTED", "REASON"), rows)
    yield f"{feasible} of {nodes} nodes passed every filter."
    yield from _scores(spec)
    if spec.get("nominatedNode"):
        victims = spec.get("victims") or []
        yield ""
        yield f"Room is being made on {spec['nominatedNode']}; {len(victims)} pods end for it:"
        yield from (f"  - {victim}" for victim in victims)
    yield from _metrics(spec)
    if wide:
        yield from _details(made, spec)


def _verdict(made: Explanation, spec: Spec) -> str:
    pod = made.pod
    where = pod.spec.node_name
    chosen = spec.get("node", "")
    if made.source is Source.NOW and where:
        verdict = f"Pod {pod.key} is on {where}; the decision is no longer remembered."
        if chosen == where:
            return f"{verdict}\nDecided anew, it would be placed there again:"
        return f"{verdict}\nDecided anew, it would go to {chosen or 'no node'}:"
    if where:
        return f"Pod {pod.key} is on {where}."
    if chosen:
        return f"Pod {pod.key} fits on {chosen} and is about to be bound."
    return f"Pod {pod.key} fits nowhere.\n{spec.get('message', '')}"


def _circumstances(made: Explanation, spec: Spec, now: float) -> str:
    if made.source is Source.NOW:
        took = spec.get("tookSeconds", 0.0)
        return f"Worked out now with profile {spec.get('profile')}, in {_time(took)}."
    at = spec.get("decidedAt")
    since = f" {printers.age(now - clock.parse_rfc3339(at))} ago" if at else ""
    return (
        f"Decided{since} by {spec.get('profile')}, attempt {spec.get('attempts', 1)}, "
        f"in {_time(spec.get('tookSeconds', 0.0))}."
    )


def _scores(spec: Spec) -> Iterator[str]:
    ranking = spec.get("scores") or []
    if not ranking:
        return
    yield ""
    if len(ranking) == 1 and not ranking[0].get("plugins"):
        yield f"{ranking[0]['node']} was the only one, so nothing was scored."
        return
    weights = spec.get("weights") or {}
    names = dict.fromkeys(name for one in ranking for name in one.get("plugins") or {})
    rows: list[tuple[object, ...]] = [
        (name, f"{weights.get(name, 1):g}", *(_number(one, name) for one in ranking))
        for name in names
    ]
    rows.append(("total", "", *(f"{one.get('total', 0):g}" for one in ranking)))
    header = ["SCORE", "WEIGHT", *(one["node"] for one in ranking)]
    header[2] += " *"
    yield printers.table(header, rows)
    yield "* chosen; scores are multiplied by their weight."


def _number(ranked: Mapping[str, Any], name: str) -> str:
    value = (ranked.get("plugins") or {}).get(name)
    return "-" if value is None else f"{value:g}"


def _metrics(spec: Spec) -> Iterator[str]:
    metrics = spec.get("metrics") or []
    if metrics:
        said = (f"{m['metric']} {m.get('ageSeconds', 0):.1f} s ({m['plugin']})" for m in metrics)
        yield ""
        yield f"Age of measurements: {', '.join(said)}."


def _details(made: Explanation, spec: Spec) -> Iterator[str]:
    took = spec.get("pluginSeconds") or {}
    if took:
        rows = [(name, _time(s)) for name, s in sorted(took.items(), key=lambda i: -i[1])]
        yield ""
        yield printers.table(("PLUGIN", "TIME"), rows)
    elif made.source is Source.RECORD:
        yield ""
        yield 'Times per plugin were not measured (annotate the pod: motley.io/explain="true").'
    if made.earlier:
        rows = [(d.get("decidedAt", ""), d.get("message", "")) for d in made.earlier]
        yield ""
        yield printers.table(("EARLIER", "OUTCOME"), rows)


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


# -- one node -------------------------------------------------------------------------------


def _why_not(made: Explanation, answer: WhyNot) -> Iterator[str]:
    pod, node = made.pod.key, answer.node
    if answer.objections:
        first, *others = answer.objections
        yield f"Pod {pod} cannot run on {node}: {first.plugin} says: {', '.join(first.reasons)}."
        yield ""
        rows = [(one.plugin, ", ".join(one.reasons)) for one in answer.objections]
        yield printers.table(("AGAINST IT", "REASON"), rows)
        if others:
            yield "All of this would have to change."
    elif answer.comparison is not None:
        yield from _comparison(made, answer, answer.comparison)


def _comparison(made: Explanation, answer: WhyNot, found: Comparison) -> Iterator[str]:
    node, best = answer.node, found.best_node
    where = made.pod.spec.node_name
    if node == where:
        yield f"Pod {made.pod.key} is on {node}."
    else:
        yield f"Pod {made.pod.key} could run on {node}."
    better = {1: "none is better", 2: "1 is better"}.get(
        found.place, f"{found.place - 1} are better"
    )
    yield f"Of {found.feasible} nodes that would do now, {better}."
    if node == best:
        best_scores: Mapping[str, float] = {}
    else:
        best_scores = found.best_scores
    yield ""
    rows: list[tuple[object, ...]] = []
    for name, value in found.scores.items():
        row: tuple[object, ...] = (name, f"{value:g}")
        if best_scores:
            row += (f"{best_scores[name]:g}", f"{value - best_scores[name]:+g}")
        rows.append(row)
    total: tuple[object, ...] = ("total", f"{sum(found.scores.values()):g}")
    if best_scores:
        theirs = sum(best_scores.values())
        total += (f"{theirs:g}", f"{sum(found.scores.values()) - theirs:+g}")
    header = ["SCORE", node, *([best, "DIFFERENCE"] if best_scores else [])]
    yield printers.table(header, [*rows, total])
