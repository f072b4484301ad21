"""The stylesheet and the script: readable in light and dark, and nothing from elsewhere."""

import re
from importlib import resources

import pytest

STATIC = resources.files("motley.dashboard") / "static"
CSS = (STATIC / "dashboard.css").read_text()
LIGHT, DARK = (
    dict(re.findall(r"--([\w-]+): (#\w{6});", block))
    for block in re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)
)
GROUNDS = ("ground", "sheet", "raised", "idle-ground")
MOODS = ("ok", "warn", "bad", "idle")
TEXTS = [(word, ground) for word in ("ink", "muted", "accent") for ground in GROUNDS]
TEXTS += [(word, f"{mood}-ground") for mood in MOODS for word in (mood, "ink")]
TEXTS += [("sheet", "accent")]  # the button that logs in


def light(colour):
    """The relative luminance, as the guidelines for accessible content define it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    dark, bright = sorted((light(one), light(other)))
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_text_can_be_read_on_every_ground(colours):
    found = {pair: contrast(*(colours[name] for name in pair)) for pair in TEXTS}
    assert not {pair: value for pair, value in found.items() if value < 4.5}


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_lines_of_charts_can_be_seen_and_told_apart(colours):
    lines = [colours[f"s{i}"] for i in range(8)]
    assert min(contrast(line, colours["sheet"]) for line in lines) >= 3
    assert len(set(lines)) == 8


def test_light_and_dark_name_the_same_colours():
    assert LIGHT.keys() == DARK.keys()


@pytest.mark.parametrize("name", ["dashboard.css", "dashboard.js", "icon.svg"])
def test_nothing_comes_from_elsewhere(name):
    text = (STATIC / name).read_text().replace("http://www.w3.org/2000/svg", "")
    assert "//" not in re.sub(r"(?m)^\s*//.*$|; // .*$|\d, // .*$", "", text)
    assert "@import" not in text


def test_the_script_makes_no_markup_of_words():
    script = (STATIC / "dashboard.js").read_text()
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert way not in script
