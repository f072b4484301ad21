"""Warnings of plugins about objects, which become events where a scheduler runs.

Plugins are made before there is a connection to write events with, and work without one in replays
and what-if questions; what they say then is only logged.
"""

from collections.abc import Callable

from motley.api.views.base import Object
from motley.lib import journal

log = journal.get(__name__)


class Notices:
    """Takes warnings and passes them to whoever listens; never waits, never fails."""

    def __init__(self) -> None:
        self.listener: Callable[[Object | None, str, str], None] | None = None

    def warn(self, about: Object | None, reason: str, message: str) -> None:
        """Say that something about an object is wrong; None: about the scheduler itself."""
        if self.listener is not None:
            self.listener(about, reason, message)
        else:
            name = about.metadata.name if about is not None else ""
            log.warning("plugin warns", about=name, reason=reason, text=message)
