"""Visible progress: one line per step, with the seconds it took.

On a terminal a line appears when the step begins and is completed when it ends; elsewhere (a log, a
pipe) only completed lines are written.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from motley.lib import clock
from motley.ops.failure import Failure


class Progress:
    """Steps of one command."""

    def __init__(self, out: TextIO | None = None, source: clock.Clock = clock.SYSTEM) -> None:
        self._out = out or sys.stdout
        self._clock = source
        self._live = self._out.isatty()
        plain = "utf" not in (self._out.encoding or "").lower()
        self._done, self._failed = ("ok ", "!! ") if plain else ("✓", "✗")
        self._pending = ""

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        """A step; its line ends with the seconds it took, or with a mark that it failed."""
        begun = self._clock.monotonic()
        self._pending = text
        self._show(f"  {text} …")
        try:
            yield
        except BaseException:
            self._line(f"{self._failed} {text}")
            raise
        finally:
            self._pending = ""
        self._line(f"{self._done} {text}  {self._clock.monotonic() - begun:.1f} s")

    def say(self, text: str) -> None:
        """A line inside a step or between steps."""
        self._line(f"  {text}")
        if self._pending:
            self._show(f"  {self._pending} …")

    def blame(self, failure: Failure) -> None:
        """A failure and what to do about it."""
        self._line(f"{self._failed} {failure.message}")
        for line in failure.advice.splitlines():
            self._line(f"  {line}")

    def _show(self, text: str) -> None:
        if self._live:
            self._out.write(f"\r\x1b[K{text}")
            self._out.flush()

    def _line(self, text: str) -> None:
        self._out.write(f"\r\x1b[K{text}\n" if self._live else f"{text}\n")
        self._out.flush()
