"""Charts as SVG inside the page: readable without a script, by eye and by screen reader. Pure.

Colours, fonts and widths of lines belong to the stylesheet; here is only where things lie. The
script takes the same numbers from `data-chart`, so that what it reads out is what was drawn.

Invariant: what was not measured is not drawn. A gap stays a gap, and is no nought.
"""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Literal, NamedTuple

from motley.dashboard import figures
from motley.dashboard.markup import Html, tag

Unit = Literal["cores", "bytes"]

# The picture's own units; the stylesheet says how large that is on a screen.
_WIDTH, _HEIGHT = 480, 170
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 472, 8, 148
_COLOURS = 8  # classes s0 … s7 of the stylesheet
_FLATTENING = 3.0  # a mark this many times above the highest line would leave it no room
_FRESH = 3  # a value is the present one when it is among the last so many
_LEAST: dict[Unit, float] = {"cores": 0.005, "bytes": 1024.0}  # below, an axis has no round labels
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_STEPS_S = (
    *(1, 2, 5, 10, 15, 30),
    *(n * _MINUTE for n in (1, 2, 5, 10, 15, 30)),
    *(n * _HOUR for n in (1, 2, 3, 6, 12)),
    *(n * _DAY for n in (1, 2, 7, 14, 28, 91, 182, 364)),
)
_TIMES = 6  # labels that have room side by side


class Line(NamedTuple):
    """One series: a value per step, None where nothing was measured."""

    name: str
    values: Sequence[float | None]


class Mark(NamedTuple):
    """A level to compare with: what was requested, a limit, what a node can give."""

    name: str
    value: float


class Span(NamedTuple):
    """When the first value was measured (seconds since the epoch), and the time between two."""

    start: float
    step_s: float


class _Frame(NamedTuple):
    """Where values lie in the picture."""

    steps: int
    top: float

    def x(self, index: float) -> float:
        if self.steps < 2:
            return (_LEFT + _RIGHT) / 2
        return _LEFT + (_RIGHT - _LEFT) * index / (self.steps - 1)

    def y(self, value: float) -> float:
        return _BOTTOM - (_BOTTOM - _TOP) * min(max(value / self.top, 0.0), 1.0)


def chart(
    title: str, span: Span, lines: Sequence[Line], marks: Sequence[Mark] = (), *, unit: Unit
) -> Html:
    """A chart of lines over time, with marks, axes and a legend that tells the present values."""
    lines = [Line(line.name, [_finite(v) for v in line.values]) for line in lines]
    peak = max((v for line in lines for v in line.values if v is not None), default=None)
    if peak is None:
        return tag(
            "figure",
            tag("figcaption", title),
            tag("p", "nothing measured yet", class_="nothing"),
            class_="chart empty",
        )
    shown = _shown(marks, peak)
    top = max(peak, _LEAST[unit], *(mark.value for mark in shown), 0.0)
    ticks = figures.ticks(top, binary=unit == "bytes")
    frame = _Frame(max(len(line.values) for line in lines), ticks[-1])
    written = figures.cores if unit == "cores" else figures.size
    told = f"{title}: " + "; ".join(_told(line, written) for line in lines)
    picture = tag(
        "svg",
        tag("title", title),
        tag("desc", f"{told}. {_when(span, frame.steps)}"),
        [_level(tick, frame, written) for tick in ticks],
        _times(span, frame),
        _area(lines[0].values, frame) if len(lines) == 1 else None,
        [_drawn(line.values, frame, f"line s{i % _COLOURS}") for i, line in enumerate(lines)],
        [_mark(mark, frame, _dashes(marks.index(mark))) for mark in shown],
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        role="img",
        aria_label=told,
        tabindex=0,
    )
    return tag(
        "figure",
        tag("figcaption", title),
        picture,
        _legend(lines, marks, shown, written),
        class_="chart",
        data_chart=_numbers(span, lines, frame, unit),
    )


