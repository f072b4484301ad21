"""The house rules that a machine can check: sizes, documented commands, a true table."""

import re
from pathlib import Path

import pytest

from motley.cli.main import COMMANDS

REPO = Path(__file__).resolve().parents[2]
SOURCES = [p for p in (REPO / "src").rglob("*.py") if not p.name.endswith("_pb2.py")]


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(REPO)))
def test_a_module_is_short_enough_to_hold_one_idea(path):
    assert path.read_text().count("\n") < 600


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_documented(name):
    reference = (REPO / "docs/reference/cli.md").read_text()
    assert re.search(rf"^#+ `?motley {re.escape(name)}\b", reference, re.MULTILINE), (
        f"docs/reference/cli.md has no section `motley {name}`"
    )


@pytest.mark.parametrize("path", sorted((REPO / "src/motley/cli").glob("[a-z]*.py")))
def test_every_command_module_is_in_the_table(path):
    offers_a_command = re.search(r"^def command\(", path.read_text(), re.MULTILINE)
    listed = {module for module, _ in COMMANDS.values()}
    assert not offers_a_command or path.stem in listed


def requirement_rows() -> list[tuple[str, ...]]:
    lines = (REPO / "docs/requirements.md").read_text().splitlines()
    return [
        tuple(cell.strip() for cell in line.strip("|").split("|"))
        for line in lines
        if re.match(r"\| [FG]?\d+ \|", line)
    ]


def test_the_requirements_table_has_every_number_once():
    numbers = [row[0] for row in requirement_rows()]
    wanted = [str(n) for n in range(1, 306)]
    wanted += [f"F{n}" for n in range(1, 23)] + [f"G{n}" for n in range(1, 17)]
    assert numbers == wanted


@pytest.mark.parametrize("row", requirement_rows(), ids=lambda row: row[0])
def test_the_requirements_table_names_files_that_exist(row):
    for path in re.findall(r"`([\w./-]+\.(?:py|md|yaml))`", " ".join(row[2:])):
        candidates = [REPO / path, REPO / "src/motley" / path]
        assert any(c.exists() for c in candidates), f"requirement {row[0]}: {path} does not exist"
