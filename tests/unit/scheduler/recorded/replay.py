"""A recording, taken again from beginning to end."""

from collections.abc import Iterable
from typing import Any

from . import preemptions, recordings, sequences
from .agreement import Agreement


def replay(clusters: Iterable[dict[str, Any]], agreement: Agreement | None = None) -> Agreement:
    """Compare all clusters, of either form."""
    agreement = agreement or Agreement()
    for recorded in clusters:
        agreement.unknown.update(recordings.not_understood(recorded))
        if recordings.is_preemption(recorded):
            preemptions.replay(recorded, agreement)
        else:
            sequences.replay(recorded, agreement)
    return agreement
