"""What admission is asked about, and what a plugin is.

A plugin says in data which writes it wants to see, so that a write is shown only to those whom
it concerns: a lease renewal meets none of the pod plugins.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from motley.api import scheme, status
from motley.apiserver.authn.user import REQUESTER, User
from motley.store.contract import Op

Document = dict[str, Any]

_OPERATIONS = {"create": "CREATE", "update": "UPDATE", "delete": "DELETE", "connect": "CONNECT"}


@dataclass(slots=True)
class Change:
    """A write that is about to happen. Plugins may alter `new`; `old` is never to be touched."""

    verb: str  # create, update, delete; connect: nothing is written
    kind: scheme.Kind
    namespace: str
    name: str
    new: Document | None  # None: the object goes away; connect: what was asked for
    old: Document | None  # None: it did not exist
    subresource: str = ""
    dry_run: bool = False
    warnings: list[str] = field(default_factory=list)
    also: list[Op] = field(default_factory=list)  # written in the same transaction, or not at all
    notes: dict[str, Any] = field(default_factory=dict)  # what a plugin remembers until then
    user: User | None = field(default_factory=REQUESTER.get)  # None: the server itself

    def is_of(self, group: str, plural: str) -> bool:
        """Whether the change is on the main resource of this kind."""
        return self.kind.plural == plural and self.kind.group == group and not self.subresource

    @property
    def operation(self) -> str:
        """The verb as webhooks and policies spell it."""
        return _OPERATIONS[self.verb]

    @property
    def spec(self) -> Document | None:
        """The new object's spec, when it is one; validation speaks about what is not."""
        spec = (self.new or {}).get("spec")
        return spec if isinstance(spec, dict) else None

    def forbidden(self, problem: str) -> status.Forbidden:
        """The refusal of this change."""
        return status.Forbidden(
            f'{self.kind.qualified} "{self.name}" is forbidden: {problem}', details=self.details
        )

    @property
    def details(self) -> Document:
        """Which object, as a `Status` says it."""
        every = {"name": self.name, "group": self.kind.group, "kind": self.kind.plural}
        return {k: v for k, v in every.items() if v}


class Interest(NamedTuple):
    """Some writes: of these verbs, on these resources, on the object itself or a subresource."""

    verbs: frozenset[str]
    resources: frozenset[tuple[str, str]] | None = None  # (group, plural); None: every kind
    subresources: frozenset[str] | None = frozenset({""})  # None: all, and the object itself

    def covers(self, verb: str, kind: scheme.Kind, subresource: str) -> bool:
        """Whether a write is among them."""
        return (
            verb in self.verbs
            and (self.resources is None or (kind.group, kind.plural) in self.resources)
            and (self.subresources is None or subresource in self.subresources)
        )


def interest(verbs: str, *resources: str, subresources: str = "") -> Interest:
    """`interest("create update", "pods", "apps/deployments")`: an `Interest` as one reads it."""
    pairs = []
    for resource in resources:
        group, _, plural = resource.rpartition("/")
        pairs.append((group, plural))
    return Interest(
        frozenset(verbs.split()),
        frozenset(pairs) if pairs else None,
        None if subresources == "*" else frozenset(subresources.split() or [""]),
    )


class Plugin(Protocol):
    """One rule; which of the three below it has decides when it is asked."""

    name: str
    interests: Sequence[Interest]


class Mutating(Plugin, Protocol):
    """Completes objects. May be asked twice about one write, so what is done stays done."""

    async def mutate(self, change: Change) -> None:
        """Alter the new object, or raise an `ApiError` to refuse the change."""


class Validating(Plugin, Protocol):
    """Judges finished objects."""

    async def validate(self, change: Change) -> None:
        """Raise an `ApiError` to refuse the change; the object is not to be touched any more."""


class Settling(Plugin, Protocol):
    """Reserves something for a write. `settle` follows every call that returned."""

    def settle(self, change: Change, *, committed: bool) -> None:
        """The change was written, or it was not: keep or give back what was reserved for it."""
