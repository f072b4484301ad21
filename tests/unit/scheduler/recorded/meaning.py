"""What an event's text says: how many nodes each reason cost, and what preemption found."""

import re
from collections import Counter
from typing import NamedTuple

_AVAILABLE = re.compile(r"^0/(\d+) nodes are available: ?")
_REASON = re.compile(r"^(\d+) (.+)$")
_MORE = re.compile(r", (?=\d+ )")


class Meaning(NamedTuple):
    """Of one half of the text."""

    nodes: str
    counts: tuple[tuple[str, int], ...]
    said: str  # what is not a count

    @classmethod
    def of(cls, text: str) -> "Meaning":
        """Take a half apart; counts may come in any order."""
        available = _AVAILABLE.match(text)
        rest = text[available.end() :] if available else text
        counts: Counter[str] = Counter()
        said = []
        for part in _MORE.split(rest.strip(" .")):
            reason = _REASON.match(part)
            if reason:
                counts[reason[2].strip(" .")] += int(reason[1])
            elif part:
                said.append(part.strip(" ."))
        return cls(
            available[1] if available else "", tuple(sorted(counts.items())), "; ".join(said)
        )


def of(message: str) -> tuple[Meaning, Meaning]:
    """Why no node fits, and what preemption said."""
    first, _, preemption = message.partition("preemption:")
    # What the recorded scheduler's plugin for devices adds; there are none here.
    first = re.sub(r"(?:\bno|\bstill not schedulable, no) new claims to deallocate,?", "", first)
    return Meaning.of(first.strip(" .,")), Meaning.of(preemption.strip())
