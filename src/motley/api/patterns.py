"""Regular expressions as Kubernetes means them: RE2's syntax, in linear time.

Python's own would read some patterns differently, and try a few of them for ever on a text of
thirty characters: whoever may write an object could stop the server.

Invariant: a search takes time in proportion to the text, whatever the pattern.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

# Go says the same things with other words.
_GO = {
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
}


class PatternError(ValueError):
    """No pattern, told as Go tells it."""


class Pattern:
    """A compiled pattern."""

    __slots__ = ("_compiled",)

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled

    def is_in(self, text: str) -> bool:
        """Whether it is found anywhere in a text."""
        return self._compiled.search(text) is not None

    def found(self, text: str) -> Iterator[str]:
        """Every match, from left to right."""
        for match in self._compiled.finditer(text):
            yield str(match[0])


@lru_cache(maxsize=1024)
def compiled(text: str) -> Pattern:
    """Compile; texts repeat, so the result is remembered. Raises PatternError."""
    import re2  # here: components that only read objects need none

    options = re2.Options()
    options.log_errors = False  # what is wrong is told to who wrote the pattern
    try:
        return Pattern(re2.compile(text, options=options))
    except re2.error as error:
        said = error.args[0]
        problem = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
        what, _, where = problem.partition(": ")
        if what == "trailing \\":
            what, where = "trailing backslash at end of expression", ""
        raise PatternError(f"error parsing regexp: {_GO.get(what, what)}: `{where}`") from None
