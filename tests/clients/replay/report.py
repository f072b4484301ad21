"""What a replay has shown: a table for people, a document for programs, a diff for one scenario."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from . import cause
from .compare import Difference
from .runner import Result

_EXAMPLES = 8


@dataclass
class Figures:
    """Counts of one area."""

    answers: int = 0
    same_status: int = 0
    clear_status: int = 0  # the same, or a 4xx where the recorded server answered 5xx
    same_whole: int = 0
    same_but_managed: int = 0

    def add(self, result: Result) -> None:
        """Count one compared step."""
        differences = result.differences
        self.answers += 1
        is_same = not cause.is_status(differences)
        self.same_status += is_same
        self.clear_status += is_same or cause.is_clear(result)
        self.same_whole += not differences
        self.same_but_managed += all(cause.is_managed(d) for d in differences)

    def percent(self, count: int) -> float:
        """A count of this area's answers, as a percentage."""
        return 100.0 * count / self.answers if self.answers else 100.0


def figures(results: Iterable[Result]) -> dict[str, Figures]:
    """The counts of every area, and of all as `all`."""
    areas: dict[str, Figures] = {}
    total = Figures()
    for result in results:
        areas.setdefault(result.scenario.area, Figures()).add(result)
        total.add(result)
    return {**areas, "all": total}


def table(results: Sequence[Result]) -> str:
    """One line an area."""
    heads = f"{'status':>9}{'or 4xx for 5xx':>16}{'whole':>9}{'whole but managedFields':>25}"
    lines = [f"{'area':<12}{'answers':>8}{heads}"]
    for area, found in figures(results).items():
        shown = [
            found.same_status,
            found.clear_status,
            found.same_whole,
            found.same_but_managed,
        ]
        status, clear, whole, rest = (f"{found.percent(count):.1f} %" for count in shown)
        lines.append(f"{area:<12}{found.answers:>8}{status:>9}{clear:>16}{whole:>9}{rest:>25}")
    return "\n".join(lines)


def causes(results: Iterable[Result]) -> list[tuple[str, list[Result]]]:
    """The differing steps by cause, the most frequent first."""
    groups: defaultdict[str, list[Result]] = defaultdict(list)
    for result in results:
        if result.differences:
            groups[cause.of(result)].append(result)
    return sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))


def ranking(results: Iterable[Result], count: int = 40) -> str:
    """The most frequent causes, with steps to look at."""
    lines = []
    for name, group in causes(results)[:count]:
        shown = ", ".join(result.step.id for result in group[:3])
        lines.append(f"{len(group):>5}  {name}   ({shown}{', …' if len(group) > 3 else ''})")
    return "\n".join(lines)


def diff(results: Iterable[Result], wanted: str) -> str:
    """The differences of one scenario or step, readably."""
    lines: list[str] = []
    for result in results:
        step = result.step
        if result.scenario.scenario != wanted and step.id != wanted:
            continue
        if not result.differences:
            continue
        request = step.request
        what = f"{request.method} {request.path}" if request else f"watch {step.watchCollect}"
        lines.append(f"{step.id}  {step.purpose}\n  {what}")
        if request and step.id == wanted and (payload := request.payload()) is not None:
            lines.append(f"  sent      {payload[:2000]}")
        lines += [f"  {_shown(d)}" for d in result.differences]
        if cause.is_status(result.differences):
            lines.append(f"  live      {result.answer.text[:600].strip()}")
            body = step.response.body if step.response else None
            lines.append(f"  recorded  {_text(body)[:600]}")
    return "\n".join(lines) or f"no differences in {wanted}"


def _shown(difference: Difference) -> str:
    if difference.what == "missing":
        return f"- {difference.pointer}: {_text(difference.expected)[:700]}"
    if difference.what == "extra":
        return f"+ {difference.pointer}: {_text(difference.actual)[:700]}"
    lines = f"! {difference.pointer}\n      recorded {_text(difference.expected)[:1500]}"
    return f"{lines}\n      live     {_text(difference.actual)[:1500]}"


def _text(value: Any) -> str:
    if value is msgspec.UNSET:
        return ""
    if isinstance(value, bytes):
        return repr(value)
    return msgspec.json.encode(value).decode()


def document(results: Sequence[Result]) -> dict[str, Any]:
    """Everything, for programs."""
    shown = {
        area: {
            "answers": found.answers,
            "sameStatus": found.same_status,
            "sameWhole": found.same_whole,
            "sameButManagedFields": found.same_but_managed,
        }
        for area, found in figures(results).items()
    }
    return {
        "areas": shown,
        "causes": [
            {"cause": name, "count": len(group), "steps": [result.step.id for result in group]}
            for name, group in causes(results)
        ],
        "differences": [_step(result) for result in results if result.differences],
    }


def _step(result: Result) -> dict[str, Any]:
    request = result.step.request
    counted = Counter(d.pointer for d in result.differences)
    return {
        "id": result.step.id,
        "cause": cause.of(result),
        "request": f"{request.method} {request.path}" if request else "",
        "places": list(counted)[:_EXAMPLES],
        "differences": [
            {"at": d.pointer, "what": d.what, "recorded": d.expected, "live": d.actual}
            for d in result.differences
            if not isinstance(d.expected, bytes)
        ],
    }