def sparkline(values: Sequence[float | None], label: str) -> Html:
    """A line as small as a word, for a cell of a table."""
    known = [_finite(v) for v in values]
    top = max((v for v in known if v is not None), default=0.0) or 1.0
    width = max(len(known) - 1, 1)

    def point(index: int, value: float) -> str:
        return f"{_short(1 + 98 * index / width)} {_short(19 - 18 * max(value / top, 0.0))}"

    return tag(
        "svg",
        tag("title", label),
        tag("path", d=" ".join(_segment(s, point) for s in _segments(known)), class_="line s0"),
        viewBox="0 0 100 20",
        width=100,
        height=20,
        class_="spark",
        role="img",
        aria_label=label,
    )


def bar(used: float, whole: float, asked: float | None = None, *, label: str) -> Html:
    """How much of a whole is used, with a thin mark where it was asked for; red above 90 %."""
    part = used / whole if whole > 0 else 0.0
    told = f"{label}: {figures.share(part)} used" if whole > 0 else f"{label}: the whole is unknown"
    marker: Html | None = None
    if asked is not None and whole > 0:
        told += f", {figures.share(asked / whole)} requested"
        at = 100 * min(max(asked / whole, 0.0), 1.0)
        marker = tag("rect", class_="asked", x=_short(min(at, 99)), y=0, width=1, height=8)
    return tag(
        "svg",
        tag("title", told),
        tag("rect", class_="whole", x=0, y=1, width=100, height=6, rx=1),
        tag("rect", class_="used", x=0, y=1, width=_short(100 * _clipped(part)), height=6, rx=1),
        marker,
        viewBox="0 0 100 8",
        preserveAspectRatio="none",
        class_="bar bad" if part > 0.9 else "bar",
        role="img",
        aria_label=told,
    )


def _shown(marks: Sequence[Mark], peak: float) -> list[Mark]:
    """The marks that leave the lines their room; the lowest alone when all lines lie at nought."""
    if peak > 0:
        return [mark for mark in marks if 0 < mark.value <= peak * _FLATTENING]
    return sorted((mark for mark in marks if mark.value > 0), key=lambda mark: mark.value)[:1]


def _told(line: Line, written: Callable[[float], str]) -> str:
    known = [v for v in line.values if v is not None]
    if not known:
        return f"{line.name} nothing measured"
    now = _present(line.values)
    told = f"{line.name} now {written(now)}, " if now is not None else f"{line.name} "
    return f"{told}lowest {written(min(known))}, highest {written(max(known))}"


def _when(span: Span, count: int) -> str:
    ends = (span.start, span.start + span.step_s * (count - 1))
    first, last = (datetime.fromtimestamp(end, UTC) for end in ends)
    return f"From {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC."


def _level(tick: float, frame: _Frame, written: Callable[[float], str]) -> list[Html]:
    y = _short(frame.y(tick))
    return [
        tag("line", class_="axis" if tick == 0 else "grid", x1=_LEFT, x2=_RIGHT, y1=y, y2=y),
        tag("text", written(tick), class_="y", x=_LEFT - 6, y=y),
    ]


