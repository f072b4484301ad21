"""Charts show what was measured, and nothing else; looked at as the XML that they are."""

import json
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.dashboard import charts
from motley.dashboard.charts import Line, Mark, Span

START = 1_794_830_400.0  # 2026-11-16 12:00:00 UTC
HOSTILE = '"/><script>alert(1)</script><g onload="alert(2)">'
MIB = 2.0**20
HOUR = Span(START, 60)


def drawn(*lines, marks=(), unit="cores", span=HOUR):
    return ElementTree.fromstring(charts.chart("CPU", span, lines, marks, unit=unit))


def by_class(figure, name):
    return [e for e in figure.iter() if name in (e.get("class") or "").split()]


def texts(figure, name):
    return ["".join(e.itertext()) for e in by_class(figure, name)]


def heights(path):
    return [float(y) for y in re.findall(r"[ML][\d.]+ ([\d.]+)", path.get("d"))]


def test_a_line_is_drawn_with_its_highest_value_highest():
    path = by_class(drawn(Line("web", [0.1, 0.3, 0.2])), "line")[0]
    first, second, third = heights(path)
    assert second < third < first  # downwards, as screens count


def test_twice_the_value_is_twice_as_high_above_nought():
    figure = drawn(Line("web", [0.0, 0.1, 0.2]))
    nought, one, two = heights(by_class(figure, "line")[0])
    axis = float(by_class(figure, "axis")[0].get("y1"))
    assert nought == axis
    assert two - nought == pytest.approx(2 * (one - nought), abs=0.2)


def test_gaps_stay_gaps():
    path = by_class(drawn(Line("web", [1, 2, None, None, 2, 1])), "line")[0].get("d")
    assert path.count("M") == 2
    assert path.count("L") == 2


def test_a_value_between_gaps_is_a_dot():
    path = by_class(drawn(Line("web", [None, 1, None, 1, 1])), "line")[0].get("d")
    assert re.search(r"M[\d.]+ [\d.]+h\.01", path)


def test_one_value_alone_is_drawn():
    assert by_class(drawn(Line("web", [0.5])), "line")[0].get("d").endswith("h.01")


def test_values_that_are_no_numbers_are_gaps():
    path = by_class(drawn(Line("web", [1, float("nan"), float("inf"), 1])), "line")[0].get("d")
    assert path.count("h.01") == 2


def test_an_area_lies_below_a_single_line_only():
    one = [1.0, 2.0]
    assert len(by_class(drawn(Line("a", one)), "area")) == 1
    assert by_class(drawn(Line("a", one), Line("b", one)), "area") == []


@pytest.mark.parametrize("lines", [[], [Line("web", [])], [Line("a", [None, None])]])
def test_nothing_measured_is_said_in_words(lines):
    figure = drawn(*lines)
    assert texts(figure, "nothing") == ["nothing measured yet"]
    assert figure.find("svg") is None


def test_the_legend_tells_the_present_values():
    figure = drawn(Line("web", [0.1, 0.25]), Line("db", [1.25, 1.5]))
    legend = by_class(figure, "legend")[0]
    assert ["".join(e.itertext()) for e in legend] == ["web250m", "db1.5"]


def test_a_value_of_long_ago_is_not_the_present_one():
    figure = drawn(Line("gone", [0.1, None, None, None]), Line("late", [0.1, 0.2, None, None]))
    assert [b.text for b in by_class(figure, "legend")[0].iter("b")] == ["–", "200m"]


def test_a_mark_near_the_lines_is_drawn_at_its_height():
    figure = drawn(Line("web", [0.2, 0.2]), marks=[Mark("limit", 0.4)])
    line = next(e for e in by_class(figure, "mark") if e.tag == "line")
    nought = float(by_class(figure, "axis")[0].get("y1"))
    web = heights(by_class(figure, "line")[0])[0]
    assert nought - float(line.get("y1")) == pytest.approx(2 * (nought - web), abs=0.2)
    assert "above the chart" not in "".join(figure.itertext())


def test_a_mark_far_above_does_not_flatten_the_lines_and_is_told_in_the_legend():
    figure = drawn(Line("web", [0.01, 0.02]), marks=[Mark("limit", 4)])
    assert not [e for e in by_class(figure, "mark") if e.tag == "line"]
    assert texts(by_class(figure, "legend")[0], "mark") == ["limit4above the chart"]
    assert min(heights(by_class(figure, "line")[0])) < 60  # in the upper part


def test_the_lowest_mark_gives_idle_lines_their_scale():
    figure = drawn(Line("idle", [0, 0]), marks=[Mark("limit", 4), Mark("request", 1)])
    assert texts(figure, "y")[-1] == "1"
    told = [t for t in texts(by_class(figure, "legend")[0], "mark") if "above" in t]
    assert told == ["limit4above the chart"]


def test_memory_has_binary_units():
    figure = drawn(Line("web", [100 * MIB, 120 * MIB]), unit="bytes")
    assert texts(figure, "y") == ["0 B", "32 MiB", "64 MiB", "96 MiB", "128 MiB"]


