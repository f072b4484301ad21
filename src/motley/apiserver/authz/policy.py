"""Roles and bindings as one index from subjects to rules: what RBAC decides from.

Roles and bindings come and go one by one; a question comes with every request. So a change does
the work: bindings are filed under each of their subjects, and what a user may is read off without
looking at anybody else's.

Invariant: a binding is filed under exactly the subjects it has now.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from motley.api import codec
from motley.apiserver.attributes import Attributes
from motley.apiserver.authn.user import User, service_account_user
from motley.apiserver.authz.rules import Rule


class RoleRef(NamedTuple):
    """Where a binding's rules are: a Role of this namespace, or a ClusterRole."""

    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Grant:
    """One subject of one binding."""

    role: RoleRef
    why: str
    """As reviews give it: which binding, of which role, to whom."""


class Roles:
    """The rules of every Role, or of every ClusterRole."""

    def __init__(self) -> None:
        self._rules: dict[tuple[str, str], tuple[Rule, ...]] = {}

    def clear(self) -> None:
        """See `Index`."""
        self._rules.clear()

    def put(self, key: str, about: Attributes, value: bytes) -> None:
        """See `Index`."""
        role = codec.decode(value)
        rules = tuple(Rule.of(rule) for rule in role.get("rules") or ())
        self._rules[about.namespace, about.name] = rules

    def remove(self, key: str, about: Attributes) -> None:
        """See `Index`."""
        self._rules.pop((about.namespace, about.name), None)

    def get(self, namespace: str, name: str) -> tuple[Rule, ...] | None:
        """The rules of one role; None when there is no such role."""
        return self._rules.get((namespace, name))


class Bindings:
    """Every RoleBinding, or every ClusterRoleBinding, filed under its subjects."""

    def __init__(self) -> None:
        self._users: dict[tuple[str, str], dict[str, Grant]] = {}
        self._groups: dict[tuple[str, str], dict[str, Grant]] = {}
        self._filed: dict[str, list[tuple[dict[tuple[str, str], dict[str, Grant]], str, str]]] = {}

    def clear(self) -> None:
        """See `Index`."""
        for index in (self._users, self._groups, self._filed):
            index.clear()

    def put(self, key: str, about: Attributes, value: bytes) -> None:
        """See `Index`."""
        self.remove(key, about)
        binding = codec.decode(value)
        reference = binding.get("roleRef") or {}
        kind = str(reference.get("kind", ""))
        namespace = about.namespace if kind == "Role" else ""
        role = RoleRef(kind, namespace, str(reference.get("name", "")))
        for subject in binding.get("subjects") or ():
            self._file(key, about, role, subject)

    def remove(self, key: str, about: Attributes) -> None:
        """See `Index`."""
        for index, namespace, subject in self._filed.pop(key, ()):
            grants = index.get((namespace, subject))
            if grants is not None:
                grants.pop(key, None)
                if not grants:
                    del index[namespace, subject]

    def of(self, user: User, namespace: str) -> Iterator[Grant]:
        """What is granted to this user here, by name and by group."""
        if found := self._users.get((namespace, user.name)):
            yield from found.values()
        for group in user.groups:
            if found := self._groups.get((namespace, group)):
                yield from found.values()

    def _file(self, key: str, about: Attributes, role: RoleRef, subject: Mapping[str, Any]) -> None:
        kind, name = str(subject.get("kind", "")), str(subject.get("name", ""))
        shown = name
        index = self._groups if kind == "Group" else self._users
        if kind == "ServiceAccount":
            home = str(subject.get("namespace") or about.namespace)
            name, shown = service_account_user(home, name), f"{name}/{home}"
        if about.namespace:
            binding = f'RoleBinding "{about.name}/{about.namespace}"'
        else:
            binding = f'ClusterRoleBinding "{about.name}"'
        why = f'RBAC: allowed by {binding} of {role.kind} "{role.name}" to {kind} "{shown}"'
        index.setdefault((about.namespace, name), {})[key] = Grant(role, why)
        self._filed.setdefault(key, []).append((index, about.namespace, name))
