"""Finding recordings and reading them, saying what in them is not understood."""

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

REPO = Path(__file__).parents[4]

# What a line may hold. Anything else might change what the recorded scheduler decided.
SEQUENCE = frozenset({"cluster", "nodes", "namespaces", "placed_first", "decisions"})
DECISION = frozenset({"pod", "node", "feasible", "scores", "total", "message"})
PREEMPTION = frozenset(
    {"cluster", "nodes", "namespaces", "running", "budgets", "preemptor", "node", "victims"}
    | {"message"}
)


def directory() -> Path:
    """Where large recordings are: `MOTLEY_GOLDEN`, else beside the checkout."""
    return Path(os.environ.get("MOTLEY_GOLDEN", REPO.parent / "shared" / "golden"))


def found(pattern: str) -> list[Path]:
    """The recordings there, if any."""
    return sorted(directory().glob(pattern))


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The clusters of a file, packed or not."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        for line in lines:
            if line.strip():
                yield json.loads(line)


def is_preemption(recorded: dict[str, Any]) -> bool:
    """Which of the two forms a cluster has; ValueError: neither."""
    if "preemptor" in recorded:
        return True
    if "decisions" in recorded:
        return False
    raise ValueError(f"neither decisions nor a preemptor among {sorted(recorded)}")


def not_understood(recorded: dict[str, Any]) -> Iterator[str]:
    """Fields that mean nothing here."""
    known = PREEMPTION if is_preemption(recorded) else SEQUENCE
    yield from (f"field {name}" for name in recorded.keys() - known)
    for decision in recorded.get("decisions", ()):
        yield from (f"field decisions.{name}" for name in decision.keys() - DECISION)
