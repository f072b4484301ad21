"""The last word before a write: each plugin may complete the object or refuse it.

They run in a fixed order on the defaulted object, before validation. A plugin that reserves
something (a ClusterIP) hears afterwards whether the write happened.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from motley.apiserver.admission.change import Change, Plugin

__all__ = ["Admission", "Change", "Plugin"]


class Admission:
    """The plugins, in order."""

    def __init__(self, plugins: Sequence[Plugin]) -> None:
        self._plugins = plugins

    @asynccontextmanager
    async def admitted(self, change: Change) -> AsyncIterator[None]:
        """Admit the change, let the body write it, then settle.

        The body failing, or a dry run, counts as not written.
        """
        passed: list[Plugin] = []
        committed = False
        try:
            for plugin in self._plugins:
                await plugin.admit(change)
                passed.append(plugin)
            yield
            committed = not change.dry_run
        finally:
            for plugin in passed:
                plugin.settle(change, committed=committed)
