"""The last word before a write: plugins complete the object or refuse it.

    mutate (in order, again when a webhook asks for it) → allocate → the server's own validation
    → validate (in order) → commit → settle

Which plugins a write meets is decided once per kind, verb and subresource, from their interests.
A plugin that reserves something (a ClusterIP, a share of a quota) hears afterwards whether the
write happened. A dry run goes the whole way and counts as not written.

Invariant: nothing alters the object after the first `validate`.
"""

from collections.abc import Awaitable, Callable, Sequence
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
    settling: frozenset[Any] = frozenset()  # those among them that reserve something


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
        self._paths: dict[tuple[str, str, str, str], _Path] = {}

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
        kind = change.kind
        key = (kind.group, kind.plural, change.verb, change.subresource)
        found = self._paths.get(key)
        if found is None:
            found = self._paths[key] = self._find(kind, change.verb, change.subresource)
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
            frozenset(concerned([*self._plugins, *self._allocators], "settle")),
        )

    def admitted(self, change: Change) -> "_Admitted":
        """Complete the object; let the body validate, call what it is given, and write.

        The body failing, or a dry run, counts as not written.
        """
        return _Admitted(self.path(change), change)


class _Admitted:
    """One write on its way. A class, because every write would pay for a generator's upkeep."""

    __slots__ = ("_asked", "_change", "_path")

    def __init__(self, path: _Path, change: Change) -> None:
        self._path = path
        self._change = change
        self._asked: list[Any] = []  # those that want to hear how it went

    async def __aenter__(self) -> Validate:
        try:
            await self._mutate()
        except BaseException:
            self._settle(committed=False)
            raise
        return self._validate

    async def __aexit__(self, failed: type[BaseException] | None, *_: object) -> None:
        self._settle(committed=failed is None and not self._change.dry_run)

    def _settle(self, *, committed: bool) -> None:
        for plugin in dict.fromkeys(self._asked):
            plugin.settle(self._change, committed=committed)

    async def _validate(self) -> None:
        path, change = self._path, self._change
        for plugin in path.validate:
            await plugin.validate(change)
            if plugin in path.settling:
                self._asked.append(plugin)

    async def _mutate(self) -> None:
        path, change = self._path, self._change
        again = False
        for plugin in path.mutate:
            again = bool(await plugin.mutate(change)) or again
            if plugin in path.settling:
                self._asked.append(plugin)
        if again:  # a webhook changed what earlier plugins saw, as it is now is how they see it
            for plugin in path.mutate:
                await plugin.mutate(change)
        for plugin in path.allocate:
            await plugin.mutate(change)
            if plugin in path.settling:
                self._asked.append(plugin)
