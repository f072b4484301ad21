"""Role-based access control: what roles and bindings say about a user and a request.

The answer to a question is remembered until a role or a binding changes, so that the same client
asking the same kind of thing again costs one look-up. What is remembered has no object's name in
it: it is either a yes, or the few names that a rule is limited to.

Invariant: with nothing granted, nothing is allowed.
"""

from collections.abc import Iterator, Mapping
from typing import Protocol

from motley.api import scheme
from motley.apiserver.attributes import Attributes
from motley.apiserver.authn.user import User
from motley.apiserver.authz.follower import Follower
from motley.apiserver.authz.policy import Bindings, Grant, Roles
from motley.apiserver.authz.rules import Rule
from motley.store.watchcache import WatchCache

GROUP = "rbac.authorization.k8s.io"
# Enough for every client of a large cluster; more means somebody walks through namespaces.
_REMEMBERED = 50_000

Answer = tuple[str, Mapping[str, str]]
"""Why everything of the kind is allowed (empty: it is not), and why these names are."""
_Question = tuple[str, object, str, str, str, str, str]
_NOTHING: Answer = ("", {})


class Caches(Protocol):
    """Where roles and bindings are read."""

    def __getitem__(self, kind: scheme.Kind) -> WatchCache[Attributes]: ...


def kind(plural: str, group: str = GROUP) -> scheme.Kind:
    """A kind that is always served: of RBAC, when nothing else is said."""
    found = scheme.resource(group, "v1", plural)
    assert found is not None
    return found


class Rbac:
    """Answers from the stored roles and bindings."""

    def __init__(self, caches: Caches) -> None:
        self._roles, self._cluster_roles = Roles(), Roles()
        self._bindings, self._cluster_bindings = Bindings(), Bindings()
        self._followers = [
            Follower(caches[kind("roles")], self._roles),
            Follower(caches[kind("clusterroles")], self._cluster_roles),
            Follower(caches[kind("rolebindings")], self._bindings),
            Follower(caches[kind("clusterrolebindings")], self._cluster_bindings),
        ]
        self._answers: dict[_Question, Answer] = {}
        self._path_answers: dict[tuple[str, object, str, str], str] = {}

    def allows(
        self,
        user: User,
        verb: str,
        group: str,
        resource: str,
        subresource: str,
        namespace: str,
        name: str,
    ) -> str:
        """Why the user may; empty when nothing says so."""
        self._catch_up()
        question = (user.name, user.groups, verb, group, resource, subresource, namespace)
        answer = self._answers.get(question)
        if answer is None:
            answer = self._answer(user, verb, group, resource, subresource, namespace)
            if len(self._answers) >= _REMEMBERED:
                self._answers.clear()
            self._answers[question] = answer
        everything, names = answer
        return everything or (names.get(name, "") if name else "")

    def allows_path(self, user: User, verb: str, path: str) -> str:
        """Why the user may; empty when nothing says so. Bindings of a namespace grant no paths."""
        self._catch_up()
        question = (user.name, user.groups, verb, path)
        why = self._path_answers.get(question)
        if why is None:
            granted = self._granted(user, "")
            why = next((g.why for g, rule in granted if rule.allows_path(verb, path)), "")
            if len(self._path_answers) >= _REMEMBERED:
                self._path_answers.clear()
            self._path_answers[question] = why
        return why

    def rules_of(self, user: User, namespace: str) -> list[Rule]:
        """Everything the user may in a namespace; only cluster-wide rights when it is empty."""
        self._catch_up()
        return [rule for _, rule in self._granted(user, namespace)]

    def rules_in_role(self, role_kind: str, namespace: str, name: str) -> tuple[Rule, ...] | None:
        """The rules a binding would refer to; None when there is no such role."""
        self._catch_up()
        if role_kind == "Role":
            return self._roles.get(namespace, name)
        return self._cluster_roles.get("", name)

    def _catch_up(self) -> None:
        changed = False
        for follower in self._followers:
            changed |= follower.catch_up()
        if changed:
            self._answers.clear()
            self._path_answers.clear()

    def _answer(
        self, user: User, verb: str, group: str, resource: str, subresource: str, namespace: str
    ) -> Answer:
        names: dict[str, str] = {}
        for grant, rule in self._granted(user, namespace):
            if not rule.covers_resource(verb, group, resource, subresource):
                continue
            if not rule.names:
                return grant.why, {}
            for name in rule.names:
                names.setdefault(name, grant.why)
        return ("", names) if names else _NOTHING

    def _granted(self, user: User, namespace: str) -> Iterator[tuple[Grant, Rule]]:
        for grant in self._cluster_bindings.of(user, ""):
            for rule in self._rules_of(grant):
                yield grant, rule
        if namespace:
            for grant in self._bindings.of(user, namespace):
                for rule in self._rules_of(grant):
                    yield grant, rule

    def _rules_of(self, grant: Grant) -> tuple[Rule, ...]:
        role = grant.role
        if role.kind == "Role":
            return self._roles.get(role.namespace, role.name) or ()
        return self._cluster_roles.get("", role.name) or ()
