"""What admission is asked about, and what a plugin is."""

from dataclasses import dataclass, field
from typing import Any, Protocol

from motley.api import scheme

Document = dict[str, Any]


@dataclass(slots=True)
class Change:
    """A write that is about to happen. Plugins may alter `new`; `old` is never to be touched."""

    verb: str  # create, update, delete
    kind: scheme.Kind
    namespace: str
    name: str
    new: Document | None  # None: the object goes away
    old: Document | None  # None: it did not exist
    subresource: str = ""
    dry_run: bool = False
    warnings: list[str] = field(default_factory=list)
    held: list[str] = field(default_factory=list)  # what a plugin reserved until it is settled

    def is_of(self, group: str, plural: str) -> bool:
        """Whether the change is on the main resource of this kind."""
        return self.kind.plural == plural and self.kind.group == group and not self.subresource


class Plugin(Protocol):
    """One rule. `settle` follows every `admit` that returned, whatever happened in between."""

    async def admit(self, change: Change) -> None:
        """Alter the new object, or raise an `ApiError` to refuse the change."""

    def settle(self, change: Change, *, committed: bool) -> None:
        """The change was written, or it was not: keep or give back what was reserved for it."""