def _times(span: Span, frame: _Frame) -> list[Html]:
    """Labels of the time axis, at times that a clock or a calendar would show."""
    length_s = span.step_s * (frame.steps - 1)
    step_s = next((s for s in _STEPS_S if length_s / s <= _TIMES), _STEPS_S[-1])
    found = [tag("text", "UTC", class_="zone", x=4, y=_BOTTOM + 17)]
    first = math.ceil(span.start / step_s) * step_s
    for k in range(min(int((span.start + length_s - first) // step_s) + 1, 4 * _TIMES)):
        at = first + k * step_s
        x = _short(frame.x((at - span.start) / span.step_s if frame.steps > 1 else 0))
        found.append(tag("line", class_="tick", x1=x, x2=x, y1=_BOTTOM, y2=_BOTTOM + 4))
        found.append(tag("text", _clock(at, step_s), class_="x", x=x, y=_BOTTOM + 17))
    return found


def _clock(at: float, step_s: float) -> str:
    moment = datetime.fromtimestamp(at, UTC)
    if at % _DAY == 0:
        return f"{moment:%d %b}" if step_s < 91 * _DAY else f"{moment:%b %Y}"
    return f"{moment:%H:%M:%S}" if step_s < _MINUTE else f"{moment:%H:%M}"


def _drawn(values: Sequence[float | None], frame: _Frame, classes: str) -> Html:
    def point(index: int, value: float) -> str:
        return f"{_short(frame.x(index))} {_short(frame.y(value))}"

    return tag("path", d=" ".join(_segment(s, point) for s in _segments(values)), class_=classes)


def _area(values: Sequence[float | None], frame: _Frame) -> Html:
    def closed(segment: list[tuple[int, float]]) -> str:
        points = (f"{_short(frame.x(i))} {_short(frame.y(v))}" for i, v in segment)
        first, last = _short(frame.x(segment[0][0])), _short(frame.x(segment[-1][0]))
        return f"M{first} {_BOTTOM}L{'L'.join(points)}L{last} {_BOTTOM}z"

    drawn = " ".join(closed(segment) for segment in _segments(values) if len(segment) > 1)
    return tag("path", d=drawn, class_="area s0")


def _dashes(index: int) -> str:
    return f"mark m{index % 2}"


def _mark(mark: Mark, frame: _Frame, classes: str) -> Html:
    y = _short(frame.y(mark.value))
    return tag("line", tag("title", mark.name), class_=classes, x1=_LEFT, x2=_RIGHT, y1=y, y2=y)


def _legend(
    lines: Sequence[Line],
    marks: Sequence[Mark],
    shown: Sequence[Mark],
    written: Callable[[float], str],
) -> Html:
    entries = []
    for i, line in enumerate(lines):
        now = _present(line.values)
        entries.append(
            tag(
                "li",
                tag("span", line.name, class_="name"),
                tag("b", "–" if now is None else written(now)),
                class_=f"s{i % _COLOURS}",
            )
        )
    for i, mark in enumerate(marks):
        beyond = None if mark in shown or mark.value <= 0 else tag("small", "above the chart")
        name = tag("span", mark.name, class_="name")
        entries.append(tag("li", name, tag("b", written(mark.value)), beyond, class_=_dashes(i)))
    return tag("ul", entries, class_="legend")


def _numbers(span: Span, lines: Sequence[Line], frame: _Frame, unit: Unit) -> str:
    """What the script needs to say which value lies under the pointer."""
    drawn = {
        "start": span.start,
        "step": span.step_s,
        "count": frame.steps,
        "unit": unit,
        "top": frame.top,
        "box": [_LEFT, _RIGHT, _TOP, _BOTTOM],
        "lines": [
            [line.name, [None if v is None else float(f"{v:.4g}") for v in line.values]]
            for line in lines
        ],
    }
    return json.dumps(drawn, separators=(",", ":"))


def _segments(values: Sequence[float | None]) -> Iterator[list[tuple[int, float]]]:
    """Runs of values without a gap, each value with its place."""
    run: list[tuple[int, float]] = []
    for index, value in enumerate(values):
        if value is not None:
            run.append((index, value))
        elif run:
            yield run
            run = []
    if run:
        yield run


def _segment(run: list[tuple[int, float]], point: Callable[[int, float], str]) -> str:
    points = [point(index, value) for index, value in run]
    # A value alone is a line of no length, which round ends make a dot.
    return f"M{points[0]}h.01" if len(points) == 1 else f"M{'L'.join(points)}"


def _present(values: Sequence[float | None]) -> float | None:
    """The newest value, when it is new: the last step may not be over yet."""
    return next((v for v in reversed(values[-_FRESH:]) if v is not None), None)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _clipped(part: float) -> float:
    return min(max(part, 0.0), 1.0)


def _short(x: float) -> str:
    return f"{x:.1f}".removesuffix(".0")
