"""The last word before a write: plugins complete the object or refuse it.

    mutate (in order, again when a webhook asks for it) → allocate → the server's own validation
    → validate (in order) → commit → settle

Which plugins a write meets is decided once per kind, verb and subresource, from their interests.
A plugin that reserves something (a ClusterIP, a share of a quota) hears afterwards whether the
write happened. A dry run goes the whole way and counts as not written.

Invariant: nothing alters the object after the first `validate`.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from motley.api import scheme
from motley.apiserver.admission.change import Change, Interest, Plugin, interest
from motley.store.contract import Revision

__all__ = ["Admission", "Change", "Interest", "Plugin", "interest"]

Validate = Callable[[], Awaitable[None]]


@dataclass(slots=True)
class _Path:
    """Whom one sort of write meets."""

    mutate: list[Any] = field(default_factory=list)
    allocate: list[Any] = field(default_factory=list)
    validate: list[Any] = field(default_factory=list)


class Admission:
    """The plugins, in order.

    `plugins` mutate, validate or both. `allocators` mutate too, but once, when the object is
    otherwise complete: what they give out must not depend on who else wants to be asked again.
    """

    def __init__(
        self,
        plugins: Sequence[Any],
        allocators: Sequence[Any] = (),
        close: Callable[[], Awaitable[None]] | None = None,
        wrote: Callable[[Revision], None] | None = None,
    ) -> None:
        self._plugins = plugins
        self._allocators = allocators
        self._close = close
        self._wrote = wrote
        self._paths: dict[tuple[scheme.Kind, str, str], _Path] = {}

    async def aclose(self) -> None:
        """Let go of connections to webhooks."""
        if self._close is not None:
            await self._close()

    def wrote(self, revision: Revision) -> None:
        """The server has committed something that plugins must not overlook from now on."""
        if self._wrote is not None:
            self._wrote(revision)

    def path(self, change: Change) -> _Path:
        """Whom this write meets; remembered."""
        key = (change.kind, change.verb, change.subresource)
        found = self._paths.get(key)
        if found is None:
            found = self._paths[key] = self._find(*key)
        return found

    def _find(self, kind: scheme.Kind, verb: str, subresource: str) -> _Path:
        def concerned(plugins: Sequence[Any], method: str) -> list[Any]:
            return [
                plugin
                for plugin in plugins
                if hasattr(plugin, method)
                and any(i.covers(verb, kind, subresource) for i in plugin.interests)
            ]

        return _Path(
            concerned(self._plugins, "mutate"),
            concerned(self._allocators, "mutate"),
            concerned([*self._plugins, *self._allocators], "validate"),
        )

    @asynccontextmanager
    async def admitted(self, change: Change) -> AsyncIterator[Validate]:
        """Complete the object; let the body validate, call what it is given, and write.

        The body failing, or a dry run, counts as not written.
        """
        path = self.path(change)
        asked: list[Any] = []
        committed = False

        async def validate() -> None:
            for plugin in path.validate:
                await plugin.validate(change)
                asked.append(plugin)

        try:
            await self._mutate(path, change, asked)
            yield validate
            committed = not change.dry_run
        finally:
            for plugin in dict.fromkeys(asked):
                if hasattr(plugin, "settle"):
                    plugin.settle(change, committed=committed)

    @staticmethod
    async def _mutate(path: _Path, change: Change, asked: list[Any]) -> None:
        again = False
        for plugin in path.mutate:
            again = bool(await plugin.mutate(change)) or again
            asked.append(plugin)
        if again:  # a webhook changed what earlier plugins saw, as it is now is how they see it
            for plugin in path.mutate:
                await plugin.mutate(change)
        for plugin in path.allocate:
            await plugin.mutate(change)
            asked.append(plugin)
