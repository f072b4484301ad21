import io

import pytest

from motley.ops.failure import Failure
from motley.ops.progress import Progress


class Ticking:
    def __init__(self):
        self._now = 0.0

    def now(self):
        return self._now

    def monotonic(self):
        self._now += 1.25
        return self._now


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


class Pipe(Terminal):
    def isatty(self):
        return False


def test_a_pipe_gets_completed_lines_only():
    out = Pipe()
    progress = Progress(out, Ticking())
    with progress.step("images"):
        progress.say("building")
    assert out.getvalue() == "  building\n✓ images  1.2 s\n"


def test_a_terminal_sees_the_step_while_it_runs():
    out = Terminal()
    with Progress(out, Ticking()).step("images"):
        assert out.getvalue().endswith("images …")
    assert out.getvalue().endswith("✓ images  1.2 s\n")


def test_a_failed_step_is_marked_and_the_failure_goes_on():
    out = Pipe()
    progress = Progress(out, Ticking())
    with pytest.raises(Failure) as caught, progress.step("node"):
        raise Failure("no", "do this\nthen that")
    progress.blame(caught.value)
    assert out.getvalue() == "✗ node\n✗ no\n  do this\n  then that\n"


def test_a_terminal_without_utf_8_gets_plain_marks():
    out = Pipe()
    out.encoding = "ascii"
    with Progress(out, Ticking()).step("x"):
        pass
    assert out.getvalue().isascii()
