import subprocess
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[3] / "tools" / "check_commit_message"


def accepted(tmp_path, text):
    file = tmp_path / "message"
    file.write_text(text)
    return subprocess.run([TOOL, file], capture_output=True).returncode == 0


@pytest.mark.parametrize(
    "text",
    [
        "feat: scale to zero\n",
        "fix: a watch survives a restart\n\nBecause it must.\n",
        "# a comment\nbuild: pin uv\n",
        "Merge branch 'x'\n",
    ],
)
def test_messages_with_a_type_are_accepted(tmp_path, text):
    assert accepted(tmp_path, text)


@pytest.mark.parametrize(
    "text",
    [
        "scale to zero\n",
        "feature: scale to zero\n",
        "feat:scale\n",
        "feat: \n",
        "feat: ends with a stop.\n",
        "feat: no empty line\nsecond\n",
        f"feat: {'x' * 100}\n",
        "",
    ],
)
def test_other_messages_are_refused(tmp_path, text):
    assert not accepted(tmp_path, text)