@pytest.mark.parametrize(
    ("step_s", "count", "labels"),
    [
        (5, 13, ["12:00:00", "12:00:10", "12:00:20", "12:00:30", "12:00:40", "12:00:50"]),
        (60, 61, ["12:00", "12:10", "12:20", "12:30", "12:40", "12:50", "13:00"]),
        (600, 145, ["12:00", "18:00", "17 Nov", "06:00", "12:00"]),
        (21600, 29, ["17 Nov", "19 Nov", "21 Nov", "23 Nov"]),
    ],
)
def test_times_fit_the_span(step_s, count, labels):
    figure = drawn(Line("web", [1.0] * count), span=Span(START, step_s))
    assert texts(figure, "x")[: len(labels)] == labels
    assert len(texts(figure, "x")) <= 7
    assert texts(figure, "zone") == ["UTC"]


def test_the_script_is_told_what_was_drawn():
    figure = drawn(Line("web", [0.123456, None]), Line(HOSTILE, [1, 2]))
    numbers = json.loads(figure.get("data-chart"))
    assert numbers["lines"] == [["web", [0.1235, None]], [HOSTILE, [1.0, 2.0]]]
    assert (numbers["start"], numbers["step"], numbers["count"]) == (START, 60, 2)
    assert numbers["unit"] == "cores"


def test_a_screen_reader_is_told_the_same():
    figure = drawn(Line("web", [0.1, 0.3, 0.2]))
    picture = figure.find("svg")
    told = "CPU: web now 200m, lowest 100m, highest 300m"
    assert picture.get("role") == "img"
    assert picture.get("aria-label") == told
    assert picture.findtext("title") == "CPU"
    assert picture.findtext("desc") == f"{told}. From 2026-11-16 12:00 to 2026-11-16 12:02 UTC."


@pytest.mark.parametrize(
    "made",
    [
        charts.chart(HOSTILE, HOUR, [Line(HOSTILE, [1, 2])], [Mark(HOSTILE, 2)], unit="cores"),
        charts.chart(HOSTILE, HOUR, [], unit="bytes"),
        charts.sparkline([1, 2, 3], HOSTILE),
        charts.bar(1, 2, 1, label=HOSTILE),
    ],
)
def test_hostile_names_are_words_and_no_markup(made):
    found = ElementTree.fromstring(made)
    assert HOSTILE in "".join(found.itertext())
    assert {e.tag for e in found.iter()}.isdisjoint({"script", "g"})
    assert not [k for e in found.iter() for k in e.attrib if k.startswith("on") or k == "style"]


VALUES = st.lists(st.none() | st.floats(allow_nan=True), max_size=40)
UNITS = st.sampled_from(["cores", "bytes"])


@given(st.lists(VALUES, max_size=4), st.lists(st.floats(), max_size=3), UNITS)
def test_whatever_is_measured_makes_a_picture_inside_its_frame(series, levels, unit):
    lines = [Line(f"l{i}", values) for i, values in enumerate(series)]
    figure = drawn(*lines, marks=[Mark("m", level) for level in levels], unit=unit)
    for path in by_class(figure, "line") + by_class(figure, "area"):
        found = re.findall(r"[ML]([\d.-]+) ([\d.-]+)", path.get("d"))
        assert all(58 <= float(x) <= 472 and 8 <= float(y) <= 148 for x, y in found)


def test_a_sparkline_is_a_picture_with_a_name():
    found = ElementTree.fromstring(charts.sparkline([0, 1, None, 2], "CPU of web"))
    assert (found.get("role"), found.get("aria-label")) == ("img", "CPU of web")
    assert heights(found.find("path")) == [19, 10, 1]


@pytest.mark.parametrize("values", [[], [None], [0, 0], [1]])
def test_a_sparkline_of_nearly_nothing_is_still_one(values):
    assert ElementTree.fromstring(charts.sparkline(values, "x")).find("path") is not None


def widths(made):
    rects = ElementTree.fromstring(made).iter("rect")
    return {rect.get("class"): float(rect.get("width")) for rect in rects}


def test_a_bar_is_filled_by_its_share_and_marks_what_was_asked_for():
    made = charts.bar(1, 4, 2, label="CPU")
    found = ElementTree.fromstring(made)
    assert widths(made)["used"] == 25
    assert by_class(found, "asked")[0].get("x") == "50"
    assert found.get("class") == "bar"
    assert found.get("aria-label") == found.findtext("title") == "CPU: 25 % used, 50 % requested"


def test_a_bar_is_red_above_ninety_percent():
    assert ElementTree.fromstring(charts.bar(91, 100, label="x")).get("class") == "bar bad"
    assert ElementTree.fromstring(charts.bar(90, 100, label="x")).get("class") == "bar"


def test_a_bar_holds_no_more_than_the_whole():
    made = charts.bar(300, 100, 150, label="x")
    assert widths(made)["used"] == 100
    assert "300 % used, 150 % requested" in made


def test_a_bar_of_an_unknown_whole_says_so():
    made = charts.bar(3, 0, 1, label="CPU")
    assert widths(made)["used"] == 0
    assert "the whole is unknown" in made
