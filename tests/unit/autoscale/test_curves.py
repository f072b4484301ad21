"""Autoscalers over time, as text: what is demanded, what is wanted, and why.

A file of `tests/data/autoscale` has the autoscaler (JSON), the demand over time, a line of dashes
and the expected table. `UPDATE_GOLDEN=1 pytest …` rewrites the table.
"""

import json
import os
from pathlib import Path

import pytest

FILES = sorted((Path(__file__).parents[2] / "data/autoscale").glob("*.txt"))
RULER = "-" * 8


def demands(lines):
    """`FROM..TO DEMAND`: looked at every fifteen seconds; `fails` instead of a demand."""
    for line in lines:
        span, _, demand = line.partition(" ")
        first, _, last = span.partition("..")
        for at in range(int(first), int(last or first) + 1, 15):
            yield at, demand.strip()


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_curve(path, curve, an_autoscaler, start):
    given, _, expected = path.read_text().partition(RULER + "\n")
    head, _, course = given.partition("\n\n")
    about = [line for line in head.splitlines() if line.startswith("#")]
    options = json.loads("".join(line for line in head.splitlines() if not line.startswith("#")))
    size = options.pop("size")
    one = curve(an_autoscaler(**options), size)
    rows = []
    for at, demand in demands(course.strip().splitlines()):
        one.now = start + at
        before = one.size
        failing = demand == "fails"
        decision = one.step(0 if failing else int(demand), failing=failing)
        told = {c["type"]: c for c in one.conditions.documents()}
        why = [
            told[t]["reason"]
            for t in ("AbleToScale", "ScalingLimited", "ScalingActive")
            if t in told
        ]
        change = f"{before} -> {one.size}" if before != one.size else f"{before}"
        rows.append(
            (f"{at}", demand, change, " ".join(why), decision.reason if decision.rescale else "")
        )
    lines = [("time", "demand", "pods", "conditions", "reason"), *merged(rows)]
    widths = [max(len(row[i]) for row in lines) for i in range(4)]
    text = "".join(
        "  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[4]]).rstrip()
        + "\n"
        for row in lines
    )
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(f"{given}{RULER}\n{text}")
    assert about
    assert text == expected


def merged(rows):
    """Moments at which nothing changes, as one row."""
    found = []
    for row in rows:
        if found and not row[4] and not found[-1][4] and found[-1][1:4] == row[1:4]:
            first = found[-1][0].partition("..")[0]
            found[-1] = (f"{first}..{row[0]}", *row[1:])
        else:
            found.append(row)
    return found


def test_there_are_curves():
    assert len(FILES) >= 5
